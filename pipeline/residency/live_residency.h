// LiveResidency: the share of the packed weights that is in the cache when a micro-batch comes to
// read them. Now and then a micro-batch samples one part of the weights (a layer, or lm_head with
// what else the model's ends have): right before its first product each thread reads a window of
// its panels of that part, at a place drawn by chance, and takes the time. The products that follow
// find the window in a nearer cache, so most of that time is not lost, and samples rest 400 times
// as long as they take. The times of a window that is in L3 and of one that is not are measured
// when the weights have been packed, by the same threads and the same loop.
//
// A sample says what the step itself meets: other rows, other experts or arithmetic do not change
// it. A neighbour that only slows L3 down shows as a lower share, too.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/memory.h"
#include "pipeline/plan/stage_plan.h"
#include "threadpool/pool.h"
#include "threadpool/program_builder.h"

namespace larder::pipeline::inline residency {

inline constexpr size_t kWindowBytes = size_t{64} << 10;

// Ticks in which a thread reads a window, all threads reading at once. 0: not measured.
struct WindowTicks {
  double cached = 0, memory = 0;
};
// The share of a window that was in the cache, by the time that it took, 0..1.
double ShareOfTicks(double ticks, const WindowTicks& known);

// Smoothed shares by thread and part, each weighted with its bytes. One thread adds; any thread may
// read.
class ResidencyEstimate {
 public:
  // bytes: [thread][part]; 0: never sampled. Every thread has the same number of parts.
  explicit ResidencyEstimate(std::vector<std::vector<uint64_t>> bytes);
  void Add(size_t thread, size_t part, double share);  // data path
  // nullopt: something of it has not been sampled yet, or never is.
  std::optional<double> share() const { return Read(0); }
  std::optional<double> of_thread(size_t thread) const { return Read(1 + thread); }
  std::optional<double> of_part(size_t part) const { return Read(1 + bytes_.size() + part); }
  size_t threads() const { return bytes_.size(); }
  size_t parts() const { return bytes_.front().size(); }

 private:
  struct Sum {
    double bytes = 0, resident = 0;
    size_t missing = 0;
    std::atomic<double> share{-1};  // relaxed: it publishes no other data
  };
  std::optional<double> Read(size_t sum) const;
  const std::vector<std::vector<uint64_t>> bytes_;
  std::vector<std::vector<double>> shares_;  // [thread][part]; -1: not sampled yet
  std::unique_ptr<Sum[]> sums_;              // all; threads; parts
};

class LiveResidency {
 public:
  // Reads kWindowBytes and returns the ticks that it took.
  using TimedRead = uint64_t (*)(const std::byte* window);
  static uint64_t ReadWindow(const std::byte* window);
  // [thread][part]; parts that are smaller than a window are not sampled.
  using Weights = std::vector<std::vector<std::span<const std::byte>>>;

  explicit LiveResidency(const Weights& weights, TimedRead read = &ReadWindow);
  LiveResidency(const LiveResidency&) = delete;
  LiveResidency& operator=(const LiveResidency&) = delete;

  // Measures what a window takes, on the pool's threads; until then nothing is sampled, nor after
  // it where L3 and memory make no difference. Some milliseconds.
  void Calibrate(threadpool::Pool& pool, const StagePlan& plan);
  void SetTicks(std::span<const WindowTicks> of_threads);

  // Adds the step that samples the part, which goes before its first product. The operands are part
  // of this object.
  void AddSample(size_t thread, size_t part, threadpool::ProgramBuilder& steps) const;

  // Around each micro-batch, on the thread that executes it. now: ReadTicks(). Data path.
  void Begin(uint64_t now);
  void End(uint64_t now);

  const ResidencyEstimate& estimate() const { return estimate_; }

 private:
  static constexpr size_t kNone = SIZE_MAX;
  static constexpr uint64_t kRest = 400;
  struct alignas(kFalseSharingBytes) Sampler {
    uint64_t random = 0, ticks = 0;  // the thread's own while a micro-batch runs
    WindowTicks known;
  };
  struct Operand {
    const LiveResidency* live;
    Sampler* sampler;
    std::span<const std::byte> weights;
    size_t part;
  };
  static void Sample(const void* operand, void* frame);
  static bool IsDue(const void* operand, const void* frame);

  const TimedRead read_;
  ResidencyEstimate estimate_;
  std::unique_ptr<Sampler[]> samplers_;
  std::vector<std::vector<Operand>> operands_;  // [thread][part]
  std::vector<size_t> sampled_;                 // parts that some thread samples
  // Of the thread that executes; the pool's start hands `due_` on to the others.
  bool on_ = false;
  size_t due_ = kNone, next_ = 0;  // next_: in sampled_
  uint64_t rests_until_ = 0;
};

}  // namespace larder::pipeline::residency
