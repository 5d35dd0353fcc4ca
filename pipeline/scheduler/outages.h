// Outages: whether the chain is lost, since when and why, and for how long requests wait for it.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <string>

#include "base/clock.h"
#include "pipeline/sequences/request.h"

namespace larder::pipeline::inline scheduler {

class Outages {
 public:
  // patience_ms: for how long requests wait before they are refused. The clock must outlive it.
  Outages(Clock& clock, int patience_ms) : clock_(clock), patience_ms_(patience_ms) {}

  bool lost() const { return lost_; }  // and not connected again
  // Returns whether it was connected since the last loss.
  bool Lost(const std::string& why);
  void Back();
  // A step was completed: whatever comes is a loss of its own. A stage that fails in every step
  // must not keep requests waiting for ever, so connecting alone does not count while there is
  // work.
  void Succeeded() { in_a_row_ = 0; }
  // Losses without Succeeded() between them.
  int in_a_row() const { return in_a_row_; }
  // Whether requests are to be refused now.
  bool refuses() const { return lost_ && PatienceIsOver(since_ns_); }

  // nullopt: the chain is connected. Any thread.
  std::optional<Outage> Now() const;

 private:
  bool PatienceIsOver(int64_t since_ns) const {
    return static_cast<int64_t>(clock_.now_ns()) - since_ns >= int64_t{patience_ms_} * 1'000'000;
  }

  Clock& clock_;
  const int patience_ms_;
  bool lost_ = false;
  int in_a_row_ = 0;
  int64_t since_ns_ = 0;  // the first of them
  std::string first_why_;
  mutable std::mutex mutex_;  // the compute thread locks it only when a chain is lost or back
  std::optional<Outage> outage_;
};

}  // namespace larder::pipeline::scheduler
