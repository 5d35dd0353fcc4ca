// Stages as processes: lost by kill -9 and by SIGSTOP, reported, and back again with the same bits.
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <thread>

#include "base/clock.h"
#include "pipeline/chain_testing.h"

namespace larder::pipeline {
namespace {

// A port that nobody listens on; somebody else may take it before we do, which has not been seen.
uint16_t FreePort() {
  const int fd = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  EXPECT_EQ(bind(fd, reinterpret_cast<sockaddr*>(&address), size), 0);
  EXPECT_EQ(getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size), 0);
  close(fd);
  return ntohs(address.sin_port);
}

class ChainProcessTest : public testing::TestWithParam<rdma::Transport> {
 protected:
  ChainProcessTest() : model_(FourLayers()), tokens_(TestTokens(90, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 30);
    test_ = MakeTestChain(*model_.file(), {{2}, {2}}, 1, 3);
    test_.chain.cluster = fmt::format("test-{}", getpid());
    auto endpoint = [&](const std::string& name) {
      return rdma::LinkEndpoint{.transport = GetParam(),
                                .name = fmt::format("larder/{}/{}", test_.chain.cluster, name),
                                .host = "127.0.0.1",
                                .port = GetParam() == rdma::Transport::kTcp ? FreePort() : uint16_t{0}};
    };
    auto& chain = test_.chain;
    for (ChainStage& stage : chain.stages) stage.endpoint = endpoint(stage.socket);
    chain.serving = endpoint("serving");
    chain.first = chain.stages[0].endpoint;
    chain.stages[0].next = chain.stages[1].endpoint;
    chain.stages[1].next = chain.serving;
    for (size_t i = 0; i < 2; ++i) Start(i);
  }
  ~ChainProcessTest() override {
    for (const pid_t child : children_) {
      kill(child, SIGKILL);
      waitpid(child, nullptr, 0);
    }
  }

  void Start(size_t index) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      children_[index] = child;
      return;
    }
    try {
      SocketStatus status;
      StageOptions options;
      options.wait = kTestWait;
      options.connect_timeout_ms = 5000;
      StageSocket socket(test_.chain, index, test_.stages[index], *model_.file(), options, status);
      for (;;) {
        try {
          socket.Serve([](const std::string&) {});
        } catch (const Error&) {  // a lost neighbour: the next chain
        }
      }
    } catch (const std::exception& e) {
      std::fprintf(stderr, "stage process: %s\n", e.what());
    }
    _exit(1);
  }

  // Until the chain is lost, which must be soon.
  std::string RunUntilLost(Engine& engine) {
    const int64_t start = NowNs();
    while (SecondsSince(start) < 20) {
      try {
        RunChunks(engine, tokens_, 30);
      } catch (const PipelineLost& lost) {
        EXPECT_EQ(engine.in_flight(), 0u);
        EXPECT_EQ(engine.length(0), 0u);
        return lost.what();
      }
    }
    return "";
  }
  void ExpectBitsAgain(Engine& engine) {
    const int64_t start = NowNs();
    while (SecondsSince(start) < 30) {
      try {
        EXPECT_EQ(FirstDifference(RunChunks(engine, tokens_, 30), baseline_), "");
        return;
      } catch (const PipelineLost&) {  // not yet back
        std::this_thread::sleep_for(std::chrono::milliseconds(50));
      }
    }
    ADD_FAILURE() << "the chain did not come back";
  }

  TestModel model_;
  std::vector<int32_t> tokens_;
  std::vector<float> baseline_;
  TestChain test_;
  pid_t children_[2] = {};
};

TEST_P(ChainProcessTest, AKilledStageIsReportedAndComesBack) {
  TestChain test = test_;
  test.stages.clear();
  auto engine = MakeChainEngine(model_, test);
  ExpectBitsAgain(*engine);
  for (const size_t index : {1, 0}) {
    kill(children_[index], SIGKILL);
    waitpid(children_[index], nullptr, 0);
    const std::string why = RunUntilLost(*engine);
    EXPECT_NE(why, "") << "stage " << index;
    EXPECT_NE(why.find("stage"), std::string::npos) << why;
    Start(index);
    ExpectBitsAgain(*engine);
  }
}

TEST_P(ChainProcessTest, AStoppedStageIsReportedAndComesBack) {
  TestChain test = test_;
  test.stages.clear();
  auto engine = MakeChainEngine(model_, test);
  kill(children_[0], SIGSTOP);
  EXPECT_NE(RunUntilLost(*engine), "");
  kill(children_[0], SIGCONT);
  ExpectBitsAgain(*engine);
}

TEST_P(ChainProcessTest, OneServingProcessAfterTheOther) {
  TestChain test = test_;
  test.stages.clear();
  for (int run = 0; run < 3; ++run) {
    auto engine = MakeChainEngine(model_, test);
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 30), baseline_), "") << run;
  }
}

INSTANTIATE_TEST_SUITE_P(Links, ChainProcessTest,
                         testing::Values(rdma::Transport::kSharedMemory, rdma::Transport::kTcp),
                         [](const auto& transport) { return rdma::TransportName(transport.param); });

}  // namespace
}  // namespace larder::pipeline
