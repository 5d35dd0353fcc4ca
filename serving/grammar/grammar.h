// Grammar: what a generated text must match, compiled. Immutable; any thread may use it, and all
// requests with the same text share one.
#pragma once

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string_view>
#include <utility>

#include "serving/grammar/nfa.h"

namespace larder::serving::inline grammar {

class Grammar {
 public:
  // For any text these functions stay within the thread's Work (base/work.h), or one of their own,
  // in time and memory. They throw an Error of one line with line:column, or with the path in the
  // schema.
  static std::shared_ptr<const Grammar> FromGbnf(std::string_view text);
  static std::shared_ptr<const Grammar> FromJsonSchema(const nlohmann::ordered_json& schema);
  // A text that matches this regular expression of ECMAScript, as a whole.
  static std::shared_ptr<const Grammar> FromRegex(std::string_view pattern);

  explicit Grammar(Nfa nfa) : nfa_(std::move(nfa)) {}
  const Nfa& nfa() const { return nfa_; }
  size_t bytes() const;  // memory, about

 private:
  Nfa nfa_;
};

}  // namespace larder::serving::grammar
