#include "serving/constraint/automaton.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace larder::serving::inline constraint {
namespace {

constexpr size_t kMostItems = 1024;         // configurations of a state
constexpr size_t kMostFollowed = 32 << 10;  // nodes that one step follows
// The work of a mask: nodes that its steps follow, about 30 to 60 ns each, and one for each node of
// the vocabulary. A JSON string takes 60,000; a dozen nodes at each of a vocabulary's 300,000 nodes
// are just within it.
constexpr uint64_t kMostWork = 4'000'000;
constexpr uint32_t kPushCost = 12;          // cost of a frame, in such nodes: a place in a large
                                            // table
constexpr uint32_t kCostOfOne = 4;          // unit of costs_
constexpr size_t kMostMaskBytes = 8 << 20;  // memory of kept masks

// Texts in a literal by their first bytes: a look at each place of it costs what it has in common
// with a text, however many there are.
class TextFinder {
 public:
  explicit TextFinder(std::vector<std::pair<std::string, TokenId>> texts)
      : texts_(std::move(texts)) {
    std::erase_if(texts_, [](const auto& text) { return text.first.empty(); });
    std::sort(texts_.begin(), texts_.end());
  }
  // Calls found(token, bytes) for each text that stands at the place.
  template <typename Found>
  void At(std::string_view literal, size_t place, Found found) const {
    auto begin = texts_.begin(), end = texts_.end();
    for (size_t depth = 0; begin != end; ++depth) {
      for (; begin != end && begin->first.size() == depth; ++begin) found(begin->second, depth);
      if (place + depth == literal.size()) return;
      const auto byte = static_cast<uint8_t>(literal[place + depth]);
      const auto at = [depth](const auto& text) { return static_cast<uint8_t>(text.first[depth]); };
      begin = std::partition_point(begin, end, [&](auto& text) { return at(text) < byte; });
      end = std::partition_point(begin, end, [&](auto& text) { return at(text) == byte; });
    }
  }

 private:
  std::vector<std::pair<std::string, TokenId>> texts_;
};

}  // namespace

Automaton::Automaton(std::shared_ptr<const Grammar> grammar,
                     std::shared_ptr<const Vocabulary> vocabulary)
    : grammar_(std::move(grammar)), vocabulary_(std::move(vocabulary)), nfa_(grammar_->nfa()) {
  Find({}, false);                    // kDead
  states_.push_back(states_[kDead]);  // kTooMany: no set is equal to it
  frames_.push_back({});              // 0: the empty stack
  FindSpecials();
  Begin();
  Follow({nfa_.start, 0});
  const StateId state = Finish();
  start_ = state;
  Keep({&start_, 1});
}

// A control token's text somewhere in a literal of the grammar's text is the token, too.
void Automaton::FindSpecials() {
  if (nfa_.literals.empty()) return;
  const TextFinder finder(vocabulary_->controls());
  for (const Nfa::Literal& literal : nfa_.literals) {
    const TokenId own =
        literal.own_token && !literal.text.empty() ? vocabulary_->Special(literal.text) : -1;
    if (own >= 0) {
      specials_[literal.first].emplace_back(own, literal.to);
      only_special_.resize(nfa_.nodes.size());
      only_special_[literal.first] = true;
      own_tokens_.push_back(own);
      continue;
    }
    for (size_t at = 0; at < literal.text.size(); ++at) {
      finder.At(literal.text, at, [&](TokenId token, size_t bytes) {
        specials_[literal.At(at)].emplace_back(token, literal.At(at + bytes));
      });
    }
  }
  std::sort(own_tokens_.begin(), own_tokens_.end());
}

uint64_t Automaton::WorkOf(StateId state, uint8_t byte) const {
  return 1 + uint64_t{kCostOfOne} * costs_[states_[state].row + nfa_.byte_class[byte]];
}

uint32_t Automaton::Push(const Frame& frame) {
  step_cost_ += kPushCost;
  const uint64_t hash = Mix(Mix(frame.parent, frame.to), frame.count);
  const auto fresh = static_cast<uint32_t>(frames_.size());
  const uint32_t id = frame_ids_.Find(hash, fresh, [&](uint32_t i) { return frames_[i] == frame; });
  if (id == fresh) frames_.push_back(frame);
  return id;
}

void Automaton::Begin() {
  found_.clear();
  seen_items_.clear();
  seen_.Clear();
  complete_ = too_many_ = false;
  step_cost_ = 0;
}

// What a loop does after its body has matched `count` times.
void Automaton::Enter(uint32_t loop_id, uint32_t count, uint32_t stack, std::vector<Item>& to_do) {
  const Nfa::Loop& loop = nfa_.loops[loop_id];
  if (count >= loop.least) to_do.push_back({loop.exit, stack});
  if (count < loop.most) to_do.push_back({loop.body, Push({stack, kLoopBit | loop_id, count})});
}

// One more character of the limit on top of the stack.
void Automaton::Count(const Nfa::Node& node, uint32_t stack) {
  const Frame frame = frames_[stack];
  const Nfa::Limit& limit = nfa_.limits[frame.to & ~kLimitBit];
  if ((nfa_.alive[node.end + frame.count / 64] >> frame.count % 64 & 1) == 0) return;
  const uint32_t count =
      limit.most == kUnbounded ? std::min(frame.count + 1, limit.least) : frame.count + 1;
  to_do_.push_back({node.begin, Push({frame.parent, frame.to, count})});
}

// What follows the end of a rule, a loop's body or a limit.
void Automaton::Leave(uint32_t stack) {
  const Frame frame = frames_[stack];
  if ((frame.to & kLoopBit) != 0) {
    const uint32_t loop = frame.to & ~kLoopBit;
    const bool endless = nfa_.loops[loop].most == kUnbounded;
    const uint32_t count =
        endless ? std::min(frame.count + 1, nfa_.loops[loop].least) : frame.count + 1;
    Enter(loop, count, frame.parent, to_do_);
  } else if ((frame.to & kLimitBit) != 0) {
    const Nfa::Limit& limit = nfa_.limits[frame.to & ~kLimitBit];
    if (frame.count >= limit.least) to_do_.push_back({limit.exit, frame.parent});
  } else {
    to_do_.push_back({frame.to, frame.parent});
  }
}

// Adds to found_ what is reached from the item without a byte.
void Automaton::Follow(Item item) {
  to_do_.assign(1, item);
  while (!to_do_.empty()) {
    item = to_do_.back();
    to_do_.pop_back();
    const auto fresh = static_cast<uint32_t>(seen_items_.size());
    const uint32_t seen = seen_.Find(Mix(item.node, item.stack), fresh,
                                     [&](uint32_t i) { return seen_items_[i] == item; });
    if (seen != fresh) continue;
    if (fresh == kMostFollowed) too_many_ = true;
    if (too_many_) return;
    ++step_cost_;
    seen_items_.push_back(item);
    const Nfa::Node& node = nfa_.nodes[item.node];
    switch (node.kind) {
      case Nfa::Node::Kind::kBytes:
        if (node.begin == node.end) break;
        found_.push_back(item);
        if (found_.size() > kMostItems) too_many_ = true;
        break;
      case Nfa::Node::Kind::kSplit:
        for (uint32_t i = node.begin; i < node.end; ++i)
          to_do_.push_back({nfa_.splits[i], item.stack});
        break;
      case Nfa::Node::Kind::kCall:
        // Behind a call that is the last thing, there is nothing to come back for.
        if (nfa_.nodes[node.end].kind == Nfa::Node::Kind::kEnd) {
          to_do_.push_back({node.begin, item.stack});
        } else {
          to_do_.push_back({node.begin, Push({item.stack, node.end, 0})});
        }
        break;
      case Nfa::Node::Kind::kLoop:
        Enter(node.begin, 0, item.stack, to_do_);
        break;
      case Nfa::Node::Kind::kLimit:
        to_do_.push_back(
            {nfa_.limits[node.begin].body, Push({item.stack, kLimitBit | node.begin, 0})});
        break;
      case Nfa::Node::Kind::kCount:
        Count(node, item.stack);
        break;
      case Nfa::Node::Kind::kEnd:
        if (item.stack == 0) {
          complete_ = true;
        } else {
          Leave(item.stack);
        }
        break;
    }
  }
}

StateId Automaton::Finish() {
  if (too_many_) return kTooMany;
  std::sort(found_.begin(), found_.end());
  return Find(found_, complete_);
}

StateId Automaton::Find(std::span<const Item> items, bool complete) {
  uint64_t hash = complete ? 1 : 0;
  for (const Item& item : items) hash = Mix(Mix(hash, item.node), item.stack);
  const auto fresh = static_cast<StateId>(states_.size());
  const StateId id = state_ids_.Find(hash, fresh, [&](StateId i) {
    const State& state = states_[i];
    return state.complete == complete && state.count == items.size() &&
           std::equal(items.begin(), items.end(), items_.begin() + state.begin);
  });
  if (id != fresh) return id;
  states_.push_back({static_cast<uint32_t>(items_.size()), static_cast<uint32_t>(items.size()),
                     kNoRow, PlainOf(items), complete});
  items_.insert(items_.end(), items.begin(), items.end());
  return id;
}

uint32_t Automaton::PlainOf(std::span<const Item> items) const {
  uint32_t most = 0;
  for (const Item& item : items) {
    switch (nfa_.nodes[item.node].plain) {
      case Nfa::PlainLoop::kNo:
        break;
      case Nfa::PlainLoop::kAlways:
        return kUnbounded;
      case Nfa::PlainLoop::kCounted: {
        const Frame& frame = frames_[item.stack];
        most = std::max(most, nfa_.loops[frame.to & ~kLoopBit].most - frame.count);
        break;
      }
    }
  }
  return most;
}

StateId Automaton::NewStep(StateId from, uint8_t byte_class) {
  StateId to = from;  // kDead and kTooMany stay
  if (from > kTooMany) {
    const uint8_t byte = nfa_.class_byte[byte_class];
    Begin();
    for (uint32_t i = 0; i < states_[from].count && !too_many_; ++i) {
      const Item item = items_[states_[from].begin + i];
      if (IsOnlySpecial(item.node)) continue;
      const Nfa::Node& node = nfa_.nodes[item.node];
      for (uint32_t e = node.begin; e < node.end; ++e) {
        const Nfa::Edge& edge = nfa_.edges[e];
        if (edge.first <= byte && byte <= edge.last) Follow({edge.to, item.stack});
      }
    }
    to = Finish();
  }
  const uint32_t cost =
      from > kTooMany ? std::min<uint32_t>(step_cost_, kCostOfOne * UINT16_MAX) : 0;
  work_ += cost;
  if (states_[from].row == kNoRow) {
    states_[from].row = static_cast<uint32_t>(steps_.size());
    steps_.resize(steps_.size() + nfa_.classes, kUnknown);
    costs_.resize(steps_.size());
  }
  costs_[states_[from].row + byte_class] = static_cast<uint16_t>(cost / kCostOfOne);
  return steps_[states_[from].row + byte_class] = to;
}

StateId Automaton::StepToken(StateId state, TokenId token) {
  const std::string_view bytes = vocabulary_->bytes(token);
  const StateId by_bytes = bytes.empty() ? kDead : Step(state, bytes);
  if (by_bytes == kTooMany || (!bytes.empty() && !LeadsOn(token))) return by_bytes;
  Begin();
  const State from = states_[state], beside = states_[by_bytes];
  for (uint32_t i = 0; i < from.count; ++i) {
    const Item item = items_[from.begin + i];
    const auto known = specials_.find(item.node);
    if (known == specials_.end()) continue;
    for (const auto& [special, to] : known->second) {
      if (special == token) Follow({to, item.stack});
    }
  }
  for (uint32_t i = 0; i < beside.count; ++i) Follow(items_[beside.begin + i]);
  complete_ = complete_ || beside.complete;
  return Finish();
}

// Whether it matches somewhere otherwise than by its bytes.
bool Automaton::LeadsOn(TokenId token) const {
  return std::binary_search(own_tokens_.begin(), own_tokens_.end(), token);
}

StateId Automaton::KnownStepToken(StateId state, TokenId token) const {
  const std::string_view bytes = vocabulary_->bytes(token);
  if (bytes.empty() || LeadsOn(token)) return kDead;
  for (const char byte : bytes) {
    const uint32_t row = states_[state].row;
    if (row == kNoRow) return kDead;
    state = steps_[row + nfa_.byte_class[static_cast<uint8_t>(byte)]];
    if (state == kUnknown) return kDead;
  }
  return state;
}

bool Automaton::KnownMask(StateId state, std::span<uint64_t> out) const {
  const auto known = masks_.find(state);
  if (known == masks_.end()) return false;
  std::copy(known->second.begin(), known->second.end(), out.begin());
  return true;
}

Automaton::Walk::Walk(Automaton& automaton, StateId from, std::span<uint64_t> out)
    : automaton_(automaton), out_(out), path_(automaton.vocabulary().longest() + 1, kDead) {
  path_[0] = from;
  automaton_.Keep(path_);
  plain_ = automaton_.states_[from].plain;
  // Inside a string the plain tokens that fit are allowed without a look at each.
  if (plain_ > Vocabulary::kPlainLevels && plain_ != kUnbounded) plain_ = Vocabulary::kPlainLevels;
  if (plain_ > 0) {
    const std::span<const uint64_t> allowed = automaton_.vocabulary().PlainOfAtMost(plain_);
    std::copy(allowed.begin(), allowed.end(), out_.begin());
  } else {
    std::fill(out_.begin(), out_.end(), 0);
  }
}

Automaton::Walk::~Walk() { automaton_.Release(path_); }

Automaton::Walk::Made Automaton::Walk::GoThrough(std::span<const Vocabulary::Node> tree,
                                                 uint32_t known_plain, uint64_t until) {
  const Vocabulary& vocabulary = automaton_.vocabulary();
  while (at_ < tree.size()) {
    const Vocabulary::Node& node = tree[at_];
    if (node.most_plain != 0 && node.most_plain <= known_plain && node.most_plain < 255) {
      at_ = node.next;
      continue;
    }
    if (work_ > kMostWork) return Made::kTooMuchWork;
    if (work_ >= until) return Made::kNotYet;
    const StateId from = path_[node.depth];
    const uint64_t made_before = automaton_.work_;
    const StateId to = automaton_.Step(from, node.byte);
    work_ += automaton_.WorkOf(from, node.byte);
    if (to == kTooMany) return Made::kTooMuchWork;
    if (to == kDead) {
      at_ = node.next;
      continue;
    }
    path_[node.depth + 1u] = to;
    if (automaton_.work_ != made_before && automaton_.bytes() > kMostBytes) {
      if (!automaton_.DropUnused()) return Made::kTooMuchWork;
      until = 0;  // that was enough for one turn
    }
    for (TokenId token = node.token; token >= 0; token = vocabulary.Same(token))
      out_[static_cast<size_t>(token) / 64] |= uint64_t{1} << static_cast<size_t>(token) % 64;
    ++at_;
  }
  return Made::kWhole;
}

void Automaton::Walk::AddControls() {
  const auto set = [&](TokenId token) {
    out_[static_cast<size_t>(token) / 64] |= uint64_t{1} << static_cast<size_t>(token) % 64;
  };
  const State& from = automaton_.states_[path_[0]];
  for (uint32_t i = 0; i < from.count && !automaton_.specials_.empty(); ++i) {
    const auto known = automaton_.specials_.find(automaton_.items_[from.begin + i].node);
    if (known == automaton_.specials_.end()) continue;
    for (const auto& [token, to] : known->second) set(token);
  }
  if (from.complete) {
    for (const TokenId token : automaton_.vocabulary().end_of_generation()) set(token);
  }
}

Automaton::Walk::Made Automaton::Walk::GoOn(uint64_t steps) {
  if (path_[0] == kTooMany) return Made::kTooMuchWork;
  const Vocabulary& vocabulary = automaton_.vocabulary();
  const uint64_t until = work_ + steps;
  for (; tree_ < 2; ++tree_, at_ = 0) {
    if (tree_ == 0 && plain_ == kUnbounded) continue;
    const Made made = tree_ == 0 ? GoThrough(vocabulary.plain(), plain_, until)
                                 : GoThrough(vocabulary.other(), 0, until);
    if (made != Made::kWhole) return made;
  }
  AddControls();
  automaton_.KeepMask(path_[0], out_);
  return Made::kWhole;
}

Automaton::Walk::Made Automaton::Walk::Finish() {
  Made made = Made::kNotYet;
  while (made == Made::kNotYet) made = GoOn(2 * kMostWork);
  return made;
}

bool Automaton::Mask(StateId state, std::span<uint64_t> out) {
  if (state == kTooMany) return false;
  if (KnownMask(state, out)) return true;
  return Walk(*this, state, out).Finish() == Walk::Made::kWhole;
}

void Automaton::KeepMask(StateId state, std::span<const uint64_t> mask) {
  if ((masks_.size() + 1) * mask.size_bytes() > kMostMaskBytes && !mask_order_.empty()) {
    masks_.erase(mask_order_.front());
    mask_order_.pop_front();
  }
  const auto [place, is_new] = masks_.try_emplace(state, mask.begin(), mask.end());
  if (is_new) mask_order_.push_back(state);
}

void Automaton::Release(std::span<StateId> states) {
  std::erase_if(kept_, [&](std::span<StateId> kept) { return kept.data() == states.data(); });
}

size_t Automaton::bytes() const {
  return frames_.size() * sizeof(Frame) + frame_ids_.bytes() + items_.size() * sizeof(Item) +
         states_.size() * sizeof(State) + state_ids_.bytes() +
         steps_.size() * (sizeof(StateId) + sizeof(uint16_t)) +
         masks_.size() * vocabulary_->words() * sizeof(uint64_t);
}

// Keeps the states that are in use, with their frames.
bool Automaton::DropUnused() {
  const std::vector<Frame> frames = std::exchange(frames_, {});
  const std::vector<Item> items = std::exchange(items_, {});
  const std::vector<State> states = std::exchange(states_, {});
  frame_ids_.Free();
  state_ids_.Free();
  steps_ = {};
  costs_ = {};
  masks_.clear();
  mask_order_.clear();
  std::vector<bool> used(frames.size());
  for (const std::span<StateId> ids : kept_) {
    for (const StateId id : ids) {
      for (uint32_t i = 0; i < states[id].count; ++i)
        used[items[states[id].begin + i].stack] = true;
    }
  }
  for (size_t i = frames.size(); i-- > 0;) {  // parents come before what is on them
    if (used[i]) used[frames[i].parent] = true;
  }
  std::vector<uint32_t> moved(frames.size());
  const auto kept = static_cast<size_t>(std::count(used.begin(), used.end(), true));
  frame_ids_.Reserve(kept + kept / 4);
  frames_.reserve(kept + kept / 4 + 1);
  frames_.push_back({});
  for (size_t i = 1; i < frames.size(); ++i) {
    if (used[i]) moved[i] = Push({moved[frames[i].parent], frames[i].to, frames[i].count});
  }
  Find({}, false);
  states_.push_back(states_[kDead]);
  for (const std::span<StateId> ids : kept_) {
    for (StateId& id : ids) {
      if (id <= kTooMany) continue;
      found_.clear();
      for (uint32_t i = 0; i < states[id].count; ++i) {
        const Item& item = items[states[id].begin + i];
        found_.push_back({item.node, moved[item.stack]});
      }
      std::sort(found_.begin(), found_.end());
      id = Find(found_, states[id].complete);
    }
  }
  return bytes() <= kMostBytes / 2;
}

}  // namespace larder::serving::constraint
