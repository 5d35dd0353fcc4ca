#include "rdma/ipc/helper_thread.h"

#include <sched.h>
#include <signal.h>

#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "base/error.h"

namespace larder::rdma::inline ipc {
namespace {

// The CPUs of the calling thread, as sched_setaffinity takes them; empty if the kernel does not say.
std::vector<cpu_set_t> OwnCpus() {
  std::vector<cpu_set_t> sets(16);  // 16,384 CPUs
  if (sched_getaffinity(0, sets.size() * sizeof(cpu_set_t), sets.data()) != 0) sets.clear();
  return sets;
}

// Initialised before main(), so before any thread is pinned.
const std::vector<cpu_set_t> kCpusAtStart = OwnCpus();

}  // namespace

std::thread StartHelper(std::function<void()> body) {
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);  // the new thread inherits it
  std::string problem;
  std::thread thread;
  try {
    thread = std::thread([body = std::move(body)] {
      // If that is forbidden the thread keeps its creator's CPUs.
      if (!kCpusAtStart.empty())
        sched_setaffinity(0, kCpusAtStart.size() * sizeof(cpu_set_t), kCpusAtStart.data());
      body();
    });
  } catch (const std::system_error& error) {
    problem = error.what();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (!problem.empty()) throw Error("cannot start a thread: {}: raise the limit of tasks", problem);
  return thread;
}

}  // namespace larder::rdma::ipc
