// DeltaSink: collects the deltas of one AnswerParser; neighbours of one kind are one.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "serving/answer/answer_parser.h"
#include "serving/answer/call_machine.h"

namespace larder::serving::inline answer {

class DeltaSink final : public CallSink {
 public:
  DeltaSink(AnswerFormat format, uint64_t id_seed, size_t calls_before)
      : format_(format), id_seed_(id_seed), calls_before_(calls_before) {}

  void Begin(std::string_view name, std::string_view id) override;
  void Arguments(std::string_view json) override { Add(AnswerDelta::Kind::kArguments, json); }
  void End() override;
  void Content(std::string_view text) { Add(AnswerDelta::Kind::kContent, text); }
  void Reasoning(std::string_view text) { Add(AnswerDelta::Kind::kReasoning, text); }

  std::vector<AnswerDelta> Take() { return std::exchange(deltas_, {}); }
  size_t calls() const { return calls_; }  // calls that have begun
  bool open() const { return open_; }      // the last call has not ended
  size_t writes() const { return writes_; }

 private:
  void Add(AnswerDelta::Kind kind, std::string_view text);

  AnswerFormat format_;
  uint64_t id_seed_;
  size_t calls_before_;
  size_t calls_ = 0, writes_ = 0;
  bool open_ = false;
  std::vector<AnswerDelta> deltas_;
};

}  // namespace larder::serving::answer
