#include "node/service/signals.h"

#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "rdma/common/farewell.h"

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

FarewellGuard::FarewellGuard() {
  sigemptyset(&signals_);
  for (const int number : {SIGINT, SIGTERM}) sigaddset(&signals_, number);
  pthread_sigmask(SIG_BLOCK, &signals_, &before_);
  arrived_ = Descriptor(signalfd(-1, &signals_, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!arrived_) throw Error("waiting for signals: {}", std::strerror(errno));
  watch_.emplace(arrived_.get(), [this]() -> std::optional<int> {
    signalfd_siginfo signal = {};
    if (read(arrived_.get(), &signal, sizeof signal) != sizeof signal)
      return rdma::FdWatch::kUntilReadable;
    rdma::SayFarewellsBeforeTheEnd();
    const auto number = static_cast<int>(signal.ssi_signo);
    ::signal(number, SIG_DFL);
    pthread_sigmask(SIG_UNBLOCK, &signals_, nullptr);
    raise(number);
    return std::nullopt;
  });
}

FarewellGuard::~FarewellGuard() {
  watch_.reset();
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void IgnoreBrokenPipes() { signal(SIGPIPE, SIG_IGN); }

int Interrupts() { return interrupts.load(std::memory_order_relaxed); }
void ClearInterrupts() { interrupts.store(Terminated() ? 1 : 0, std::memory_order_relaxed); }
bool Terminated() { return terminated.load(std::memory_order_relaxed); }
int InterruptExitCode() { return 128 + (Terminated() ? SIGTERM : SIGINT); }

void ThrowIfInterrupted() {
  if (Interrupts() > 0) throw InterruptedError();
}

}  // namespace larder::node::service
