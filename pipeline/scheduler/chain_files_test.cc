// KV of a chain in files of its sockets: what one run has stored, the next one with the same files
// begins with, and the tokens are those that a sequence gets alone, whatever becomes of the files.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/temporary_folder_testing.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/kv_store/chain_kv_tier.h"
#include "pipeline/kv_store/kv_mover.h"
#include "pipeline/scheduler/hostile_engine_testing.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

struct Shape {
  const char* name;
  std::vector<TestStage> stages;
  size_t slots;
};

class ChainFilesTest : public testing::TestWithParam<Shape> {
 protected:
  ChainFilesTest() : model_(FourLayers()), alone_(MakeEngine(model_.file(), {})) {
    for (uint32_t seed = 1; seed <= 4; ++seed)
      wishes_.push_back({.prompt = TestTokens(530 + seed, kVocab, seed), .most = 12, .seed = seed});
  }

  // A chain with the test's files. kv_tokens: of MakeTestChain.
  struct Chain {
    explicit Chain(ChainFilesTest& test, size_t kv_tokens = 0, uint64_t fingerprint = 1)
        : engine(MakeChain(test, kv_tokens, fingerprint)),
          index({.folder = test.folder_ / "kv/serving",
                 .most_bytes = 1 << 30,
                 .model = fingerprint,
                 .chunk_positions = engine->kv().shape().chunk_positions,
                 .chunk_bytes = std::vector(engine->kv().shape().classes.size(), sizeof(KvTicket)),
                 .classes = engine->kv().shape().classes}),
          tier(engine->kv_channel(), index,
               std::make_unique<KvMover>(index, KvMover::Options{.on_problem = test.problem_}),
               test.problem_),
          scheduler(*engine, {.tier = &tier}) {}
    static std::unique_ptr<Engine> MakeChain(ChainFilesTest& test, size_t kv_tokens,
                                             uint64_t fingerprint) {
      TestChain made =
          MakeTestChain(*test.model_.file(), GetParam().stages, GetParam().slots, 3, 64, kv_tokens);
      ChainOptions options;
      options.wait = kTestWait;
      options.kv_files = {.folder = test.folder_ / "kv",
                          .most_bytes = test.most_bytes_,
                          .on_problem = test.problem_};
      for (StagePlan& stage : made.stages) stage.fingerprint = fingerprint;
      return std::make_unique<Engine>(test.model_.file(), made.chain, made.ends, made.stages,
                                      options);
    }
    std::unique_ptr<Engine> engine;
    KvFiles index;
    ChainKvTier tier;
    Scheduler scheduler;
  };

  // Runs the wishes, one after the other, through a chain of its own; each tier has the files of
  // the one before. Returns how many tokens they reused together.
  size_t Run(uint64_t fingerprint = 1) {
    Chain chain(*this, 0, fingerprint);
    size_t reused = 0;
    for (const Wish& wish : wishes_) {
      const std::vector<Wish> one = {wish};
      TestIntake intake(one);
      chain.scheduler.Run(intake);
      EXPECT_EQ(intake.outcomes[0].tokens, Alone(wish));
      reused += intake.outcomes[0].reused;
    }
    EXPECT_EQ(chain.tier.jobs(), 0u);
    refused_ = chain.tier.status().refused.load();
    written_ = chain.tier.status().written.load();
    read_ = chain.tier.status().read.load();
    return reused;
  }
  const std::vector<int32_t>& Alone(const Wish& wish) {
    auto& tokens = alone_tokens_[wish.seed];
    if (tokens.empty()) {
      Scheduler scheduler(*alone_, {.reuse_prefixes = false});
      const std::vector<Wish> one = {wish};
      TestIntake intake(one);
      scheduler.Run(intake);
      tokens = intake.outcomes[0].tokens;
    }
    return tokens;
  }
  std::filesystem::path FolderOf(const std::string& socket) const {
    return std::filesystem::path(folder_ / "kv") / socket;
  }
  // The files of chunks of a socket, by its name.
  std::vector<std::filesystem::path> FilesOf(const std::string& socket) {
    std::vector<std::filesystem::path> files;
    for (const auto& entry : std::filesystem::directory_iterator(FolderOf(socket))) {
      if (entry.path().extension() == ".kv") files.push_back(entry.path());
    }
    return files;
  }
  std::vector<std::string> Sockets() {
    std::vector<std::string> sockets;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "kv"))
      sockets.push_back(entry.path().filename().string());
    std::ranges::sort(sockets);
    return sockets;
  }

  TemporaryFolder folder_;
  TestModel model_;
  std::unique_ptr<Engine> alone_;
  std::vector<Wish> wishes_;
  std::map<uint32_t, std::vector<int32_t>> alone_tokens_;
  std::mutex mutex_;
  std::vector<std::string> problems_;
  std::function<void(const std::string&)> problem_ = [this](const std::string& line) {
    const std::lock_guard lock(mutex_);
    problems_.push_back(line);
  };
  size_t refused_ = 0, written_ = 0, read_ = 0;
  uint64_t most_bytes_ = 1 << 30;  // of each socket
};

TEST_P(ChainFilesTest, WhatWasStoredIsReadAfterARestart) {
  EXPECT_EQ(Run(), 0u);
  EXPECT_EQ(written_, 8u) << "two whole chunks of each";
  EXPECT_EQ(read_, 0u);
  for (const std::string& socket : Sockets()) EXPECT_GT(FilesOf(socket).size(), 0u) << socket;
  EXPECT_EQ(Run(), 4 * 512u);
  EXPECT_EQ(written_, 0u) << "they are there";
  EXPECT_EQ(read_, 8u);
  EXPECT_EQ(refused_, 0u);
  EXPECT_TRUE(problems_.empty()) << problems_[0];
}

TEST_P(ChainFilesTest, APartThatIsDamagedOrGoneIsComputedAndStoredAgain) {
  Run();
  const std::vector<std::string> sockets = Sockets();
  for (const std::string& socket : sockets) {
    if (socket == "serving") continue;
    std::filesystem::remove_all(folder_ / "kv");
    Run();
    const auto files = FilesOf(socket);
    const size_t of_all = FilesOf("serving").size();
    for (size_t i = 0; i < files.size(); ++i) {
      if (i % 2 == 0) {
        std::filesystem::remove(files[i]);
      } else {
        std::fstream(files[i], std::ios::in | std::ios::out).seekp(300).put('x');
      }
    }
    // Of those that the socket has a part of nothing is reused.
    EXPECT_EQ(Run(), 256 * (of_all - files.size())) << socket;
    EXPECT_EQ(refused_, files.size() / 2) << socket;
    EXPECT_EQ(Run(), 4 * 512u) << "they were stored again";
    EXPECT_EQ(refused_, 0u);
  }
}

// Nine sequences with a first chunk in common, one after the other, where each socket has room for
// three: what goes is never what the others begin with.
TEST_P(ChainFilesTest, TheirBeginningStaysLongest) {
  wishes_.resize(1);
  Run();
  for (const std::string& socket : Sockets()) {
    if (socket != "serving" && !FilesOf(socket).empty())
      most_bytes_ = 3 * std::filesystem::file_size(FilesOf(socket)[0]) + 300;
  }
  std::filesystem::remove_all(folder_ / "kv");
  const std::vector<int32_t> first = TestTokens(256, kVocab, 50);
  wishes_.clear();
  for (uint32_t i = 0; i < 9; ++i) {
    Wish wish{.prompt = first, .most = 3, .seed = 60 + i};
    const auto rest = TestTokens(280, kVocab, 60 + i);
    wish.prompt.insert(wish.prompt.end(), rest.begin(), rest.end());
    wishes_.push_back(std::move(wish));
  }
  Run();
  wishes_ = {wishes_[8], wishes_[0]};
  EXPECT_EQ(Run(), 512u + 256u);
}

// Sequences that end together begin alike: their common chunks are stored once.
TEST_P(ChainFilesTest, EqualChunksAreStoredOnce) {
  Chain chain(*this);
  const std::vector<Wish> same(6, wishes_[0]);
  TestIntake intake(same);
  chain.scheduler.Run(intake);
  for (const Outcome& outcome : intake.outcomes) EXPECT_EQ(outcome.tokens, Alone(wishes_[0]));
  for (const std::string& socket : Sockets()) {
    EXPECT_LE(FilesOf(socket).size(), 2u) << socket;
  }
  EXPECT_EQ(FilesOf("serving").size(), 2u);
}

// What one attention socket has stored, the others of its stage load.
TEST_P(ChainFilesTest, ASequenceGoesOnInAnySlot) {
  wishes_.resize(3);
  Run();
  std::set<std::pair<uint32_t, SlotId>> places;
  std::vector<Wish> order = wishes_;
  do {
    for (size_t i = 0; i < order.size(); ++i) order[i].arrives = i;
    Chain chain(*this);
    TestIntake intake(order);
    chain.scheduler.Run(intake);
    for (size_t i = 0; i < order.size(); ++i) {
      EXPECT_EQ(intake.outcomes[i].tokens, Alone(order[i]));
      EXPECT_EQ(intake.outcomes[i].reused, 512u);
      places.insert({order[i].seed, intake.outcomes[i].slot});
    }
    EXPECT_EQ(chain.tier.status().read.load(), 6u);
    EXPECT_EQ(chain.tier.status().written.load(), 0u);
  } while (std::ranges::next_permutation(order, {}, &Wish::seed).found);
  EXPECT_EQ(places.size(), 3u * GetParam().slots) << "each was in each slot";
  EXPECT_TRUE(problems_.empty()) << problems_[0];
}

TEST_P(ChainFilesTest, AnotherModelUsesNothing) {
  Run();
  EXPECT_EQ(Run(2), 0u);
  EXPECT_EQ(Run(1), 4 * 512u);
}

TEST_P(ChainFilesTest, AFolderThatCannotBeIsAnError) {
  Run();
  const std::vector<std::string> sockets = Sockets();
  for (const std::string& socket : sockets) {
    if (socket == "serving") continue;
    std::filesystem::remove_all(FolderOf(socket));
    std::ofstream(FolderOf(socket)) << "no folder";
  }
  EXPECT_THROW(Run(), Error);
}

// A job's parts take as long as files do; meanwhile other sequences go on, and the scheduler parks
// and shortens as usual. Here they all come at once, with few chunks.
TEST_P(ChainFilesTest, ManyAtOnceWithFewChunks) {
  for (int round = 0; round < 3; ++round) {
    Chain chain(*this, GetParam().slots * 768 * 3 / 4);
    std::vector<Wish> all;
    for (size_t i = 0; i < 12; ++i) {
      all.push_back(wishes_[i % wishes_.size()]);
      all.back().arrives = 3 * i;
    }
    TestIntake intake(all);
    chain.scheduler.Run(intake);
    for (size_t i = 0; i < all.size(); ++i)
      EXPECT_EQ(intake.outcomes[i].tokens, Alone(all[i])) << "round " << round << ", " << i;
    EXPECT_EQ(chain.tier.jobs(), 0u);
    EXPECT_GE(chain.tier.status().read.load(), round > 0 ? 1u : 0u);
  }
}

// An engine of numbers whose KV is in files of sockets elsewhere; failure: the probability that one
// of them is not written, or not read.
struct SimulatedChain {
  SimulatedChain(const EngineLimits& limits, double failure)
      : engine(limits, clock, 0, 1, 0, failure) {}
  VirtualClock clock;
  HostileEngine engine;
  const TemporaryFolder folder;
  KvFiles index{{.folder = folder / "kv",
                 .most_bytes = 1 << 20,
                 .chunk_positions = HostileEngine::kChunkPositions,
                 .chunk_bytes = {sizeof(KvTicket)}}};
  std::vector<std::string> said;
  ChainKvTier tier{engine.kv_channel(), index, std::make_unique<KvMover>(index, KvMover::Options()),
                   [this](const std::string& line) { said.push_back(line); }};
  Scheduler scheduler{engine, {.clock = &clock, .tier = &tier}};
};

TEST(ChainKvTierTest, SocketsWithoutFilesAreSaidOnce) {
  const EngineLimits limits = {.capacity = {.slots = 2, .context = 128, .max_batch_tokens = 32},
                               .vocab = 24,
                               .max_logits = 16};
  SimulatedChain chain(limits, /*failure: of each store*/ 1.0);
  std::vector<Wish> wishes;
  for (int32_t i = 0; i < 20; ++i)
    wishes.push_back({.prompt = std::vector<int32_t>(40, 1 + i % 20), .most = 4, .seed = 1});
  TestIntake intake(wishes);
  chain.scheduler.Run(intake);
  for (const Outcome& outcome : intake.outcomes) EXPECT_EQ(outcome.tokens.size(), 4u);
  ASSERT_EQ(chain.said.size(), 1u);
  EXPECT_NE(chain.said[0].find("without --cache-dir"), std::string::npos);
  EXPECT_EQ(chain.index.status().files.load(), 0u);
  EXPECT_GT(chain.tier.status().failed.load(), 5u);
}

// Two clients take the only slots of two sockets; the one on the other socket ends first.
TEST(ChainKvTierTest, ASequenceThatGaveWayGoesOnOnAnotherSocket) {
  const EngineLimits limits = {.capacity = {.slots = 2, .context = 256, .max_batch_tokens = 32},
                               .vocab = 24,
                               .max_logits = 16,
                               .attention_slot_ends = {SlotId(1), SlotId(2)}};
  // Steps take no time here, the index's files do: the 40th waits for them.
  struct Waiting : TestIntake {
    using TestIntake::TestIntake;
    void StepDone() override {
      TestIntake::StepDone();
      if (++steps != 40 || index == nullptr) return;
      for (int ms = 0; index->status().files < 6; ++ms) {
        ASSERT_LT(ms, 60'000) << "nothing is written";
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }
    const KvFiles* index = nullptr;
    int steps = 0;
  };
  uint64_t read = 0;
  const auto run = [&](const std::vector<Wish>& wishes) {
    SimulatedChain chain(limits, /*failure=*/0.0);
    Waiting intake(wishes);
    intake.index = wishes.size() > 1 ? &chain.index : nullptr;
    chain.scheduler.Run(intake);
    read = chain.tier.status().read.load();
    return intake.outcomes;
  };
  const std::vector<Wish> wishes = {
      {.prompt = std::vector<int32_t>(100, 3), .most = 60, .seed = 1, .background = true},
      {.prompt = {1, 2}, .most = 60, .seed = 2, .arrives = 10},    // in the slot that is idle
      {.prompt = {2, 1}, .most = 200, .seed = 3, .arrives = 10}};  // in the background's
  const std::vector<Outcome> together = run(wishes);
  EXPECT_GE(read, 6u) << "its whole chunks at least of the prompt";
  EXPECT_EQ(together[0].slot, together[1].slot);
  EXPECT_NE(together[0].slot, together[2].slot);
  for (size_t i = 0; i < wishes.size(); ++i)
    EXPECT_EQ(together[i].tokens, run({wishes[i]})[0].tokens) << i;
}

INSTANTIATE_TEST_SUITE_P(
    Chains, ChainFilesTest,
    testing::Values(Shape{"two_colocated", {{2, 1}, {2, 1}}, 3},
                    Shape{"mixed", {{1, 1, {{1, 2}, {1, 1}}}, {2, 2}, {1, 1, {{1, 2}, {1, 1}}}}, 3},
                    Shape{"separated", {{2, 1, {{1, 2}, {1, 1}}}, {2, 1, {{1, 2}, {1, 1}}}}, 3}),
    [](const auto& of) { return of.param.name; });

}  // namespace
}  // namespace larder::pipeline::scheduler
