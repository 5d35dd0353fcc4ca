// ThoughtBudget: so many tokens of thoughts; when they are spent, what ends a thought is written
// for the model. Of one text; its compute thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace larder::serving::inline scheduling {

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
  // The token that followed, whoever chose it.
  void Accept(TokenId);

 private:
  enum class State : uint8_t { kBefore, kOpen, kClosing, kDone };
  void Open();

  const ThoughtLimit limit_;
  const model::Tokenizer& tokenizer_;
  State state_ = State::kBefore;
  std::string text_;   // kBefore: all; kOpen: its end, as long as the longest end
  int64_t spent_ = 0;  // kOpen: tokens
  size_t closed_ = 0;  // kClosing: so many of its tokens were written
};

}  // namespace larder::serving::scheduling
