// Constraint: what one generated text may go on with. It takes the text's tokens and has the mask
// of the next one. With triggers the text is free up to the first of these; what is behind it must
// match the grammar. It may be copied. One thread at a time, which has the Turn of its Automaton.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "serving/constraint/automaton.h"

namespace larder::serving::inline constraint {

class Constraint {
 public:
  // required: the text may not end before a trigger.
  Constraint(std::shared_ptr<Automaton>, std::vector<std::string> triggers, bool required = false);
  Constraint(const Constraint&);
  Constraint& operator=(const Constraint&) = delete;
  ~Constraint();

  // False: the token is not allowed, and nothing is from now on.
  bool Accept(TokenId);

  enum class Allowed { kAll, kSome, kTooMuchWork, kNotYet };
  // kSome: `mask` has a bit for each allowed token; it has Vocabulary::words() words. kNotYet: it
  // takes more than so many steps (Automaton::Walk), and is gone on with when this is called again.
  static constexpr uint64_t kAllSteps = UINT64_MAX;
  Allowed Mask(std::span<uint64_t> mask, uint64_t steps = kAllSteps);

  // Accept and Mask at once, where both only look up what an earlier text made. False: that is not
  // so, or it is another's Turn; then nothing happened. The caller has no Turn.
  bool AcceptKnown(TokenId, std::span<uint64_t> mask);

  // Whether the text may end here. Before a trigger: unless one is required.
  bool complete() const { return active_ ? automaton_->complete(state_) : !required_; }
  // No text can follow, nor may it end.
  bool dead() const { return state_ <= Automaton::kTooMany; }
  bool active() const { return active_; }  // a trigger was seen, or there is none
  const std::shared_ptr<Automaton>& automaton() const { return automaton_; }

 private:
  // Where the trigger that ends first ends; npos: there is none.
  size_t EndOfTrigger(std::string_view text) const;
  bool FindBanned(std::vector<TokenId>& banned);

  std::shared_ptr<Automaton> automaton_;
  std::vector<std::string> triggers_;
  size_t longest_trigger_ = 0;
  bool required_;
  bool active_;
  StateId state_;
  std::optional<Automaton::Walk> walk_;  // of a mask that is not whole yet
  std::string tail_;                     // of the free text: what may be the start of a trigger
  // Tokens with a whole trigger and more text.
  std::optional<std::vector<TokenId>> overlong_;
};

}  // namespace larder::serving::constraint
