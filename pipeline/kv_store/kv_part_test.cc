// A socket's part of KV chunks: does what is ordered, reports how it ended, forgets what a lost
// chain had ordered.
#include "pipeline/kv_store/kv_part.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/temporary_folder_testing.h"

namespace larder::pipeline::inline kv_store {
namespace {

using Kind = KvOrder::Kind;
constexpr size_t kChunks = 4, kPartBytes = 4096;

class KvPartTest : public testing::Test {
 protected:
  std::unique_ptr<KvPart> Part(bool files = true, uint64_t model = 1, uint64_t most_bytes = 1 << 20,
                               const std::string& socket = "here",
                               const KvPart::Siblings& siblings = {}) {
    KvPartOptions options;
    if (files) options.folder = folder_ / "kv";
    options.most_bytes = most_bytes;
    options.stuck_ms = stuck_ms_;
    options.on_problem = [this](const std::string& problem) { problems_.push_back(problem); };
    const auto memory = [this](uint32_t chunk) {
      return topology::ScatteredBytes(std::span(memory_).subspan(chunk * kPartBytes, kPartBytes));
    };
    return std::make_unique<KvPart>(options, socket, model, KvPart::Chunks{{kChunks}, 1, memory},
                                    siblings);
  }
  // Orders one, waits until it has ended, and says whether it succeeded.
  static bool Do(KvPart& part, Kind kind, uint64_t ticket, uint32_t chunk, uint32_t place = 5) {
    const KvOrder order{{ticket, 1}, kind, place, chunk};
    part.Take({&order, 1});
    const uint64_t bit = uint64_t{1} << place;
    while ((part.report().done & bit) == 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      part.Collect();
    }
    return (part.report().failed & bit) == 0;
  }
  void Fill(uint32_t chunk, uint8_t with) {
    std::fill_n(memory_.begin() + chunk * kPartBytes, kPartBytes, with);
  }

  TemporaryFolder folder_;
  int stuck_ms_ = 60'000;  // a disk that is only slow is not stuck
  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kChunks * kPartBytes);
  std::vector<std::string> problems_;
};

TEST_F(KvPartTest, StoresAndLoadsUnderATicket) {
  auto part = Part();
  EXPECT_EQ(part->report().done, ~uint64_t{0});
  Fill(1, 7);
  EXPECT_TRUE(Do(*part, Kind::kStore, 9, 1));
  EXPECT_EQ(part->report().files, 1u);
  EXPECT_GT(part->report().bytes, kPartBytes);
  EXPECT_FALSE(Do(*part, Kind::kLoad, 8, 2)) << "nobody has stored that";
  part = nullptr;
  part = Part();  // another process, later
  EXPECT_TRUE(Do(*part, Kind::kLoad, 9, 2));
  EXPECT_EQ(memory_[2 * kPartBytes], 7);
  EXPECT_EQ(memory_[3 * kPartBytes - 1], 7);
}

TEST_F(KvPartTest, LoadsWhatASiblingHasStored) {
  auto here = Part();
  Fill(1, 7);
  EXPECT_TRUE(Do(*here, Kind::kStore, 9, 1));
  EXPECT_FALSE(Do(*Part(true, 1, 1 << 20, "there"), Kind::kLoad, 9, 2)) << "it is not told of it";
  auto there = Part(true, 1, 1 << 20, "there", {"gone", "here"});
  EXPECT_TRUE(Do(*there, Kind::kLoad, 9, 2));
  EXPECT_EQ(memory_[2 * kPartBytes], 7);
  EXPECT_EQ(there->report().files, 0u);
  EXPECT_FALSE(Do(*Part(true, 2, 1 << 20, "other", {"here"}), Kind::kLoad, 9, 3)) << "a model";
}

TEST_F(KvPartTest, IsUselessToAnotherModelAndWithoutFiles) {
  auto part = Part();
  ASSERT_TRUE(Do(*part, Kind::kStore, 9, 1));
  part = nullptr;
  EXPECT_FALSE(Do(*Part(true, 2), Kind::kLoad, 9, 1));
  EXPECT_FALSE(Do(*Part(false), Kind::kStore, 9, 1));
  EXPECT_FALSE(Do(*Part(false), Kind::kLoad, 9, 1));
  EXPECT_TRUE(Do(*Part(), Kind::kLoad, 9, 1)) << "it is still there";
}

TEST_F(KvPartTest, ADamagedFileFailsAndIsNamed) {
  auto part = Part();
  ASSERT_TRUE(Do(*part, Kind::kStore, 9, 1));
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kv/here")) {
    if (entry.path().extension() == ".kv") std::filesystem::resize_file(entry.path(), 1000);
  }
  EXPECT_FALSE(Do(*part, Kind::kLoad, 9, 1));
  ASSERT_EQ(problems_.size(), 1u);
  EXPECT_NE(problems_[0].find("it is too short"), std::string::npos) << problems_[0];
  EXPECT_EQ(part->report().files, 0u);
}

TEST_F(KvPartTest, WhatIsAbandonedWritesNothingAnyMore) {
  const auto part = Part();
  Fill(0, 1);
  ASSERT_TRUE(Do(*part, Kind::kStore, 9, 0));
  std::vector<KvOrder> orders;
  for (uint32_t i = 0; i < kKvOrderPlaces; ++i)
    orders.push_back({{9, 1}, Kind::kLoad, i, 1 + i % (uint32_t{kChunks} - 1)});
  for (int round = 0; round < 20; ++round) {
    part->Take(orders);
    part->Abandon();
    EXPECT_EQ(part->report().done, ~uint64_t{0});
    for (uint32_t chunk = 1; chunk < kChunks; ++chunk) Fill(chunk, 2);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    EXPECT_EQ(std::count(memory_.begin() + kPartBytes, memory_.end(), 2),
              static_cast<ptrdiff_t>((kChunks - 1) * kPartBytes));
  }
  EXPECT_TRUE(Do(*part, Kind::kLoad, 9, 1)) << "and it goes on";
}

TEST_F(KvPartTest, NeedsRoomForOnePart) {
  try {
    Part(true, 1, kPartBytes);
    FAIL() << "accepted";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("no room for one part"), std::string::npos)
        << error.what();
  }
}

// What was touched last goes last, though it was stored first.
TEST_F(KvPartTest, KeepsWhatIsTouched) {
  const auto part = Part(true, 1, 4 * (kPartBytes + 200));
  for (uint64_t ticket = 1; ticket <= 10; ++ticket) {
    ASSERT_TRUE(Do(*part, Kind::kStore, ticket, 0));
    ASSERT_TRUE(Do(*part, Kind::kTouch, 1, 0));
  }
  EXPECT_TRUE(Do(*part, Kind::kLoad, 1, 1));
  EXPECT_FALSE(Do(*part, Kind::kLoad, 2, 1));
  EXPECT_TRUE(Do(*part, Kind::kLoad, 10, 1));
}

// A disk that hangs, as a pipe that nobody writes to: the process ends, because the thread that
// reads may still write to the chunk.
TEST_F(KvPartTest, AFileThatIsStuckEndsTheProcessBeforeTheNextChain) {
  testing::GTEST_FLAG(death_test_style) = "threadsafe";
  stuck_ms_ = 200;
  const auto stuck = [this] {
    auto part = Part();
    if (!Do(*part, Kind::kStore, 9, 1)) return;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kv/here")) {
      if (entry.path().extension() != ".kv") continue;
      std::filesystem::remove(entry.path());
      if (::mkfifo(entry.path().c_str(), 0600) != 0) return;
    }
    const KvOrder load{{9, 1}, Kind::kLoad, 0, 1};
    // On a busy machine it may not have begun: then it is given up, and ordered again.
    for (int ms = 50; ms < 10'000; ms *= 2) {
      part->Take({&load, 1});
      std::this_thread::sleep_for(std::chrono::milliseconds(ms));
      part->Abandon();
    }
  };
  EXPECT_EXIT(stuck(), testing::ExitedWithCode(75), "has not been read or written for 0 s");
}

TEST_F(KvPartTest, APlaceThatIsTakenIsLeftAlone) {
  const auto part = Part();
  std::vector<KvOrder> orders(1000, {{9, 1}, Kind::kStore, 3, 0});
  for (size_t i = 0; i < orders.size(); ++i) orders[i].ticket[0] = i;
  part->Take(orders);  // by a peer that does not wait
  while ((part->report().done & 8) == 0) part->Collect();
  EXPECT_EQ(part->report().files, 1u);
}

}  // namespace
}  // namespace larder::pipeline::kv_store
