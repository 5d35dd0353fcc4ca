// RetryPause: exponential back-off with jitter for a connector that retries, so that many stages
// that were started together do not connect at the same moments.
#pragma once

#include <algorithm>
#include <chrono>
#include <random>
#include <thread>

namespace larder::rdma::inline common {

class RetryPause {
 public:
  // The defaults suit a listener on the same server.
  explicit RetryPause(int first_ms = 10, int longest_ms = 200)
      : next_ms_(first_ms), longest_ms_(longest_ms) {}
  // The next pause: random, from half of the current limit to the whole. The limit doubles up to
  // longest_ms.
  int NextMs() {
    const int whole_ms = next_ms_;
    next_ms_ = std::min(2 * next_ms_, longest_ms_);
    return std::uniform_int_distribution(whole_ms / 2, whole_ms)(random_);
  }
  void Sleep(int limit_ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(std::min(NextMs(), limit_ms)));
  }

 private:
  int next_ms_;
  const int longest_ms_;
  std::minstd_rand random_{std::random_device{}()};
};

}  // namespace larder::rdma::common
