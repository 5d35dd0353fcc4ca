#include "rdma/common/helper_thread.h"

#include <signal.h>

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"
#include "topology/affinity.h"

namespace larder::rdma::inline common {
namespace {

// Initialised before main(), so before any thread is pinned.
const std::vector<CpuId> kCpusAtStart = topology::GetAffinity(pthread_self());

}  // namespace

std::thread StartHelper(std::function<void()> body, CpuId cpu) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  std::string problem;
  std::thread thread;
  try {
    thread = std::thread([body = std::move(body), cpu] {
      const bool pinned = cpu.valid() && topology::PinThisThread(cpu);
      // If that is forbidden the thread keeps its creator's CPUs.
      if (!pinned && !kCpusAtStart.empty()) topology::SetAffinity(pthread_self(), kCpusAtStart);
      body();
    });
  } catch (const std::system_error& error) {
    problem = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!problem.empty()) throw Error("cannot start a thread: {}: raise the limit of tasks", problem);
  return thread;
}

}  // namespace larder::rdma::common
