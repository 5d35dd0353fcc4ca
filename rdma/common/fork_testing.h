// Test support: child processes. A child is forked before its parent has a listener or a thread, so
// it inherits neither. ThreadSanitizer does not follow a fork; the same code runs under it between
// threads in rdma/shm/shm_link_test.cc and rdma/control/control_channel_test.cc. Included by tests
// only.
#pragma once

#include <fmt/format.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <string>

#include "base/error.h"

namespace larder::rdma::inline common {

#if defined(__has_feature)  // clang's way of saying it
#if __has_feature(thread_sanitizer)
#define __SANITIZE_THREAD__ 1
#endif
#endif
#if defined(__SANITIZE_THREAD__)
#define LARDER_SKIP_UNDER_TSAN() GTEST_SKIP() << "forks: ThreadSanitizer does not follow"
#else
#define LARDER_SKIP_UNDER_TSAN() (void)0
#endif

inline constexpr int kLongMs = 20000;  // limit for a hang, not a timing

// The child's body's return value is its exit status; 99 for an Error.
inline pid_t Fork(const std::function<int()>& body) {
  std::fflush(nullptr);  // otherwise the child prints buffered text again
  const pid_t pid = fork();
  if (pid != 0) return pid;
  alarm(60);  // no child outlives the test for long, whatever goes wrong
  int status = 99;
  try {
    status = body();
  } catch (const Error& error) {
    std::fprintf(stderr, "child: %s\n", error.what());
  }
  std::fflush(nullptr);
  _exit(status);
}

inline int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return status;
}
inline bool Exited(int status, int code) {
  return WIFEXITED(status) && WEXITSTATUS(status) == code;
}
inline bool Killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

inline std::string NewName() {
  static int count = 0;
  return fmt::format("larder-process-test-{}-{}", getpid(), ++count);
}

}  // namespace larder::rdma::common
