// A peer that writes to frames after it has sent them, as an RDMA peer or a process that maps the
// same memory can. Whatever it writes and whenever, a frame is computed or refused, and no index is
// out of range. The test is strongest under AddressSanitizer.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <thread>

#include "pipeline/chain/stage_socket.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/stage/attention_client.h"

namespace larder::pipeline::inline engine {
namespace {

// Writes a valid and a hostile value in turn to words of memory that another thread reads.
class Flipper {
 public:
  struct Word {
    void* address;
    uint32_t valid, hostile;
  };
  explicit Flipper(std::vector<Word> words)
      : words_(std::move(words)), thread_([this] { Run(); }) {}
  ~Flipper() {
    stop_.store(true);
    thread_.join();
  }

 private:
  void Run() {
    // The valid value stays longer, so that frames often pass their checks before they are
    // corrupted.
    for (uint32_t turn = 0; !stop_.load(std::memory_order_relaxed); ++turn) {
      const Word& word = words_[turn % words_.size()];
      auto& value = *static_cast<std::atomic<uint32_t>*>(word.address);
      value.store(word.hostile, std::memory_order_relaxed);
      for (uint32_t i = 0; i < turn % 4; ++i) sync::CpuPause();
      value.store(word.valid, std::memory_order_relaxed);
      for (uint32_t i = 0; i < turn % 32; ++i) sync::CpuPause();
    }
  }
  const std::vector<Word> words_;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

constexpr uint32_t kHostile[] = {0x7fff'fff0, 4096, 0x8000'0000, 0xffff'ffff, 65};

// One stage of a chain; this test plays both of its neighbours.
class HostileChain : public testing::Test {
 protected:
  static constexpr uint32_t kRows = 8, kLogitRows = 3;
  explicit HostileChain(const model::SynthOptions& synth = FourLayers(),
                        size_t max_batch_tokens = 64)
      : model_(synth), test_(MakeTestChain(*model_.file(), {{4, 1}}, 2, 2, max_batch_tokens)) {
    ChainPlan& chain = test_.chain;
    const std::string run = fmt::format("larder-hostile-{}/", getpid());
    chain.stages[0].endpoint = {.transport = rdma::Transport::kSharedMemory, .name = run + "stage"};
    chain.first = chain.stages[0].endpoint;
    chain.serving = {.transport = rdma::Transport::kSharedMemory, .name = run + "serving"};
    chain.stages[0].next = chain.serving;
  }
  void SetUp() override {
    listener_ = std::make_unique<rdma::LinkListener>(test_.chain.serving);
    std::atomic<bool> built{false};
    thread_ = std::thread([this, &built] {
      ChainOptions options;
      options.wait = kTestWait;
      StageSocket socket(test_.chain, 0, test_.stages[0], *model_.file(), options, status_);
      socket_ = &socket;
      built = true;
      while (!over_) {
        try {
          socket.Serve([](const std::string&) {});
        } catch (const Error&) {  // a wrong frame, or the sender is gone: serve the next chain
        }
      }
    });
    while (!built) std::this_thread::yield();
  }
  void TearDown() override {
    socket_.load()->StopListening();
    over_ = true;  // the socket exists until then
    thread_.join();
  }

  // Writes a frame of two sequences at positions 0, 1, ...; the same in every step.
  void Fill(std::byte* bytes, const StageFrameShape& shape, uint64_t step) {
    const StageFrameView<std::byte> view(bytes, shape);
    view.header() = {.plan_hash = shape.plan_hash,
                     .step = step,
                     .micro_batch = static_cast<uint32_t>(step % shape.rows.capacity.max_in_flight),
                     .rows = kRows,
                     .logit_rows = kLogitRows,
                     .residual_rows = kRows};
    for (uint32_t m = 0; m < kRows; ++m) {
      view.slot()[m] = SlotId(m < kRows / 2 ? 0 : 1);
      view.position()[m] = m % (kRows / 2);
    }
    for (uint32_t i = 0; i < kLogitRows; ++i) view.logit_row()[i] = 2 * i;
    std::fill_n(view.report(), shape.reports(), SocketReport{});
    for (size_t i = 0; i < kRows * shape.dim; ++i)
      view.residual()[i] = static_cast<float>(i % 97) / 97.0f - 0.5f;
  }

  // Sends up to `frames` frames and flips words of each while it is read; stops when one is
  // refused. Returns the residuals of the last frame that came back.
  std::vector<float> Talk(int frames,
                          const std::function<std::vector<Flipper::Word>(std::byte*)>& words) {
    const ChainPlan& chain = test_.chain;
    const StageFrameShape shape = chain.frame_shape();
    std::vector<float> result;
    rdma::FrameLink out, in;
    const uint64_t session = ++session_;
    out = rdma::ConnectLink(chain.first, chain.link_shape(), chain.identity("serving", session),
                            20000);
    in = listener_->Accept(chain.link_shape(), chain.identity("serving", session), 20000);
    for (int step = 0; step < frames; ++step) {
      if (!out.WaitSend(kTestWait)) break;
      const sync::SendSlot slot = out.BeginSend();
      if (!slot) break;
      Fill(slot.bytes, shape, static_cast<uint64_t>(step));
      std::unique_ptr<Flipper> flipper;
      if (words) flipper = std::make_unique<Flipper>(words(slot.bytes));
      out.EndSend();
      if (!in.WaitReceive(kTestWait)) break;
      const sync::ReceivedFrame came = in.BeginReceive();
      if (!came) break;
      const StageFrameView<const std::byte> view(came.bytes, shape);
      result.assign(view.residual(), view.residual() + kLogitRows * shape.dim);
      in.EndReceive();
      ++answered_;
    }
    return result;
  }

  TestModel model_;
  TestChain test_;
  SocketStatus status_;
  std::unique_ptr<rdma::LinkListener> listener_;
  std::atomic<bool> over_{false};
  std::atomic<StageSocket*> socket_{nullptr};
  std::thread thread_;
  uint64_t session_ = 0;
  int answered_ = 0;
};

TEST_F(HostileChain, AStageUsesNothingThatThePeerCanStillChange) {
  const StageFrameShape shape = test_.chain.frame_shape();
  const std::vector<float> before = Talk(3, {});
  ASSERT_FALSE(before.empty());
  answered_ = 0;
  for (int round = 0; round < 40; ++round) {
    const uint32_t hostile = kHostile[static_cast<size_t>(round) % std::size(kHostile)];
    Talk(10, [&](std::byte* bytes) -> std::vector<Flipper::Word> {
      const StageFrameView<std::byte> view(bytes, shape);
      switch (round % 10) {
        case 8:
          return {{&view.header().kv_orders, 0, hostile}};
        case 9: {
          view.header().kv_orders = 1;
          KvOrder& order = view.kv_order(kRows, 0)[0];
          order = {.kind = KvOrder::Kind::kLoad, .place = 3, .chunk = 1};
          return {{reinterpret_cast<uint32_t*>(&order.kind), 2, hostile},
                  {&order.place, 3, hostile},
                  {&order.chunk, 1, hostile}};
        }
        case 6:
          return {{&view.header().kv_updates, 0, hostile}};
        case 7: {
          view.header().kv_updates = 1;
          model::KvUpdate& update = view.kv_update(kRows)[0];
          update = {SlotId(0), 0, 1, 0, 5};
          return {{&update.index, 0, hostile},
                  {&update.chunk, 1, hostile},
                  {&update.copied_from, 0, hostile},
                  {&update.copied_positions, 5, hostile}};
        }
        case 0:
          return {{&view.header().rows, kRows, hostile}};
        case 1:
          return {{&view.header().first_half, 0, hostile}};
        case 2:
          return {{&view.header().logit_rows, kLogitRows, hostile}};
        case 3:
          return {{&view.slot()[0], 0, hostile}, {&view.slot()[kRows - 1], 1, hostile}};
        case 4:
          return {{&view.position()[0], 0, hostile}, {&view.position()[kRows - 1], 3, hostile}};
        default:
          return {{&view.logit_row()[0], 0, hostile}, {&view.logit_row()[2], 4, hostile}};
      }
    });
  }
  EXPECT_GT(answered_, 0) << "no frame ever passed: nothing was tried";
  EXPECT_EQ(FirstDifference(Talk(3, {}), before), "") << "and it still computes";
}

// A vocabulary so large that the logits of all rows of a frame do not fit: frames have 256 rows,
// and there is room for the logits of 239. Regression: more were accepted, and an internal check
// ended the process.
class HostileChainOfManyLogits : public HostileChain {
 protected:
  HostileChainOfManyLogits() : HostileChain(ManyLogits(), 256) {}
  static model::SynthOptions ManyLogits() {
    model::SynthOptions options = FourLayers();
    options.shape.vocab = 70'001;
    return options;
  }
};

TEST_F(HostileChainOfManyLogits, MoreThanThereIsRoomForAreRefused) {
  const StageFrameShape shape = test_.chain.frame_shape();
  const auto talk = [&](uint32_t logit_rows) {
    Talk(1, [&](std::byte* bytes) -> std::vector<Flipper::Word> {
      const StageFrameView<std::byte> view(bytes, shape);
      view.header().rows = view.header().residual_rows = 256;
      view.header().logit_rows = logit_rows;
      for (uint32_t m = 0; m < 256; ++m) {
        view.slot()[m] = SlotId(0);
        view.position()[m] = m;
        view.logit_row()[m] = m;
      }
      return {{&view.header().first_half, 0, 0}};
    });
    return status_.wrong_frames.load();
  };
  EXPECT_EQ(talk(239), 0u);
  EXPECT_EQ(answered_, 1);
  EXPECT_EQ(talk(240), 1u);
  EXPECT_EQ(answered_, 1);
}

// An attention socket whose weight socket is played by this test.
class HostileWeights {
 public:
  static constexpr uint32_t kRows = 6;
  HostileWeights()
      : model_(FourLayers()),
        plan_(MakeTestPlan(*model_.file(), {.threads = 1,
                                            .slots = 2,
                                            .context = 128,
                                            .max_batch_tokens = 16,
                                            .attention = {{.threads = 1, .slots = 2}}})),
        shape_(plan_) {}

  // Runs an attention socket for up to `frames` frames, with the words flipped meanwhile. Returns
  // the text of its Error, or "ended".
  std::string Talk(int frames,
                   const std::function<std::vector<Flipper::Word>(FrameMessage&)>& words) {
    const auto memory = rdma::SharedMemory::Create(shape_.bytes(), "larder-hostile");
    const Exchange exchange(shape_.exchange, memory.data());
    const auto region = memory.span().subspan(shape_.link_offset(AttentionId(0)),
                                              rdma::ShmLink::RegionBytes(shape_.link));
    auto& report =
        *reinterpret_cast<AttentionReport*>(memory.data() + shape_.report_offset(AttentionId(0)));
    rdma::ShmLink::Format(region, shape_.link);
    rdma::ShmLink sender(region, shape_.link, rdma::LinkSide::kSend);
    rdma::ShmLink receiver(region, shape_.link, rdma::LinkSide::kReceive);
    std::string said = "ended";
    std::atomic<bool> over{false};
    SocketStatus status;
    std::thread thread([&] {
      AttentionSocket socket(plan_, AttentionId(0), *model_.file(), exchange, receiver, report,
                             SocketWaits{.weight = kTestWait, .attention = {kTestWait}}, {});
      try {
        socket.Serve(&status);
      } catch (const Error& error) {
        said = error.what();
      }
      over = true;
    });
    const size_t max_batch_tokens = plan_.options.capacity.max_batch_tokens;
    uint32_t epoch = 0;
    for (int frame = 0; frame <= frames && !over; ++frame) {
      while (!sender.BeginSend() && !over) std::this_thread::yield();
      const sync::SendSlot slot = sender.BeginSend();
      if (!slot) break;
      auto& message = *reinterpret_cast<FrameMessage*>(slot.bytes);
      message = {.kind = frame == frames ? FrameMessage::Kind::kStop : FrameMessage::Kind::kRows,
                 .base_epoch = epoch,
                 .halves = 1,
                 .kv_updates = 2,
                 .half = {{.rows = kRows, .first_row = 0, .kept = 2, .first_kept = 0}, {}}};
      for (uint32_t m = 0; m < kRows; ++m) {
        message.slot()[m] = SlotId(m < kRows / 2 ? 0 : 1);
        message.position(max_batch_tokens)[m] = m % (kRows / 2);
      }
      message.kept_row(max_batch_tokens)[0] = kRows / 2 - 1;
      message.kept_row(max_batch_tokens)[1] = kRows - 1;
      message.kv_update(max_batch_tokens)[0] = {SlotId(0), 0, 1, 0, 0};
      message.kv_update(max_batch_tokens)[1] = {SlotId(1), 0, 0, 1, 3};
      std::unique_ptr<Flipper> flipper;
      if (words && frame < frames) flipper = std::make_unique<Flipper>(words(message));
      // Signals all of the frame's heads at once; the contents of the rows do not matter.
      epoch += static_cast<uint32_t>(plan_.config.layers);
      for (size_t head = 0; head < plan_.config.layer(0).sizes.kv_heads; ++head)
        exchange.projected(0, 0, head)->Signal(epoch);
      sender.EndSend();
      const uint64_t due = static_cast<uint64_t>(frame) + 1;
      while (!over && status.frames_finished.load() < due) std::this_thread::yield();
    }
    thread.join();
    finished_ += static_cast<int>(status.frames_finished.load());
    return said;
  }
  const StagePlan& plan() const { return plan_; }
  int finished() const { return finished_; }

 private:
  TestModel model_;
  StagePlan plan_;
  SegmentShape shape_;
  int finished_ = 0;
};

TEST(HostileWeightSocket, AnAttentionSocketUsesNothingThatThePeerCanStillChange) {
  HostileWeights weights;
  ASSERT_EQ(weights.Talk(3, {}), "ended");
  const int before = weights.finished();
  const size_t max_batch_tokens = weights.plan().options.capacity.max_batch_tokens;
  for (int round = 0; round < 30; ++round) {
    const uint32_t hostile = kHostile[static_cast<size_t>(round) % std::size(kHostile)];
    weights.Talk(10, [&](FrameMessage& message) -> std::vector<Flipper::Word> {
      switch (round % 8) {
        case 7:
          return {{&message.half[0].kept, 2, hostile},
                  {&message.half[0].first_kept, 0, hostile},
                  {&message.kept_row(max_batch_tokens)[1], HostileWeights::kRows - 1, hostile}};
        case 5:
          return {{&message.kv_updates, 2, hostile}};
        case 6:
          return {{&message.kv_update(max_batch_tokens)[0].chunk, 1, hostile},
                  {&message.kv_update(max_batch_tokens)[1].copied_from, 1, hostile},
                  {&message.kv_update(max_batch_tokens)[1].copied_positions, 3, hostile}};
        case 0:
          return {{&message.halves, 1, hostile}};
        case 1:
          return {{&message.half[0].rows, HostileWeights::kRows, hostile}};
        case 2:
          return {{&message.half[0].first_row, 0, hostile}};
        case 3:
          return {{&message.slot()[0], 0, hostile}, {&message.slot()[5], 1, hostile}};
        default:
          return {{&message.position(max_batch_tokens)[0], 0, hostile},
                  {&message.position(max_batch_tokens)[5], 2, hostile}};
      }
    });
  }
  EXPECT_GT(weights.finished(), before) << "no frame ever passed: nothing was tried";
}

TEST(HostileWeightSocket, AWrongMessageIsAnErrorAndNoAbort) {
  HostileWeights weights;
  const size_t max_batch_tokens = weights.plan().options.capacity.max_batch_tokens;
  const auto rows = static_cast<uint32_t>(max_batch_tokens);
  const auto context = static_cast<uint32_t>(weights.plan().options.capacity.context);
  const auto order = [](FrameMessage& m, uint32_t place, uint32_t chunk) {
    m.kind = FrameMessage::Kind::kOrders;
    m.kv_orders = 1;
    m.kv_order()[0] = {.kind = KvOrder::Kind::kStore, .place = place, .chunk = chunk};
  };
  const std::vector<std::pair<const char*, std::function<void(FrameMessage&)>>> table = {
      {"a KV order of a place that does not exist",
       [=](FrameMessage& m) { order(m, 1u << 31, 0); }},
      {"a KV order for a chunk that does not exist",
       [=](FrameMessage& m) { order(m, 0, 1u << 20); }},
      {"more KV orders than there is room for",
       [=](FrameMessage& m) {
         order(m, 0, 0);
         m.kv_orders = 65;
       }},
      {"an impossible number of halves", [](FrameMessage& m) { m.halves = 3; }},
      {"another epoch than expected", [](FrameMessage& m) { ++m.base_epoch; }},
      {"more rows than there is room for", [=](FrameMessage& m) { m.half[0].rows = rows + 1; }},
      {"more rows than there is room for",
       [=](FrameMessage& m) { m.half[0].first_row = rows - 5; }},
      {"more rows than there is room for",
       [](FrameMessage& m) { m.half[0].kept = HostileWeights::kRows + 1; }},
      {"more rows than there is room for", [=](FrameMessage& m) { m.half[0].first_kept = rows; }},
      {"rows with logits out of order",
       [=](FrameMessage& m) { m.kept_row(max_batch_tokens)[1] = HostileWeights::kRows; }},
      {"rows with logits out of order",
       [=](FrameMessage& m) { m.kept_row(max_batch_tokens)[1] = HostileWeights::kRows / 2 - 1; }},
      {"a slot that does not exist", [](FrameMessage& m) { m.slot()[1] = SlotId(2); }},
      {"a slot that does not exist", [](FrameMessage& m) { m.slot()[1] = SlotId(-1); }},
      {"a position beyond the context",
       [=](FrameMessage& m) { m.position(max_batch_tokens)[3] = 1u << 30; }},
      // A tile of three rows would take these positions to be `context` and beyond.
      {"a gap in the positions of a slot",
       [=](FrameMessage& m) { m.position(max_batch_tokens)[0] = context - 1; }},
      {"more changes to the KV table than there is room for",
       [](FrameMessage& m) { m.kv_updates = 10'000; }},
      {"a KV chunk that does not exist",
       [=](FrameMessage& m) { m.kv_update(max_batch_tokens)[0].chunk = 2; }},
      {"a KV chunk that does not exist",
       [=](FrameMessage& m) { m.kv_update(max_batch_tokens)[1].copied_from = 2; }},
      {"KV beyond the context",
       [=](FrameMessage& m) { m.kv_update(max_batch_tokens)[1].index = 1; }},
      {"a message of an unknown kind",
       [](FrameMessage& m) { m.kind = static_cast<FrameMessage::Kind>(9); }},
  };
  for (const auto& [expected, spoil] : table) {
    const std::string said =
        weights.Talk(1, [&spoil = spoil](FrameMessage& message) -> std::vector<Flipper::Word> {
          spoil(message);
          return {{&message.half[1].rows, 0, 0}};
        });
    EXPECT_NE(said.find(expected), std::string::npos) << expected << ": " << said;
  }
}

}  // namespace
}  // namespace larder::pipeline::engine
