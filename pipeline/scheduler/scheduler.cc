#include "pipeline/scheduler/scheduler.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/error.h"
#include "pipeline/chain/chain.h"
#include "pipeline/stage/socket_status.h"

namespace larder::pipeline::inline scheduler {
namespace {

// A prompt waits for another's to be computed that has so many more of its tokens than any slot has
// now, or any more if that one has the most now.
constexpr size_t kWorthWaiting = 64;
constexpr int kShortestPauseMs = 20, kLongestPauseMs = 500;  // between attempts to reconnect
constexpr int kLookMs = 250;       // how often an idle pipeline is checked
constexpr int kTierMs = 2;         // and one whose chunks are being stored
constexpr int kFinishMs = 10'000;  // for a job, before a scheduler that ends gives it up
constexpr uint64_t kLonePatienceNs = 2'000'000;  // for one, if all sit out
constexpr int kSitOutMs = 1;                     // and then, between two looks

}  // namespace

Scheduler::Scheduler(TokenEngine& engine, const SchedulerOptions& options)
    : engine_(engine),
      limits_(engine.limits()),
      options_(options),
      clock_(options.clock != nullptr ? options.clock : &own_clock_),
      policy_(MakePolicy(options.policy)),
      slots_(engine, options.reuse_prefixes, status_),
      queue_(slots_),
      stored_(options.tier, engine, slots_),
      running_(slots_, stored_, queue_, status_),
      right_of_way_(slots_, stored_, queue_, running_, options.active_tokens),
      slot_orders_(engine, slots_, stored_, queue_, running_, right_of_way_),
      outages_(*clock_, options.patience_ms),
      batches_(limits_.capacity.max_in_flight) {
  // Reserves all that steps need, so that they do not allocate.
  for (ScheduledBatch& batch : batches_) batch.parts.reserve(limits_.capacity.max_batch_tokens);
  rows_.reserve(limits_.capacity.max_batch_tokens);
  choosing_.reserve(limits_.max_logits);
  drafted_.reserve(limits_.max_logits);
  prompt_order_.reserve(limits_.capacity.slots);
}

Scheduler::~Scheduler() = default;

void Scheduler::Run(Intake& intake) {
  last_collect_ns_ = clock_->now_ns();
  for (;;) {
    engine_.pulse().Beat();
    TakeNew(intake);
    queue_.DropCancelled();
    running_.EndCancelled();
    RefuseQueued(intake);
    running_.TakeLoaded();
    slot_orders_.Take(intake, in_flight_ > 0, outages_.lost());
    bool waits = false;  // every sequence waits for chunks that are being read, or written
    try {
      if (outages_.lost() || !busy()) {  // otherwise Submit does it
        engine_.Reconnect();
        ChainIsBack();
      }
      stored_.Watch();
      AskThoseThatSitOut();
      Admit();
      while (in_flight_ < batches_.size() && FillBatch()) {
      }
      waits = in_flight_ == 0 && (busy() || stored_.needs_steps());
      if (in_flight_ > 0) CollectOldest();
    } catch (const ChainLostError& lost) {
      ChainWasLost(lost.what());
    }
    intake.StepDone();
    if (waits && !running_.sitting_out().empty()) {
      WaitForOne(intake);
    } else if (waits) {
      WaitForTier();
    }
    if (!Rest(intake)) break;
  }
  FinishMoving();
}

void Scheduler::TakeNew(Intake& intake) {
  while (auto sequence = intake.Take()) {
    const size_t tokens = sequence->prompt().size(), context = limits_.capacity.context;
    if (tokens > 0 && tokens <= context) {
      queue_.Add(std::make_unique<Active>(std::move(sequence)), /*first=*/false);
    } else {
      sequence->Ended(SequenceEnd::kRefused, PromptProblem(tokens, context));
    }
  }
}

void Scheduler::Admit() {
  right_of_way_.MakeWay(chunks_wanted_, slot_orders_.waits_for());
  chunks_wanted_ = false;
  while (slots_.actives() < limits_.capacity.slots && AdmitOne()) {
  }
  ShowNumber(status_.waiting, queue_.size());
}

// Begins the first queued sequence that need not wait for a prefix. Returns whether one has begun.
bool Scheduler::AdmitOne() {
  for (const size_t i : queue_.Next()) {
    const Active& next = queue_[i];
    if (next.background &&
        (queue_.any_in_front() ||
         (options_.background_slots > 0 && slots_.background() >= options_.background_slots)))
      return false;
    std::optional<Place> place = slots_.ChoosePlace(next);
    if (!place) return false;
    stored_.Find(next, *place);
    if (!next.sequence->slot() && IsBeingComputed(next, *place)) continue;
    if (!slots_.HasRoom(slots_.ChunksNeeded(next, place->tokens), *place) ||
        !right_of_way_.MayRunToo(next, slots_.kv().socket_of(place->slot))) {
      chunks_wanted_ = true;
      return false;
    }
    running_.Begin(*place, queue_.Take(i));
    return true;
  }
  return false;
}

// Whether a slot that computes its prompt will soon have much more of this one than `place` has.
// The background's is not soon: its prompts are narrow, and nobody waits for it. With states, the
// other prompt pauses where the two part, so that this one can go on there.
bool Scheduler::IsBeingComputed(const Active& active, const Place& place) {
  const KvChunks& kv = slots_.kv();
  const auto has_more = [&](SlotId id) {
    const Slot& slot = slots_[id];
    if (slot.active->background && !slot.active->restored && !active.background) return false;
    if (!slots_.MayReuse(slot, active) || kv.socket_of(id) != kv.socket_of(place.slot))
      return false;
    size_t common = active.CommonWith(slot.active->to_compute());
    if (kv.shape().states()) {
      if (common >= place.most() + kWorthWaiting)
        slots_.active(id).PauseAt(common, slot.tokens.size());
      common = slot.active->LastPause(common);
    }
    return common >= place.most() + (place.tokens > 0 && id == place.source ? 1 : kWorthWaiting);
  };
  return std::ranges::any_of(running_.prompts(), has_more) ||
         std::ranges::any_of(stored_.loading(), has_more);
}

bool Scheduler::IsReady(Sequence& sequence) {
  if (sequence.ready(0)) return true;  // nearly always: without a look at the clock
  if (patience_ns_ == 0) return false;
  const uint64_t begin = clock_->now_ns();
  const bool ready = sequence.ready(patience_ns_);
  patience_ns_ -= std::min(patience_ns_, clock_->now_ns() - begin);
  return ready;
}

// The next token; nullopt: the sequence has ended.
std::optional<int32_t> Scheduler::Choose(SlotId id, std::span<const float> logits) {
  Active& active = slots_.active(id);
  std::optional<int32_t> next;
  try {
    next = active.sequence->Next(logits);
  } catch (const Error& error) {
    running_.End(id, SequenceEnd::kFailed, error.what());
    return std::nullopt;
  }
  ++active.generated;
  active.losses = 0;
  slots_.ShowTokens(id);
  if (!next) {
    running_.End(id, SequenceEnd::kComplete, "");
  } else if (slots_[id].tokens.size() + 1 >= limits_.capacity.context) {  // prompt and text fill it
    running_.End(id, SequenceEnd::kContextFull, "");
    next.reset();
  } else {
    LARDER_CHECK(*next >= 0 && static_cast<size_t>(*next) < limits_.vocab, "token {}", *next);
  }
  return next;
}

void Scheduler::AskThoseThatSitOut() {
  patience_ns_ = 0;
  for (size_t i = 0; i < running_.sitting_out().size();) {
    const SlotId id = running_.sitting_out()[i];
    if (!slots_.active(id).sequence->ready(0)) {
      ++i;
      continue;
    }
    const std::vector<float> logits = running_.SitIn(id);
    if (const std::optional<int32_t> next = Choose(id, logits)) running_.HasNext(id, *next);
  }
}

// Nothing is in flight, and nothing can be submitted before one of those that sit out can go on.
void Scheduler::WaitForOne(Intake& intake) {
  const Pulse::Rest rest(engine_.pulse());
  Sequence& longest = *slots_.active(running_.sitting_out().front()).sequence;
  if (!longest.ready(kLonePatienceNs)) intake.WaitForWork(kSitOutMs);
}

void Scheduler::WaitForTier() {
  try {
    stored_.Wait(busy() ? kLookMs : 0);
  } catch (const ChainLostError& lost) {
    ChainWasLost(lost.what());
  }
}

// Called between steps: sleeps if there is nothing to do, and between attempts to reconnect.
// Returns false to end Run().
bool Scheduler::Rest(Intake& intake) {
  const Pulse::Rest rest(engine_.pulse());
  const int pause_ms =
      std::min(kShortestPauseMs << std::min(outages_.in_a_row(), 10), kLongestPauseMs);
  if (!busy() && in_flight_ == 0) {
    return intake.WaitForWork(outages_.lost()         ? pause_ms
                              : stored_.needs_steps() ? kTierMs
                              : limits_.can_be_lost   ? kLookMs
                                                      : -1);
  }
  if (outages_.lost()) clock_->SleepMs(pause_ms);
  return true;
}

void Scheduler::ChainWasLost(const std::string& why) {
  SocketStatus::Add(status_.lost, outages_.Lost(why));
  in_flight_ = 0;
  running_.ChainWasLost(why);
  ShowNumber(status_.waiting, queue_.size());
}

void Scheduler::ChainIsBack() {
  if (!busy()) outages_.Succeeded();
  outages_.Back();
}

// While the chain is lost no sequence has a slot, so all of them are in the queue.
void Scheduler::RefuseQueued(Intake& intake) {
  if (queue_.empty() || !outages_.refuses()) return;
  queue_.Refuse(outages_.Now()->why);
  ShowNumber(status_.waiting, 0);
  intake.StepDone();  // tells clients now, not after the next attempt to connect
}

void Scheduler::FinishMoving() {
  try {
    while (stored_.jobs() > 0) {
      const size_t jobs = stored_.jobs();
      stored_.Wait(kFinishMs);
      running_.TakeLoaded();
      if (stored_.jobs() == jobs && stored_.needs_steps())
        throw ChainLostError("a socket has not stored a KV chunk for {} s", kFinishMs / 1000);
    }
  } catch (const ChainLostError& lost) {
    ChainWasLost(lost.what());
  }
  slots_.ShowChunks();
}

}  // namespace larder::pipeline::scheduler
