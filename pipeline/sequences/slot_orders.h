// SlotOrders: what somebody wants done with the KV cache of an idle slot: saved, restored or
// erased, by the scheduler's thread between two steps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

#include "base/ids.h"
#include "pipeline/engine/token_engine.h"
#include "pipeline/kv_store/slot_file.h"
#include "pipeline/sequences/right_of_way.h"
#include "pipeline/sequences/running.h"
#include "pipeline/sequences/slot_table.h"
#include "pipeline/sequences/stored_chunks.h"
#include "pipeline/sequences/waiting_queue.h"

namespace larder::pipeline::inline sequences {

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

class SlotOrders {
 public:
  // All must outlive it.
  SlotOrders(TokenEngine& engine, SlotTable& slots, StoredChunks& stored, WaitingQueue& queue,
             Running& running, const RightOfWay& right_of_way);

  // Scheduler::Execute.
  void Execute(SlotOrder& order, const std::function<void()>& nudge, int most_ms);
  // Does what is ordered, if it can be done now. Called between steps. in_flight: whether
  // micro-batches are; lost: whether the chain is lost.
  void Take(const Intake& intake, bool in_flight, bool lost);
  // A slot of the background that an order waits for.
  std::optional<SlotId> waits_for() const { return waits_for_; }

 private:
  bool Do(SlotOrder& order, const Intake& intake, bool lost);
  bool IsOfAnother(const SlotOrder& order) const;
  void Save(SlotOrder& order);
  void RestoreSaved(SlotOrder& order);
  void ComputeSaved(SlotOrder& order, const Intake& intake, bool lost);
  // Whether what a slot has can be copied: else a saved slot is its tokens, and computed again.
  bool HasMemory() const { return !channel_.Memory(0).empty(); }

  KvChannel& channel_;
  SlotTable& slots_;
  StoredChunks& stored_;
  WaitingQueue& queue_;
  Running& running_;
  const RightOfWay& right_of_way_;
  std::optional<SlotId> waits_for_;
  std::atomic<bool> ordered_{false};
  std::mutex mutex_;
  std::condition_variable done_;
  SlotOrder* order_ = nullptr;  // null: there is none, or it is done
};

}  // namespace larder::pipeline::sequences
