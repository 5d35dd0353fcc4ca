#include "rdma/common/local_endpoint.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "base/error.h"
#include "rdma/control/control_channel.h"
#include "rdma/shm/local_endpoint_testing.h"
#include "rdma/shm/process_testing.h"

namespace larder::rdma::inline shm {
namespace {

namespace fs = std::filesystem;

std::string Unique(const std::string& name) { return fmt::format("larder/test-{}/{}", getpid(), name); }

template <typename F>
std::string ErrorOf(F&& f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

size_t FilesIn(const std::string& folder) {
  return static_cast<size_t>(std::distance(fs::directory_iterator(folder), fs::directory_iterator()));
}

TEST(LocalName, AFileNameAndBack) {
  EXPECT_EQ(FileOfName("larder/my rack+1/a-weights.0_"), "larder+my%20rack%2B1+a-weights.0_");
  for (const std::string name : {"larder/a/b", "a b", "100%", "+/+", "\xc3\xa4\n", "../x", "%2", "."})
    EXPECT_EQ(NameOfFile(FileOfName(name)), name);
  EXPECT_EQ(FileOfName("../../etc/x").find('/'), std::string::npos)
      << "a name must not lead out of the folder";
  for (const std::string odd : {"%", "%2", "%zz", "%00"}) NameOfFile(odd);  // another program's file
}

TEST(LocalName, TooLongIsAnErrorThatNamesTheLimit) {
  EXPECT_TRUE(Has(ErrorOf([] { AddressOf(std::string(101, 'x'), ""); }), "100")) << "abstract";
  EXPECT_EQ(AddressOf(std::string(100, 'x'), "").path, "");
  EXPECT_EQ(AddressOf(std::string(95, 'x'), "/run/larder").path.size(), 107);
  EXPECT_TRUE(Has(ErrorOf([] { AddressOf(std::string(96, 'x'), "/run/larder"); }), "107"));
}

TEST(RuntimeFolder, IsSystemdsAndNobodyElses) {
  {
    const TestRuntimeFolder folder;
    EXPECT_EQ(RuntimeFolder(), folder.path());
    setenv("RUNTIME_DIRECTORY", (folder.path() + ":/run/other").c_str(), 1);
    EXPECT_EQ(RuntimeFolder(), folder.path());
  }
  {
    const TestRuntimeFolder open(0777);
    EXPECT_TRUE(Has(ErrorOf([] { RuntimeFolder(); }), "mode 777; expected"))
        << ErrorOf([] { RuntimeFolder(); });
  }
  setenv("RUNTIME_DIRECTORY", "/nowhere/at/all", 1);
  EXPECT_TRUE(Has(ErrorOf([] { RuntimeFolder(); }), "/nowhere/at/all"));
  unsetenv("RUNTIME_DIRECTORY");
}

TEST(LocalListener, IsAFileWhileItListens) {
  const TestRuntimeFolder folder;
  const std::string name = Unique("file");
  {
    ControlListener listener(name);
    struct stat found = {};
    ASSERT_EQ(stat((folder.path() + "/" + FileOfName(name)).c_str(), &found), 0);
    EXPECT_TRUE(S_ISSOCK(found.st_mode));
    const std::string error = ErrorOf([&] { ControlListener again(name); });
    EXPECT_TRUE(Has(error, fmt::format("in use by pid {}", getpid()))) << error;
    ControlChannel there = Connect(name, kLongMs);
    EXPECT_EQ(listener.Accept(kLongMs).peer_pid(), getpid());
  }
  EXPECT_EQ(FilesIn(folder.path()), 0) << "it removed its names";
  EXPECT_TRUE(Has(ErrorOf([&] { Connect(name, 20); }), "no process listens")) << "no file";
  ControlListener again(name);
}

TEST(LocalListener, WhatACrashLeftIsNotInUse) {
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
  EXPECT_TRUE(Has(ErrorOf([&] { Connect(name, 20); }), "no process listens")) << "a file without a listener";
  ControlListener listener(name);
  ControlChannel there = Connect(name, kLongMs);
  EXPECT_EQ(listener.Accept(kLongMs).peer_pid(), getpid());
}

TEST(LocalListener, OthersWithTheNameDoNotKeepASocketFromStarting) {
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
  EXPECT_TRUE(Has(ErrorOf([&] { ControlListener listener(name); }), "in use by"));
  EXPECT_TRUE(Has(ErrorOf([&] { Connect(name, kLongMs); }), "of user 65534, not 0"));
}

}  // namespace
}  // namespace larder::rdma::shm
