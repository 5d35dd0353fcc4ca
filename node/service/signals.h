// Ctrl-C and SIGTERM as requests that the main thread checks between micro-batches, so that a run
// ends with its statistics and a chat only ends its turn. A third signal ends the process at once.
#pragma once

#include <signal.h>

#include <optional>

#include "base/descriptor.h"
#include "base/error.h"
#include "rdma/common/fd_watch.h"

namespace larder::node::inline service {

// Catches SIGINT and SIGTERM while it lives. Blocking system calls (reading a line) return with
// EINTR.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// While it lives, SIGTERM and SIGINT say farewell to the peers of this process
// (rdma/common/farewell.h) before they end it as always. They are blocked in all threads that are
// created later, so it must be made before them.
class FarewellGuard {
 public:
  FarewellGuard();  // throws Error
  ~FarewellGuard();
  FarewellGuard(const FarewellGuard&) = delete;
  FarewellGuard& operator=(const FarewellGuard&) = delete;

 private:
  sigset_t signals_, before_;
  Descriptor arrived_;
  std::optional<rdma::FdWatch> watch_;
};

// After this call a reader that closes our output (`larder serve 2>&1 | head`) does not end the
// process.
void IgnoreBrokenPipes();

int Interrupts();         // SIGINTs (and SIGTERMs) since the last ClearInterrupts
void ClearInterrupts();   // does not clear a SIGTERM
bool Terminated();        // SIGTERM came: the program must end, whatever its mode
int InterruptExitCode();  // 130 after SIGINT, 143 after SIGTERM

// Unwinds a command, which ends with InterruptExitCode(): a writer of files removes what it has not
// finished.
class InterruptedError : public Error {
 public:
  InterruptedError() : Error("interrupted") {}
};
// Throws it if there were Interrupts().
void ThrowIfInterrupted();

}  // namespace larder::node::service
