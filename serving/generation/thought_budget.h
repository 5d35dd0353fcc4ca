// ThoughtBudget: a limit on the tokens of thoughts. When they are spent, the end of the thought is
// written for the model. One per text; compute thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace larder::serving::inline generation {

using model::TokenId;

// What a generation may think.
struct ThoughtLimit {
  int64_t tokens = -1;             // -1: not limited
  bool open = false;               // the prompt ends inside a thought
  std::vector<std::string> begin;  // texts that open a thought at the start of an answer
  std::vector<std::string> end;    // texts that end it
  std::vector<TokenId> closing;    // what is written when the tokens are spent
};

class ThoughtBudget {
 public:
  ThoughtBudget(ThoughtLimit limit, const model::Tokenizer& tokenizer);

  // The token that has to follow; nullopt: the model chooses.
  std::optional<TokenId> Next() const;
  // Tells it the token that followed, whether it or the model chose that.
  void Accept(TokenId);

 private:
  enum class State : uint8_t { kBefore, kOpen, kClosing, kDone };
  void Open();

  const ThoughtLimit limit_;
  const model::Tokenizer& tokenizer_;
  State state_ = State::kBefore;
  std::string text_;   // kBefore: the whole text; kOpen: the last bytes, as many as the longest end
                       // has
  int64_t spent_ = 0;  // kOpen: tokens spent
  size_t closed_ = 0;  // kClosing: how many of its tokens were written
};

}  // namespace larder::serving::generation
