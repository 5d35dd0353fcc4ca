#include <algorithm>

#include "base/memory.h"
#include "pipeline/residency/live_residency.h"
#include "threadpool/timeline.h"
#include "topology/read_kernels.h"

namespace larder::pipeline::inline residency {
namespace {

// How much a new sample weighs against those before it.
constexpr double kWeight = 0.25;

}  // namespace

double ShareOfTicks(double ticks, const WindowTicks& known) {
  if (known.memory <= known.cached) return 0;
  return std::clamp((known.memory - ticks) / (known.memory - known.cached), 0.0, 1.0);
}

void ResidencyEstimate::Add(size_t thread, size_t part, double share) {
  double& known = shares_[thread][part];
  const bool first = known < 0;
  const double grown = first ? share : kWeight * (share - known);
  known = first ? share : known + grown;
  const auto bytes = static_cast<double>(bytes_[thread][part]);
  for (const size_t sum : {size_t{0}, 1 + thread, 1 + bytes_.size() + part}) {
    Sum& of = sums_[sum];
    of.resident += bytes * grown;
    of.missing -= first ? 1 : 0;
    if (of.missing == 0)
      of.share.store(std::clamp(of.resident / of.bytes, 0.0, 1.0), std::memory_order_relaxed);
  }
}

// One stream: the products read their panels so. The fences keep the clock from being read while
// loads are on their way.
uint64_t LiveResidency::ReadWindow(const std::byte* window) {
  static const topology::ReadPattern& pattern = topology::ReadPatterns().front();
  __builtin_ia32_lfence();
  const uint64_t begin = threadpool::ReadTicks();
  pattern.read(window, kWindowBytes);
  __builtin_ia32_lfence();
  return threadpool::ReadTicks() - begin;
}

bool LiveResidency::IsDue(const void* operand, const void*) {
  const auto& of = *static_cast<const Operand*>(operand);
  return of.live->due_ == of.part;
}

void LiveResidency::Sample(const void* operand, void*) {
  const auto& of = *static_cast<const Operand*>(operand);
  Sampler& sampler = *of.sampler;
  sampler.random ^= sampler.random << 13;  // xorshift64
  sampler.random ^= sampler.random >> 7;
  sampler.random ^= sampler.random << 17;
  const size_t places = (of.weights.size() - kWindowBytes) / kCacheLineBytes + 1;
  sampler.ticks = of.live->read_(of.weights.data() + sampler.random % places * kCacheLineBytes);
}

void LiveResidency::Begin(uint64_t now) {
  due_ = on_ && now >= rests_until_ ? sampled_[next_] : kNone;
}

void LiveResidency::End(uint64_t now) {
  if (due_ == kNone) return;
  double longest = 0;
  for (size_t t = 0; t < operands_.size(); ++t) {
    Sampler& sampler = samplers_[t];
    if (sampler.ticks == 0) continue;  // it has too little of this part
    const auto ticks = static_cast<double>(sampler.ticks);
    sampler.ticks = 0;
    estimate_.Add(t, due_, ShareOfTicks(ticks, sampler.known));
    // A thread that the kernel stopped meanwhile would make the rest too long.
    longest = std::max(longest, std::min(ticks, 4 * sampler.known.memory));
  }
  next_ = (next_ + 1) % sampled_.size();
  rests_until_ = now + kRest * static_cast<uint64_t>(longest);
}

}  // namespace larder::pipeline::residency
