// JinjaTemplate: a chat template's Jinja, parsed once, rendered with JSON variables. Immutable and
// thread-safe. It speaks the part of Jinja2 that chat templates use, as transformers sets it up;
// README.md says what that is. Templates come from model files, which may be hostile: JinjaLimits
// bounds what they use.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "model/jinja_language/limits.h"
#include "model/tokenizer/text_piece.h"

namespace larder::model::inline jinja {

struct JinjaVariables {
  std::vector<std::pair<std::string, const nlohmann::ordered_json*>> data;  // must outlive the call
  std::vector<std::pair<std::string, std::string>> trusted;  // text of the model itself (bos_token)
  // Says which strings of the data count as the template's own text. Called with the key of the
  // object that holds the string, and the string.
  bool (*is_trusted)(std::string_view key, std::string_view value) = nullptr;
  int64_t now_s = 0;        // what strftime_now prints, in the local time zone
  uint64_t most_steps = 0;  // a lower limit than the template's; 0: the template's
};

class JinjaTemplate {
 public:
  // `name` is for messages. Throws Error: "NAME: line N: what is wrong".
  static std::shared_ptr<const JinjaTemplate> Parse(std::string source, std::string name,
                                                    JinjaLimits limits = {});
  ~JinjaTemplate();
  JinjaTemplate(const JinjaTemplate&) = delete;
  JinjaTemplate& operator=(const JinjaTemplate&) = delete;

  // Pieces of alternating origin. Throws Error, as Parse: the text of raise_exception, wrong types,
  // limits.
  std::vector<TextPiece> Render(const JinjaVariables&) const;

  const std::string& source() const { return source_; }
  bool Mentions(std::string_view name) const;  // a variable, attribute or argument of that name

 private:
  struct Parsed;

  JinjaTemplate(std::string source, std::string name, JinjaLimits limits);

  std::string source_, name_;
  JinjaLimits limits_;
  std::unique_ptr<Parsed> parsed_;
};

}  // namespace larder::model::jinja
