// What a scheduler shows of itself. Any thread may read it; relaxed throughout: the numbers are
// independent.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace larder::pipeline::inline sequences {

// The current state of a slot.
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
  std::atomic<uint64_t> transitions{0};  // between prompts and decoding: SchedulePolicy
  std::atomic<uint64_t> lost{0};         // times the chain was lost
  std::atomic<uint64_t> preempted{0};    // sequences that lost their slot to an older one
  std::atomic<uint64_t> yielded{0};      // sequences that gave their slot back: background ones, or
                                         // because of active_tokens
  std::atomic<uint64_t> parked{0};       // sequences that had tokens and lost their slot
  std::atomic<uint64_t> recomputed_tokens{0};  // tokens that those had in the KV cache
  std::atomic<uint32_t> waiting{0};
  std::atomic<uint32_t> kv_chunks{0};         // chunks of all attention sockets, in the first class
                                              // of memory (pipeline/kv/README.md)
  std::atomic<uint32_t> used_kv_chunks{0};    // those of them with keys and values of some sequence
  std::atomic<uint32_t> shared_kv_chunks{0};  // those, of all classes, that several share
  std::atomic<uint32_t> kept_states{0};       // KvChunks::kept_states
};

template <typename T>
void ShowNumber(std::atomic<T>& number, size_t value) {
  number.store(static_cast<T>(value), std::memory_order_relaxed);
}

}  // namespace larder::pipeline::sequences
