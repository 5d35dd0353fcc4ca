#include "pipeline/scheduler/outages.h"

#include <fmt/format.h>

namespace larder::pipeline::inline scheduler {

bool Outages::Lost(const std::string& why) {
  if (in_a_row_++ == 0) since_ns_ = static_cast<int64_t>(clock_.now_ns());
  const bool was_connected = !lost_;
  if (was_connected) {
    first_why_ = why;
    const std::lock_guard lock(mutex_);
    outage_ = {.why = why, .since_ns = since_ns_};
  } else if (why != first_why_) {
    const std::lock_guard lock(mutex_);
    outage_->why = fmt::format("{}; not back yet: {}", first_why_, why);
  }
  lost_ = true;
  return was_connected;
}

void Outages::Back() {
  if (!lost_) return;
  lost_ = false;
  const std::lock_guard lock(mutex_);
  outage_.reset();
}

std::optional<Outage> Outages::Now() const {
  const std::lock_guard lock(mutex_);
  std::optional<Outage> now = outage_;
  if (now) now->refusing = PatienceIsOver(now->since_ns);
  return now;
}

}  // namespace larder::pipeline::scheduler
