// Program: what one thread does for one frame, as a flat array of steps. Built once at set-up
// (weight_node, attention_node), then read-only and walked for every frame. A step:
//   1. waits until each flag of waits[0..wait_count) has reached base_epoch + epoch_offset,
//   2. runs kernel(operand, frames[part]), if there is one,
//   3. signals `signal` with base_epoch + epoch_offset, if there is one,
//   4. meets all threads of the pool at the pool's barrier, if `barrier`.
// A step with `needed` does 1 and 2 only in frames that need it.
// base_epoch belongs to the pool and grows by `epochs` with each Pool::Execute. So epoch_offset is
// in [1, epochs], and a flag needs no reset between frames. Every thread's program must have the
// same number of `barrier` steps.
#pragma once

#include <cstdint>
#include <type_traits>

#include "sync/epoch_flag.h"

namespace larder::threadpool {

// operand: what was known at set-up (addresses, shapes). frame: what changes per frame, from
// Execute's frames.
using Kernel = void (*)(const void* operand, void* frame);

struct Step {
  Kernel kernel = nullptr;
  const void* operand = nullptr;
  bool (*needed)(const void* operand, const void* frame) = nullptr;  // null: in every frame
  sync::EpochFlag* const* waits = nullptr;
  uint32_t wait_count = 0;
  uint32_t epoch_offset = 1;
  sync::EpochFlag* signal = nullptr;
  // How the waiters of `signal`, threads of this pool or of another process, wait. kAdaptive is
  // always right; the program's builder sets kSpin if all of them spin, which is cheaper.
  sync::WaitPolicy::Mode waiters = sync::WaitPolicy::Mode::kAdaptive;
  bool barrier = false;
  uint8_t part = 0;    // which of Execute's frames the kernel gets
  uint16_t kind = 0;   // for timelines and traces: what the step is, as numbered by the program's
                       // builder
  uint16_t layer = 0;  // for timelines and traces
};
static_assert(sizeof(Step) <= 64 && std::is_trivially_copyable_v<Step>,
              "a step is one cache line at most");

struct Program {
  const Step* steps = nullptr;
  uint32_t count = 0;
};

}  // namespace larder::threadpool
