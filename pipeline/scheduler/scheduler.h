// Scheduler: continuous batching. Sequences join and leave between steps; each has a slot of the KV
// cache; a step's micro-batch has one row per decoding sequence and, within a budget, rows of
// prompts. As many micro-batches are in flight as the engine allows. A sequence's tokens do not
// depend on any of this. It runs on the engine's thread; any thread may read the counters.
//
// The KV cache of an ended sequence is kept as long as there are chunks (pipeline/kv/kv_chunks.h):
// in its slot, or without a slot when another sequence gets that one. A prompt with the same
// beginning as another sequence, running or ended, shares the chunks of that beginning; if they are
// just being computed, it waits for them.
//
// With a KvTier, whole chunks of ended sequences are also kept in files, up to a limit; a prompt
// with the same beginning gets a slot and goes on when the chunks have been read.
//
// When chunks run out, ended sequences are shortened, those unused for longest first. If that is
// not enough, because the KV caches have fewer chunks than all slots could take, the youngest
// running sequences are parked. The oldest never waits for a younger one.
//
// If the KV of all running sequences would not stay in L3 beside the weights, fewer may run at once
// (active_tokens): the youngest wait, with their KV kept, until it is their turn.
//
// Background sequences (Sequence::background) come after all others: in the queue, among the
// prompts of a micro-batch, and as the youngest when chunks run out. While another sequence waits
// for a slot or for chunks, they are parked, the youngest first.
//
// A sequence that needs something from another thread before it can choose its next token (the mask
// of a grammar) sits out steps, with its logits kept: no other sequence waits for it.
//
// When the chain is lost, its sequences are parked: once it is whole again, the prompt and the
// tokens made so far are computed again, to the same bits, and the sequence goes on where it was. A
// client sees a pause.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/memory.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/kv_store/kv_tier.h"
#include "pipeline/kv_store/slot_file.h"
#include "pipeline/scheduler/policy.h"
#include "pipeline/scheduler/request.h"

namespace larder::pipeline::inline scheduler {

struct SchedulerOptions {
  PolicyOptions policy = {};
  bool reuse_prefixes = true;
  // The most tokens of KV that the running sequences of an attention socket may have together; one
  // sequence may always run. 0: no limit.
  size_t active_tokens = 0;
  // The most background sequences that run at once. 0: as many as there are slots left by others.
  size_t background_slots = 0;
  // How long requests, running ones included, wait after the chain was lost; then they end, and new
  // ones are refused until it is back. An attempt to connect takes a second or two, so the end may
  // be that much late.
  int patience_ms = 5000;
  Clock* clock = nullptr;  // null: the real one
  // Keeps whole chunks of ended sequences and brings them back; null: they are not kept. A KvMover
  // if the engine's chunks are in this process (KvChannel::Memory), else a ChainKvTier.
  KvTier* tier = nullptr;
};

// The current state of a slot. relaxed throughout: the numbers are independent.
struct SlotStatus {
  enum State : uint32_t { kIdle, kPrefill, kDecode };
  std::atomic<uint32_t> state{kIdle};
  std::atomic<uint32_t> cached_tokens{0};
  std::atomic<uint32_t> generated_tokens{0};
};

struct SchedulerStatus {
  std::atomic<uint64_t> steps{0};
  std::atomic<uint64_t> prefill_rows{0}, decode_rows{0};
  std::atomic<uint64_t> busy_slots{0};  // slots with rows in a step, summed over all steps
  std::atomic<uint64_t> prefix_hits{0}, reused_tokens{0};
  std::atomic<uint64_t> transitions{0};        // between prompts and decoding: SchedulePolicy
  std::atomic<uint64_t> lost{0};               // times the chain was lost
  std::atomic<uint64_t> preempted{0};          // sequences that lost their slot to an older one
  std::atomic<uint64_t> yielded{0};            // sequences that gave their slot back: background
                                               // ones, or because of active_tokens
  std::atomic<uint64_t> parked{0};             // sequences that had tokens and lost their slot
  std::atomic<uint64_t> recomputed_tokens{0};  // tokens that those had in the KV cache
  std::atomic<uint32_t> waiting{0};
  std::atomic<uint32_t> kv_chunks{0};         // chunks of all attention sockets
  std::atomic<uint32_t> used_kv_chunks{0};    // those of them with keys and values of some sequence
  std::atomic<uint32_t> shared_kv_chunks{0};  // those of them that several sequences share
};

// An order to save, restore or erase the KV cache of an idle slot.
struct SlotOrder {
  enum class Kind { kSave, kRestore, kErase };
  Kind kind = Kind::kErase;
  SlotId slot{0};
  SlotContents contents = {};  // what was saved, or is to be restored
  // The tenant whose tokens may be saved or erased; nullopt: any tenant's.
  std::optional<uint64_t> owner = {};
  // Gets a line, on the scheduler's thread, if restoring by computation is given up.
  std::function<void(const std::string&)> on_given_up = {};
  size_t tokens = 0;     // tokens saved, restored or erased
  std::string error;     // empty: it was done
  bool later = true;     // with an error: the same order may succeed later
  bool foreign = false;  // with an error: the tokens have another owner
};

class Scheduler {
 public:
  Scheduler(TokenEngine&, const SchedulerOptions&);
  ~Scheduler();

  // Runs until the intake's WaitForWork() returns false. Requests cannot make it throw.
  void Run(Intake&);

  std::span<const SlotStatus> slots() const { return slot_status_; }
  const SchedulerStatus& status() const { return status_; }
  // The status of the tier's files, if there is a tier. Any thread.
  const KvFilesStatus& files() const {
    return options_.tier != nullptr ? options_.tier->status() : no_files_;
  }
  // nullopt: the chain is connected. Any thread.
  std::optional<Outage> outage() const;
  // Carries out the order between steps; returns when it is done, or with an error after `most_ms`.
  // Tokens restored without keys and values are still being computed then, or read from the tier: a
  // prompt that begins with them waits for them, but this is given up whenever background sequences
  // are parked. Background sequences give up their slots for orders other than kSave. Any thread
  // but the scheduler's, one at a time. nudge: must end the intake's WaitForWork, whenever it
  // began.
  void Execute(SlotOrder& order, const std::function<void()>& nudge, int most_ms);

 private:
  // A sequence in a slot, or in the queue for one.
  struct Active {
    explicit Active(std::unique_ptr<Sequence> of)
        : sequence(std::move(of)), background(sequence->background()) {}
    // The tokens to compute before its next one: those of the prompt, and after a loss the
    // generated ones.
    std::span<const int32_t> to_compute() const {
      return replay.empty() ? sequence->prompt() : std::span<const int32_t>(replay);
    }

    std::unique_ptr<Sequence> sequence;
    const bool background;
    bool restored = false;        // a background sequence that fills a slot for a SlotOrder, not
                                  // for a client
    std::vector<float> logits;    // the logits of a sequence that sits out; empty: it does not
    std::vector<int32_t> replay;  // prompt and generated tokens; empty: it lost nothing after its
                                  // first token
    size_t rows_in_flight = 0;
    size_t generated = 0;
    size_t given = 0;        // positions of the prompt whose logits it has: Wanted::kPromptLogits
    int losses = 0;          // losses of its slot since its last token
    uint64_t order = 0;      // order of admission; background sequences come after all others
    uint64_t batch = 0;      // the last micro-batch that it has rows in
    int32_t next_token = 0;  // to be submitted next, if it is decoding
    bool decoding = false;   // all of to_compute() is done
    bool loading = false;  // its first chunks are being read from files; it has no rows until then
    int overtaken = 0;     // how many later ones got a slot while it waited for one
    size_t made_way = 0;   // tokens of prompts for which it gave up its slot
    bool makes_way = false;  // it leaves its slot for a shorter prompt
    bool yields = false;     // gets no more rows, and is parked when none is in flight
    bool ended = false;  // Ended() was called; the slot is freed when none of its rows is in flight
  };
  struct Slot {
    std::vector<int32_t> tokens;  // tokens whose keys and values it holds, including submitted ones
    uint64_t tenant = 0;          // the tenant for which they were computed
    uint64_t last_used = 0;
    std::unique_ptr<Active> active;  // null: idle
  };
  struct Part {  // adjacent rows of one slot in a micro-batch
    SlotId slot;
    size_t first, rows;  // positions
    size_t wanted;       // number of its last rows whose logits or hidden states are wanted
    bool last;           // its last row is the last one to compute before the next token
  };
  // Whose rows a micro-batch of the engine has.
  struct ScheduledBatch {
    std::vector<Part> parts;  // capacity: as many as rows
    size_t prefill_rows = 0, decode_rows = 0;
    size_t logit_rows = 0;  // the rows of prefill_rows whose logits a prompt wants
                            // (Wanted::kPromptLogits)
    uint64_t submitted_ns = 0;
  };
  // A FIFO of slots, each in it at most once. Its capacity is all slots, so it never allocates.
  class SlotQueue {
   public:
    explicit SlotQueue(size_t slots) : slots_(slots) {}
    size_t size() const { return count_; }
    void clear() { count_ = 0; }
    void push_back(SlotId slot) { at(count_++) = slot; }
    SlotId pop_front() {
      const SlotId slot = at(0);
      first_ = (first_ + 1) % slots_.size();
      --count_;
      return slot;
    }
    void Remove(SlotId slot) {
      size_t kept = 0;
      for (size_t i = 0; i < count_; ++i) {
        if (at(i) != slot) at(kept++) = at(i);
      }
      count_ = kept;
    }

   private:
    SlotId& at(size_t i) { return slots_[(first_ + i) % slots_.size()]; }
    std::vector<SlotId> slots_;
    size_t first_ = 0, count_ = 0;
  };

  void TakeOrder(const Intake&);
  bool Do(SlotOrder&, const Intake&);
  bool IsOfAnother(const SlotOrder&) const;
  void Save(SlotOrder&);
  void RestoreSaved(SlotOrder&);
  void ComputeSaved(SlotOrder&, const Intake&);
  void TakeNew(Intake&);
  void Enqueue(std::unique_ptr<Active>, bool first);
  void MakeWay();
  void MakeWayForShort();
  size_t RestOf(const Active&) const;
  size_t LeftIn(SlotId) const;
  // Among the slots that compute prompts and that `which` accepts, the one that began first.
  template <typename Which>
  std::optional<SlotId> OldestPrompt(Which which) const {
    std::optional<SlotId> oldest;
    for (const SlotId id : prefilling_) {
      const Active& active = *slots_[id.index()].active;
      if (!which(active)) continue;
      if (!oldest || active.order < slots_[oldest->index()].active->order) oldest = id;
    }
    return oldest;
  }
  std::optional<SlotId> TakenSlotOf(const Active&) const;
  std::vector<size_t> NextOfQueue() const;
  void KeepWithinActiveTokens();
  bool Yield(SlotId);
  bool Leave(SlotId, bool keeps_kv);
  bool MayYield(SlotId) const;
  // Among the running sequences of all slots that `which` accepts, the one that began last.
  template <typename Which>
  std::optional<SlotId> YoungestOf(Which which) const {
    std::optional<SlotId> youngest;
    for (SlotId id(0); id < end_of_slots(); ++id) {
      const Active* active = slots_[id.index()].active.get();
      if (active == nullptr || !which(id, *active)) continue;
      if (!youngest || active->order > slots_[youngest->index()].active->order) youngest = id;
    }
    return youngest;
  }
  size_t RunningChunks(AttentionId) const;
  bool MayRunToo(const Active&, AttentionId) const;
  void DropCancelled();
  void Admit();
  // Where a sequence begins: in `slot`, with the first `tokens` tokens of `source`, which may be
  // `slot` itself.
  struct Place {
    SlotId slot, source;
    size_t tokens = 0;
    bool takes = false;  // the source, an ended sequence, gives up everything beyond these
    size_t stored = 0;   // tokens whose chunks are in files; 0: no more than `tokens`
    size_t most() const { return std::max(tokens, stored); }
  };
  bool MayReuse(const Slot&, const Active&) const;
  size_t MostReused(const Active&) const;
  size_t CommonPrefix(const Slot&, const Active&) const;
  std::optional<Place> ChoosePlace(const Active&) const;
  bool IsBeingComputed(const Active&, const Place&) const;
  size_t ChunksNeeded(const Active&, size_t shared_tokens) const;
  bool MayTake(SlotId source, size_t common, const Active&) const;
  bool HasRoom(size_t chunks, const Place&) const;
  bool AdmitOne();
  void Begin(const Place&, std::unique_ptr<Active>);
  void BeginPrompt(SlotId);
  void FindStored(const Active&, Place&) const;
  bool Load(SlotId, size_t tokens);
  void Store(SlotId);
  KvJob JobFor(SlotId, KvJob::Kind, std::span<const int32_t> tokens, size_t first) const;
  void TakeMoved();
  bool DropStores();
  void WaitForTier();
  bool TierWaits() const { return options_.tier != nullptr && options_.tier->needs_steps(); }
  void FinishMoving();
  std::unique_ptr<Active> Park(SlotId, bool keeps_kv = false);
  void Forget(SlotId);
  std::optional<SlotId> Keep(SlotId);
  bool ShortenOldest(AttentionId, SlotId but, SlotId or_but);
  SlotId end_of_slots() const { return SlotId(static_cast<int32_t>(limits_.slots)); }
  SlotId end_of_lists() const { return SlotId(static_cast<int32_t>(slots_.size())); }
  bool MakeRoom(SlotId, size_t begin, size_t end);
  bool Reserve(SlotId id, size_t begin, size_t end) {
    return kv_.Reserve(id, begin, end) == end || MakeRoom(id, begin, end);
  }
  void ShowKvChunks();
  bool FillBatch();
  void AddDecodeRows(ScheduledBatch&, size_t most);
  void AddPromptRows(ScheduledBatch&, size_t most);
  void OrderPrompts();
  size_t AddPromptOf(SlotId, ScheduledBatch&, size_t most, size_t& logits);
  size_t LogitRowsWithin(size_t rows) const;
  void Submit(ScheduledBatch&);
  void CollectOldest();
  void PrepareNext(const ScheduledBatch&);
  void ContinueOrSitOut(SlotId, std::span<const float> logits);
  void Continue(SlotId, std::span<const float> logits);
  bool IsReady(Sequence&);
  void AskThoseThatSitOut();
  void WaitForOne(Intake&);
  void TakeHidden(const Part&, size_t position, std::span<const float> state);
  void End(SlotId, SequenceEnd, const std::string& why);
  void FreeIfDone(SlotId);
  void UpdateStepCosts(const ScheduledBatch&, double step_ns);
  void ChainWasLost(const std::string& why);
  void ChainIsBack();
  bool PatienceIsOver(int64_t since_ns) const;
  void RefuseQueued(Intake&);
  bool Rest(Intake&);
  size_t SlotsOf(AttentionId) const;
  bool busy() const { return actives_ > 0 || !queue_.empty(); }

  TokenEngine& engine_;
  const EngineLimits& limits_;
  KvChunks& kv_;
  SchedulerOptions options_;
  Clock own_clock_;
  Clock* const clock_;
  const std::unique_ptr<SchedulePolicy> policy_;
  std::deque<std::unique_ptr<Active>> queue_;  // those of the background last
  std::vector<Slot> slots_;                    // [slot], then the kept sequences: KvChunks::lists()
  std::vector<SlotId> prefilling_;             // in order of admission, background sequences last
  std::vector<SlotId> prompt_order_;           // their order in a micro-batch
  std::vector<SlotId> loading_;      // in the same order: slots whose chunks the tier reads
  SlotQueue ready_;                  // slots whose next token is known; longest waiting first
  std::vector<SlotId> sitting_out_;  // slots whose next token can't be chosen yet
  uint64_t patience_ns_ = 0;         // how long a step may still wait for sequences that sit out
  size_t actives_ = 0, decoding_ = 0;
  size_t background_ = 0;                // background sequences among actives_
  bool chunks_wanted_ = false;           // the first in the queue could get a slot, but no chunks,
                                         // or no room within active_tokens
  std::vector<ScheduledBatch> batches_;  // a ring like the engine's: in_flight_ entries from
                                         // oldest_ on
  size_t oldest_ = 0, in_flight_ = 0;
  struct Choice {
    Sequence* sequence;
    std::span<const float> logits;
    std::optional<size_t> position;  // position in the prompt, for PromptLogits; nullopt: Prepare
    void Make() const {
      if (position) return sequence->PromptLogits(*position, logits);
      sequence->Prepare(logits);
    }
  };
  std::vector<Choice> choosing_;  // choices of a collected micro-batch
  std::vector<TokenRow> rows_;    // rows of the current micro-batch
  uint64_t batch_ = 0;            // number of the current micro-batch
  uint64_t uses_ = 0;             // orders the slots' last uses
  // Smoothed; 0: not known. logit_row_ns_: the additional time for the logits of a prompt's row.
  double decode_step_ns_ = 0, prompt_row_ns_ = 0, logit_row_ns_ = 0;
  uint64_t last_collect_ns_ = 0;
  bool lost_ = false;          // the chain is lost and not connected again
  int losses_in_a_row_ = 0;    // losses without a completed step between them
  int64_t lost_since_ns_ = 0;  // time of the first of them
  // The compute thread locks it only when the chain is lost or comes back.
  alignas(kCacheLineBytes) mutable std::mutex outage_mutex_;
  std::optional<Outage> outage_;
  std::string first_loss_;
  std::atomic<bool> ordered_{false};
  std::mutex order_mutex_;
  std::condition_variable order_done_;
  SlotOrder* order_ = nullptr;           // null: there is none, or it is done
  std::optional<SlotId> ordered_slot_;   // slot that a background sequence is to leave for an order
  std::vector<SlotStatus> slot_status_;  // [slot]
  alignas(kCacheLineBytes) SchedulerStatus status_;
  const KvFilesStatus no_files_;
};

}  // namespace larder::pipeline::scheduler
