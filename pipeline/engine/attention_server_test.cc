// Attention sockets of other servers give the same bits as colocated attention; a lost link ends
// the weight socket's process and not the attention socket's; what a stranger sends is refused.
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "pipeline/engine/attention_server_testing.h"
#include "rdma/common/fork_testing.h"
#include "rdma/control/peer_monitor.h"

namespace larder::pipeline::inline engine {
namespace {

class AttentionServerTest : public testing::Test {
 protected:
  AttentionServerTest() : model_(AwkwardModel()), tokens_(TestTokens(290, 301)) {
    auto engine = MakeEngine(model_.file(), {});
    baseline_ = RunChunks(*engine, tokens_, 100);
  }
  TestModel model_;
  std::vector<int32_t> tokens_;  // more than one chunk of 256 positions
  std::vector<float> baseline_;
};

TEST_F(AttentionServerTest, OneServer) {
  for (const auto& [weight_threads, attention_threads] :
       {std::pair<size_t, size_t>(1, 1), {3, 2}, {2, 5}}) {
    AttentionServers servers(*model_.file(),
                             MakeTestPlan(*model_.file(), {.threads = weight_threads,
                                                           .attention = {{attention_threads, 1}}}));
    for (const size_t chunk : {100, 7}) {
      auto engine = servers.Connect(model_.file());  // the socket serves one after the other
      EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, chunk), baseline_), "")
          << weight_threads << " weight threads, " << attention_threads << " attention threads";
    }
    servers.Stop();
    EXPECT_EQ(servers.errors(0), std::vector<std::string>{});
  }
}

TEST_F(AttentionServerTest, OverVerbs) {
  const std::string host = rdma::RdmaAddress();
  if (host.empty()) GTEST_SKIP() << "no RDMA device with an IPv4 address on this machine";
  AttentionServers servers(
      *model_.file(), MakeTestPlan(*model_.file(), {.threads = 1, .attention = {{1, 1}, {1, 1}}}),
      host);
  {
    auto engine = servers.Connect(model_.file());
    EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens_, 100, SlotId(1)), baseline_), "");
  }
  servers.Stop();
  EXPECT_EQ(servers.errors(0), std::vector<std::string>{});
}

// Slots 0-1 on one server, 2 on the next, 3-5 on the third, and one micro-batch for all or some.
TEST_F(AttentionServerTest, SequencesLiveOnTheirServers) {
  const AttentionServers servers(
      *model_.file(),
      MakeTestPlan(*model_.file(), {.threads = 2, .attention = {{1, 2}, {2, 1}, {1, 3}}}));
  auto engine = servers.Connect(model_.file());
  const size_t vocab = 301;
  const std::vector<int32_t> order = {4, 0, 2, 5, 1, 3};
  for (size_t i = 0; i < 40; ++i) {
    const auto at = baseline_.begin() + static_cast<std::ptrdiff_t>(i * vocab);
    const std::vector<float> wanted(at, at + static_cast<std::ptrdiff_t>(vocab));
    for (const auto& [first, end] : {std::pair<size_t, size_t>(0, 3), {3, 6}}) {
      std::vector<TokenRow> rows;
      for (size_t k = first; k < end; ++k)
        rows.push_back({tokens_[i], SlotId(order[k]), static_cast<uint32_t>(i), k == first});
      engine->Run(rows);
      const auto logits = engine->logits(0);
      ASSERT_EQ(FirstDifference({logits.begin(), logits.end()}, wanted), "") << i << " " << first;
    }
  }
}

TEST_F(AttentionServerTest, HalvesGiveTheSameBits) {
  for (const TestEngineOptions& options :
       {TestEngineOptions{.threads = 3, .attention = {{2, 1}}},
        TestEngineOptions{.threads = 2, .attention = {{5, 1}, {1, 1}}}}) {
    const AttentionServers servers(*model_.file(), MakeTestPlan(*model_.file(), options));
    auto engine = servers.Connect(model_.file());
    CutMicroBatches batches(engine->stage(), tokens_, baseline_);
    for (const auto& [rows, first_half] :
         {std::pair(100u, 1u), {100u, 63u}, {30u, 29u}, {20u, 7u}, {40u, 20u}})
      batches.Run(rows, first_half);
    ASSERT_EQ(batches.done(), tokens_.size());
  }
}

// Rows of 100 tokens take several frames.
TEST(AttentionServerFramesTest, LongRowsAreCut) {
  model::SynthOptions options = AwkwardModel();
  options.shape.heads = options.shape.kv_heads = 4;
  options.shape.head_size = 256;
  const TestModel model(options);
  const std::vector<int32_t> tokens = TestTokens(250, 301);
  const std::vector<float> baseline = RunChunks(*MakeEngine(model.file(), {}), tokens, 120);
  const AttentionServers servers(
      *model.file(), MakeTestPlan(*model.file(), {.threads = 2, .attention = {{2, 1}}}));
  auto engine = servers.Connect(model.file());
  ASSERT_GT(size_t{120} * 4 * 256 * sizeof(float),
            AttentionLinkShape(engine->plan(), {64, 2}).frame_bytes);
  EXPECT_EQ(FirstDifference(RunChunks(*engine, tokens, 120), baseline), "");
}

// An attention socket of the weight socket's server beside one of another.
TEST_F(AttentionServerTest, OnBothServers) {
  LARDER_SKIP_UNDER_TSAN();
  const TestEngineOptions here{.threads = 2, .attention = {{1, 1}, {2, 1}}};
  const StagePlan plan = MakeTestPlan(*model_.file(), here);
  AttentionPorts ports(2);
  const std::string cluster = rdma::NewName();
  const pid_t near = rdma::Fork([&] {
    rdma::ControlListener listener(ControlName(cluster, plan.attention[0].name));
    ServeAttentionProcess(plan, AttentionId(0), *model_.file(), listener, TestWaits(plan));
    return 0;
  });
  const pid_t far = rdma::Fork([&] {
    rdma::LinkListener listener(ports.of(1).there);
    ServeAttentionServer(plan, AttentionId(1), *model_.file(), listener, ports.of(1),
                         AttentionIdentity("attention1"), TestWaits(plan));
    return 0;
  });
  {
    ChainOptions options;
    options.wait = kTestWait;
    options.processes = cluster;
    options.attention_links = ports.links();
    options.attention_links.of[0].reset();
    Engine engine(model_.file(), plan, options);
    EXPECT_EQ(FirstDifference(RunChunks(engine, tokens_, 100, SlotId(0)), baseline_), "");
    EXPECT_EQ(FirstDifference(RunChunks(engine, tokens_, 9, SlotId(1)), baseline_), "");
  }
  EXPECT_TRUE(rdma::Exited(rdma::WaitFor(near), 0));
  EXPECT_TRUE(rdma::Exited(rdma::WaitFor(far), 0));
}

// The weight socket's process dies in the middle of micro-batches: the attention socket serves the
// next one.
TEST_F(AttentionServerTest, OutlivesItsWeightSocket) {
  LARDER_SKIP_UNDER_TSAN();
  const StagePlan plan = MakeTestPlan(*model_.file(), {.threads = 2, .attention = {{2, 1}}});
  AttentionPorts ports(1);
  ChainOptions options;
  options.wait = kTestWait;
  options.processes = "test";
  options.attention_links = ports.links();
  std::vector<pid_t> children;
  for (int i = 0; i < 3; ++i) {
    children.push_back(rdma::Fork([&] {
      raise(SIGSTOP);  // until its turn
      Engine engine(model_.file(), plan, options);
      for (;;) RunChunks(engine, tokens_, 50);
      return 0;
    }));
  }
  rdma::LinkListener listener(ports.of(0).there);
  std::vector<std::string> errors;
  std::thread serve([&] {
    for (size_t i = 0; i < children.size(); ++i) {
      try {
        ServeAttentionServer(plan, AttentionId(0), *model_.file(), listener, ports.of(0),
                             AttentionIdentity("attention0"), TestWaits(plan));
      } catch (const Error& error) {
        errors.emplace_back(error.what());
      }
    }
  });
  for (size_t i = 0; i < children.size(); ++i) {
    int status = 0;
    ASSERT_EQ(waitpid(children[i], &status, WUNTRACED), children[i]);
    kill(children[i], SIGCONT);
    std::this_thread::sleep_for(std::chrono::milliseconds(300 + 7 * static_cast<int>(i)));
    kill(children[i], SIGKILL);
    EXPECT_TRUE(rdma::Killed(rdma::WaitFor(children[i])));
  }
  serve.join();
  ASSERT_EQ(errors.size(), 3u);
  for (const std::string& error : errors) {
    EXPECT_NE(error.find("attention socket attention0: socket weights (127.0.0.1"),
              std::string::npos)
        << error;
  }
}

// An attention socket dies or is stopped: its weight socket's process ends with 75, idle or not,
// and a supervisor would start it again.
TEST_F(AttentionServerTest, ItsLossEndsTheWeightSocket) {
  LARDER_SKIP_UNDER_TSAN();
  const StagePlan plan = MakeTestPlan(*model_.file(), {.threads = 2, .attention = {{2, 1}}});
  for (const bool idle : {false, true}) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
      AttentionPorts ports(1);
      const pid_t attention = rdma::Fork([&] {
        rdma::LinkListener listener(ports.of(0).there);
        ServeAttentionServer(plan, AttentionId(0), *model_.file(), listener, ports.of(0),
                             AttentionIdentity("attention0"), TestWaits(plan));
        return 0;
      });
      const pid_t weights = rdma::Fork([&] {
        ChainOptions options;
        options.wait = kTestWait;
        options.processes = "test";
        options.attention_links = ports.links();
        Engine engine(model_.file(), plan, options);
        RunChunks(engine, tokens_, 50);
        kill(getpid(), SIGSTOP);
        for (;;) {
          if (idle) pause();
          RunChunks(engine, tokens_, 50);
        }
        return 0;
      });
      int status = 0;
      ASSERT_EQ(waitpid(weights, &status, WUNTRACED), weights);
      ASSERT_TRUE(WIFSTOPPED(status));
      kill(weights, SIGCONT);
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
      kill(attention, signal);
      EXPECT_TRUE(rdma::Exited(rdma::WaitFor(weights), rdma::kPeerLostExitCode))
          << idle << " " << signal;
      kill(attention, SIGKILL);
      rdma::WaitFor(attention);
    }
  }
}

// Somebody who knows the key sends what no weight socket sends.
class HostileWeightsTest : public AttentionServerTest {
 protected:
  struct Frame {
    LinkFrame header;
    std::vector<std::byte> bytes;
  };
  // Returns the error with which the attention socket gives up.
  std::string AfterFrames(const std::vector<Frame>& frames) {
    AttentionServers servers(*model_.file(), plan_);
    const AttentionEndpoints& ends = servers.ports().of(0);
    const rdma::LinkShape shape = AttentionLinkShape(plan_, SegmentShape(plan_).link);
    rdma::LinkIdentity identity = AttentionIdentity("weights");
    identity.session = rdma::NewSession();
    rdma::LinkListener listener(ends.back);
    rdma::FrameLink out = rdma::ConnectLink(ends.there, shape, identity, rdma::kLongMs);
    rdma::FrameLink in = listener.Accept(shape, identity, rdma::kLongMs);
    for (const Frame& frame : frames) {
      if (!out.WaitSend(kTestWait)) break;
      const sync::SendSlot slot = out.BeginSend();
      if (!slot) break;
      std::memcpy(slot.bytes, &frame.header, sizeof(frame.header));
      std::copy(frame.bytes.begin(), frame.bytes.end(), slot.bytes + sizeof(frame.header));
      out.EndSend(sizeof(frame.header) + frame.bytes.size());
    }
    while (in.WaitReceive(kTestWait)) {  // until it gives up
      in.BeginReceive();
      in.EndReceive();
    }
    servers.Stop();
    return servers.errors(0).empty() ? "" : servers.errors(0).front();
  }
  // A message of the first two tokens of slot 0, with a chunk for them.
  Frame Message(FrameMessage message) const {
    Frame frame{{.kind = LinkFrame::Kind::kMessage},
                std::vector<std::byte>(SegmentShape(plan_).link.frame_bytes)};
    std::memcpy(frame.bytes.data(), &message, sizeof(message));
    auto& written = *reinterpret_cast<FrameMessage*>(frame.bytes.data());
    written.position(128)[1] = 1;
    written.kv_update(128)[0] = {.slot = SlotId(0), .index = 0, .chunk = 0};
    for (SlotId* slot : {written.slot(), written.slot() + 1}) *slot = SlotId(0);
    return frame;
  }
  FrameMessage Rows() const {
    return {.kind = FrameMessage::Kind::kRows,
            .base_epoch = 0,
            .halves = 1,
            .kv_updates = 1,
            .half = {{.rows = 2, .first_row = 0, .kept = 0, .first_kept = 0}, {}}};
  }
  const StagePlan plan_ = MakeTestPlan(*model_.file(), {.threads = 2, .attention = {{2, 1}}});
};

TEST_F(HostileWeightsTest, IsRefused) {
  const size_t row_bytes = (3 + 2) * 20 * sizeof(float);  // of a head
  const auto heads = [](LinkFrame header, size_t bytes) {
    header.kind = LinkFrame::Kind::kHeads;
    return Frame{header, std::vector<std::byte>(bytes)};
  };
  FrameMessage many = Rows(), halves = Rows(), unknown = Rows();
  many.half[0].rows = 129;
  halves.halves = 3;
  unknown.kind = FrameMessage::Kind(99);
  const Frame rows = Message(Rows());
  Frame cut = rows;
  cut.bytes.pop_back();
  const struct {
    std::vector<Frame> frames;
    const char* error;
  } cases[] = {
      {{heads({}, 0)}, "rows where a message was expected"},
      {{cut}, "a message of another size"},
      {{Message(many)}, "more rows than there is room for"},
      {{Message(halves)}, "impossible number of halves"},
      {{Message(unknown)}, "a message of an unknown kind"},
      {{rows, rows}, "heads that are not the next ones"},
      {{rows, heads({.layer = 1, .rows = 2, .heads = 1}, 2 * row_bytes)}, "not the next ones"},
      {{rows, heads({.half = 1, .rows = 2, .heads = 1}, 2 * row_bytes)}, "not the next ones"},
      {{rows, heads({.rows = 2, .heads = 3}, 2 * row_bytes)}, "not the next ones"},
      {{rows, heads({.rows = 2, .first_head = 2, .heads = 1}, 2 * row_bytes)}, "not the next"},
      {{rows, heads({.rows = 2, .first_head = ~0u, .heads = 2}, 2 * row_bytes)}, "not the next"},
      {{rows, heads({.rows = 2, .heads = 0}, 0)}, "not the next ones"},
      {{rows, heads({.first_row = 1, .rows = 1, .heads = 1}, row_bytes)}, "not the next ones"},
      {{rows, heads({.rows = 3, .heads = 1}, 3 * row_bytes)}, "rows of another size"},
      {{rows, heads({.rows = 0, .heads = 1}, 0)}, "rows of another size"},
      {{rows, heads({.rows = 2, .heads = 1}, 2 * row_bytes + 4)}, "rows of another size"},
  };
  for (const auto& [frames, error] : cases) {
    const std::string why = AfterFrames(frames);
    EXPECT_NE(why.find(error), std::string::npos) << error << ": " << why;
  }
}

}  // namespace
}  // namespace larder::pipeline::engine
