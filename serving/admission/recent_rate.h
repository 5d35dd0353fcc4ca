// RecentRate: events per second over the last two seconds, counted in bins of an eighth of a
// second. Any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>

namespace larder::serving::inline admission {

class RecentRate {
 public:
  // Times are NowNs(). They may go back, but never by more than the bins hold.
  void Add(int64_t now_ns, uint64_t n = 1) {
    const std::lock_guard lock(mutex_);
    Advance(now_ns / kBinNs);
    counts_[Index(now_ns / kBinNs)] += n;
  }

  // The mean over the complete bins; the current one has only begun and is left out.
  double PerSecond(int64_t now_ns) {
    const std::lock_guard lock(mutex_);
    const int64_t bin = now_ns / kBinNs;
    Advance(bin);
    uint64_t sum = 0;
    for (size_t i = 0; i < kBins; ++i) sum += i == Index(bin) ? 0 : counts_[i];
    return static_cast<double>(sum) /
           (static_cast<double>(kBins - 1) * static_cast<double>(kBinNs) * 1e-9);
  }

 private:
  static constexpr int64_t kBinNs = 125'000'000;
  static constexpr size_t kBins = 17;  // 16 complete bins and the current one

  static size_t Index(int64_t bin) {
    return static_cast<size_t>(bin % static_cast<int64_t>(kBins));
  }
  void Advance(int64_t bin) {
    if (bin - last_bin_ > static_cast<int64_t>(kBins))
      last_bin_ = bin - static_cast<int64_t>(kBins);
    while (last_bin_ < bin) counts_[Index(++last_bin_)] = 0;
  }

  std::mutex mutex_;
  std::array<uint64_t, kBins> counts_{};
  int64_t last_bin_ = 0;
};

}  // namespace larder::serving::admission
