// Timelines: when the steps of a Program ran, and the parts of a step. A kernel that does several
// kinds of work calls EndLap where each ends; without a timeline that costs a load and a branch.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace larder::threadpool {

// A cycle counter of constant rate: Pool::TicksPerSecond().
inline uint64_t ReadTicks() { return __builtin_ia32_rdtsc(); }

// A step or, where its kernel has laps, a part of one. The first start of a step is after its
// waits, so start
// - the previous end is the time spent waiting (flags and barrier).
struct StepTime {
  uint64_t start_ticks = 0;
  uint64_t end_ticks = 0;
  uint16_t kind = 0;
  uint16_t layer = 0;
  uint32_t frame = 0;  // counts Executes since EnableTimeline
};

// One thread's record; only that thread writes it while frames run.
class StepTimeline {
 public:
  // Makes room for `capacity` entries and touches it, so that no frame touches a page for the first
  // time. 0: records nothing.
  void Reset(size_t capacity) {
    entries_.assign(capacity, StepTime{});
    if (capacity == 0) entries_.shrink_to_fit();
    recorded_ = 0;
    frame_ = 0;
  }
  bool on() const { return !entries_.empty(); }
  std::span<const StepTime> recorded() const { return {entries_.data(), recorded_}; }

  void Begin(uint16_t layer) {
    layer_ = layer;
    start_ = ReadTicks();
  }
  // What ran since Begin or the last End was of `kind`.
  void End(uint16_t kind) {
    const uint64_t now = ReadTicks();
    if (recorded_ < entries_.size()) entries_[recorded_++] = {start_, now, kind, layer_, frame_};
    start_ = now;
  }
  void EndFrame() { ++frame_; }

 private:
  std::vector<StepTime> entries_;
  size_t recorded_ = 0;
  uint64_t start_ = 0;
  uint32_t frame_ = 0;
  uint16_t layer_ = 0;
};

// The calling thread's timeline while it runs a step that is recorded, else null.
inline constinit thread_local StepTimeline* current_timeline = nullptr;

// The work since the step began, or since its last lap, was of `kind`.
template <typename Kind>
void EndLap(Kind kind) {
  if (current_timeline != nullptr) [[unlikely]]
    current_timeline->End(static_cast<uint16_t>(kind));
}

}  // namespace larder::threadpool
