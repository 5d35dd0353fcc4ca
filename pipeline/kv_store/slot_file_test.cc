// A saved slot is read as it was written, and not at all if anything is wrong with it.
#include "pipeline/kv_store/slot_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/temporary_folder_testing.h"

namespace larder::pipeline::inline kv_store {
namespace {

const SlotFileOptions kOptions = {
    .model = 7, .context = 64, .vocab = 190, .chunk_positions = 16, .chunk_bytes = 100};

SlotContents Contents(size_t tokens) {
  SlotContents contents;
  contents.tenant = 5;
  for (size_t i = 0; i < tokens; ++i) contents.tokens.push_back(static_cast<int32_t>(i * 3));
  contents.bytes.resize((tokens + 15) / 16 * 100);
  for (size_t i = 0; i < contents.bytes.size(); ++i)
    contents.bytes[i] = static_cast<uint8_t>(i * 7);
  return contents;
}

std::string Bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(SlotFileTest, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  for (const size_t tokens : {1, 16, 33, 64}) {
    const SlotContents contents = Contents(tokens);
    const std::string path = folder / "slot";
    const size_t written = WriteSlotFile(path, kOptions, contents);
    EXPECT_EQ(written, std::filesystem::file_size(path));
    EXPECT_EQ(std::filesystem::status(path).permissions(), std::filesystem::perms(0600));
    const SlotContents read = ReadSlotFile(path, kOptions);
    EXPECT_EQ(read.tokens, contents.tokens);
    EXPECT_EQ(read.bytes, contents.bytes);
    EXPECT_EQ(read.tenant, contents.tenant);
  }
}

TEST(SlotFileTest, EveryChangedByteAndEveryOtherLengthIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "slot";
  WriteSlotFile(path, kOptions, Contents(20));
  const std::string whole = Bytes(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_THROW(ReadSlotFile(path, kOptions), Error) << "byte " << at;
  }
  for (const size_t bytes : {size_t{0}, size_t{10}, size_t{56}, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, bytes);
    EXPECT_THROW(ReadSlotFile(path, kOptions), Error) << bytes;
  }
  std::ofstream(path, std::ios::binary) << whole << "x";
  EXPECT_THROW(ReadSlotFile(path, kOptions), Error);
}

TEST(SlotFileTest, OfAnotherModelOrServerIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "slot";
  WriteSlotFile(path, kOptions, Contents(20));
  const auto refused = [&](auto&& change) {
    SlotFileOptions other = kOptions;
    change(other);
    EXPECT_THROW(ReadSlotFile(path, other), Error);
  };
  refused([](SlotFileOptions& o) { o.model = 8; });
  refused([](SlotFileOptions& o) { o.context = 19; });
  refused([](SlotFileOptions& o) { o.vocab = 57; });
  EXPECT_THROW(ReadSlotFile(folder / "none", kOptions), Error);
}

TEST(SlotFileTest, ChunksThatAreLaidOutOtherwiseAreLeftOut) {
  const TemporaryFolder folder;
  const std::string path = folder / "slot";
  const auto tokens_alone = [&](auto&& change) {
    SlotFileOptions other = kOptions;
    change(other);
    const SlotContents read = ReadSlotFile(path, other);
    EXPECT_EQ(read.tokens, Contents(20).tokens);
    EXPECT_EQ(read.tenant, 5);
    EXPECT_TRUE(read.bytes.empty());
  };
  WriteSlotFile(path, kOptions, Contents(20));
  tokens_alone([](SlotFileOptions& o) { o.chunk_positions = 32; });
  tokens_alone([](SlotFileOptions& o) { o.chunk_bytes = 99; });
  tokens_alone([](SlotFileOptions& o) { o.chunk_bytes = 0; });
  SlotContents contents = Contents(20);
  contents.bytes.clear();
  const size_t written = WriteSlotFile(path, kOptions, contents);
  EXPECT_EQ(written, std::filesystem::file_size(path));
  tokens_alone([](SlotFileOptions&) {});
}

TEST(SlotFileTest, WhatIsNoFileIsRefusedAtOnce) {
  const TemporaryFolder folder;
  ASSERT_EQ(::mkfifo((folder / "pipe").c_str(), 0600), 0);
  WriteSlotFile(folder / "slot", kOptions, Contents(20));
  std::filesystem::create_symlink(folder / "slot", folder / "link");
  for (const char* name : {"pipe", "link", "."})
    EXPECT_THROW(ReadSlotFile(folder / name, kOptions), Error) << name;
}

TEST(SlotFileTest, NamesStayInTheFolder) {
  for (const char* name : {"a", "chat-1.bin", "x..y", "(1)"})
    EXPECT_EQ(WhyNotFileName(name), "") << name;
  for (const char* name : {"", ".", "..", "../a", "a/b", "/etc/passwd", ".hidden", "a b", "a\n",
                           "a\\b", "C:x", "\xc3\xa4"})
    EXPECT_NE(WhyNotFileName(name), "") << name;
  EXPECT_NE(WhyNotFileName(std::string(201, 'a')), "");
}

}  // namespace
}  // namespace larder::pipeline::kv_store
