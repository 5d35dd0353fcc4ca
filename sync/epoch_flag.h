// EpochFlag: one producer says "epoch e is done", any number of threads wait for it. The value only moves
// forward and is never reset, so a flag can be reused for every frame without a second synchronisation.
// Comparison is by signed difference: the counter may wrap, but a flag that is waited on must have been
// signalled within the last 2^31 epochs (at one epoch a token and 2,600 tokens/s: 9 days).
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "base/memory.h"
#include "sync/wait.h"

namespace larder::sync {

inline bool EpochReached(uint32_t value, uint32_t epoch) { return static_cast<int32_t>(value - epoch) >= 0; }

class alignas(kFalseSharingBytes) EpochFlag {
 public:
  EpochFlag() = default;
  explicit EpochFlag(uint32_t start) : value_(start) {}
  EpochFlag(const EpochFlag&) = delete;
  EpochFlag& operator=(const EpochFlag&) = delete;

  // Only the flag's one producer calls Signal. All that it wrote before is visible after a Wait or Reached
  // that saw the epoch.
  void Signal(uint32_t epoch) { Publish(value_, sleepers_, epoch); }

  // The same, where all who wait on the flag use `policy` too: if they only spin, nobody can be asleep and
  // a release store, which pairs with the acquire loads in Wait, is enough.
  void Signal(uint32_t epoch, const WaitPolicy& policy) {
    if (policy.mode == WaitPolicy::Mode::kSpin) {
      value_.store(epoch, std::memory_order_release);
    } else {
      Publish(value_, sleepers_, epoch);
    }
  }

  void Wait(uint32_t epoch, const WaitPolicy& policy) {
    WaitUntil(value_, sleepers_, policy, [epoch](uint32_t value) { return EpochReached(value, epoch); });
  }

  // acquire: pairs with the store in Signal
  uint32_t Load() const { return value_.load(std::memory_order_acquire); }
  bool Reached(uint32_t epoch) const { return EpochReached(Load(), epoch); }

 private:
  std::atomic<uint32_t> value_{0};
  // On a line of its own: sleepers write it, and the producer's store to value_ must not wait for that line.
  alignas(kFalseSharingBytes) std::atomic<uint32_t> sleepers_{0};
};
static_assert(sizeof(EpochFlag) == 2 * kFalseSharingBytes && alignof(EpochFlag) == kFalseSharingBytes);
static_assert(std::atomic<uint32_t>::is_always_lock_free && sizeof(std::atomic<uint32_t>) == 4);

}  // namespace larder::sync
