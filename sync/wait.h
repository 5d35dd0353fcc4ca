// How a thread waits for a 32-bit word that another thread will change: it spins, or it spins for a
// while and then sleeps on a futex. The word may lie in memory that several processes map. The
// spinning is inline; sleeping and waking, the only system calls here, are in wait.cc and are
// reached only when a wait lasts longer than the policy's spin.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/memory.h"

namespace larder::sync {

struct WaitPolicy {
  enum class Mode : uint32_t {
    kSpin,      // the core is ours: never give it up
    kAdaptive,  // other programs may want the core: spin, then sleep
  };
  Mode mode = Mode::kSpin;
  uint32_t spin_iterations = 0;  // kAdaptive only: pauses before sleeping; see SpinIterationsFor()
};

// Tells the core that this is a spin loop: on Intel since Skylake about 140 cycles, on Zen 4 about
// 65, so a loop polls every 20-45 ns, does not starve an SMT sibling, and leaves the loop without a
// pipeline clear.
inline void CpuPause() { __builtin_ia32_pause(); }

// The number of CpuPause() polls that take about `ns` on this machine; measured once, at set-up.
uint32_t SpinIterationsFor(uint64_t ns);

namespace internal {
// Returns when `word` no longer holds `seen`, or spuriously. The caller has counted itself in
// `sleepers`.
void FutexWait(const std::atomic<uint32_t>& word, uint32_t seen);
void FutexWakeAll(const std::atomic<uint32_t>& word);
}  // namespace internal

// The operations that the protocol below is made of, on the real processor and kernel.
// wait_model_test.cc substitutes another machine, on which it runs the same code in every order
// that x86 permits.
struct HostMachine {
  using Word = std::atomic<uint32_t>;
  // Polls without a pause before the first one: a hand-over inside an L3 group takes 25-60 ns, less
  // than one pause on Intel, so the common short wait ends here.
  static constexpr uint32_t kEagerPolls = 32;
  static void Pause() { CpuPause(); }
  static void Sleep(const Word& word, uint32_t seen) { internal::FutexWait(word, seen); }
  static void WakeAll(const Word& word) { internal::FutexWakeAll(word); }
};

// Returns when ready(value of word) holds. Every load of `word` on which it returns is an acquire;
// it pairs with the release (or seq_cst) store in Publish() below.
//
// Sleeping and waking are a Dekker pair over `word` and `sleepers` (each side writes one, reads the
// other):
//   waiter:    sleepers += 1 (seq_cst);  read word (seq_cst);  sleep if word is still the old one
//   signaller: word = new (seq_cst);     read sleepers (seq_cst);  wake if it is not 0
// In the single total order of these four operations at least one side sees the other's write:
// either the waiter sees the new word and does not sleep, or the signaller sees a sleeper and wakes
// it. Weaker orders would let both reads pass both writes (x86 does so with plain stores), and a
// waiter would sleep for ever. A wake that comes between the waiter's read and its sleep is not
// lost: the kernel compares `word` with the value read. wait_model_test.cc tries all orders that
// x86 permits, and checks that without any one of these parts a waiter does sleep for ever.
template <typename Machine = HostMachine, typename Ready>
inline void WaitUntil(const typename Machine::Word& word, typename Machine::Word& sleepers,
                      const WaitPolicy& policy, Ready ready) {
  for (uint32_t i = 0; i < Machine::kEagerPolls; ++i) {
    if (ready(word.load(std::memory_order_acquire))) return;
  }
  if (policy.mode == WaitPolicy::Mode::kSpin) {
    while (!ready(word.load(std::memory_order_acquire))) Machine::Pause();
    return;
  }
  for (uint32_t i = 0; i < policy.spin_iterations; ++i) {
    if (ready(word.load(std::memory_order_acquire))) return;
    Machine::Pause();
  }
  sleepers.fetch_add(1, std::memory_order_seq_cst);
  for (;;) {
    const uint32_t seen = word.load(std::memory_order_seq_cst);
    if (ready(seen)) break;
    Machine::Sleep(word, seen);
  }
  // relaxed: a signaller that still sees this sleeper pays for one needless wake, nothing else
  sleepers.fetch_sub(1, std::memory_order_relaxed);
}

// Stores `value` and wakes all sleepers. Both are seq_cst for the Dekker pair above; on x86 the
// store is an xchg (about 20 cycles beyond a plain store) and the load is a plain one from a line
// that only sleepers write.
template <typename Machine = HostMachine>
inline void Publish(typename Machine::Word& word, typename Machine::Word& sleepers,
                    uint32_t value) {
  word.store(value, std::memory_order_seq_cst);
  if (sleepers.load(std::memory_order_seq_cst) != 0) [[unlikely]]
    Machine::WakeAll(word);
}

}  // namespace larder::sync
