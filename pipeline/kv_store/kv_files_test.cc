// What is written is read again, by this process and the next; what is not what it should be is not
// used.
#include "pipeline/kv_store/kv_files.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/error_testing.h"
#include "base/temporary_folder_testing.h"

namespace larder::pipeline::inline kv_store {
namespace {

constexpr size_t kPositions = 8, kBytes = 1000;

std::vector<int32_t> Tokens(size_t chunks, int32_t first = 0) {
  std::vector<int32_t> tokens(chunks * kPositions);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}
std::vector<uint8_t> Bytes(uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<uint8_t> bytes(kBytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  return bytes;
}

// All chunks of the tokens.
KvJob JobOf(const std::vector<int32_t>& tokens, uint64_t tenant) {
  KvJob job{.tokens = tokens, .tenant = tenant, .pieces = {}};
  for (size_t i = 0; i < tokens.size() / kPositions; ++i) job.pieces.push_back({.index = i});
  return job;
}

class KvFilesTest : public testing::Test {
 protected:
  KvFilesOptions Options(uint64_t most_bytes = 1 << 20, uint64_t model = 7) const {
    return {.folder = folder_ / "cache/kv",
            .most_bytes = most_bytes,
            .model = model,
            .chunk_positions = kPositions,
            .chunk_bytes = {kBytes}};
  }
  static void Write(KvFiles& files, std::span<const int32_t> tokens, std::vector<uint8_t> chunk,
                    uint64_t tenant = 0, size_t of_class = 0) {
    files.Write(tokens, tenant, of_class, topology::ScatteredBytes(chunk));
  }
  // The chunks of a sequence, one after the other.
  static void WriteAll(KvFiles& files, const std::vector<int32_t>& tokens, uint64_t tenant,
                       uint32_t seed) {
    for (size_t i = 1; i * kPositions <= tokens.size(); ++i)
      Write(files, std::span(tokens).first(i * kPositions), Bytes(seed + static_cast<uint32_t>(i)),
            tenant);
    files.Touch(JobOf(tokens, tenant));
  }
  static std::vector<uint8_t> Read(KvFiles& files, std::span<const int32_t> tokens, uint64_t tenant,
                                   size_t of_class = 0) {
    std::vector<uint8_t> bytes(files.options().chunk_bytes[of_class]);
    if (!files.Read(tokens, tenant, of_class, topology::ScatteredBytes(bytes))) bytes.clear();
    return bytes;
  }
  std::vector<std::filesystem::path> Files() const {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(Options().folder)) {
      if (entry.path().extension() == ".kv") files.push_back(entry.path());
    }
    return files;
  }

  TemporaryFolder folder_;
};

TEST_F(KvFilesTest, WhatIsWrittenIsReadAgainAfterARestart) {
  const std::vector<int32_t> tokens = Tokens(3);
  for (int start = 0; start < 2; ++start) {
    KvFiles files(Options());
    EXPECT_EQ(files.Find(tokens, 1), start == 0 ? 0u : 3u);
    if (start == 0) WriteAll(files, tokens, 1, 10);
    EXPECT_EQ(files.Find(tokens, 1), 3u);
    EXPECT_EQ(files.Find(Tokens(2), 1), 2u);
    EXPECT_EQ(files.Find(std::span(tokens).first(kPositions * 2 + 3), 1), 2u) << "whole chunks";
    EXPECT_EQ(files.Find(tokens, 2), 0u) << "another tenant's";
    EXPECT_EQ(files.Find(Tokens(3, 1), 1), 0u) << "other tokens";
    EXPECT_EQ(Read(files, tokens, 1), Bytes(13));
    EXPECT_EQ(Read(files, std::span(tokens).first(kPositions), 1), Bytes(11));
    EXPECT_TRUE(Read(files, Tokens(4), 1).empty());
    EXPECT_EQ(files.status().files.load(), 3u);
    uint64_t bytes = 0;
    for (const auto& path : Files()) bytes += std::filesystem::file_size(path);
    EXPECT_EQ(files.status().bytes.load(), bytes);
  }
}

// A second process, with a folder of its own beside this one.
TEST_F(KvFilesTest, FilesOfOthersAreReadAndStay) {
  KvFiles files(Options(3 * (kBytes + 200)));
  for (int32_t i = 1; i <= 3; ++i) Write(files, Tokens(1, i), Bytes(static_cast<uint32_t>(i)));
  KvFilesOptions beside = Options();
  beside.folder = folder_ / "beside";
  beside.others = {Options().folder};
  KvFiles other(beside);
  EXPECT_EQ(other.status().files.load(), 0u);
  EXPECT_EQ(Read(other, Tokens(1, 2), 0), Bytes(2));
  EXPECT_TRUE(Read(other, Tokens(1, 2), 1).empty()) << "another tenant's";
  EXPECT_TRUE(Read(other, Tokens(1, 9), 0).empty());
  // What it has used is not what goes.
  std::this_thread::sleep_for(std::chrono::milliseconds(20));  // clocks of files are coarse
  other.Touch(JobOf(Tokens(1, 1), 0));
  Write(files, Tokens(1, 4), Bytes(4));
  EXPECT_EQ(files.Find(Tokens(1, 1), 0), 1u);
  EXPECT_EQ(files.Find(Tokens(1, 2), 0), 0u);
  // A damaged one is left to its owner.
  for (const auto& path : Files()) std::filesystem::resize_file(path, 100);
  EXPECT_THROW(Read(other, Tokens(1, 3), 0), Error);
  EXPECT_EQ(Files().size(), 3u);
  EXPECT_THROW(Read(files, Tokens(1, 3), 0), Error);
  EXPECT_EQ(Files().size(), 2u);
  // A folder that others may write to is none.
  Write(files, Tokens(1, 5), Bytes(5));
  EXPECT_EQ(Read(other, Tokens(1, 5), 0), Bytes(5));
  std::filesystem::permissions(Options().folder, std::filesystem::perms(0777));
  EXPECT_THROW(Read(other, Tokens(1, 5), 0), Error);
  std::filesystem::permissions(Options().folder, std::filesystem::perms(0700));
  EXPECT_EQ(Read(other, Tokens(1, 5), 0), Bytes(5));
  // What is no file does not hold the reader.
  const auto left = Files();
  for (const auto& path : left) {
    std::filesystem::remove(path);
    ASSERT_EQ(::mkfifo(path.c_str(), 0600), 0);
  }
  EXPECT_TRUE(Read(other, Tokens(1, 5), 0).empty());
  beside.others.push_back(folder_ / "nowhere");
  beside.folder = folder_ / "third";
  KvFiles third(beside);
  try {
    Read(third, Tokens(1, 9), 0);
    ADD_FAILURE() << "it may be in a folder that is not there";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("nowhere: can't open the folder"), std::string::npos);
    EXPECT_NE(std::string(error.what()).find("need one cache_dir"), std::string::npos);
  }
}

TEST_F(KvFilesTest, FilesAreTheirOwnersOnly) {
  KvFiles files(Options());
  WriteAll(files, Tokens(1), 0, 1);
  ASSERT_EQ(Files().size(), 1u);
  EXPECT_EQ(std::filesystem::status(Files()[0]).permissions(), std::filesystem::perms(0600));
}

TEST_F(KvFilesTest, AnotherModelOrShapeFindsNothing) {
  {
    KvFiles files(Options());
    WriteAll(files, Tokens(1), 0, 1);
  }
  EXPECT_EQ(KvFiles(Options(1 << 20, 8)).Find(Tokens(1), 0), 0u);
  KvFilesOptions larger = Options();
  larger.chunk_bytes = {kBytes + 1};
  EXPECT_EQ(KvFiles(larger).Find(Tokens(1), 0), 0u);
  EXPECT_EQ(KvFiles(Options()).Find(Tokens(1), 0), 1u);
}

// Every byte of a file matters.
TEST_F(KvFilesTest, AChangedFileIsRefusedAndRemoved) {
  const std::vector<int32_t> tokens = Tokens(1);
  size_t bytes = 0;
  for (size_t at = 0; at == 0 || at < bytes; at += at < 100 ? 1 : 37) {
    KvFiles files(Options());
    WriteAll(files, tokens, 0, 1);
    const auto path = Files().at(0);
    bytes = std::filesystem::file_size(path);
    {
      std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
      file.seekg(static_cast<std::streamoff>(at));
      const int byte = file.get();
      file.seekp(static_cast<std::streamoff>(at));
      file.put(static_cast<char>(byte ^ 0x10));
    }
    try {
      Read(files, tokens, 0);
      ADD_FAILURE() << "byte " << at << " was changed";
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(path.string()), std::string::npos) << error.what();
    }
    EXPECT_EQ(files.status().refused.load(), 1u);
    EXPECT_EQ(files.status().bytes.load(), 0u);
    EXPECT_TRUE(Files().empty());
    EXPECT_TRUE(Read(files, tokens, 0).empty()) << "it is gone";
  }
}

TEST_F(KvFilesTest, ACutOrLongerFileIsRefused) {
  const std::vector<int32_t> tokens = Tokens(1);
  for (const int more : {-1000, -1, 1}) {
    KvFiles files(Options());
    WriteAll(files, tokens, 0, 1);
    const auto path = Files().at(0);
    std::filesystem::resize_file(
        path,
        static_cast<uintmax_t>(static_cast<intmax_t>(std::filesystem::file_size(path)) + more));
    EXPECT_THROW(Read(files, tokens, 0), Error);
    EXPECT_TRUE(Files().empty());
  }
}

// Of a sequence the end goes first, and of several the one unused for longest; across a restart,
// too.
TEST_F(KvFilesTest, NeverMoreThanTheLimit) {
  const std::vector<int32_t> a = Tokens(3, 1000), b = Tokens(3, 2000);
  {
    KvFiles files(Options());
    WriteAll(files, a, 0, 1);
    WriteAll(files, b, 0, 20);
    files.Touch(JobOf(a, 0));
  }
  const uint64_t each = std::filesystem::file_size(Files().at(0));
  const uint64_t limit = 5 * each;  // files of later chunks are a little larger
  KvFiles files(Options(limit));
  EXPECT_LE(files.status().bytes.load(), limit);
  EXPECT_EQ(files.Find(a, 0), 3u);
  EXPECT_LT(files.Find(b, 0), 3u);
  EXPECT_GT(files.Find(b, 0), 0u);
  std::mt19937 random(1);
  for (int i = 0; i < 200; ++i) {
    WriteAll(files, Tokens(1 + random() % 3, static_cast<int32_t>(random() % 9) * 100),
             random() % 2, 5);
    ASSERT_LE(files.status().bytes.load(), limit);
    uint64_t bytes = 0;
    for (const auto& path : Files()) bytes += std::filesystem::file_size(path);
    ASSERT_EQ(files.status().bytes.load(), bytes);
  }
}

// A sequence can go on where all classes have what it needs there.
TEST_F(KvFilesTest, ClassesHaveFilesOfTheirOwn) {
  KvFilesOptions options = Options();
  options.classes = {{}, {.window = kPositions + 2}, {.states = true}};
  options.chunk_bytes = {kBytes, kBytes, 3 * kBytes};
  const std::vector<int32_t> tokens = Tokens(5);
  const auto write = [&](KvFiles& files, size_t of_class, size_t index) {
    Write(files, std::span(tokens).first((index + 1) * kPositions),
          std::vector<uint8_t>(options.chunk_bytes[of_class],
                               static_cast<uint8_t>(10 * of_class + index)),
          0, of_class);
  };
  {
    KvFiles files(options);
    for (size_t i = 0; i < 4; ++i) write(files, 0, i);
    EXPECT_EQ(files.Find(tokens, 0), 0u);
    write(files, 1, 2);
    write(files, 2, 2);
    EXPECT_EQ(files.Find(tokens, 0), 0u) << "the window sees chunk 1, too";
    write(files, 1, 1);
    EXPECT_EQ(files.Find(tokens, 0), 3u);
    write(files, 1, 3);
    EXPECT_EQ(files.Find(tokens, 0), 3u) << "there is no state behind chunk 3";
    write(files, 2, 3);
    EXPECT_EQ(files.Find(tokens, 0), 4u);
    write(files, 1, 4);
    write(files, 2, 4);
    EXPECT_EQ(files.Find(tokens, 0), 4u) << "not all positions";
    EXPECT_EQ(files.Find(std::span(tokens).first(3 * kPositions), 0), 3u);
  }
  KvFiles files(options);
  EXPECT_EQ(files.Find(tokens, 0), 4u);
  const auto three = std::span(tokens).first(3 * kPositions);
  EXPECT_EQ(Read(files, three, 0, 0), std::vector<uint8_t>(kBytes, 2));
  EXPECT_EQ(Read(files, three, 0, 1), std::vector<uint8_t>(kBytes, 12));
  EXPECT_EQ(Read(files, three, 0, 2), std::vector<uint8_t>(3 * kBytes, 22));
  KvJob job{.tokens = tokens, .pieces = {}};
  job.pieces = {{0, 0}, {1, 0}, {1, 3}, {2, 3}, {0, 4}};
  files.FindPieces(job);
  std::vector<bool> moves;
  for (const KvPiece& piece : job.pieces) moves.push_back(piece.moves);
  EXPECT_EQ(moves, (std::vector<bool>{false, true, false, false, true}));
  files.Forget(three, 0, 1);
  EXPECT_EQ(files.Find(tokens, 0), 0u) << "chunk 2's window is gone";
}

TEST_F(KvFilesTest, AFolderIsOnesOwn) {
  KvFiles files(Options());
  EXPECT_THROW(KvFiles{Options()}, Error) << "in use";
  KvFilesOptions open = Options();
  open.folder = folder_ / "open";
  ::mkdir(open.folder.c_str(), 0700);
  ::chmod(open.folder.c_str(), 0777);
  EXPECT_THROW(KvFiles{open}, Error) << "everybody may write to it";
  ::chmod(open.folder.c_str(), 0755);
  EXPECT_EQ(ErrorOf([&] { KvFiles files_of_open{open}; }),
            fmt::format("{}: the folder is of user {} with mode 755; expected one of user {} that "
                        "nobody else may read or write: it holds clients' prompts and answers; "
                        "chmod 700 makes it so",
                        open.folder, ::geteuid(), ::geteuid()))
      << "everybody may read prompts";
  open.folder = folder_ / "file";
  std::ofstream(open.folder) << "x";
  EXPECT_THROW(KvFiles{open}, Error) << "no folder";
}

TEST_F(KvFilesTest, LeavesOthersFilesAloneAndRemovesItsOwnRests) {
  { KvFiles files(Options()); }
  const std::string rest = Options().folder + "/0123456789abcdef0123456789abcdef.2.kv.tmp";
  const std::string other = Options().folder + "/notes.txt";
  std::ofstream(rest) << "half";
  std::ofstream(other) << "mine";
  KvFiles files(Options(0));
  EXPECT_FALSE(std::filesystem::exists(rest));
  EXPECT_TRUE(std::filesystem::exists(other));
  EXPECT_EQ(files.status().files.load(), 0u);
}

// Their names tell, and no other format is ever read.
TEST_F(KvFilesTest, FilesOfOtherFormatsAreRemovedAndCounted) {
  { KvFiles files(Options()); }
  for (const char* name :
       {"0123456789abcdef0123456789abcdef.kv", "0123456789abcdef0123456789abcdef.1.kv",
        "0123456789abcdef0123456789abcdef.99.kv"})
    std::ofstream(Options().folder + "/" + name) << "old";
  const std::string other = Options().folder + "/0123456789abcdef.kv";
  std::ofstream(other) << "mine";
  KvFiles files(Options());
  EXPECT_EQ(files.status().files.load(), 0u);
  EXPECT_EQ(files.status().bytes.load(), 0u);
  EXPECT_EQ(files.status().outdated.load(), 3u);
  EXPECT_EQ(OutdatedText(3),
            "3 KV files of another version of larder removed; this one has format 2: their tokens "
            "are computed again");
  EXPECT_EQ(Files().size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(other)) << "no file of ours";
}

}  // namespace
}  // namespace larder::pipeline::kv_store
