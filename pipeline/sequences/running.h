// Running: the sequences that have slots, from the first row of their prompt to their end: which of
// them compute prompts, which have a next token, which sit out steps. A running sequence is in
// exactly one of these lists, or has rows in flight that will put it into one, or is loading
// (stored_chunks.h). Sequences leave their slots here: at their end, or to go on later.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "pipeline/sequences/scheduler_status.h"
#include "pipeline/sequences/slot_queue.h"
#include "pipeline/sequences/slot_table.h"
#include "pipeline/sequences/stored_chunks.h"
#include "pipeline/sequences/waiting_queue.h"

namespace larder::pipeline::inline sequences {

class Running {
 public:
  // All must outlive it.
  Running(SlotTable& slots, StoredChunks& stored, WaitingQueue& queue, SchedulerStatus& status);

  // Slots that compute prompts, in order of admission, those of the background last.
  std::span<const SlotId> prompts() const { return prompts_; }
  // Among these and those that `which` accepts, the one that began first.
  template <typename Which>
  std::optional<SlotId> OldestPrompt(Which which) const {
    std::optional<SlotId> oldest;
    for (const SlotId id : prompts_) {
      const Active& active = slots_.active(id);
      if (!which(active)) continue;
      if (!oldest || active.order < slots_.active(*oldest).order) oldest = id;
    }
    return oldest;
  }
  SlotQueue& ready() { return ready_; }          // slots whose next token is known
  size_t decoding() const { return decoding_; }  // sequences behind their prompts
  std::span<const SlotId> sitting_out() const { return sitting_out_; }

  // Begins in the place, or goes on; perhaps when files have been read.
  void Begin(const Place& place, std::unique_ptr<Active> active);
  // A slot's sequence has all that it reuses of others: its prompt comes next.
  void BeginPrompt(SlotId id);
  // What the tier has moved: such sequences begin.
  void TakeLoaded();
  // All tokens of the prompt are in micro-batches.
  void PromptIsSubmitted(SlotId id) { std::erase(prompts_, id); }
  // `token` is the next one of a sequence whose tokens are all submitted.
  void HasNext(SlotId id, int32_t token);
  // It can't choose its next token yet: the logits are kept.
  void SitOut(SlotId id, std::span<const float> logits);
  // It can now. Returns the logits.
  std::vector<float> SitIn(SlotId id);

  // Reserves chunks for positions [begin, end) of the slot: shortens ended sequences, those unused
  // for longest first, then parks the youngest, as long as they are younger than this one and have
  // no rows in a micro-batch that is filled or in flight. Returns whether there is room.
  bool Reserve(SlotId id, size_t begin, size_t end) {
    return slots_.kv().Reserve(id, begin, end) == end || MakeRoom(id, begin, end);
  }
  // Micro-batches are numbered: who has rows in the one that is being filled is not parked.
  void NextBatch() { ++batch_; }
  void MarkInBatch(SlotId id) { slots_.active(id).batch = batch_; }

  bool MayYield(SlotId id) const {
    const Active* active = slots_[id].active.get();
    return active != nullptr && !active->ended && !active->yields;
  }
  // The sequence gets no more rows, and leaves its slot when none is in flight. Returns whether it
  // has left it, to go on later.
  bool Yield(SlotId id);
  void End(SlotId id, SequenceEnd end, const std::string& why);
  void EndCancelled();
  // The slot is free when its sequence has ended and none of its rows is in flight.
  void FreeIfDone(SlotId id);
  // No micro-batch is in flight any more and every slot is empty. All sequences go back to the
  // queue, in their order of admission, but one whose slot was lost again and again without a
  // token: it may be the cause.
  void ChainWasLost(const std::string& why);

 private:
  bool MakeRoom(SlotId id, size_t begin, size_t end);
  bool Leave(SlotId id, bool keeps_kv);
  std::unique_ptr<Active> Park(SlotId id, bool keeps_kv);
  void DropFromLists(SlotId id);

  SlotTable& slots_;
  StoredChunks& stored_;
  WaitingQueue& queue_;
  SchedulerStatus& status_;
  std::vector<SlotId> prompts_;
  SlotQueue ready_;
  std::vector<SlotId> sitting_out_;  // the one that sits out for longest first
  size_t decoding_ = 0;
  uint64_t batch_ = 0;
};

}  // namespace larder::pipeline::sequences
