// Failures: counts and logs unexpected exceptions: no memory, or a bug in the handling of one
// client's bytes. Such an exception costs that client its connection or its request, never the
// process. Any thread.
#pragma once

#include <fmt/format.h>

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <utility>

#include "base/clock.h"

namespace larder::serving::inline metrics {

class Failures {
 public:
  using Log = std::function<void(const std::string&)>;
  explicit Failures(Log log = {}) : log_(std::move(log)) {}

  // Logs at most one line per second: a client that can cause one failure can cause many.
  void Count(const char* where, const char* what) noexcept {
    count_.fetch_add(1, std::memory_order_relaxed);
    const int64_t now = NowNs();
    int64_t last = last_ns_.load(std::memory_order_relaxed);
    if (!log_ || (last != 0 && now - last < kNsBetweenLines)) return;
    if (!last_ns_.compare_exchange_strong(last, now, std::memory_order_relaxed)) return;
    try {
      log_(fmt::format("{}: {}: dropped; the server goes on ({} so far)", where, what, count()));
    } catch (...) {  // no memory for the line; the failure is counted
    }
  }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }

 private:
  static constexpr int64_t kNsBetweenLines = 1'000'000'000;
  const Log log_;
  std::atomic<uint64_t> count_{0};
  std::atomic<int64_t> last_ns_{0};
};

}  // namespace larder::serving::metrics
