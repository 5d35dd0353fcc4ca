// EpochFlag: one producer says "epoch e is done", any number of threads wait for it. The value only moves
// forward and is never reset, so a flag can be reused for every frame without a second synchronisation.
// Comparison is by signed difference: the counter may wrap, but a flag that is waited on must have been
// signalled within the last 2^31 epochs, or it counts as reached. An epoch is a layer of a frame: 2^31 of
// them are ten hours of a small model. So a flag that is not signalled in every frame is signalled anew
// before it gets so old (FlagRefresh, pipeline/stage/exchange.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/memory.h"
#include "sync/wait.h"

namespace larder::sync {

inline bool EpochReached(uint32_t value, uint32_t epoch) { return static_cast<int32_t>(value - epoch) >= 0; }

template <typename Machine>
class alignas(kFalseSharingBytes) BasicEpochFlag {
 public:
  BasicEpochFlag() = default;
  explicit BasicEpochFlag(uint32_t start) : value_(start) {}
  BasicEpochFlag(const BasicEpochFlag&) = delete;
  BasicEpochFlag& operator=(const BasicEpochFlag&) = delete;

  // Only the flag's one producer calls Signal. All that it wrote before is visible after a Wait or Reached
  // that saw the epoch.
  void Signal(uint32_t epoch) { Publish<Machine>(value_, sleepers_, epoch); }

  // The same, where it is known how those who wait on the flag do so, which need not be how the signaller
  // waits for others: if all of them spin, nobody can be asleep and a release store, which pairs with the
  // acquire loads in Wait, is enough. It saves 14 cycles, and some 290 where 32 lines that another core has
  // just read were written before (a virtual Xeon): a locked store waits for them.
  void Signal(uint32_t epoch, WaitPolicy::Mode waiters) {
    if (waiters == WaitPolicy::Mode::kSpin) {
      value_.store(epoch, std::memory_order_release);
    } else {
      Publish<Machine>(value_, sleepers_, epoch);
    }
  }

  void Wait(uint32_t epoch, const WaitPolicy& policy) {
    WaitUntil<Machine>(value_, sleepers_, policy,
                       [epoch](uint32_t value) { return EpochReached(value, epoch); });
  }

  // acquire: pairs with the store in Signal
  uint32_t Load() const { return value_.load(std::memory_order_acquire); }
  bool Reached(uint32_t epoch) const { return EpochReached(Load(), epoch); }

 private:
  typename Machine::Word value_{0};
  // On a line of its own: sleepers write it, and the producer's store to value_ must not wait for that line.
  alignas(kFalseSharingBytes) typename Machine::Word sleepers_{0};
};

using EpochFlag = BasicEpochFlag<HostMachine>;
static_assert(sizeof(EpochFlag) == 2 * kFalseSharingBytes && alignof(EpochFlag) == kFalseSharingBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

}  // namespace larder::sync
