#include "pipeline/residency/live_residency.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "model/step/step_kind.h"
#include "topology/arena.h"
#include "topology/read_kernels.h"

namespace larder::pipeline::inline residency {
namespace {

constexpr size_t kMb = size_t{1} << 20;
constexpr size_t kFlushedWindows = 32;
// Closer together than that, noise decides what the share is.
constexpr double kLeastRatio = 1.2;

std::vector<std::vector<uint64_t>> SampledBytes(const LiveResidency::Weights& weights) {
  std::vector<std::vector<uint64_t>> bytes;
  for (const auto& of_thread : weights) {
    auto& of = bytes.emplace_back();
    for (const auto& part : of_thread) of.push_back(part.size() >= kWindowBytes ? part.size() : 0);
  }
  return bytes;
}

// What a thread can keep in L3 beside the others, and more than an L2 has (at most 2 MB today).
size_t CachedBytes(const StagePlan& plan, size_t thread) {
  const auto group = static_cast<size_t>(plan.threads[thread].l3_group);
  const auto users = static_cast<size_t>(std::ranges::count_if(
      plan.threads, [&](const PlanThread& t) { return static_cast<size_t>(t.l3_group) == group; }));
  const size_t share = plan.l3_groups.at(group).l3_bytes / users;
  const size_t bytes = std::clamp(share / 2, 3 * kMb, 8 * kMb);
  return share == 0 ? bytes : std::min(bytes, std::max(share, kMb));
}

double Median(std::vector<uint64_t> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return static_cast<double>(*middle);
}

WindowTicks Measure(LiveResidency::TimedRead read, size_t bytes, NumaNodeId node) {
  const topology::Arena arena(bytes, node);
  std::fill_n(arena.data(), bytes, std::byte{1});  // untouched pages are all the one zero page
  std::vector<uint64_t> cached, memory;
  const size_t windows = bytes / kWindowBytes;
  // Not one behind the other: a sample, too, begins where no prefetcher expects it.
  size_t stride = windows / 2 + 1;
  while (std::gcd(stride, windows) != 1) ++stride;
  for (size_t pass = 0; pass < 2; ++pass) {
    cached.clear();
    for (size_t i = 0; i < windows; ++i)
      cached.push_back(read(arena.data() + i * stride % windows * kWindowBytes));
  }
  const size_t step = RoundUp(bytes / kFlushedWindows, kCacheLineBytes);
  for (size_t at = 0; at + kWindowBytes <= bytes; at += step) {
    if (!topology::FlushFromCaches(arena.data() + at, kWindowBytes)) return {};
    memory.push_back(read(arena.data() + at));
  }
  return {Median(std::move(cached)), Median(std::move(memory))};
}

}  // namespace

ResidencyEstimate::ResidencyEstimate(std::vector<std::vector<uint64_t>> bytes)
    : bytes_(std::move(bytes)) {
  LARDER_CHECK(!bytes_.empty());
  sums_ = std::make_unique<Sum[]>(1 + threads() + parts());
  for (size_t t = 0; t < threads(); ++t) {
    LARDER_CHECK(bytes_[t].size() == parts());
    shares_.emplace_back(parts(), -1.0);
    for (size_t p = 0; p < parts(); ++p) {
      if (bytes_[t][p] == 0) continue;
      for (const size_t sum : {size_t{0}, 1 + t, 1 + threads() + p}) {
        sums_[sum].bytes += static_cast<double>(bytes_[t][p]);
        ++sums_[sum].missing;
      }
    }
  }
}

std::optional<double> ResidencyEstimate::Read(size_t sum) const {
  const double share = sums_[sum].share.load(std::memory_order_relaxed);
  return share < 0 ? std::nullopt : std::optional(share);
}

LiveResidency::LiveResidency(const Weights& weights, TimedRead read)
    : read_(read),
      estimate_(SampledBytes(weights)),
      samplers_(std::make_unique<Sampler[]>(weights.size())) {
  for (size_t t = 0; t < weights.size(); ++t) {
    samplers_[t].random = 0x9e3779b97f4a7c15 * (t + 1);
    auto& of = operands_.emplace_back();
    for (size_t p = 0; p < weights[t].size(); ++p)
      of.push_back({this, &samplers_[t], weights[t][p], p});
  }
  for (size_t p = 0; p < estimate_.parts(); ++p) {
    if (std::ranges::any_of(weights, [&](const auto& of) { return of[p].size() >= kWindowBytes; }))
      sampled_.push_back(p);
  }
}

void LiveResidency::SetTicks(std::span<const WindowTicks> of_threads) {
  LARDER_CHECK(of_threads.size() == operands_.size());
  for (size_t t = 0; t < operands_.size(); ++t) samplers_[t].known = of_threads[t];
  on_ = !sampled_.empty() && std::ranges::all_of(of_threads, [](const WindowTicks& ticks) {
    return ticks.cached > 0 && ticks.memory > kLeastRatio * ticks.cached;
  });
}

void LiveResidency::Calibrate(threadpool::Pool& pool, const StagePlan& plan) {
  if (sampled_.empty()) return;
  struct Context {
    const StagePlan& plan;
    TimedRead read;
    std::vector<WindowTicks> ticks;
  } context{plan, read_, std::vector<WindowTicks>(plan.threads.size())};
  pool.ForEach(
      [](void* raw, int thread) {
        auto& c = *static_cast<Context*>(raw);
        const auto t = static_cast<size_t>(thread);
        c.ticks[t] = Measure(c.read, CachedBytes(c.plan, t), c.plan.threads[t].numa_node);
      },
      &context);
  SetTicks(context.ticks);
}

void LiveResidency::AddSample(size_t thread, size_t part, threadpool::ProgramBuilder& steps) const {
  const Operand& operand = operands_[thread][part];
  if (operand.weights.size() < kWindowBytes) return;
  threadpool::Step step;
  step.kernel = &Sample;
  step.operand = &operand;
  step.needed = &IsDue;
  step.kind = static_cast<uint16_t>(model::StepKind::kResidency);
  step.layer = static_cast<uint16_t>(part);
  steps.Add(step);
}

}  // namespace larder::pipeline::residency
