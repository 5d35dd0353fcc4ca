// Stages as processes: lost by kill -9 and SIGSTOP, reported, and back with the same bits.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "pipeline/engine/chain_process_testing.h"

namespace larder::pipeline::inline engine {
namespace {

class ChainProcessTest : public testing::TestWithParam<rdma::Transport> {
 protected:
  ChainProcessTest()
      : model_(FourLayers()), tokens_(TestTokens(90, 301)), stages_(model_, 1, GetParam()) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 30);
  }

  // Runs until the chain is lost. The first run must notice it, since no run completes without all
  // stages; or the second, if the signal had not arrived yet.
  std::string RunUntilLost(Engine& engine) {
    for (int run = 0; run < 2; ++run) {
      try {
        RunChunks(engine, tokens_, 30);
      } catch (const ChainLostError& lost) {
        EXPECT_EQ(engine.in_flight(), 0u);
        EXPECT_EQ(engine.length(SlotId(0)), 0u);
        return lost.what();
      }
    }
    return "";
  }
  // Retries as long as a busy machine needs; only ctest's timeout limits it.
  void ExpectBitsAgain(Engine& engine) {
    for (;;) {
      try {
        EXPECT_EQ(FirstDifference(RunChunks(engine, tokens_, 30), baseline_), "");
        return;
      } catch (const ChainLostError&) {  // not back yet
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
  }

  TestModel model_;
  std::vector<int32_t> tokens_;
  std::vector<float> baseline_;
  StageProcesses stages_;
};

TEST_P(ChainProcessTest, AKilledStageIsReportedAndComesBack) {
  std::atomic<int> told = 0;
  ChainOptions options;
  options.on_lost = [&](const LostPeer& peer) {
    EXPECT_NE(peer.reason, "");
    ++told;
  };
  auto engine = stages_.Connect(options);
  ExpectBitsAgain(*engine);
  for (const size_t index : {1, 0}) {
    told = 0;
    stages_.Kill(index);
    const std::string why = RunUntilLost(*engine);
    EXPECT_NE(why, "") << "stage " << index;
    EXPECT_NE(why.find("stage"), std::string::npos) << why;
    EXPECT_EQ(told, 1) << "whichever thread was the first to see it";
    stages_.Start(index);
    ExpectBitsAgain(*engine);
  }
}

TEST_P(ChainProcessTest, AStoppedStageIsReportedAndComesBack) {
  auto engine = stages_.Connect();
  stages_.Signal(0, SIGSTOP);
  EXPECT_NE(RunUntilLost(*engine), "");
  stages_.Signal(0, SIGCONT);
  ExpectBitsAgain(*engine);
}

TEST_P(ChainProcessTest, OneServingProcessAfterTheOther) {
  for (int run = 0; run < 3; ++run) {
    auto engine = stages_.Connect();
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 30), baseline_), "") << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Links, ChainProcessTest,
                         testing::Values(rdma::Transport::kSharedMemory, rdma::Transport::kTcp),
                         [](const auto& transport) {
                           return rdma::TransportName(transport.param);
                         });

}  // namespace
}  // namespace larder::pipeline::engine
