// Constraint: how one generated text may go on. It is given the text's tokens and makes the mask of
// the next one. With triggers the text is free up to the first trigger; what follows must match the
// grammar. It may be copied. One thread at a time, the one that has the Turn of its Automaton.
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

  // False: the token is not allowed; after that no token is.
  bool Accept(TokenId);

  enum class Allowed { kAll, kSome, kTooMuchWork, kNotYet };
  // kSome: `mask` has a bit for each allowed token; it has Vocabulary::words() words. kNotYet: it
  // takes more than `steps` steps (Automaton::Walk); call again to go on.
  static constexpr uint64_t kAllSteps = UINT64_MAX;
  Allowed Mask(std::span<uint64_t> mask, uint64_t steps = kAllSteps);

  // Accept and Mask in one, if both can be looked up. False if not, or if another thread has the
  // Turn; then nothing has changed. The caller must not have the Turn.
  bool AcceptKnown(TokenId, std::span<uint64_t> mask);

  // Whether the text may end here. Before a trigger it may, unless a trigger is required.
  bool complete() const { return active_ ? automaton_->complete(state_) : !required_; }
  // No text can follow, nor may it end.
  bool dead() const { return state_ <= Automaton::kTooMany; }
  bool active() const { return active_; }  // a trigger was seen, or there are no triggers
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
  std::optional<Automaton::Walk> walk_;  // the mask in the making
  std::string tail_;                     // the end of the free text that may be the start of a
                                         // trigger
  // Tokens that contain a whole trigger and more text.
  std::optional<std::vector<TokenId>> overlong_;
};

}  // namespace larder::serving::constraint
