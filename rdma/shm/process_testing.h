// Test support: two real processes with a pair of links between them. The child is forked before this process
// has a listener or a thread, so it inherits neither. ThreadSanitizer does not follow a fork; the same code
// runs under it between threads in rdma/link/shm_link_test.cc and rdma/control/control_channel_test.cc.
// Included by tests only.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "base/error.h"
#include "rdma/common/shared_memory.h"
#include "rdma/control/control_channel.h"
#include "rdma/shm/shm_link.h"
#include "sync/wait.h"

namespace larder::rdma::inline shm {

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
inline constexpr sync::WaitPolicy kSleepAtOnce = {sync::WaitPolicy::Mode::kAdaptive, 0};
inline constexpr sync::WaitPolicy kSpin = {sync::WaitPolicy::Mode::kSpin, 0};

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
inline bool Exited(int status, int code) { return WIFEXITED(status) && WEXITSTATUS(status) == code; }
inline bool Killed(int status) { return WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL; }

inline std::string NewName() {
  static int count = 0;
  return fmt::format("larder-process-test-{}-{}", getpid(), ++count);
}

// One side of a pair of links, one per direction, set up as a program does it.
struct Shape {
  LinkShape link;
  uint32_t first_sequence = 0;
  size_t LinkBytes() const { return RoundUp(ShmLink::RegionBytes(link), kPageBytes); }
  size_t bytes() const { return 2 * LinkBytes(); }
};

struct Side {
  Side(ControlChannel&& the_channel, const Shape& shape, bool makes, const char* name)
      : channel(std::move(the_channel)) {
    Hello hello;
    hello.memory_bytes = shape.bytes();
    hello.SetSocketName(name);
    channel.ExchangeHello(hello, kLongMs);
    if (makes) {
      memory = SharedMemory::Create(shape.bytes(), "larder process test");
      ShmLink::Format(Half(shape, 0), shape.link, shape.first_sequence);
      ShmLink::Format(Half(shape, 1), shape.link, shape.first_sequence);
      channel.SendMemory(memory);
    } else {
      memory = channel.ReceiveMemory(shape.bytes(), kLongMs);
    }
    out.emplace(Half(shape, makes ? 0 : 1), shape.link, LinkSide::kSend);
    in.emplace(Half(shape, makes ? 1 : 0), shape.link, LinkSide::kReceive);
    channel.Ready();
    channel.WaitReady(kLongMs);
  }
  std::span<std::byte> Half(const Shape& shape, size_t which) {
    return memory.span().subspan(which * shape.LinkBytes(), shape.LinkBytes());
  }

  ControlChannel channel;
  SharedMemory memory;
  std::optional<ShmLink> out, in;
};

inline Side ListenSide(const std::string& name, const Shape& shape) {
  ControlListener listener(name);
  return Side(listener.Accept(kLongMs), shape, true, "weight0");
}
inline Side ConnectSide(const std::string& name, const Shape& shape) {
  return Side(Connect(name, kLongMs), shape, false, "attention0");
}

}  // namespace larder::rdma::shm
