// Jobs come back, done as far as files go; reading goes before writing.
#include "pipeline/kv_store/kv_mover.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <future>
#include <string>
#include <vector>

#include "base/temporary_folder_testing.h"

namespace larder::pipeline::inline kv_store {
namespace {

constexpr size_t kChunkPositions = 4, kChunkBytes = 64;

class KvMoverTest : public testing::Test {
 protected:
  KvJob Job(KvJob::Kind kind, size_t chunks, int32_t first_token = 1) {
    KvJob job{.kind = kind, .slot = SlotId(3), .tokens = {}, .pieces = {}};
    for (size_t i = 0; i < chunks * kChunkPositions; ++i)
      job.tokens.push_back(first_token + static_cast<int32_t>(i));
    memory_.resize(chunks, std::vector<uint8_t>(kChunkBytes));
    for (size_t i = 0; i < chunks; ++i)
      job.pieces.push_back({.index = i,
                            .chunk = static_cast<uint32_t>(i),
                            .memory = topology::ScatteredBytes(memory_[i])});
    job.stores = kind == KvJob::Kind::kStore ? chunks : 0;
    return job;
  }
  KvJob Done(KvMover& mover) {
    for (;;) {
      if (auto job = mover.Take()) return std::move(*job);
      mover.Wait(-1);
    }
  }
  void Fill(uint8_t with) {
    for (size_t i = 0; i < memory_.size(); ++i)
      std::ranges::fill(memory_[i], static_cast<uint8_t>(with + i));
  }

  TemporaryFolder folder_;
  KvFiles files_{{.folder = folder_ / "kv",
                  .most_bytes = 1 << 20,
                  .model = 1,
                  .chunk_positions = kChunkPositions,
                  .chunk_bytes = {kChunkBytes}}};
  std::vector<std::vector<uint8_t>> memory_;
};

TEST_F(KvMoverTest, StoresAndLoads) {
  KvMover mover(files_, {});
  KvJob store = Job(KvJob::Kind::kStore, 3);
  Fill(5);
  mover.Start(std::move(store));
  EXPECT_EQ(mover.chunks_to_store(), 3u);
  const KvJob stored = Done(mover);
  EXPECT_EQ(stored.done, 3u);
  EXPECT_EQ(stored.slot, SlotId(3));
  EXPECT_EQ(mover.chunks_to_store(), 0u);
  EXPECT_EQ(mover.Find(stored.tokens, 0), 3u);

  KvJob load = Job(KvJob::Kind::kLoad, 3);
  Fill(0);
  mover.Start(std::move(load));
  EXPECT_EQ(Done(mover).done, 3u);
  for (size_t i = 0; i < 3; ++i)
    EXPECT_EQ(memory_[i], std::vector<uint8_t>(kChunkBytes, static_cast<uint8_t>(5 + i)));
  EXPECT_EQ(mover.jobs(), 0u);
  mover.Wait(-1);  // at once
}

TEST_F(KvMoverTest, ALoadEndsAtTheFirstFileThatIsNotGood) {
  std::vector<std::string> problems;
  KvMover mover(files_,
                {.on_problem = [&](const std::string& problem) { problems.push_back(problem); }});
  KvJob store = Job(KvJob::Kind::kStore, 3);
  Fill(5);
  mover.Start(std::move(store));
  Done(mover);
  // The second chunk's: by size, since it has more tokens than the first and fewer than the third.
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kv")) {
    if (entry.path().extension() == ".kv") paths.push_back(entry.path());
  }
  std::ranges::sort(paths, {}, [](const auto& path) { return std::filesystem::file_size(path); });
  ASSERT_EQ(paths.size(), 3u);
  std::ofstream(paths[1], std::ios::app) << "more";
  KvJob load = Job(KvJob::Kind::kLoad, 3);
  mover.Start(std::move(load));
  EXPECT_EQ(Done(mover).done, 1u);
  ASSERT_EQ(problems.size(), 1u);
  EXPECT_NE(problems[0].find("too long"), std::string::npos) << problems[0];
  EXPECT_EQ(mover.Find(Job(KvJob::Kind::kLoad, 3).tokens, 0), 1u);
}

TEST_F(KvMoverTest, WhatHasNotBegunCanBeTakenBack) {
  std::promise<void> busy, go_on;
  KvMover mover(files_, {.on_problem = [&](const std::string&) {
                  busy.set_value();
                  go_on.get_future().wait();
                }});
  mover.Start(Job(KvJob::Kind::kStore, 1));
  Done(mover);
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kv")) {
    if (entry.path().extension() == ".kv") std::ofstream(entry.path(), std::ios::app) << "more";
  }
  mover.Start(Job(KvJob::Kind::kLoad, 1));  // the mover reports the file, and waits
  busy.get_future().wait();
  for (int32_t i = 1; i <= 4; ++i) mover.Start(Job(KvJob::Kind::kStore, 1, 100 * i));
  EXPECT_EQ(mover.Drop()->tokens[0], 100) << "the oldest";
  EXPECT_EQ(mover.Drop()->tokens[0], 200);
  EXPECT_EQ(mover.chunks_to_store(), 2u);
  go_on.set_value();
  EXPECT_EQ(Done(mover).done, 0u) << "the load";
  for (int left = 2; left > 0; --left) EXPECT_EQ(Done(mover).done, 1u);
  EXPECT_FALSE(mover.Drop());
  EXPECT_EQ(mover.jobs(), 0u);
}

TEST_F(KvMoverTest, AWriteThatFailsIsSaidOnce) {
  std::vector<std::string> problems;
  KvMover mover(files_,
                {.on_problem = [&](const std::string& problem) { problems.push_back(problem); }});
  std::filesystem::remove_all(folder_ / "kv");
  for (int32_t i = 0; i < 3; ++i) {
    mover.Start(Job(KvJob::Kind::kStore, 1, 100 * i));
    EXPECT_EQ(Done(mover).done, 0u);
  }
  EXPECT_EQ(problems.size(), 1u);
  EXPECT_EQ(files_.status().failed.load(), 3u);
}

}  // namespace
}  // namespace larder::pipeline::kv_store
