// A saved slot is read as it was written, and not at all if anything is wrong with it.
#include "pipeline/kv_store/slot_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <functional>

#include "base/error.h"
#include "base/temporary_folder_testing.h"

namespace larder::pipeline::inline kv_store {
namespace {

const SlotFileOptions kOptions = {
    .model = 7, .context = 64, .vocab = 190, .chunk_positions = 16, .chunk_bytes = {100}};
// A window of 20 positions in a second class, and states.
const SlotFileOptions kClasses = {
    .model = 7,
    .context = 64,
    .vocab = 190,
    .chunk_positions = 16,
    .chunk_bytes = {100, 60, 33},
    .classes = {{}, {.window = 20, .chunks = 3}, {.chunks = 1, .states = true}}};

void AddPiece(SlotContents& contents, uint32_t of_class, uint32_t place, size_t bytes) {
  SlotPiece& piece =
      contents.pieces.emplace_back(SlotPiece{of_class, place, std::vector<uint8_t>(bytes)});
  for (size_t i = 0; i < bytes; ++i)
    piece.bytes[i] = static_cast<uint8_t>(i * 7 + place * 11 + of_class);
}

SlotContents Contents(size_t tokens) {
  SlotContents contents;
  contents.tenant = 5;
  for (size_t i = 0; i < tokens; ++i) contents.tokens.push_back(static_cast<int32_t>(i * 3));
  for (uint32_t i = 0; i < (tokens + 15) / 16; ++i) AddPiece(contents, 0, i, 100);
  return contents;
}

// Of 60 tokens: all that kClasses need of them, with a state before the end.
SlotContents ContentsOfClasses() {
  SlotContents contents = Contents(60);
  for (const uint32_t chunk : {2, 3}) AddPiece(contents, 1, chunk, 60);
  for (const uint32_t position : {44, 60}) AddPiece(contents, 2, position, 33);
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
    EXPECT_EQ(read.pieces, contents.pieces);
    EXPECT_EQ(read.tenant, contents.tenant);
  }
}

TEST(SlotFileTest, HasThePiecesOfEachClass) {
  const TemporaryFolder folder;
  const std::string path = folder / "slot";
  const SlotContents contents = ContentsOfClasses();
  const size_t written = WriteSlotFile(path, kClasses, contents);
  EXPECT_EQ(written, std::filesystem::file_size(path));
  EXPECT_EQ(ReadSlotFile(path, kClasses).pieces, contents.pieces);
}

// The checksum is right, but a sequence could not go on with what there is.
TEST(SlotFileTest, PiecesThatAreNotAllThatTheTokensNeedAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "slot";
  const auto error = [&](auto&& change) -> std::string {
    SlotContents contents = ContentsOfClasses();
    change(contents.pieces);
    WriteSlotFile(path, kClasses, contents);
    try {
      ReadSlotFile(path, kClasses);
    } catch (const Error& refused) {
      return std::string(refused.what()).substr(path.size());
    }
    return "";
  };
  using Pieces = std::vector<SlotPiece>;
  EXPECT_EQ(error([](Pieces&) {}), "");
  EXPECT_EQ(error([](Pieces& p) { p.erase(p.begin() + 6); }), "");  // the earlier state
  EXPECT_EQ(error([](Pieces& p) { p.insert(p.begin() + 4, {1, 1, p[4].bytes}); }), "");  // loose
  EXPECT_EQ(error([](Pieces& p) { p.pop_back(); }),
            ": its 1 states of memory class 2 don't fit its 60 tokens: save the slot again");
  EXPECT_EQ(error([](Pieces& p) { p.erase(p.begin() + 4); }),
            ": its 1 chunks of memory class 1 don't fit its 60 tokens: save the slot again");
  EXPECT_EQ(error([](Pieces& p) { p.erase(p.begin() + 1); }),
            ": its 3 chunks of memory class 0 don't fit its 60 tokens: save the slot again");
  for (const auto& change : std::vector<std::function<void(Pieces&)>>{
           [](Pieces& p) { p[1].place = 2; }, [](Pieces& p) { p[3].place = 4; },
           [](Pieces& p) { std::swap(p[4], p[5]); }, [](Pieces& p) { p[6].place = 60; },
           [](Pieces& p) { p[6].place = 0; }, [](Pieces& p) { p[7].place = 61; },
           [](Pieces& p) { std::swap(p[0], p[7]); }, [](Pieces& p) { p.resize(6); },
           [](Pieces& p) { p.insert(p.begin(), p.begin(), p.begin() + 4); },
           [](Pieces& p) { p.insert(p.begin() + 4, 5, p[4]); }})
    EXPECT_NE(error(change), "");
}

TEST(SlotFileTest, EveryChangedByteAndEveryOtherLengthIsRefused) {
  const TemporaryFolder folder;
  const std::string path = folder / "slot";
  WriteSlotFile(path, kClasses, ContentsOfClasses());
  const std::string whole = Bytes(path);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 4);
    std::ofstream(path, std::ios::binary) << damaged;
    EXPECT_THROW(ReadSlotFile(path, kClasses), Error) << "byte " << at;
  }
  for (const size_t bytes : {size_t{0}, size_t{10}, size_t{72}, whole.size() - 1}) {
    std::ofstream(path, std::ios::binary) << whole.substr(0, bytes);
    EXPECT_THROW(ReadSlotFile(path, kClasses), Error) << bytes;
  }
  std::ofstream(path, std::ios::binary) << whole << "x";
  EXPECT_THROW(ReadSlotFile(path, kClasses), Error);
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
    EXPECT_TRUE(read.pieces.empty());
  };
  WriteSlotFile(path, kOptions, Contents(20));
  tokens_alone([](SlotFileOptions& o) { o.chunk_positions = 32; });
  tokens_alone([](SlotFileOptions& o) { o.chunk_bytes = {99}; });
  tokens_alone([](SlotFileOptions& o) { o.chunk_bytes.clear(); });
  tokens_alone([](SlotFileOptions& o) {
    o.chunk_bytes.push_back(60);
    o.classes.push_back({.window = 20});
  });
  tokens_alone([](SlotFileOptions& o) { o.classes[0].window = 20; });
  SlotContents contents = Contents(20);
  contents.pieces.clear();
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
