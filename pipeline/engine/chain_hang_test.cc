// A stage whose data path hangs while its process lives: the chain fails with the stage's name, the
// requests end, and the serving socket keeps running.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <thread>
#include <utility>

#include "base/clock.h"
#include "pipeline/chain/stage_socket.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/stage/cpu_stage.h"

namespace larder::pipeline::inline engine {
namespace {

constexpr int64_t kMs = 1'000'000;

TEST(ProgressWatchTest, FramesAreAliveWhileTheyMoveOrNoneIsStarted) {
  SocketStatus status;
  ProgressWatch watch(100);
  EXPECT_TRUE(watch.Alive(status, 0));
  EXPECT_TRUE(watch.Alive(status, 1'000'000)) << "idle for long";
  SocketStatus::Add(status.frames_started, 1);
  EXPECT_TRUE(watch.Alive(status, 1'000'050)) << "just started, however long it was idle before";
  EXPECT_TRUE(watch.Alive(status, 1'000'149));
  EXPECT_FALSE(watch.Alive(status, 1'000'150)) << "in flight for all the patience there is";
  EXPECT_TRUE(watch.Alive(status, 1'000'300, /*excused=*/true)) << "others hold it";
  EXPECT_TRUE(watch.Alive(status, 1'000'399)) << "the patience begins anew";
  EXPECT_FALSE(watch.Alive(status, 1'000'400));
  SocketStatus::Add(status.frames_finished, 1);
  EXPECT_TRUE(watch.Alive(status, 1'000'410)) << "finished after all";
}

TEST(ProgressWatchTest, ALoopBeatsOrRests) {
  Pulse pulse;
  ProgressWatch watch(100);
  EXPECT_TRUE(watch.Alive(pulse, 0));
  EXPECT_FALSE(watch.Alive(pulse, 100)) << "never went round";
  pulse.Beat();
  EXPECT_TRUE(watch.Alive(pulse, 150));
  {
    const Pulse::Rest rest(pulse);
    const Pulse::Rest inner(pulse);
    EXPECT_TRUE(watch.Alive(pulse, 10'000));
  }
  EXPECT_FALSE(pulse.resting());
  EXPECT_TRUE(watch.Alive(pulse, 20'000)) << "it went on after its rest";
  EXPECT_FALSE(watch.Alive(pulse, 20'100));
}

TEST(ProgressWatchTest, WithoutPatienceNothingHangs) {
  Pulse pulse;
  ProgressWatch watch(0);
  EXPECT_TRUE(watch.Alive(pulse, 0));
  EXPECT_TRUE(watch.Alive(pulse, INT64_MAX));
}

// A step before a stage's first one that blocks frames while the gate is closed.
struct Gate {
  threadpool::Kernel kernel = nullptr;
  const void* operand = nullptr;
  std::atomic<bool> closed{false};
  std::atomic<int> inside{0};

  void PutBefore(const threadpool::Step& step) {
    kernel = step.kernel;
    operand = step.operand;
    auto& spoiled = const_cast<threadpool::Step&>(step);
    spoiled.kernel = [](const void* gate, void* frame) {
      auto& here = *static_cast<Gate*>(const_cast<void*>(gate));
      here.inside.fetch_add(1);
      while (here.closed.load()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      here.inside.fetch_sub(1);
      here.kernel(here.operand, frame);
    };
    spoiled.operand = this;
  }
};

// Two stages as threads of this process, each with one thread; the second is behind a gate.
class GatedStages {
 public:
  GatedStages(const TestModel& model, int frame_limit_ms)
      : test_(MakeTestChain(*model.file(), {{2}, {2}}, 1, 2)) {
    const std::string run = fmt::format("larder-hang-{}/", getpid());
    const auto endpoint = [&](const std::string& name) {
      return rdma::LinkEndpoint{.transport = rdma::Transport::kSharedMemory, .name = run + name};
    };
    ChainPlan& chain = test_.chain;
    for (ChainStage& stage : chain.stages) stage.endpoint = endpoint(stage.socket);
    chain.serving = endpoint("serving");
    chain.first = chain.stages[0].endpoint;
    chain.stages[0].next = chain.stages[1].endpoint;
    chain.stages[1].next = chain.serving;
    std::atomic<int> built{0};
    for (size_t i = 0; i < 2; ++i) {
      threads_.emplace_back([this, &model, &built, i, frame_limit_ms] {
        ChainOptions options;
        options.wait = kTestWait;
        options.frame_limit_ms = frame_limit_ms;
        StageSocket socket(test_.chain, i, test_.stages[i], *model.file(), options, status[i]);
        sockets_[i] = &socket;
        if (i == 1)
          gate.PutBefore(
              CpuStage::Of(socket.stage()).steps(weight_node::ProgramForm::kFewRows, 0)[0]);
        ++built;
        while (!over_) {
          try {
            socket.Serve([this](const std::string& line) {
              const std::lock_guard lock(mutex_);
              log_ += line + "\n";
            });
          } catch (const Error&) {  // a neighbour was lost: serve the next chain
          }
        }
      });
    }
    while (built < 2) std::this_thread::yield();
  }
  // Called when no engine is connected any more.
  ~GatedStages() {
    gate.closed = false;
    for (auto& socket : sockets_) socket.load()->StopListening();
    over_ = true;  // the sockets exist until then
    for (std::thread& thread : threads_) thread.join();
  }
  // The serving socket's side.
  std::unique_ptr<Engine> Connect(const TestModel& model, ChainOptions options) const {
    options.wait = kTestWait;
    return std::make_unique<Engine>(model.file(), test_.chain, test_.ends, std::vector<StagePlan>(),
                                    options);
  }
  std::string log() {
    const std::lock_guard lock(mutex_);
    return log_;
  }

  Gate gate;
  SocketStatus status[2];

 private:
  TestChain test_;
  std::atomic<bool> over_{false};
  std::atomic<StageSocket*> sockets_[2] = {};
  std::mutex mutex_;
  std::string log_;
  std::vector<std::thread> threads_;
};

// The limit is some hundred times a frame's current time, so that a slow machine does not reach it
// without a hang.
int LimitMs(int64_t frame_ns) {
  return static_cast<int>(std::max<int64_t>(2000, 500 * frame_ns / kMs));
}

class ChainHangTest : public testing::Test {
 protected:
  ChainHangTest() : model_(FourLayers()), tokens_(TestTokens(6, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    const int64_t start = NowNs();
    RunChunks(*engine, tokens_, 1);
    frame_ns_ = (NowNs() - start) / static_cast<int64_t>(tokens_.size());
  }

  // Returns the serving socket's Error when a frame does not return.
  std::string RunUntilLost(Engine& engine) {
    try {
      RunChunks(engine, tokens_, 1);
    } catch (const ChainLostError& lost) {
      EXPECT_EQ(engine.in_flight(), 0u);
      EXPECT_EQ(engine.status().frames_started.load(), engine.status().frames_finished.load());
      return lost.what();
    }
    return "it went on";
  }

  TestModel model_;
  std::vector<int32_t> tokens_;
  int64_t frame_ns_ = 0;
};

TEST_F(ChainHangTest, AStageThatHangsFaultsTheChainByName) {
  const int limit_ms = LimitMs(frame_ns_);
  GatedStages stages(model_, limit_ms);
  ChainOptions options;
  options.frame_limit_ms = limit_ms;
  {
    const auto engine = stages.Connect(model_, options);
    EXPECT_EQ(RunUntilLost(*engine), "it went on");
    stages.gate.closed = true;
    const std::string why = RunUntilLost(*engine);
    EXPECT_EQ(stages.gate.inside.load(), 1) << "it still hangs: somebody else must have said so";
    EXPECT_NE(why.find("stage 2 of 2 (socket stage2)"), std::string::npos) << why;
    EXPECT_NE(why.find("it has not finished a frame in time"), std::string::npos) << why;
    // The stage's own log line comes a little later, from the thread that reported the fault.
    const int64_t start = NowNs();
    while (stages.log().find("stage stage2: it has not finished") == std::string::npos &&
           SecondsSince(start) < 20)
      std::this_thread::yield();
    EXPECT_NE(stages.log().find("stage stage2: it has not finished"), std::string::npos)
        << stages.log();
    // The frames of the serving socket and of the other stage have ended, so no watchdog reports
    // them.
    for (const SocketStatus* healthy : {&engine->status(), &std::as_const(stages.status[0])}) {
      ProgressWatch watch(1);
      EXPECT_TRUE(watch.Alive(*healthy, 0));
      EXPECT_TRUE(watch.Alive(*healthy, INT64_MAX));
    }
    ProgressWatch watch(1);
    EXPECT_TRUE(watch.Alive(stages.status[1], 0));
    EXPECT_FALSE(watch.Alive(stages.status[1], INT64_MAX)) << "its own has";
  }
}

TEST_F(ChainHangTest, NoLimitNoFault) {
  GatedStages stages(model_, 0);
  ChainOptions options;
  options.frame_limit_ms = 0;
  const auto engine = stages.Connect(model_, options);
  stages.gate.closed = true;
  std::thread opener([&] {
    while (stages.gate.inside.load() == 0) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::milliseconds(600));  // three intervals of a LinkWatch
    stages.gate.closed = false;
  });
  EXPECT_EQ(RunUntilLost(*engine), "it went on");
  opener.join();
}

// While the serving socket waits for a frame, its pulse rests: the stages have to finish it,
// however long that takes.
TEST_F(ChainHangTest, WhoWaitsForAFrameRests) {
  GatedStages stages(model_, 0);
  ChainOptions options;
  options.frame_limit_ms = 0;
  const auto engine = stages.Connect(model_, options);
  stages.gate.closed = true;
  bool rested = false;
  std::thread looker([&] {
    while (stages.gate.inside.load() == 0) std::this_thread::yield();
    while (!engine->status().pulse.resting()) std::this_thread::yield();
    rested = engine->status().frames_started.load() > engine->status().frames_finished.load();
    stages.gate.closed = false;
  });
  EXPECT_EQ(RunUntilLost(*engine), "it went on");
  looker.join();
  EXPECT_TRUE(rested);
  EXPECT_FALSE(engine->status().pulse.resting());
}

// Finds the socket that holds a frame that does not end, from the flags of weight and attention
// threads, which no longer change.
TEST(HungAttentionTest, IsTheSocketThatTheOthersWaitFor) {
  const TestModel model(FourLayers());
  const StagePlan plan = MakeTestPlan(
      *model.file(), {.threads = 2,
                      .slots = 2,
                      .context = 64,
                      .attention = {{.threads = 1, .slots = 1}, {.threads = 1, .slots = 1}}});
  const SegmentShape shape(plan);
  const auto memory = rdma::SharedMemory::Create(shape.bytes(), "larder-hung");
  const Exchange exchange(shape.exchange, memory.data());
  const auto projectors = Projectors(plan, 0);
  const uint32_t base = 40;
  const auto project = [&](size_t half, uint32_t layer) {
    for (size_t head = 0; head < plan.config.layer(0).sizes.kv_heads; ++head) {
      for (const size_t t : projectors[head])
        exchange.projected(half, t, head)->Signal(base + layer + 1);
    }
  };
  const auto attend = [&](size_t half, int32_t socket, uint32_t layer) {
    exchange.attended(half, AttentionId(socket), 0)->Signal(base + layer + 1);
  };
  const auto hung = [&](uint32_t halves) { return HungAttention(plan, exchange, base, halves); };
  EXPECT_EQ(hung(1), std::nullopt) << "nothing is projected: the weight socket's turn";
  project(0, 0);
  EXPECT_EQ(hung(1), std::optional(AttentionId(0)));
  attend(0, 0, 0);
  EXPECT_EQ(hung(1), std::optional(AttentionId(1))) << "one of the two has done its part";
  EXPECT_EQ(hung(2), std::optional(AttentionId(1)));
  attend(0, 1, 0);
  EXPECT_EQ(hung(1), std::nullopt) << "all have: layer 1 is the weight socket's";
  EXPECT_EQ(hung(2), std::nullopt) << "the second half is not projected";
  project(1, 0);
  EXPECT_EQ(hung(2), std::optional(AttentionId(0)));
  attend(1, 0, 0);
  attend(1, 1, 0);
  // Only some heads of the next layer are projected; attention may have finished those or not.
  exchange.projected(0, projectors[0][0], 0)->Signal(base + 2);
  EXPECT_EQ(hung(2), std::nullopt);
  for (uint32_t layer = 1; layer < plan.config.layers; ++layer) {
    for (size_t half = 0; half < 2; ++half) {
      project(half, layer);
      attend(half, 0, layer);
      attend(half, 1, layer);
    }
  }
  EXPECT_EQ(hung(2), std::nullopt) << "the frame's rest is the weight socket's";
}

}  // namespace
}  // namespace larder::pipeline::engine
