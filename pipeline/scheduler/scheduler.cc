#include "pipeline/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "pipeline/chain/chain.h"
#include "pipeline/stage/socket_status.h"

namespace larder::pipeline::inline scheduler {
namespace {

// A slot is not preferred for a cached prefix shorter than this and than half of the prompt, since
// all chat prompts share the first tokens of the template.
constexpr size_t kWorthReusing = 16;
// A prompt waits for another's to be computed that has so many more of its tokens than any slot has
// now, or any more if that one has the most now.
constexpr size_t kWorthWaiting = 64;
// Those that wait are compared up to so many; so many may overtake one of them.
constexpr size_t kMostCompared = 64;
constexpr int kMostOvertaken = 8;
// For a prompt so many times shorter than its rest a sequence leaves its slot, in all for this part
// of its own prompt.
constexpr size_t kMuchLonger = 4, kMostWay = 4;
constexpr int kShortestPauseMs = 20, kLongestPauseMs = 500;  // between attempts to reconnect
constexpr int kMostLosses = 8;     // losses of a sequence's slot without a token in between
constexpr int kLookMs = 250;       // how often an idle pipeline is checked
constexpr int kTierMs = 2;         // and one whose chunks are being stored
constexpr int kFinishMs = 10'000;  // for a job, before a scheduler that ends gives it up
constexpr uint64_t kLonePatienceNs = 2'000'000;     // for one, if all sit out
constexpr int kSitOutMs = 1;                        // and then, between two looks
constexpr uint64_t kBehindAll = uint64_t{1} << 63;  // in the order of admission

template <typename T>
void Set(std::atomic<T>& number, size_t value) {
  number.store(static_cast<T>(value), std::memory_order_relaxed);
}

}  // namespace

std::string PromptProblem(size_t prompt_tokens, size_t context) {
  if (prompt_tokens == 0) return "the prompt has no tokens; give it some text";
  if (prompt_tokens <= context) return "";
  return fmt::format("the prompt's {} tokens do not fit the context of {} tokens", prompt_tokens,
                     context);
}

Scheduler::Scheduler(TokenEngine& engine, const SchedulerOptions& options)
    : engine_(engine),
      limits_(engine.limits()),
      kv_(engine.kv()),
      options_(options),
      clock_(options.clock != nullptr ? options.clock : &own_clock_),
      policy_(MakePolicy(options.policy)),
      slots_(kv_.lists()),
      ready_(limits_.slots),
      batches_(limits_.max_in_flight),
      slot_status_(limits_.slots) {
  // Reserves all that steps need, so that they do not allocate.
  for (SlotId id(0); id < end_of_slots(); ++id) slots_[id.index()].tokens.reserve(limits_.context);
  for (ScheduledBatch& batch : batches_) batch.parts.reserve(limits_.max_batch_tokens);
  rows_.reserve(limits_.max_batch_tokens);
  choosing_.reserve(limits_.max_logits);
  prefilling_.reserve(limits_.slots);
  prompt_order_.reserve(limits_.slots);
  loading_.reserve(limits_.slots);
  sitting_out_.reserve(limits_.slots);
  LARDER_CHECK(options_.tier == nullptr ||
               options_.tier->chunk_positions() == kv_.shape().chunk_positions);
  ShowKvChunks();
}

Scheduler::~Scheduler() = default;

void Scheduler::Run(Intake& intake) {
  last_collect_ns_ = clock_->now_ns();
  for (;;) {
    engine_.pulse().Beat();
    TakeNew(intake);
    DropCancelled();
    RefuseQueued(intake);
    TakeMoved();
    TakeOrder(intake);
    bool waits = false;  // every sequence waits for chunks that are being read, or written
    try {
      if (lost_ || !busy()) {  // otherwise Submit does it
        engine_.Reconnect();
        ChainIsBack();
      }
      if (options_.tier != nullptr) options_.tier->Watch();
      AskThoseThatSitOut();
      Admit();
      while (in_flight_ < batches_.size() && FillBatch()) {
      }
      waits = in_flight_ == 0 && (busy() || TierWaits());
      if (in_flight_ > 0) CollectOldest();
    } catch (const ChainLostError& lost) {
      ChainWasLost(lost.what());
    }
    intake.StepDone();
    if (waits && !sitting_out_.empty()) {
      WaitForOne(intake);
    } else if (waits) {
      WaitForTier();
    }
    if (!Rest(intake)) break;
  }
  FinishMoving();
}

void Scheduler::WaitForTier() {
  if (options_.tier == nullptr) return;
  try {
    options_.tier->Wait(busy() ? kLookMs : 0);
  } catch (const ChainLostError& lost) {
    ChainWasLost(lost.what());
  }
}

// Called between steps: sleeps if there is nothing to do, and between attempts to reconnect.
// Returns false to end Run().
bool Scheduler::Rest(Intake& intake) {
  const Pulse::Rest rest(engine_.pulse());
  const int pause_ms =
      std::min(kShortestPauseMs << std::min(losses_in_a_row_, 10), kLongestPauseMs);
  if (!busy() && in_flight_ == 0) {
    return intake.WaitForWork(lost_                 ? pause_ms
                              : TierWaits()         ? kTierMs
                              : limits_.can_be_lost ? kLookMs
                                                    : -1);
  }
  if (lost_) clock_->SleepMs(pause_ms);
  return true;
}

void Scheduler::TakeNew(Intake& intake) {
  while (auto sequence = intake.Take()) {
    const size_t tokens = sequence->prompt().size(), context = limits_.context;
    if (tokens > 0 && tokens <= context) {
      Enqueue(std::make_unique<Active>(std::move(sequence)), /*first=*/false);
    } else {
      sequence->Ended(SequenceEnd::kRefused, PromptProblem(tokens, context));
    }
  }
}

// Puts a sequence into the queue, as the first or the last of its kind.
void Scheduler::Enqueue(std::unique_ptr<Active> active, bool first) {
  const bool background = active->background;
  const auto behind = std::ranges::partition_point(
      queue_, [](const std::unique_ptr<Active>& waiting) { return !waiting->background; });
  queue_.insert(first        ? (background ? behind : queue_.begin())
                : background ? queue_.end()
                             : behind,
                std::move(active));
}

// Parks as many sequences of the background as others wait for slots: now those that have no rows
// in flight, the rest when these have been collected. What they have in the KV cache stays there as
// long as there is room, as an ended sequence's.
void Scheduler::MakeWay() {
  if (background_ == 0 && options_.active_tokens == 0) return MakeWayForShort();
  for (SlotId id(0); id < end_of_slots(); ++id) {
    Active* active = slots_[id.index()].active.get();
    if (active != nullptr) active->yields = id == ordered_slot_ || active->makes_way;
  }
  KeepWithinActiveTokens();
  MakeWayForShort();
  if (background_ == 0) return;
  size_t wanted = 0;
  std::vector<SlotId> named;  // taken ones that are waited for
  for (const auto& waiting : queue_) {
    if (waiting->background || wanted == limits_.slots) break;
    if (const std::optional<SlotId> taken = TakenSlotOf(*waiting)) {
      named.push_back(*taken);
    } else {
      ++wanted;
    }
  }
  for (const SlotId id : named) {
    if (MayYield(id) && slots_[id.index()].active->background &&
        !slots_[id.index()].active->restored)
      Yield(id);
  }
  const size_t idle = limits_.slots - actives_;
  wanted = wanted > idle ? wanted - idle : wanted > 0 && chunks_wanted_ ? 1 : 0;
  for (; wanted > 0; --wanted) {
    const std::optional<SlotId> youngest = YoungestOf(
        [this](SlotId id, const Active& active) { return MayYield(id) && active.background; });
    if (!youngest) return;
    // With files it may go on in another socket's slot; while they are written, its chunks are
    // nobody else's.
    if (Yield(*youngest) && options_.tier != nullptr && !chunks_wanted_ &&
        limits_.attention_slot_ends.size() > 1)
      Store(*youngest);
  }
}

// The tokens of its prompt that no slot and no kept sequence has.
size_t Scheduler::RestOf(const Active& active) const {
  size_t common = 0;
  for (SlotId id(0); id < end_of_lists(); ++id)
    common = std::max(common, CommonPrefix(slots_[id.index()], active));
  return active.to_compute().size() - common;
}

// The tokens that the slot's sequence has yet to compute before its next one.
size_t Scheduler::LeftIn(SlotId id) const {
  const Slot& slot = slots_[id.index()];
  return slot.active->to_compute().size() - slot.tokens.size();
}

// The slot that it is to have, if another sequence has that.
std::optional<SlotId> Scheduler::TakenSlotOf(const Active& active) const {
  const std::optional<SlotId> wanted = active.sequence->slot();
  return wanted && slots_[wanted->index()].active ? wanted : std::nullopt;
}

// The order in which those that wait get slots, as indices: the shortest rest first. Those that
// enough others have overtaken come in front, the oldest first, so that each waits for no more than
// these and those in front of it. Those whose own slot is taken are left out.
std::vector<size_t> Scheduler::NextOfQueue() const {
  struct Waiting {
    bool fresh;  // not overtaken by enough others
    size_t rest, at;
    auto operator<=>(const Waiting&) const = default;
  };
  std::vector<Waiting> waiting;
  std::vector<size_t> behind;
  for (size_t i = 0; i < queue_.size() && behind.size() < limits_.slots; ++i) {
    const Active& active = *queue_[i];
    if (TakenSlotOf(active)) continue;
    if (active.background || waiting.size() == kMostCompared) {
      behind.push_back(i);
      continue;
    }
    const bool fresh = active.overtaken < kMostOvertaken;
    waiting.push_back({fresh, fresh ? RestOf(active) : 0, i});
  }
  std::ranges::sort(waiting);
  std::vector<size_t> order;
  order.reserve(waiting.size() + behind.size());
  for (const Waiting& one : waiting) order.push_back(one.at);
  order.insert(order.end(), behind.begin(), behind.end());
  order.resize(std::min(order.size(), limits_.slots));
  return order;
}

// All slots are taken, and a prompt waits that is much shorter than what one of them has yet to
// compute: the longest leaves its slot, and goes on later with what it has. Not the oldest, so that
// it is done in time, and none for more tokens than a part of its own prompt.
void Scheduler::MakeWayForShort() {
  for (const SlotId id : prefilling_) {
    if (!slots_[id.index()].active->makes_way) continue;
    Yield(id);  // it had rows in flight
    return;
  }
  const auto is_new = [](const Active& active) {
    return !active.background && active.generated == 0;
  };
  if (std::ranges::count_if(prefilling_,
                            [&](SlotId id) { return is_new(*slots_[id.index()].active); }) < 2 ||
      actives_ < limits_.slots || queue_.empty() || queue_.front()->background)
    return;
  const std::optional<SlotId> oldest = OldestPrompt(is_new);
  const std::vector<size_t> next = NextOfQueue();
  if (next.empty()) return;
  const size_t rest = RestOf(*queue_[next.front()]);
  std::optional<SlotId> longest;
  for (const SlotId id : prefilling_) {
    const Active& active = *slots_[id.index()].active;
    if (id == oldest || !is_new(active) || !MayYield(id) || LeftIn(id) < kMuchLonger * rest ||
        active.made_way + rest > active.to_compute().size() / kMostWay)
      continue;
    if (!longest || LeftIn(id) > LeftIn(*longest)) longest = id;
  }
  if (!longest) return;
  Active& active = *slots_[longest->index()].active;
  active.made_way += rest;
  active.makes_way = true;
  Yield(*longest);
}

bool Scheduler::MayYield(SlotId id) const {
  const Active* active = slots_[id.index()].active.get();
  return active != nullptr && !active->ended && !active->yields;
}

// The sequence gets no more rows, and leaves its slot when none is in flight. Returns whether it
// has left it, to go on later.
bool Scheduler::Yield(SlotId id) {
  Slot& slot = slots_[id.index()];
  slot.active->yields = true;
  if (slot.active->rows_in_flight > 0 || slot.active->loading) return false;
  slot.last_used = ++uses_;
  const bool left = Leave(id, /*keeps_kv=*/true);
  SocketStatus::Add(status_.yielded, left);
  return left;
}

// The sequence, without rows in flight, leaves its slot for others; what only fills it is given up.
// Returns whether it goes on later.
bool Scheduler::Leave(SlotId id, bool keeps_kv) {
  if (slots_[id.index()].active->restored) {
    End(id, SequenceEnd::kCancelled, "other requests needed its slot or its KV cache");
    return false;
  }
  std::erase(prefilling_, id);
  ready_.Remove(id);
  Enqueue(Park(id, keeps_kv), /*first=*/true);
  return true;
}

// Chunks that the socket's running sequences list, with the next token's; what several share counts
// for each.
size_t Scheduler::RunningChunks(AttentionId socket) const {
  size_t chunks = 0;
  for (SlotId id(0); id < end_of_slots(); ++id) {
    if (!MayYield(id) || kv_.socket_of(id) != socket) continue;
    // its whole prompt, from the beginning
    const size_t tokens =
        std::max(slots_[id.index()].tokens.size(), slots_[id.index()].active->to_compute().size());
    chunks += std::min(tokens / kv_.shape().chunk_positions + 1, kv_.shape().slot_chunks());
  }
  return chunks;
}

// Whether a queued sequence may run beside the others of the socket.
bool Scheduler::MayRunToo(const Active& active, AttentionId socket) const {
  if (options_.active_tokens == 0) return true;
  const size_t running = RunningChunks(socket);
  return running == 0 ||
         running + ChunksNeeded(active, 0) <= options_.active_tokens / kv_.shape().chunk_positions;
}

// Texts grow: the youngest wait until those before them have ended.
void Scheduler::KeepWithinActiveTokens() {
  if (options_.active_tokens == 0) return;
  const size_t most = options_.active_tokens / kv_.shape().chunk_positions;
  const size_t sockets = std::max<size_t>(limits_.attention_slot_ends.size(), 1);
  for (AttentionId socket(0); socket.index() < sockets; ++socket) {
    while (RunningChunks(socket) > most) {
      size_t running = 0;
      const std::optional<SlotId> youngest = YoungestOf([&](SlotId id, const Active&) {
        const bool runs = MayYield(id) && kv_.socket_of(id) == socket;
        running += runs;
        return runs;
      });
      if (running < 2) break;
      Yield(*youngest);
    }
  }
}

void Scheduler::DropCancelled() {
  std::erase_if(queue_, [](const std::unique_ptr<Active>& waiting) {
    if (!waiting->sequence->cancelled()) return false;
    waiting->sequence->Ended(SequenceEnd::kCancelled, "");
    return true;
  });
  for (SlotId id(0); id < end_of_slots(); ++id) {
    const auto& active = slots_[id.index()].active;
    if (active && !active->ended && active->sequence->cancelled())
      End(id, SequenceEnd::kCancelled, "");
  }
}

size_t Scheduler::SlotsOf(AttentionId socket) const {
  const std::span<const SlotId> ends = limits_.attention_slot_ends;
  if (ends.empty()) return limits_.slots;
  const size_t at = socket.index();
  return ends[at].index() - (at == 0 ? 0 : ends[at - 1].index());
}

bool Scheduler::MayReuse(const Slot& slot, const Active& active) const {
  return options_.reuse_prefixes && slot.tenant == active.sequence->tenant();
}

// The most tokens to compute of which it needs no more than keys and values. The last one is always
// computed, since its logits are wanted.
size_t Scheduler::MostReused(const Active& active) const {
  const size_t most = active.to_compute().size() - 1;
  const Wanted wants = active.sequence->wanted();
  return wants == Wanted::kHiddenOfAll                             ? 0
         : wants == Wanted::kPromptLogits && active.generated == 0 ? std::min(most, active.given)
                                                                   : most;
}

size_t Scheduler::CommonPrefix(const Slot& slot, const Active& active) const {
  if (!MayReuse(slot, active)) return 0;
  const std::span<const int32_t> tokens = active.to_compute();
  const auto end =
      std::mismatch(slot.tokens.begin(), slot.tokens.end(), tokens.begin(), tokens.end());
  return std::min(static_cast<size_t>(end.first - slot.tokens.begin()), MostReused(active));
}

// Begins with the longest prefix that a slot or a kept sequence has, if one is worth reusing: in
// that slot, if it is idle and what it has beyond the prefix is not worth keeping; else in the idle
// slot of the same attention socket that was unused for longest, with the prefix's chunks. Without
// a prefix: in such a slot of the least busy socket. nullopt: no slot is idle.
// One that is to have a certain slot begins with what this has.
std::optional<Scheduler::Place> Scheduler::ChoosePlace(const Active& active) const {
  if (const std::optional<SlotId> wanted = active.sequence->slot()) {
    const Slot& slot = slots_[wanted->index()];
    if (slot.active) return std::nullopt;
    const size_t common = CommonPrefix(slot, active);
    return Place{*wanted, *wanted, common, MayTake(*wanted, common, active)};
  }
  const size_t prompt_tokens = active.to_compute().size();
  std::vector<size_t> used(std::max<size_t>(limits_.attention_slot_ends.size(), 1), 0);
  std::vector<std::optional<SlotId>> oldest(used.size());  // [socket]: the idle slot unused for
                                                           // longest
  for (SlotId id(0); id < end_of_slots(); ++id) {
    const Slot& slot = slots_[id.index()];
    const AttentionId socket = kv_.socket_of(id);
    used[socket.index()] += slot.active != nullptr;
    if (slot.active) continue;
    std::optional<SlotId>& longest = oldest[socket.index()];
    if (!longest || slot.last_used < slots_[longest->index()].last_used) longest = id;
  }
  std::optional<Place> best;
  for (SlotId id(0); id < end_of_lists(); ++id) {
    const Slot& slot = slots_[id.index()];
    const size_t common = CommonPrefix(slot, active);
    if (common < std::min(kWorthReusing, (prompt_tokens + 1) / 2) || common == 0) continue;
    if (best && best->tokens >= common) continue;
    const std::optional<SlotId> other = oldest[kv_.socket_of(id).index()];
    if (!other) continue;
    const bool takes = MayTake(id, common, active);
    best = Place{takes && id < end_of_slots() ? id : *other, id, common, takes};
  }
  if (best) return best;
  const auto share = [&](AttentionId socket) {
    return static_cast<double>(used[socket.index()]) / static_cast<double>(SlotsOf(socket));
  };
  const auto key = [&](SlotId slot) {
    return std::pair(share(kv_.socket_of(slot)), slots_[slot.index()].last_used);
  };
  for (const std::optional<SlotId>& slot : oldest) {
    if (slot && (!best || key(*slot) < key(best->slot))) best = Place{*slot, *slot, 0};
  }
  return best;
}

// The chunks that the prompt and the first token need beside those that they share.
size_t Scheduler::ChunksNeeded(const Active& active, size_t shared_tokens) const {
  const size_t positions = kv_.shape().chunk_positions;
  return std::min(active.to_compute().size() / positions + 1, kv_.shape().slot_chunks()) -
         shared_tokens / positions;
}

// Whether a sequence that has ended is better cut to its first `common` tokens and gone on with
// than kept: if what it has beyond them is little, or if for a copy of the prefix others would lose
// as much.
bool Scheduler::MayTake(SlotId source, size_t common, const Active& active) const {
  const Slot& slot = slots_[source.index()];
  if (slot.active) return false;
  const size_t rest = slot.tokens.size() - common;
  if (rest < kWorthReusing) return true;
  const size_t needed = ChunksNeeded(active, common);
  return kv_.free(kv_.socket_of(source)) < needed &&
         CeilDiv(rest, kv_.shape().chunk_positions) <= needed;
}

// Whether a slot that computes its prompt will soon have much more of this one than `place` has.
// The background's is not soon: its prompts are narrow, and nobody waits for it.
bool Scheduler::IsBeingComputed(const Active& active, const Place& place) const {
  const std::span<const int32_t> tokens = active.to_compute();
  const auto has_more = [&](SlotId id) {
    const Slot& slot = slots_[id.index()];
    if (slot.active->background && !slot.active->restored && !active.background) return false;
    if (!MayReuse(slot, active) || kv_.socket_of(id) != kv_.socket_of(place.slot)) return false;
    const std::span<const int32_t> theirs = slot.active->to_compute();
    const auto end = std::mismatch(theirs.begin(), theirs.end(), tokens.begin(), tokens.end());
    const size_t common =
        std::min(static_cast<size_t>(end.first - theirs.begin()), MostReused(active));
    return common >= place.most() + (place.tokens > 0 && id == place.source ? 1 : kWorthWaiting);
  };
  return std::ranges::any_of(prefilling_, has_more) || std::ranges::any_of(loading_, has_more);
}

// Whether the attention socket has so many chunks beside those that the place shares. If nothing
// runs there, it has.
bool Scheduler::HasRoom(size_t needed, const Place& place) const {
  const AttentionId socket = kv_.socket_of(place.slot);
  size_t room = kv_.free(socket);
  bool runs = false;
  for (SlotId id(0); id < end_of_lists() && room < needed; ++id) {
    if (kv_.socket_of(id) != socket) continue;
    runs = runs || slots_[id.index()].active;
    if (id == place.source && place.tokens > 0) {
      // what it takes over, the last shared chunk too
      const size_t positions = kv_.shape().chunk_positions;
      if (place.takes) room += CeilDiv(kv_.length(id), positions) - place.tokens / positions;
    } else if (!slots_[id.index()].active) {
      room += kv_.own(id);
    }
  }
  return room >= needed || !runs;
}

// Begins the first queued sequence that need not wait for a prefix. Returns whether one has begun.
bool Scheduler::AdmitOne() {
  for (const size_t i : NextOfQueue()) {
    const Active& next = *queue_[i];
    if (next.background &&
        (!queue_.front()->background ||
         (options_.background_slots > 0 && background_ >= options_.background_slots)))
      return false;
    std::optional<Place> place = ChoosePlace(next);
    if (!place) return false;
    FindStored(next, *place);
    if (!next.sequence->slot() && IsBeingComputed(next, *place)) continue;
    if (!HasRoom(ChunksNeeded(next, place->tokens), *place) ||
        !MayRunToo(next, kv_.socket_of(place->slot))) {
      chunks_wanted_ = true;
      return false;
    }
    for (size_t before = 0; before < i && !next.background; ++before) ++queue_[before]->overtaken;
    std::unique_ptr<Active> active = std::move(queue_[i]);
    queue_.erase(queue_.begin() + static_cast<std::ptrdiff_t>(i));
    Begin(*place, std::move(active));
    return true;
  }
  return false;
}

void Scheduler::Admit() {
  MakeWay();
  chunks_wanted_ = false;
  while (actives_ < limits_.slots && AdmitOne()) {
  }
  Set(status_.waiting, queue_.size());
}

void Scheduler::Begin(const Place& place, std::unique_ptr<Active> active) {
  const SlotId id = place.slot;
  Slot& slot = slots_[id.index()];
  size_t reused = place.tokens;
  SlotId source = place.source;
  if (reused > 0) slots_[source.index()].last_used = ++uses_;
  if (!(place.takes && source == id) && slot.tokens.size() >= kWorthReusing) {
    const std::optional<SlotId> kept = Keep(id);
    if (source == id && reused > 0) source = kept.value_or(id);
  }
  if (source != id) {
    const std::vector<int32_t>& theirs = slots_[source.index()].tokens;
    const bool taken = place.takes && source >= end_of_slots() && kv_.Restore(id, source);
    if (!taken) {
      while (kv_.free(kv_.socket_of(id)) == 0 && ShortenOldest(kv_.socket_of(id), id, source)) {
      }
      reused = kv_.Fork(id, source, reused);
    }
    // Not by assignment, which could give away what is reserved.
    slot.tokens.assign(theirs.begin(), theirs.begin() + static_cast<std::ptrdiff_t>(reused));
    if (taken) slots_[source.index()].tokens.clear();
  } else {
    slot.tokens.resize(reused);
    if (reused == 0) kv_.Reset(id);
  }
  slot.tenant = active->sequence->tenant();
  slot.last_used = ++uses_;
  slot.active = std::move(active);
  if (slot.active->order == 0)
    slot.active->order = uses_ + (slot.active->background ? kBehindAll : 0);
  slot.active->yields = slot.active->makes_way = false;
  slot.active->overtaken = 0;
  ++actives_;
  background_ += slot.active->background;
  slot.active->sequence->InSlot(id);
  Set(slot_status_[id.index()].state, SlotStatus::kPrefill);
  if (place.stored == 0 || !Load(id, place.stored)) BeginPrompt(id);
}

// The slot's sequence has all that it reuses of others.
void Scheduler::BeginPrompt(SlotId id) {
  Slot& slot = slots_[id.index()];
  const size_t reused = slot.tokens.size();
  const auto behind = std::ranges::partition_point(
      prefilling_, [this](SlotId of) { return !slots_[of.index()].active->background; });
  prefilling_.insert(slot.active->background ? prefilling_.end() : behind, id);
  if (!slot.active->restored) {
    SocketStatus::Add(status_.prefix_hits, reused > 0);
    SocketStatus::Add(status_.reused_tokens, reused);
  }
  Set(slot_status_[id.index()].cached_tokens, reused);
  Set(slot_status_[id.index()].generated_tokens, slot.active->generated);
  if (slot.active->generated == 0) slot.active->sequence->Admitted(reused);
}

// Forgets the slot's tokens, with their keys and values.
void Scheduler::Forget(SlotId id) {
  slots_[id.index()].tokens.clear();
  kv_.Reset(id);
  if (id >= end_of_slots()) return;
  Set(slot_status_[id.index()].cached_tokens, 0);
  Set(slot_status_[id.index()].generated_tokens, 0);
}

// Keeps the idle slot's sequence without it, in the place of the one unused for longest, and
// returns that; nullopt: all are in use since.
std::optional<SlotId> Scheduler::Keep(SlotId id) {
  std::optional<SlotId> oldest;
  for (SlotId kept = end_of_slots(); kept < end_of_lists(); ++kept) {
    const auto used = [this](SlotId of) { return slots_[of.index()].last_used; };
    if (!oldest || used(kept) < used(*oldest)) oldest = kept;
  }
  Slot& slot = slots_[id.index()];
  if (!oldest || slots_[oldest->index()].last_used > slot.last_used) return std::nullopt;
  Slot& kept = slots_[oldest->index()];
  kv_.Keep(*oldest, id);
  kept.tokens = slot.tokens;
  kept.tenant = slot.tenant;
  kept.last_used = slot.last_used;
  slot.tokens.clear();
  return oldest;
}

// Takes the last chunk from the ended sequence of the socket that was unused for longest, but two.
// Returns whether there was one.
bool Scheduler::ShortenOldest(AttentionId socket, SlotId but, SlotId or_but) {
  std::optional<SlotId> oldest;
  for (SlotId id(0); id < end_of_lists(); ++id) {
    const Slot& slot = slots_[id.index()];
    if (slot.active || kv_.length(id) == 0 || kv_.socket_of(id) != socket || id == but ||
        id == or_but)
      continue;
    if (!oldest || slot.last_used < slots_[oldest->index()].last_used) oldest = id;
  }
  if (!oldest) return false;
  const size_t positions = kv_.shape().chunk_positions;
  const size_t length = (kv_.length(*oldest) - 1) / positions * positions;
  std::vector<int32_t>& tokens = slots_[oldest->index()].tokens;
  tokens.resize(std::min(tokens.size(), length));
  kv_.Shorten(*oldest, length);
  if (*oldest < end_of_slots()) Set(slot_status_[oldest->index()].cached_tokens, tokens.size());
  return true;
}

// Reserves chunks for positions [begin, end) of the slot: shortens ended sequences, those unused
// for longest first, then parks the youngest, as long as they are younger than this one and have no
// rows in a micro-batch that is filled or in flight. Returns whether there is room.
bool Scheduler::MakeRoom(SlotId id, size_t begin, size_t end) {
  const AttentionId socket = kv_.socket_of(id);
  while (kv_.Reserve(id, begin, end) < end) {
    if (kv_.free(socket) > 0)
      return false;  // it is the updates that are used up: in the next micro-batch
    const bool shortened = ShortenOldest(socket, id, id);
    // What was cut off, or all that is left, may be waiting to be written.
    if (kv_.free(socket) == 0 && DropStores()) continue;
    if (shortened) continue;
    const std::optional<SlotId> youngest = YoungestOf([&](SlotId other, const Active& active) {
      return other != id && kv_.socket_of(other) == socket && !active.loading &&
             active.rows_in_flight == 0 && active.batch != batch_ &&
             active.order >= slots_[id.index()].active->order;
    });
    if (!youngest) return false;
    SocketStatus::Add(status_.preempted, Leave(*youngest, /*keeps_kv=*/false));
    Forget(*youngest);
  }
  return true;
}

void Scheduler::ShowKvChunks() {
  size_t all = 0, free = 0;
  for (AttentionId socket(0);
       socket.index() < std::max<size_t>(limits_.attention_slot_ends.size(), 1); ++socket) {
    all += kv_.pool(socket);
    free += kv_.free(socket);
  }
  Set(status_.kv_chunks, all);
  Set(status_.used_kv_chunks, all - free);
  Set(status_.shared_kv_chunks, kv_.shared());
}

// Takes the sequence out of its slot, to be continued later in any slot, from its tokens alone.
// None of its rows is in flight any more.
std::unique_ptr<Scheduler::Active> Scheduler::Park(SlotId id, bool keeps_kv) {
  Slot& slot = slots_[id.index()];
  std::unique_ptr<Active> active = std::move(slot.active);
  std::erase(sitting_out_, id);
  active->logits = {};  // they are computed again, to the same bits
  if (active->generated > 0) {
    if (!keeps_kv) {
      SocketStatus::Add(status_.parked, 1);
      SocketStatus::Add(status_.recomputed_tokens, slot.tokens.size());
    }
    const size_t all = active->sequence->prompt().size() + active->generated;
    if (active->decoding) {
      active->replay = slot.tokens;
      if (active->replay.size() < all) active->replay.push_back(active->next_token);
      --decoding_;
      active->decoding = false;
    }
    LARDER_CHECK(active->replay.size() == all);
  }
  --actives_;
  background_ -= active->background;
  Set(slot_status_[id.index()].state, SlotStatus::kIdle);
  return active;
}

bool Scheduler::IsReady(Sequence& sequence) {
  if (sequence.ready(0)) return true;  // nearly always: without a look at the clock
  if (patience_ns_ == 0) return false;
  const uint64_t begin = clock_->now_ns();
  const bool ready = sequence.ready(patience_ns_);
  patience_ns_ -= std::min(patience_ns_, clock_->now_ns() - begin);
  return ready;
}

void Scheduler::ContinueOrSitOut(SlotId id, std::span<const float> logits) {
  Active& active = *slots_[id.index()].active;
  if (IsReady(*active.sequence)) return Continue(id, logits);
  active.logits.assign(logits.begin(), logits.end());
  sitting_out_.push_back(id);
}

void Scheduler::AskThoseThatSitOut() {
  patience_ns_ = 0;
  for (size_t i = 0; i < sitting_out_.size();) {
    const SlotId id = sitting_out_[i];
    Active& active = *slots_[id.index()].active;
    if (!active.sequence->ready(0)) {
      ++i;
      continue;
    }
    sitting_out_.erase(sitting_out_.begin() + static_cast<std::ptrdiff_t>(i));
    const std::vector<float> logits = std::exchange(active.logits, {});
    Continue(id, logits);
  }
}

// Nothing is in flight, and nothing can be submitted before one of those that sit out can go on.
void Scheduler::WaitForOne(Intake& intake) {
  const Pulse::Rest rest(engine_.pulse());
  const Active& longest = *slots_[sitting_out_.front().index()].active;
  if (!longest.sequence->ready(kLonePatienceNs)) intake.WaitForWork(kSitOutMs);
}

void Scheduler::Continue(SlotId id, std::span<const float> logits) {
  Slot& slot = slots_[id.index()];
  Active& active = *slot.active;
  std::optional<int32_t> next;
  try {
    next = active.sequence->Next(logits);
  } catch (const Error& error) {
    End(id, SequenceEnd::kFailed, error.what());
    return;
  }
  ++active.generated;
  active.losses = 0;
  Set(slot_status_[id.index()].generated_tokens, active.generated);
  if (!next) {
    End(id, SequenceEnd::kComplete, "");
  } else if (slot.tokens.size() + 1 >= limits_.context) {  // prompt and text fill it
    End(id, SequenceEnd::kContextFull, "");
  } else {
    LARDER_CHECK(*next >= 0 && static_cast<size_t>(*next) < limits_.vocab, "token {}", *next);
    active.next_token = *next;
    ready_.push_back(id);
    if (!active.decoding) {
      active.decoding = true;
      active.replay = {};
      ++decoding_;
      Set(slot_status_[id.index()].state, SlotStatus::kDecode);
    }
  }
}

void Scheduler::End(SlotId id, SequenceEnd end, const std::string& why) {
  Active& active = *slots_[id.index()].active;
  if (active.decoding) --decoding_;
  active.decoding = false;
  active.ended = true;
  active.logits = {};
  std::erase(sitting_out_, id);
  std::erase(prefilling_, id);
  ready_.Remove(id);
  active.sequence->Ended(end, why);
  FreeIfDone(id);
}

void Scheduler::FreeIfDone(SlotId id) {
  Slot& slot = slots_[id.index()];
  if (!slot.active || !slot.active->ended || slot.active->rows_in_flight > 0) return;
  if (slot.active->loading) return;
  background_ -= slot.active->background;
  slot.active.reset();
  slot.last_used = ++uses_;
  --actives_;
  Set(slot_status_[id.index()].state, SlotStatus::kIdle);
  if (options_.tier != nullptr && !lost_) Store(id);
}

// Sees whether files have more of the prompt than `place`; then what `place` reuses ends with a
// whole chunk.
void Scheduler::FindStored(const Active& active, Place& place) const {
  const size_t most = MostReused(active);
  if (options_.tier == nullptr || !options_.reuse_prefixes || most == 0) return;
  const std::span<const int32_t> tokens = active.to_compute();
  const size_t positions = kv_.shape().chunk_positions;
  const size_t stored =
      options_.tier->Find(tokens.first(most), active.sequence->tenant()) * positions;
  if (stored < place.tokens + kWorthReusing) return;
  place.stored = stored;
  place.tokens -= place.tokens % positions;
  if (place.tokens == 0) place = {.slot = place.slot, .source = place.slot, .stored = stored};
}

KvJob Scheduler::JobFor(SlotId id, KvJob::Kind kind, std::span<const int32_t> tokens,
                        size_t first) const {
  KvJob job{.kind = kind,
            .slot = id,
            .tokens = {tokens.begin(), tokens.end()},
            .tenant = slots_[id.index()].tenant,
            .first = first,
            .alone = actives_ == 1,
            .chunks = {},
            .memory = {}};
  for (size_t i = first; i < tokens.size() / kv_.shape().chunk_positions; ++i) {
    job.chunks.push_back(kv_.chunk(id, i));
    job.memory.push_back(engine_.kv_channel().Memory(job.chunks.back()));
  }
  return job;
}

// Has the tier read the chunks that follow the slot's sequence, up to `tokens` tokens or as far as
// there are free chunks. Returns whether it does.
bool Scheduler::Load(SlotId id, size_t tokens) {
  const size_t positions = kv_.shape().chunk_positions;
  const size_t first = slots_[id.index()].tokens.size() / positions, wanted = tokens / positions;
  if (first * positions != slots_[id.index()].tokens.size())
    return false;  // a fork brought more or less
  kv_.Shorten(id, first * positions);
  size_t has;
  while ((has = kv_.Grow(id, wanted)) < wanted && kv_.free(kv_.socket_of(id)) == 0 &&
         ShortenOldest(kv_.socket_of(id), id, id)) {
  }
  if (has <= first) return false;
  // A chunk that was freed may be what another sequence's beginning is still to be copied from:
  // that comes with the next micro-batch, and the tier would be first.
  for (const model::KvUpdate& update : kv_.updates()) {
    for (size_t i = first; i < has; ++i) {
      if (update.copied_positions > 0 && update.copied_from == kv_.chunk(id, i)) return false;
    }
  }
  Active& active = *slots_[id.index()].active;
  active.loading = true;
  loading_.push_back(id);
  options_.tier->Start(
      JobFor(id, KvJob::Kind::kLoad, active.to_compute().first(has * positions), first));
  return true;
}

// Has the tier write the idle slot's whole chunks that are not in files yet, unless it has a lot
// to do.
void Scheduler::Store(SlotId id) {
  const Slot& slot = slots_[id.index()];
  const size_t whole = slot.tokens.size() / kv_.shape().chunk_positions;
  if (whole == 0 || !options_.reuse_prefixes) return;
  const size_t stored = options_.tier->Find(slot.tokens, slot.tenant);
  if (stored >= whole || options_.tier->chunks_to_store() > kv_.pool(kv_.socket_of(id)) / 2) return;
  const std::span<const int32_t> tokens = slot.tokens;
  KvJob job =
      JobFor(id, KvJob::Kind::kStore, tokens.first(whole * kv_.shape().chunk_positions), stored);
  for (const uint32_t chunk : job.chunks) kv_.Hold(chunk);
  options_.tier->Start(std::move(job));
}

// Takes back what the tier has moved.
void Scheduler::TakeMoved() {
  if (options_.tier == nullptr) return;
  while (const std::optional<KvJob> job = options_.tier->Take()) {
    if (job->kind == KvJob::Kind::kStore) {
      for (const uint32_t chunk : job->chunks) kv_.LetGo(chunk);
      continue;
    }
    Slot& slot = slots_[job->slot.index()];
    const size_t end = (job->first + job->done) * kv_.shape().chunk_positions;
    kv_.Extend(job->slot, end);
    slot.tokens.assign(job->tokens.begin(), job->tokens.begin() + static_cast<std::ptrdiff_t>(end));
    slot.active->loading = false;
    std::erase(loading_, job->slot);
    if (slot.active->ended) {
      kv_.Shorten(job->slot, end);
      FreeIfDone(job->slot);
    } else {
      BeginPrompt(job->slot);
    }
  }
}

// Takes back what the tier would write later. Returns whether there was anything.
bool Scheduler::DropStores() {
  bool any = false;
  while (const std::optional<KvJob> job =
             options_.tier != nullptr ? options_.tier->Drop() : std::nullopt) {
    for (const uint32_t chunk : job->chunks) kv_.LetGo(chunk);
    any = true;
  }
  return any;
}

void Scheduler::FinishMoving() {
  try {
    while (options_.tier != nullptr && options_.tier->jobs() > 0) {
      const size_t jobs = options_.tier->jobs();
      options_.tier->Wait(kFinishMs);
      TakeMoved();
      if (options_.tier->jobs() == jobs && options_.tier->needs_steps())
        throw ChainLostError("a socket has not stored a KV chunk for {} s", kFinishMs / 1000);
    }
  } catch (const ChainLostError& lost) {
    ChainWasLost(lost.what());
  }
  ShowKvChunks();
}

// No micro-batch is in flight any more and every slot is empty. All sequences go back to the queue,
// in their order of admission, but one whose slot was lost again and again without a token: it may
// be the cause.
void Scheduler::ChainWasLost(const std::string& why) {
  if (losses_in_a_row_++ == 0) lost_since_ns_ = static_cast<int64_t>(clock_->now_ns());
  if (!lost_) {
    SocketStatus::Add(status_.lost, 1);
    first_loss_ = why;
    const std::lock_guard lock(outage_mutex_);
    outage_ = {.why = why, .since_ns = lost_since_ns_};
  } else if (why != first_loss_) {
    const std::lock_guard lock(outage_mutex_);
    outage_->why = fmt::format("{}; not back yet: {}", first_loss_, why);
  }
  lost_ = true;
  in_flight_ = 0;
  if (options_.tier != nullptr) options_.tier->Abandon();
  loading_.clear();
  std::vector<std::unique_ptr<Active>> again;
  for (SlotId id(0); id < end_of_lists(); ++id) {
    Slot& slot = slots_[id.index()];
    if (slot.active) {
      slot.active->rows_in_flight = 0;
      const bool had_rows = !std::exchange(slot.active->loading, false);  // else it is no cause
      if (slot.active->ended) {
        FreeIfDone(id);
      } else if (had_rows && ++slot.active->losses > kMostLosses) {
        End(id, SequenceEnd::kUnavailable, why);
      } else {
        again.push_back(Park(id));
      }
    }
    Forget(id);
  }
  prefilling_.clear();
  ready_.clear();
  std::sort(again.begin(), again.end(),
            [](const auto& a, const auto& b) { return a->order > b->order; });
  for (auto& active : again) Enqueue(std::move(active), /*first=*/true);
  Set(status_.waiting, queue_.size());
}

void Scheduler::ChainIsBack() {
  // If there is work, the losses are counted until a step succeeds: a stage that fails in every
  // step must not keep requests waiting for ever.
  if (!busy()) losses_in_a_row_ = 0;
  if (!lost_) return;
  lost_ = false;
  const std::lock_guard lock(outage_mutex_);
  outage_.reset();
}

bool Scheduler::PatienceIsOver(int64_t since_ns) const {
  return static_cast<int64_t>(clock_->now_ns()) - since_ns >=
         int64_t{options_.patience_ms} * 1'000'000;
}

// While the chain is lost no sequence has a slot, so all of them are in the queue.
void Scheduler::RefuseQueued(Intake& intake) {
  if (!lost_ || queue_.empty() || !PatienceIsOver(lost_since_ns_)) return;
  for (const auto& waiting : queue_)
    waiting->sequence->Ended(SequenceEnd::kUnavailable, outage_->why);
  queue_.clear();
  Set(status_.waiting, 0);
  intake.StepDone();  // tells clients now, not after the next attempt to connect
}

std::optional<Outage> Scheduler::outage() const {
  const std::lock_guard lock(outage_mutex_);
  std::optional<Outage> now = outage_;
  if (now) now->refusing = PatienceIsOver(now->since_ns);
  return now;
}

}  // namespace larder::pipeline::scheduler
