// Background: threads for long work that needs no connection. Parsing a large request and
// tokenizing its prompt on the I/O thread would delay every client's next token. Any thread may
// post. Peers take turns; a peer's jobs begin in order. Several threads, so that a short job need
// not wait for a long one to end. A job whose ticket is dropped before its turn is freed at once;
// one that runs ends at the next step of its Work. Jobs that have not begun at the end are dropped.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/pulse.h"
#include "base/work.h"

namespace larder::serving::inline admission {

// Keeps a posted job wanted; dropping it drops the job, or ends it.
using JobTicket = std::shared_ptr<void>;

struct BackgroundOptions {
  const char* name = "larder-prepare";  // the threads' name, at most 15 bytes
  size_t threads = 1;                   // 1: each job begins when the one before has ended
  // The limits of each job; `wanted` is set here. nullopt: the work of jobs is not counted.
  std::optional<WorkLimits> limits;
};

class Background {
 public:
  // Called on a background thread with what() of an exception that a job threw; the thread goes
  // on. NotWanted is no failure.
  using FailureHandler = std::function<void(const char* what)>;

  explicit Background(FailureHandler failed = {}, BackgroundOptions = {});
  ~Background();
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;
  // The ticket may outlive this object. If it is dropped before the job has begun, the dropping
  // thread frees the job at once.
  JobTicket Post(const std::string& peer, std::function<void()> job);
  size_t waiting() const;  // jobs not begun
  void Close();  // ends the running jobs; called by the creating thread, any number of times
  // Beats with each job, rests while a thread has none: it stands still if all threads hang.
  const Pulse& pulse() const { return pulse_; }

 private:
  struct Queue;
  void Run();
  const FailureHandler failed_;
  const BackgroundOptions options_;
  const std::shared_ptr<Queue> queue_;
  Pulse pulse_;
  std::vector<std::thread> threads_;
};

}  // namespace larder::serving::admission
