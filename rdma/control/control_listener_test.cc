// A listener's name: in the runtime folder, after a crash, and where another user has taken it.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <iterator>
#include <string>

#include "base/error_testing.h"
#include "rdma/common/fork_testing.h"
#include "rdma/common/local_endpoint_testing.h"
#include "rdma/control/control_channel.h"

namespace larder::rdma::inline control {
namespace {

std::string Unique(const std::string& name) {
  return fmt::format("larder/test-{}/{}", getpid(), name);
}

bool Says(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

size_t FilesIn(const std::string& folder) {
  using Files = std::filesystem::directory_iterator;
  return static_cast<size_t>(std::distance(Files(folder), Files()));
}

TEST(ControlListener, IsAFileWhileItListens) {
  const TestRuntimeFolder folder;
  const std::string name = Unique("file");
  {
    ControlListener listener(name);
    struct stat found = {};
    ASSERT_EQ(stat((folder.path() + "/" + FileOfName(name)).c_str(), &found), 0);
    EXPECT_TRUE(S_ISSOCK(found.st_mode));
    const std::string error = ErrorOf([&] { ControlListener again(name); });
    EXPECT_TRUE(Says(error, fmt::format("in use by pid {}", getpid()))) << error;
    ControlChannel there = Connect(name, kLongMs);
    EXPECT_EQ(listener.Accept(kLongMs).peer_pid(), getpid());
  }
  EXPECT_EQ(FilesIn(folder.path()), 0) << "it removed its names";
  EXPECT_TRUE(Says(ErrorOf([&] { Connect(name, 20); }), "no process listens")) << "no file";
  ControlListener again(name);
}

TEST(ControlListener, WhatACrashLeftIsNotInUse) {
  LARDER_SKIP_UNDER_TSAN();
  const TestRuntimeFolder folder;
  const std::string name = Unique("crash");
  const pid_t child = Fork([&] {
    const ControlListener listener(name);
    raise(SIGKILL);
    return 0;
  });
  WaitFor(child);
  EXPECT_EQ(FilesIn(folder.path()), 2) << "a socket and its lock";
  EXPECT_TRUE(Says(ErrorOf([&] { Connect(name, 20); }), "no process listens"))
      << "a file without a listener";
  ControlListener listener(name);
  ControlChannel there = Connect(name, kLongMs);
  EXPECT_EQ(listener.Accept(kLongMs).peer_pid(), getpid());
}

TEST(ControlListener, OthersWithTheNameDoNotKeepASocketFromStarting) {
  LARDER_SKIP_UNDER_TSAN();
  if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  const std::string name = Unique("squatted");
  const Squatter squatter(name, SOCK_SEQPACKET, "x");
  ASSERT_TRUE(squatter.listens());
  {
    const TestRuntimeFolder folder;
    ControlListener listener(name);
    ControlChannel there = Connect(name, kLongMs);
    EXPECT_EQ(listener.Accept(kLongMs).peer_pid(), getpid());
  }
  // By hand, without a folder: the name cannot be taken, and no process works with the stranger.
  EXPECT_TRUE(Says(ErrorOf([&] { ControlListener listener(name); }), "in use by"));
  EXPECT_TRUE(Says(ErrorOf([&] { Connect(name, kLongMs); }), "of user 65534, not 0"));
}

}  // namespace
}  // namespace larder::rdma::control
