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
// A sequence may have drafts of the tokens after its next one (Sequence::Draft): they are computed
// in the same step, and it takes as many tokens from it as it would have chosen anyway.
//
// A sequence that needs something from another thread before it can choose its next token (the mask
// of a grammar) sits out steps, with its logits kept: no other sequence waits for it.
//
// When the chain is lost, its sequences are parked: once it is whole again, the prompt and the
// tokens made so far are computed again, to the same bits, and the sequence goes on where it was. A
// client sees a pause.
//
// The loop is here; each part of the state has an owner in pipeline/sequences/: SlotTable,
// WaitingQueue, Running, RightOfWay, StoredChunks, SlotOrders; and Outages knows whether the chain
// is lost.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/ids.h"
#include "base/memory.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/kv_store/kv_tier.h"
#include "pipeline/scheduler/outages.h"
#include "pipeline/scheduler/policy.h"
#include "pipeline/scheduler/step_costs.h"
#include "pipeline/sequences/request.h"
#include "pipeline/sequences/right_of_way.h"
#include "pipeline/sequences/running.h"
#include "pipeline/sequences/scheduler_status.h"
#include "pipeline/sequences/slot_orders.h"
#include "pipeline/sequences/slot_table.h"
#include "pipeline/sequences/stored_chunks.h"
#include "pipeline/sequences/waiting_queue.h"

namespace larder::pipeline::inline scheduler {

struct SchedulerOptions {
  PolicyOptions policy = {};
  bool reuse_prefixes = true;
  // The most tokens of KV that the running sequences of an attention socket may have together, in
  // bytes of tokens of a full context; one sequence may always run. 0: no limit.
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

class Scheduler {
 public:
  Scheduler(TokenEngine&, const SchedulerOptions&);
  ~Scheduler();

  // Runs until the intake's WaitForWork() returns false. Requests cannot make it throw.
  void Run(Intake&);

  std::span<const SlotStatus> slots() const { return slots_.status(); }
  const SchedulerStatus& status() const { return status_; }
  // The status of the tier's files, if there is a tier. Any thread.
  const KvFilesStatus& files() const {
    return options_.tier != nullptr ? options_.tier->status() : no_files_;
  }
  // nullopt: the chain is connected. Any thread.
  std::optional<Outage> outage() const { return outages_.Now(); }
  // Carries out the order between steps; returns when it is done, or with an error after `most_ms`.
  // Tokens restored without keys and values are still being computed then, or read from the tier: a
  // prompt that begins with them waits for them, but this is given up whenever background sequences
  // are parked. Background sequences give up their slots for orders other than kSave. Any thread
  // but the scheduler's, one at a time. nudge: must end the intake's WaitForWork, whenever it
  // began.
  void Execute(SlotOrder& order, const std::function<void()>& nudge, int most_ms) {
    slot_orders_.Execute(order, nudge, most_ms);
  }

 private:
  struct Part {  // adjacent rows of one slot in a micro-batch
    SlotId slot;
    size_t first, rows;  // positions
    size_t wanted;       // number of its last rows whose logits or hidden states are wanted
    bool last;     // of a prompt: its last row is the last one to compute before the next token
    bool decodes;  // behind its prompt: the next token's row, and those of its drafts
    bool pauses = false;  // Active::NextPause is where it ends, not the prompt's end
  };
  // Whose rows a micro-batch of the engine has.
  struct ScheduledBatch {
    std::vector<Part> parts;  // capacity: as many as rows
    size_t prefill_rows = 0, decode_rows = 0;
    size_t logit_rows = 0;  // the rows of prefill_rows whose logits a prompt wants
                            // (Wanted::kPromptLogits)
    uint64_t submitted_ns = 0;
  };
  struct Choice {
    Sequence* sequence;
    std::span<const float> logits;
    std::optional<size_t> position;  // position in the prompt, for PromptLogits; nullopt: Prepare
    void Make() const {
      if (position) return sequence->PromptLogits(*position, logits);
      sequence->Prepare(logits);
    }
  };

  // Between steps.
  void TakeNew(Intake&);
  void Admit();
  bool AdmitOne();
  bool IsBeingComputed(const Active&, const Place&);
  void AskThoseThatSitOut();
  void WaitForOne(Intake&);
  void WaitForTier();
  bool Rest(Intake&);
  void ChainWasLost(const std::string& why);
  void ChainIsBack();
  void RefuseQueued(Intake&);
  void FinishMoving();
  bool busy() const { return slots_.actives() > 0 || !queue_.empty(); }
  // A step.
  bool FillBatch();
  void AddDecodeRows(ScheduledBatch&, size_t most);
  void AddDecodeRowsOf(SlotId, ScheduledBatch&, size_t most);
  void AddPromptRows(ScheduledBatch&, size_t most);
  void OrderPrompts();
  size_t AddPromptOf(SlotId, ScheduledBatch&, size_t most, size_t& logits);
  void Submit(ScheduledBatch&);
  void KeepStateBehind(const Part&);
  void CollectOldest();
  void PrepareNext(const ScheduledBatch&);
  void TakeResults(const Part&, size_t first_logits);
  void TakeDrafted(const Part&, size_t first_logits);
  bool IsGood(SlotId, size_t logits);
  std::optional<int32_t> Choose(SlotId, std::span<const float> logits);
  bool IsReady(Sequence&);

  TokenEngine& engine_;
  const EngineLimits& limits_;
  const SchedulerOptions options_;
  Clock own_clock_;
  Clock* const clock_;
  const std::unique_ptr<SchedulePolicy> policy_;
  alignas(kCacheLineBytes) SchedulerStatus status_;
  SlotTable slots_;
  WaitingQueue queue_;
  StoredChunks stored_;
  Running running_;
  RightOfWay right_of_way_;
  alignas(kCacheLineBytes) SlotOrders slot_orders_;
  alignas(kCacheLineBytes) Outages outages_;
  bool chunks_wanted_ = false;           // RightOfWay::MakeWay
  std::vector<ScheduledBatch> batches_;  // a ring like the engine's: in_flight_ entries from
                                         // oldest_ on
  size_t oldest_ = 0, in_flight_ = 0;
  // Of a micro-batch; members so that steps do not allocate.
  std::vector<TokenRow> rows_;
  std::vector<SlotId> prompt_order_;
  std::vector<Choice> choosing_;
  std::vector<int32_t> drafted_;
  StepCosts costs_;
  uint64_t last_collect_ns_ = 0;
  uint64_t patience_ns_ = 0;  // how long a step may still wait for sequences that sit out
  const KvFilesStatus no_files_;
};

}  // namespace larder::pipeline::scheduler
