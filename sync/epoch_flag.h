// EpochFlag: one producer signals "epoch e is done", any number of threads wait for it. The value
// only moves forward and is never reset, so every frame can reuse a flag without a second
// synchronisation. Values are compared by signed difference, so the counter may wrap. A waiter on a
// flag that was not signalled within the last 2^31 epochs would take it as reached. An epoch is one
// layer of a frame, and a small model passes 2^31 of them in ten hours. A flag that is not
// signalled in every frame is therefore signalled again before it gets that old (FlagRefresh,
// pipeline/stage/exchange.h).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/memory.h"
#include "sync/wait.h"

namespace larder::sync {

inline bool EpochReached(uint32_t value, uint32_t epoch) {
  return static_cast<int32_t>(value - epoch) >= 0;
}

template <typename Machine>
class alignas(kFalseSharingBytes) BasicEpochFlag {
 public:
  BasicEpochFlag() = default;
  explicit BasicEpochFlag(uint32_t start) : value_(start) {
    static_assert(Apart(offsetof(BasicEpochFlag, value_), offsetof(BasicEpochFlag, sleepers_)));
  }
  BasicEpochFlag(const BasicEpochFlag&) = delete;
  BasicEpochFlag& operator=(const BasicEpochFlag&) = delete;

  // Only the flag's one producer calls Signal. What it wrote before is visible to a thread whose
  // Wait or Reached saw the epoch.
  void Signal(uint32_t epoch) { Publish<Machine>(value_, sleepers_, epoch); }

  // The same, for a caller that knows how the waiters on this flag wait (which need not be how the
  // caller itself waits). If all of them spin, no thread can be asleep, and a release store, which
  // pairs with the acquire loads in Wait, is enough. It saves 14 cycles, or some 290 if 32 lines
  // that another core has just read were written before it: a locked store waits for those
  // (measured on a virtual Xeon).
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
  // On a line of its own: sleeping waiters write it, and the producer's store to value_ must not
  // wait for it.
  alignas(kFalseSharingBytes) typename Machine::Word sleepers_{0};
};

using EpochFlag = BasicEpochFlag<HostMachine>;
static_assert(sizeof(EpochFlag) == 2 * kFalseSharingBytes &&
              alignof(EpochFlag) == kFalseSharingBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

}  // namespace larder::sync
