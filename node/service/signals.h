// Ctrl-C and SIGTERM as requests that the main thread checks between micro-batches, so that a run
// ends with its statistics and a chat only ends its turn. A third signal ends the process at once.
#pragma once

#include "base/error.h"

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

// A reader that closes our output (`larder serve 2>&1 | head`) does not end the process.
void IgnoreBrokenPipes();

int Interrupts();         // SIGINTs (and SIGTERMs) since the last ClearInterrupts
void ClearInterrupts();   // does not clear a SIGTERM
bool Terminated();        // SIGTERM came: the program must end, whatever its mode
int InterruptExitCode();  // 130 after SIGINT, 143 after SIGTERM

// Unwinds a writer of files, which removes what it has not finished.
class InterruptedError : public Error {
 public:
  InterruptedError() : Error("interrupted") {}
};
// Throws it if there were Interrupts().
void ThrowIfInterrupted();

}  // namespace larder::node::service
