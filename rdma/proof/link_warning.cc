#include "rdma/proof/link_warning.h"

#include <fmt/format.h>
#include <unistd.h>

#include <atomic>
#include <mutex>
#include <utility>

#include "base/clock.h"

namespace larder::rdma::inline proof {
namespace {

constexpr int64_t kEveryNs = 5'000'000'000;

std::atomic<SayLinkWarning> say_link_warning{nullptr};

struct Limit {
  int64_t next_ns = 0;
  uint64_t unsaid = 0;
};

}  // namespace

void SetSayLinkWarning(SayLinkWarning say) { say_link_warning.store(say); }

void WarnOfLink(LinkWarning sort, const std::string& line) {
  static std::mutex mutex;
  static Limit limits[2];
  uint64_t unsaid = 0;
  {
    const std::lock_guard lock(mutex);
    Limit& limit = limits[static_cast<size_t>(sort)];
    const int64_t now_ns = NowNs();
    if (now_ns < limit.next_ns) {
      ++limit.unsaid;
      return;
    }
    limit.next_ns = now_ns + kEveryNs;
    std::swap(unsaid, limit.unsaid);
  }
  const std::string said =
      unsaid == 0 ? line : fmt::format("{} (and {} more since the line before)", line, unsaid);
  if (const SayLinkWarning say = say_link_warning.load()) {
    say(said);
    return;
  }
  const std::string printed = fmt::format("larder: warning: {}\n", said);
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, printed.data(), printed.size());
}

}  // namespace larder::rdma::proof
