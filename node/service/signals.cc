#include "node/service/signals.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>

namespace larder::node::inline service {
namespace {

constexpr int kPatience = 3;

// relaxed throughout: no other data is published with these numbers.
std::atomic<int> interrupts{0};
std::atomic<bool> terminated{false};
static_assert(std::atomic<int>::is_always_lock_free, "the signal handler may not lock");

extern "C" void OnSignal(int signal_number) {
  if (signal_number == SIGTERM) terminated.store(true, std::memory_order_relaxed);
  if (interrupts.fetch_add(1, std::memory_order_relaxed) + 1 >= kPatience)
    _exit(128 + signal_number);
}

void Handle(void (*handler)(int)) {
  struct sigaction action {};
  action.sa_handler = handler;
  sigemptyset(&action.sa_mask);
  for (const int number : {SIGINT, SIGTERM}) sigaction(number, &action, nullptr);
}

}  // namespace

InterruptGuard::InterruptGuard() { Handle(OnSignal); }
InterruptGuard::~InterruptGuard() { Handle(SIG_DFL); }

void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

int Interrupts() { return interrupts.load(std::memory_order_relaxed); }
void ClearInterrupts() { interrupts.store(Terminated() ? 1 : 0, std::memory_order_relaxed); }
bool Terminated() { return terminated.load(std::memory_order_relaxed); }
int InterruptExitCode() { return 128 + (Terminated() ? SIGTERM : SIGINT); }

void ThrowIfInterrupted() {
  if (Interrupts() > 0) throw InterruptedError();
}

}  // namespace larder::node::service
