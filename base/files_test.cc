// Descriptors, and files that are complete or not there.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <utility>

#include "base/descriptor.h"
#include "base/error_testing.h"
#include "base/new_file.h"
#include "base/own_folder.h"
#include "base/temporary_folder_testing.h"

namespace larder {
namespace {

bool IsOpen(int fd) { return fcntl(fd, F_GETFD) >= 0; }

std::string Read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(Descriptor, ClosesItself) {
  EXPECT_FALSE(Descriptor());
  EXPECT_EQ(Descriptor().get(), -1);
  int fd = -1;
  {
    const Descriptor null(open("/dev/null", O_RDWR | O_CLOEXEC));
    ASSERT_TRUE(null);
    fd = null.get();
    EXPECT_TRUE(IsOpen(fd));
  }
  EXPECT_FALSE(IsOpen(fd));
}

TEST(Descriptor, MovesAndGivesAway) {
  Descriptor first(open("/dev/null", O_RDWR | O_CLOEXEC)),
      second(open("/dev/null", O_RDWR | O_CLOEXEC));
  const int of_first = first.get(), of_second = second.get();
  first = std::move(second);
  EXPECT_FALSE(IsOpen(of_first)) << "what it had before is closed";
  EXPECT_EQ(first.get(), of_second);
  EXPECT_FALSE(second);
  Descriptor third(std::move(first));
  EXPECT_FALSE(first);
  const int taken = third.Take();
  EXPECT_EQ(taken, of_second);
  EXPECT_FALSE(third);
  third.Reset();
  EXPECT_TRUE(IsOpen(taken)) << "the caller closes it";
  close(taken);
}

TEST(NewFile, IsCompleteOrNotThere) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  { NewFile(path).Write("half", 4); }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path())) << "without Commit() nothing is left";
  for (const std::string text : {"first", "2nd"}) {  // the second one replaces the first one
    NewFile file(path);
    file.Write(text.data(), 2);
    file.Write(text.data() + 2, text.size() - 2);
    EXPECT_NE(Read(path), text) << "before Commit()";
    file.Commit();
    EXPECT_EQ(Read(path), text);
    EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
  }
  { NewFile(path).Write("half", 4); }
  EXPECT_EQ(Read(path), "2nd") << "what was there stays";
}

TEST(NewFile, ALinkOfTheTemporaryNameIsReplacedAndNeverFollowed) {
  const TemporaryFolder folder;
  const std::string path = folder / "file", target = folder / "target";
  std::ofstream(target) << "precious";
  for (const std::string& to : {target, folder / "dangling"}) {
    std::filesystem::create_symlink(to, path + ".tmp");
    NewFile file(path);
    file.Write("new", 3);
    file.Commit();
    EXPECT_EQ(Read(path), "new");
    EXPECT_FALSE(std::filesystem::is_symlink(path));
  }
  EXPECT_EQ(Read(target), "precious");
  EXPECT_FALSE(std::filesystem::exists(folder / "dangling"));
}

TEST(NewFile, WhatAKilledProcessLeftIsReplaced) {
  const TemporaryFolder folder;
  const std::string path = folder / "file", other_name = folder / "hard";
  std::ofstream(path + ".tmp") << "a longer text that was not finished";
  std::filesystem::create_hard_link(path + ".tmp", other_name);
  std::filesystem::permissions(path + ".tmp", std::filesystem::perms(0666));
  NewFile file(path, FileReaders::kOwner);
  file.Write("new", 3);
  file.Commit();
  EXPECT_EQ(Read(path), "new");
  EXPECT_EQ(Read(other_name), "a longer text that was not finished") << "it is another file";
  EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
  std::filesystem::create_directory(path + ".tmp");
  EXPECT_EQ(ErrorOf([&] { NewFile again(path); }), path + ".tmp: can't replace it: Is a directory");
}

TEST(NewFile, OnlyItsOwnerReadsAPrivateOneFromTheBeginning) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  const mode_t before = umask(022);
  const auto mode = [](const std::string& of) {
    return static_cast<unsigned>(std::filesystem::status(of).permissions());
  };
  {
    NewFile file(path, FileReaders::kOwner);
    EXPECT_EQ(mode(path + ".tmp"), 0600u);
    file.Commit();
    EXPECT_EQ(mode(path), 0600u);
  }
  NewFile file(path);
  file.Commit();
  EXPECT_EQ(mode(path), 0644u);
  umask(before);
}

TEST(NewFile, AnotherWritersHalfIsNeverTakenForOnesOwn) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  NewFile first(path);
  first.Write("first", 5);
  NewFile second(path);
  second.Write("sec", 3);
  EXPECT_EQ(ErrorOf([&] { first.Commit(); }),
            path + ".tmp: another process writes the same file; write it again");
  EXPECT_FALSE(std::filesystem::exists(path));
  second.Write("ond", 3);
  second.Commit();
  EXPECT_EQ(Read(path), "second");
}

TEST(NewFile, ANameThatCannotBeWrittenIsAnErrorThatSaysIt) {
  const TemporaryFolder folder;
  EXPECT_EQ(ErrorOf([&] { NewFile file(folder / "none/file"); }),
            (folder / "none/file.tmp") + ": can't create: No such file or directory");
  EXPECT_EQ(ErrorOf([] { NewFile file("/dev/null"); }),
            "/dev/null: exists and is not a regular file; name another");
  EXPECT_EQ(ErrorOf([&] { NewFile file(folder.path()); }),
            folder.path() + ": exists and is not a regular file; name another");
}

TEST(NewFile, ACommitThatFailsSaysSoAndLeavesNothing) {
  const TemporaryFolder folder;
  const std::string path = folder / "file";
  NewFile file(path);
  ASSERT_EQ(mkdir(path.c_str(), 0700), 0);  // no file can be renamed to a folder's name
  EXPECT_EQ(ErrorOf([&] { file.Commit(); }), path + ": can't finish writing: Is a directory");
  EXPECT_FALSE(std::filesystem::exists(path + ".tmp"));
}

TEST(OwnFolder, IsMadeForItsUserAndRefusedIfOpenToOthers) {
  const TemporaryFolder root;
  const std::string folder = root / "a/b/c";
  const mode_t before = umask(022);
  MakeOwnFolder(folder);
  umask(before);
  for (const char* made : {"a", "a/b", "a/b/c"})
    EXPECT_EQ(std::filesystem::status(root / made).permissions(), std::filesystem::perms(0700))
        << made;
  MakeOwnFolder(folder + "/");  // it is there
  for (const mode_t mode : {0710, 0701, 0755, 0720, 0702}) {
    ASSERT_EQ(chmod(folder.c_str(), mode), 0);
    EXPECT_NE(ErrorOf([&] { OpenOwnFolder(folder); }).find("that nobody else may read or write"),
              std::string::npos)
        << mode;
    EXPECT_THROW(OwnFolder{folder}, Error);
  }
  ASSERT_EQ(chmod(folder.c_str(), 0700), 0);
  const OwnFolder own(folder);
  EXPECT_EQ(ErrorOf([&] { OwnFolder second(folder); }),
            folder + ": another larder uses this folder; name another for this one");
  std::ofstream(root / "file") << "x";
  EXPECT_THROW(MakeOwnFolder(root / "file"), Error);
  EXPECT_THROW(MakeOwnFolder(root / "file/in"), Error);
}

TEST(WriteAll, AnErrorHasTheNameAndTheCause) {
  const Descriptor full(open("/dev/full", O_WRONLY | O_CLOEXEC));
  if (!full) GTEST_SKIP() << "no /dev/full here";
  EXPECT_EQ(ErrorOf([&] { WriteAll(full, "text", "the file"); }),
            "the file: can't write: No space left on device");
  EXPECT_EQ(ErrorOf([&] { WriteAll(full, "", "the file"); }), "no error") << "nothing to write";
}

}  // namespace
}  // namespace larder
