#include "serving/constraint/constraint.h"

#include <algorithm>
#include <utility>

namespace larder::serving::inline constraint {

// Nodes that are followed for tokens which end a trigger: a hundredth of a second.
constexpr uint64_t kMostWorkOfTriggers = 300'000;

Constraint::Constraint(std::shared_ptr<Automaton> automaton, std::vector<std::string> triggers,
                       bool required)
    : automaton_(std::move(automaton)),
      triggers_(std::move(triggers)),
      required_(required),
      state_(automaton_->start()) {
  std::erase(triggers_, "");
  active_ = triggers_.empty();
  for (const std::string& trigger : triggers_)
    longest_trigger_ = std::max(longest_trigger_, trigger.size());
  automaton_->Keep({&state_, 1});
}

Constraint::Constraint(const Constraint& other)
    : automaton_(other.automaton_),
      triggers_(other.triggers_),
      longest_trigger_(other.longest_trigger_),
      required_(other.required_),
      active_(other.active_),
      state_(other.state_),
      tail_(other.tail_),
      overlong_(other.overlong_) {
  automaton_->Keep({&state_, 1});
}

Constraint::~Constraint() { automaton_->Release({&state_, 1}); }

size_t Constraint::EndOfTrigger(std::string_view text) const {
  size_t end = std::string::npos;
  for (const std::string& trigger : triggers_) {
    const size_t at = text.find(trigger);
    if (at != std::string::npos) end = std::min(end, at + trigger.size());
  }
  return end;
}

bool Constraint::Accept(TokenId token) {
  walk_.reset();
  if (!automaton_->Tidy()) state_ = Automaton::kTooMany;  // no mask is made of it
  if (active_) {
    if (state_ != Automaton::kTooMany) state_ = automaton_->StepToken(state_, token);
    return state_ != Automaton::kDead;
  }
  const std::string_view bytes = automaton_->vocabulary().bytes(token);
  tail_ += bytes.empty() ? automaton_->vocabulary().ControlText(token) : bytes;
  if (const size_t end = EndOfTrigger(tail_); end != std::string::npos) {
    active_ = true;
    state_ = automaton_->Step(automaton_->start(), std::string_view(tail_).substr(end));
    tail_ = {};
    return state_ != Automaton::kDead;
  }
  if (tail_.size() >= longest_trigger_) tail_.erase(0, tail_.size() - longest_trigger_ + 1);
  return true;
}

Constraint::Allowed Constraint::Mask(std::span<uint64_t> mask, uint64_t steps) {
  if (!automaton_->Tidy() || state_ == Automaton::kTooMany) return Allowed::kTooMuchWork;
  if (active_) {
    if (!walk_ && automaton_->KnownMask(state_, mask)) return Allowed::kSome;
    if (!walk_) walk_.emplace(*automaton_, state_, mask);
    const Automaton::Walk::Made made = steps == kAllSteps ? walk_->Finish() : walk_->GoOn(steps);
    if (made == Automaton::Walk::Made::kNotYet) return Allowed::kNotYet;
    walk_.reset();
    return made == Automaton::Walk::Made::kWhole ? Allowed::kSome : Allowed::kTooMuchWork;
  }
  std::vector<TokenId> banned;
  if (!FindBanned(banned)) return Allowed::kTooMuchWork;
  if (required_) {
    const std::span<const TokenId> ends = automaton_->vocabulary().end_of_generation();
    banned.insert(banned.end(), ends.begin(), ends.end());
  }
  if (banned.empty()) return Allowed::kAll;
  std::fill(mask.begin(), mask.end(), ~uint64_t{0});
  for (const TokenId token : banned)
    mask[static_cast<size_t>(token) / 64] &= ~(uint64_t{1} << static_cast<size_t>(token) % 64);
  return Allowed::kSome;
}

bool Constraint::AcceptKnown(TokenId token, std::span<uint64_t> mask) {
  if (!active_) return false;
  const Automaton::Turn turn(*automaton_, std::try_to_lock);
  if (!turn) return false;
  const StateId state = automaton_->KnownStepToken(state_, token);
  if (state <= Automaton::kTooMany || !automaton_->KnownMask(state, mask)) return false;
  state_ = state;
  return true;
}

// Tokens that end a trigger and go on with what the grammar does not begin with. False: that takes
// too much work.
bool Constraint::FindBanned(std::vector<TokenId>& banned) {
  const Vocabulary& vocabulary = automaton_->vocabulary();
  const uint64_t most_work = automaton_->work() + kMostWorkOfTriggers;
  const auto consider = [&](TokenId token) {
    if (automaton_->work() > most_work) return;
    const std::string text = tail_ + std::string(vocabulary.bytes(token));
    const size_t end = EndOfTrigger(text);
    if (end == std::string::npos || end == text.size()) return;
    if (automaton_->Step(automaton_->start(), std::string_view(text).substr(end)) <=
        Automaton::kTooMany)
      banned.push_back(token);
  };
  if (!overlong_) {
    overlong_.emplace();
    for (size_t i = 0; i < vocabulary.size(); ++i) {
      const auto token = static_cast<TokenId>(i);
      const std::string_view bytes = vocabulary.bytes(token);
      if (const size_t end = EndOfTrigger(bytes); end < bytes.size()) overlong_->push_back(token);
    }
  }
  for (const TokenId token : *overlong_) consider(token);
  for (const std::string& trigger : triggers_) {
    for (size_t begun = std::min(trigger.size() - 1, tail_.size()); begun > 0; --begun) {
      if (!std::string_view(tail_).ends_with(std::string_view(trigger).substr(0, begun))) continue;
      const std::string_view rest = std::string_view(trigger).substr(begun);
      for (const auto& tree : {vocabulary.plain(), vocabulary.other()}) {
        // Down the tree to the node of `rest`; the tokens below it have it and more.
        size_t i = 0, end = tree.size(), matched = 0;
        while (i < end && matched < rest.size()) {
          if (tree[i].byte == static_cast<uint8_t>(rest[matched])) {
            end = tree[i].next;
            ++matched;
            ++i;
          } else {
            i = tree[i].next;
          }
        }
        if (matched < rest.size()) continue;
        for (; i < end; ++i) {
          for (TokenId token = tree[i].token; token >= 0; token = vocabulary.Same(token))
            consider(token);
        }
      }
    }
  }
  return automaton_->work() <= most_work;
}

}  // namespace larder::serving::constraint
