// Sockets that wait in different ways, and flags over a long time: the bits are the same, and
// nothing hangs.
#include <gtest/gtest.h>
#include <pthread.h>

#include <algorithm>
#include <thread>

#include "pipeline/chain/stage_threads.h"
#include "pipeline/engine/attention_process_testing.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/stage/stage_testing.h"

namespace larder::pipeline::inline engine {
namespace {

class StageWaitsTest : public testing::Test {
 protected:
  StageWaitsTest() : model_(AwkwardModel()), tokens_(TestTokens(200, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  TestModel model_;
  std::vector<int32_t> tokens_;
  std::vector<float> baseline_;
};

// Each socket is woken in its own way of waiting, independent of the other's. Two cores have a
// thread each, which spins or sleeps at once. (A spinning thread that shares its core would wait
// for the scheduler.)
constexpr sync::WaitPolicy kSpin{sync::WaitPolicy::Mode::kSpin, 0};
constexpr sync::WaitPolicy kSleepAtOnce{sync::WaitPolicy::Mode::kAdaptive, 0};

struct WaitPair {
  const char* name;
  sync::WaitPolicy weight, attention;
};
class SocketWaitsTest : public StageWaitsTest, public testing::WithParamInterface<WaitPair> {
 protected:
  void SetUp() override {
    const auto machine = topology::Topology::Detect();
    if (machine.cores().size() < 2) GTEST_SKIP() << "needs two cores";
    PlanOptions options{.threads = 1,
                        .capacity = {.context = 768, .max_batch_tokens = 128},
                        .cores = {machine.cores()[0].id}};
    options.attention.push_back(
        {.name = "attention", .cores = {machine.cores()[1].id}, .cpus = {}, .slots = 1});
    plan_ = MakeStagePlan(model::ReadModelConfig(*model_.file()), machine, options);
  }
  void ExpectSameBits(const std::string& processes) {
    ExpectSameBits(processes, {GetParam().weight, {GetParam().attention}});
  }
  void ExpectSameBits(const std::string& processes, const SocketWaits& waits) {
    ChainOptions options;
    options.wait = waits.weight;
    options.attention_waits = waits.attention;
    options.processes = processes;
    Engine engine(model_.file(), plan_, options);
    EXPECT_EQ(FirstDifference(RunChunks(engine, tokens_, 100), baseline_), "");  // in halves
    const std::vector<int32_t> few(tokens_.begin(), tokens_.begin() + 40);
    EXPECT_EQ(FirstDifference(RunChunks(engine, few, 1),
                              {baseline_.begin(), baseline_.begin() + 40 * 301}),
              "");
  }
  StagePlan plan_;
};

TEST_P(SocketWaitsTest, AsThreads) { ExpectSameBits(""); }

TEST_P(SocketWaitsTest, AsProcesses) {
  const std::string cluster = fmt::format("test-{}", getpid());
  AttentionProcesses processes(*model_.file(), cluster, plan_,
                               {GetParam().weight, {GetParam().attention}});
  ExpectSameBits(cluster);
  EXPECT_EQ(processes.Statuses(), std::vector<int>{0});
}

// A weight socket that disagrees with an attention socket about how either's threads wait is
// refused, by name; one that agrees is served afterwards.
TEST_P(SocketWaitsTest, ADifferenceIsRefusedByName) {
  const std::string cluster = fmt::format("test-{}", getpid());
  const auto other = [](const sync::WaitPolicy& wait) {
    return wait.mode == sync::WaitPolicy::Mode::kSpin ? kSleepAtOnce : kSpin;
  };
  const auto [name, weight, attention] = GetParam();
  for (const SocketWaits& theirs :
       {SocketWaits{weight, {other(attention)}}, SocketWaits{other(weight), {attention}},
        SocketWaits{other(weight), {other(attention)}}}) {
    AttentionProcesses processes(*model_.file(), cluster, plan_, theirs);
    try {
      ExpectSameBits(cluster);
      ADD_FAILURE() << "not refused";
    } catch (const Error& error) {
      const std::string said = error.what();
      EXPECT_NE(said.find("/attention (pid "), std::string::npos) << said;
      EXPECT_NE(said.find("isolated"), std::string::npos) << said;
    }
    ExpectSameBits(cluster, theirs);
    EXPECT_EQ(processes.Statuses(), std::vector<int>{0});
  }
}

INSTANTIATE_TEST_SUITE_P(Policies, SocketWaitsTest,
                         testing::Values(WaitPair{"BothSleep", kSleepAtOnce, kSleepAtOnce},
                                         WaitPair{"AttentionSpins", kSleepAtOnce, kSpin},
                                         WaitPair{"WeightsSpin", kSpin, kSleepAtOnce},
                                         WaitPair{"BothSpin", kSpin, kSpin}),
                         [](const auto& pair) { return pair.param.name; });

// Simulates hours of short frames between frames that are cut: the epochs of both pools jump by
// 2^30, twice, and the flags of the second half, which only cut frames signal, must not count as
// reached.
TEST_F(StageWaitsTest, FlagsOfTheSecondHalfDoNotGetOld) {
  PlanOptions options{.threads = 1, .capacity = {.context = 768, .max_batch_tokens = 128}};
  options.attention.push_back({.name = "attention",
                               // two threads, so that appended rows have flags
                               .cores = topology::Topology::Detect().PickCores(2),
                               .cpus = {},
                               .slots = 1});
  const StagePlan plan =
      MakeStagePlan(model::ReadModelConfig(*model_.file()), topology::Topology::Detect(), options);
  ChainOptions stage_options;
  stage_options.wait = kTestWait;
  CpuStage stage(plan, *model_.file(), stage_options);
  CutMicroBatches batches(stage, tokens_, baseline_);
  constexpr uint32_t kJump = 0x4000'0010u;
  batches.Run(60, 30);
  for (int round = 0; round < 2; ++round) {
    StageTesting::SkipEpochs(stage, kJump);
    batches.Run(10, 0);
    // Whether a thread that passes too early reads wrong rows depends on timing; this check does
    // not.
    EXPECT_LT(StageTesting::OldestFlag(stage), 1u << 28);
    StageTesting::SkipEpochs(stage, kJump);
    batches.Run(60, 30);
  }
}

// While it lives, new threads of this process cannot start, since their stacks would be too large.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge = before_;
    pthread_attr_setstacksize(&huge, size_t{1} << 47);
    EXPECT_EQ(pthread_setattr_default_np(&huge), 0);
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }

 private:
  pthread_attr_t before_;
};

TEST_F(StageWaitsTest, AThreadThatCannotStartIsAnError) {
  const StagePlan plan = MakeTestPlan(*model_.file(), {.threads = 1, .attention = {{1, 1}}});
  const TestChain chain = MakeTestChain(*model_.file(), {{1}, {1}}, 1, 2);
  ChainOptions options;
  options.wait = kTestWait;
  const NoThreads none;
  EXPECT_THROW(AttentionClient::StartThreads(plan, *model_.file(), {kTestWait, {kTestWait}}, {}),
               Error);
  EXPECT_THROW(StageThreads(chain.chain, chain.stages, *model_.file(), options), Error);
}

}  // namespace
}  // namespace larder::pipeline::engine
