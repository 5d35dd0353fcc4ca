// Ctrl-C and SIGTERM as a request that the main thread looks at between frames, so that a run ends with its
// statistics and a chat only ends its turn. Whoever asks three times is not kept waiting: the process ends at
// once.
#pragma once

namespace larder::node {

// Catches SIGINT and SIGTERM while it lives. System calls that wait (reading a line) return with EINTR.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;
};

// Somebody who stops reading what we write (`larder serve 2>&1 | head`) is no reason to end.
void IgnoreBrokenPipes();

int Interrupts();         // SIGINTs (and SIGTERMs) since the last ClearInterrupts
void ClearInterrupts();   // a SIGTERM is not forgotten
bool Terminated();        // SIGTERM came: end the program, whatever the mode
int InterruptExitCode();  // 130 after SIGINT, 143 after SIGTERM

}  // namespace larder::node
