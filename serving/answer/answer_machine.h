// AnswerParser::Machine: the part of AnswerParser that reads the text of one format, or one kind of
// formats.
#pragma once

#include <string_view>
#include <vector>

#include "serving/answer/answer_parser.h"
#include "serving/answer/delta_sink.h"

namespace larder::serving::inline answer {

class AnswerParser::Machine {
 public:
  explicit Machine(const AnswerParserOptions& options)
      : sink_(options.format, options.id_seed, options.calls_before) {}
  virtual ~Machine() = default;

  virtual void Add(std::string_view text) = 0;
  virtual void Finish() = 0;
  std::vector<AnswerDelta> Take() { return sink_.Take(); }
  bool called() const { return sink_.calls() > 0; }

 protected:
  DeltaSink sink_;
};

}  // namespace larder::serving::answer
