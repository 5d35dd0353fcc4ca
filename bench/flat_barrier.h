// The textbook barrier, for comparison: all threads increment a counter in one cache line, and the
// last to arrive releases the others by a second line. It waits as sync/'s barrier does, with the
// same policy, so only the structure differs.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/memory.h"
#include "sync/wait.h"

namespace larder::bench {

class FlatBarrier {
 public:
  FlatBarrier(int threads, sync::WaitPolicy policy)
      : threads_(static_cast<uint32_t>(threads)), policy_(policy) {}

  void Wait() {
    const uint32_t round = round_.load(std::memory_order_acquire);
    // acq_rel: the last to arrive has seen all others' writes and passes them on through round_
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == threads_) {
      arrived_.store(0, std::memory_order_relaxed);  // Publish orders it before the next round's
                                                     // counts
      sync::Publish(round_, sleepers_, round + 1);
      return;
    }
    sync::WaitUntil(round_, sleepers_, policy_, [round](uint32_t value) { return value != round; });
  }

 private:
  const uint32_t threads_;
  const sync::WaitPolicy policy_;
  alignas(kFalseSharingBytes) std::atomic<uint32_t> arrived_{0};
  alignas(kFalseSharingBytes) std::atomic<uint32_t> round_{0};
  alignas(kFalseSharingBytes) std::atomic<uint32_t> sleepers_{0};
};

}  // namespace larder::bench
