// Automaton: a grammar's states, found as texts reach them, over the tokens of a vocabulary. A
// state is a set of configurations (node and stack); equal ones are the same state, their stacks
// share their frames, and steps and masks that were computed once are kept. One thread at a time,
// the one that has the Turn.
//
// Everything is bounded: configurations of a state, work for a mask, memory. A grammar that needs
// more ends its generation with an error. The bound on a mask counts its work as if no step were
// cached, so that it does not depend on the cache; the bound on memory counts the states in use.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "serving/constraint/interned.h"
#include "serving/constraint/vocabulary.h"
#include "serving/grammar/grammar.h"

namespace larder::serving::inline constraint {

using StateId = uint32_t;

class Automaton {
 public:
  static constexpr StateId kDead = 0;     // nothing matches any more
  static constexpr StateId kTooMany = 1;  // more configurations than a state may have

  Automaton(std::shared_ptr<const Grammar>, std::shared_ptr<const Vocabulary>);
  Automaton(const Automaton&) = delete;
  Automaton& operator=(const Automaton&) = delete;

  StateId start() const { return start_; }
  StateId Step(StateId state, uint8_t byte) {
    const uint32_t row = states_[state].row;
    if (row != kNoRow) {
      if (const StateId to = steps_[row + nfa_.byte_class[byte]]; to != kUnknown) return to;
    }
    return NewStep(state, nfa_.byte_class[byte]);
  }
  StateId Step(StateId state, std::string_view bytes) {
    for (const char byte : bytes) state = Step(state, static_cast<uint8_t>(byte));
    return state;
  }
  // The state after a token; kDead if the token is not allowed. End-of-generation tokens are not
  // tokens here.
  StateId StepToken(StateId, TokenId);
  // The same, by looking up: kDead also if one of the steps was not made before.
  StateId KnownStepToken(StateId, TokenId) const;
  bool complete(StateId state) const { return states_[state].complete; }

  // A mask in the making, of vocabulary().words() words: a bit for each token that may follow, and
  // for the ends of generation if the text may end. It may be made in pieces; between them others
  // may have their Turn, and call Tidy. Destroyed by the thread that has the Turn, or after the
  // automaton.
  class Walk {
   public:
    Walk(Automaton&, StateId from, std::span<uint64_t> out);
    ~Walk();
    Walk(const Walk&) = delete;
    Walk& operator=(const Walk&) = delete;
    enum class Made { kWhole, kNotYet, kTooMuchWork };
    // Goes on for that many steps of work, about 30 ns each if nothing is cached.
    Made GoOn(uint64_t steps);
    Made Finish();  // all of it at once; never kNotYet

   private:
    Made GoThrough(std::span<const Vocabulary::Node> tree, uint32_t known_plain, uint64_t until);
    void AddControls();
    Automaton& automaton_;
    const std::span<uint64_t> out_;
    std::vector<StateId> path_;  // by depth; kept through Tidy
    uint32_t plain_ = 0;         // so many plain characters may follow
    size_t tree_ = 0, at_ = 0;   // the next node of the vocabulary
    uint64_t work_ = 0;
  };
  // All of it at once. False: more work than a mask may take.
  bool Mask(StateId, std::span<uint64_t> out);
  // The same, but only if the mask was made before and is kept; otherwise false.
  bool KnownMask(StateId, std::span<uint64_t> out) const;

  const Vocabulary& vocabulary() const { return *vocabulary_; }
  size_t states() const { return states_.size(); }
  size_t bytes() const;                    // memory of states, steps and masks
  uint64_t work() const { return work_; }  // the work of all steps made so far

  // The states that are in use and survive when memory is full; Tidy may change their ids. Call
  // Tidy between masks, or between pieces of one.
  void Keep(std::span<StateId> states) { kept_.push_back(states); }
  void Release(std::span<StateId> states);
  // False if the states in use alone need more memory than allowed.
  bool Tidy() { return bytes() <= kMostBytes || DropUnused(); }
  // Drops all that is not in use.
  bool DropUnused();

  static constexpr size_t kMostBytes = 8 << 20;

  // The right to call the functions above, for one thread at a time.
  class Turn {
   public:
    explicit Turn(Automaton& automaton)
        : automaton_(automaton) {  // waits: for the microseconds of a known mask
      while (automaton_.taken_.exchange(true, std::memory_order_acquire)) __builtin_ia32_pause();
      has_ = true;
    }
    Turn(Automaton& automaton, std::try_to_lock_t)  // never waits
        : automaton_(automaton),
          has_(!automaton.taken_.exchange(true, std::memory_order_acquire)) {}
    ~Turn() {
      if (has_) automaton_.taken_.store(false, std::memory_order_release);
    }
    Turn(const Turn&) = delete;
    Turn& operator=(const Turn&) = delete;
    explicit operator bool() const { return has_; }

   private:
    Automaton& automaton_;
    bool has_ = false;
  };

 private:
  struct Item {
    NodeId node;
    uint32_t stack;
    bool operator==(const Item&) const = default;
    auto operator<=>(const Item&) const = default;
  };
  struct Frame {
    uint32_t parent;
    uint32_t to;     // kLoopBit: a loop, kLimitBit: a limit, else the node to go on at
    uint32_t count;  // in a loop: how often its body has matched; in a limit: its characters
    bool operator==(const Frame&) const = default;
  };
  struct State {
    uint32_t begin, count;  // in items_
    uint32_t row;           // in steps_
    uint32_t plain;         // this many plain characters may follow; kUnbounded: any number
    bool complete;
  };
  static constexpr uint32_t kNoRow = UINT32_MAX;
  static constexpr StateId kUnknown = UINT32_MAX;
  static constexpr uint32_t kLoopBit = 1u << 31, kLimitBit = 1u << 30;

  StateId NewStep(StateId, uint8_t byte_class);
  StateId Find(std::span<const Item>, bool complete);
  uint32_t Push(const Frame&);
  void Begin();
  void Follow(Item);
  void Count(const Nfa::Node&, uint32_t stack);
  void Leave(uint32_t stack);
  void Enter(uint32_t loop, uint32_t count, uint32_t stack, std::vector<Item>& to_do);
  StateId Finish();
  uint32_t PlainOf(std::span<const Item>) const;
  uint64_t WorkOf(StateId state, uint8_t byte) const;
  void KeepMask(StateId, std::span<const uint64_t> mask);
  void FindSpecials();
  bool IsOnlySpecial(NodeId node) const { return !only_special_.empty() && only_special_[node]; }
  bool LeadsOn(TokenId) const;

  std::atomic<bool> taken_{false};
  const std::shared_ptr<const Grammar> grammar_;
  const std::shared_ptr<const Vocabulary> vocabulary_;
  const Nfa& nfa_;
  // Where special tokens lead, by the nodes at which they match as a whole; at some of these
  // nothing else does.
  std::unordered_map<NodeId, std::vector<std::pair<TokenId, NodeId>>> specials_;
  std::vector<bool> only_special_;   // by node; empty: none
  std::vector<TokenId> own_tokens_;  // those tokens; sorted
  StateId start_ = kDead;

  std::vector<Frame> frames_;
  Interned frame_ids_;
  std::vector<Item> items_;
  std::vector<State> states_;
  Interned state_ids_;
  std::vector<StateId> steps_;
  std::vector<uint16_t> costs_;  // for each of them: nodes followed, and frames

  std::unordered_map<StateId, std::vector<uint64_t>> masks_;
  std::deque<StateId> mask_order_;  // the oldest first
  std::vector<std::span<StateId>> kept_;
  uint64_t work_ = 0;

  // The closure that is being made.
  std::vector<Item> found_, to_do_, seen_items_;
  Interned seen_;
  bool complete_ = false, too_many_ = false;
  uint32_t step_cost_ = 0;
};

}  // namespace larder::serving::constraint
