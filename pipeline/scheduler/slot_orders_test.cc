// What a slot has is saved, and restored into another process's engine, by models of each kind of
// memory: all keys and values, windows, states. Then sequences go on with the tokens that they
// would have had, and nothing is computed again.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "base/temporary_folder_testing.h"
#include "pipeline/engine/engine_testing.h"
#include "pipeline/kv_store/kv_store.h"
#include "pipeline/kv_store/slot_file.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

struct MemoryKind {
  const char* name;
  std::string_view family;
  size_t window;  // 0: none
  std::vector<model::KvClass> classes;
};

model::SynthOptions OfFamily(const MemoryKind& of) {
  model::SynthOptions options;
  options.shape = {.architecture = of.family,
                   .layers = 6,
                   .dim = 96,
                   .ffn = 128,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_size = 32,
                   .vocab = kVocab,
                   .context = 2048,
                   .window = of.window};
  options.type = model::TensorType::kF32;
  return options;
}

// Nothing to do until it is over.
class NoRequests final : public Intake {
 public:
  std::unique_ptr<Sequence> Take() override { return nullptr; }
  void StepDone() override {}
  bool WaitForWork(int) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return !over;
  }
  std::atomic<bool> over{false};
};

void Execute(Scheduler& scheduler, SlotOrder& order) {
  NoRequests nothing;
  std::thread ordering([&] {
    scheduler.Execute(
        order, [] {}, 60'000);
    nothing.over = true;
  });
  scheduler.Run(nothing);
  ordering.join();
}

class SavedSlotsTest : public testing::TestWithParam<MemoryKind> {
 protected:
  SavedSlotsTest() : model_(OfFamily(GetParam())) {}
  std::unique_ptr<Engine> Make(size_t threads) {
    return MakeEngine(model_.file(), {.threads = threads, .slots = 2, .context = 2048});
  }
  static Outcome Run(Scheduler& scheduler, const Wish& wish) {
    const std::vector<Wish> wishes = {wish};
    TestIntake intake(wishes);
    scheduler.Run(intake);
    return intake.outcomes.at(0);
  }
  Outcome Alone(const Wish& wish) {
    const auto engine = Make(1);
    Scheduler scheduler(*engine, {.reuse_prefixes = false});
    return Run(scheduler, wish);
  }
  static SlotFileOptions Options(Engine& engine) {
    return {.model = 1,
            .context = engine.kv().shape().capacity.context,
            .vocab = kVocab,
            .chunk_positions = engine.kv().shape().chunk_positions,
            .chunk_bytes = ChunkBytes(engine.kv().shape(), engine.kv_channel()),
            .classes = engine.kv().shape().classes};
  }

  TestModel model_;
};

TEST_P(SavedSlotsTest, GoOnInAnotherProcess) {
  const TemporaryFolder folder;
  const std::string path = folder / "slot";
  Wish wish{.prompt = TestTokens(700, kVocab), .most = 12};
  Outcome first;
  {
    const auto engine = Make(2);
    Scheduler scheduler(*engine, {});
    first = Run(scheduler, wish);
    SlotOrder order{.kind = SlotOrder::Kind::kSave, .slot = first.slot};
    Execute(scheduler, order);
    ASSERT_EQ(order.error, "");
    EXPECT_EQ(order.tokens, 711u);  // the last token was not computed
    WriteSlotFile(path, Options(*engine), order.contents);
  }
  EXPECT_EQ(first.tokens, Alone(wish).tokens);
  const auto engine = Make(3);
  Scheduler scheduler(*engine, {});
  // Both slots have sequences of others, of which one is forgotten.
  for (uint32_t i = 1; i < 3; ++i)
    Run(scheduler, {.prompt = TestTokens(300, kVocab, i),
                    .most = 3,
                    .slot = SlotId(2 - static_cast<int32_t>(i))});
  const auto restore = [&] {
    SlotOrder order{.kind = SlotOrder::Kind::kRestore,
                    .slot = SlotId(1),
                    .contents = ReadSlotFile(path, Options(*engine))};
    EXPECT_FALSE(order.contents.pieces.empty());
    Execute(scheduler, order);
    EXPECT_EQ(order.error, "");
    EXPECT_EQ(order.tokens, 711u);
    EXPECT_EQ(scheduler.slots()[1].cached_tokens.load(), 711u);
    EXPECT_EQ(scheduler.slots()[1].state.load(), SlotStatus::kIdle);  // it computes nothing
  };
  restore();
  // The next turn, and one whose template leaves out what was answered.
  for (const size_t answered : {12, 0}) {
    Wish next{.prompt = wish.prompt, .most = 20};
    next.prompt.insert(next.prompt.end(), first.tokens.begin(),
                       first.tokens.begin() + static_cast<std::ptrdiff_t>(answered));
    const auto question = TestTokens(30, kVocab, 70);
    next.prompt.insert(next.prompt.end(), question.begin(), question.end());
    const Outcome outcome = Run(scheduler, next);
    EXPECT_EQ(outcome.tokens, Alone(next).tokens);
    const size_t kept = engine->kv().shape().states() ? 684 : 700;  // a little before its end
    EXPECT_EQ(outcome.reused, answered > 0 ? 711u : kept);
    restore();
  }
}

TEST_P(SavedSlotsTest, HasTheMemoryThatItsNameSays) {
  std::vector<model::KvClass> classes = Make(1)->kv().shape().classes;
  for (model::KvClass& of : classes) of.chunks = 0;
  EXPECT_EQ(classes, GetParam().classes);
}

// As many as there are chunks, in the place of what others have left.
TEST_P(SavedSlotsTest, AreRestoredInPlaceOfOthers) {
  const auto engine = Make(2);
  Scheduler scheduler(*engine, {});
  std::vector<Wish> wishes;
  std::vector<SlotOrder> saved;
  std::vector<Outcome> outcomes;
  for (uint32_t i = 0; i < 12; ++i) {
    wishes.push_back({.prompt = TestTokens(400 + 90 * i, kVocab, i), .most = 3});
    outcomes.push_back(Run(scheduler, wishes.back()));
    SlotOrder& order =
        saved.emplace_back(SlotOrder{.kind = SlotOrder::Kind::kSave, .slot = outcomes.back().slot});
    Execute(scheduler, order);
    ASSERT_EQ(order.error, "");
  }
  for (uint32_t i = 0; i < 12; ++i) {
    SlotOrder order{.kind = SlotOrder::Kind::kRestore,
                    .slot = SlotId(static_cast<int32_t>(i % 2)),
                    .contents = saved[i].contents};
    Execute(scheduler, order);
    ASSERT_EQ(order.error, "") << i;
    Wish next = wishes[i];
    next.slot = order.slot;
    next.prompt.insert(next.prompt.end(), outcomes[i].tokens.begin(), outcomes[i].tokens.end());
    next.most = 5;
    const Outcome outcome = Run(scheduler, next);
    EXPECT_EQ(outcome.reused, wishes[i].prompt.size() + 2) << i;
    next.slot.reset();
    EXPECT_EQ(outcome.tokens, Alone(next).tokens) << i;
  }
}

// In one step, however many chunks they have: its contents were never computed.
TEST(LongSavedSlotsTest, AreRestoredUpToTheContext) {
  constexpr size_t kContext = 150'000;
  model::SynthOptions options;
  options.shape = {.layers = 1,
                   .dim = 32,
                   .ffn = 32,
                   .heads = 1,
                   .kv_heads = 1,
                   .head_size = 32,
                   .vocab = kVocab,
                   .context = kContext};
  const TestModel model(options);
  for (const TestEngineOptions& of :
       {TestEngineOptions{.threads = 1, .context = kContext},
        TestEngineOptions{.threads = 1, .context = kContext, .attention = {{1, 1}}}}) {
    const auto engine = MakeEngine(model.file(), of);
    Scheduler scheduler(*engine, {});
    SlotOrder order{.kind = SlotOrder::Kind::kRestore, .slot = SlotId(0)};
    order.contents.tokens.assign(kContext - 10, 7);
    const size_t bytes = engine->kv_channel().Memory(0).size();
    for (uint32_t i = 0; i < CeilDiv(kContext - 10, engine->kv().shape().chunk_positions); ++i)
      order.contents.pieces.push_back({.place = i, .bytes = std::vector<uint8_t>(bytes)});
    Execute(scheduler, order);
    EXPECT_EQ(order.error, "");
    EXPECT_EQ(order.tokens, kContext - 10);
    // The next turn's first micro-batch brings the socket all its chunks.
    Wish next{.prompt = std::vector<int32_t>(kContext - 5, 7), .most = 2};
    const std::vector<Wish> wishes = {next};
    TestIntake intake(wishes);
    scheduler.Run(intake);
    EXPECT_EQ(intake.outcomes.at(0).reused, kContext - 10);
    EXPECT_EQ(intake.outcomes.at(0).tokens.size(), 2u);
  }
}

INSTANTIATE_TEST_SUITE_P(
    Kinds, SavedSlotsTest,
    testing::Values(MemoryKind{"all", "llama", 0, {{}}},
                    MemoryKind{"windows_alone", "llama", 40, {{40}}},
                    MemoryKind{"windows", "gemma3", 40, {{}, {40}}},
                    MemoryKind{"states", "qwen35", 0, {{}, {.states = true}}},
                    MemoryKind{"convolutions", "lfm2", 0, {{}, {.states = true}}},
                    MemoryKind{"state_spaces", "granitehybrid", 0, {{}, {.states = true}}}),
    [](const auto& of) { return std::string(of.param.name); });

}  // namespace
}  // namespace larder::pipeline::scheduler
