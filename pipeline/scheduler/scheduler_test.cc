// A sequence's tokens depend only on the sequence: not on other sequences, their order, its slot,
// what the slot held before, or where attention runs. Also tests slots, the queue and the ends of
// sequences.
#include "pipeline/scheduler/scheduler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>

#include "pipeline/engine/chain_testing.h"
#include "pipeline/engine/engine_testing.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

class SchedulerTest : public testing::Test {
 protected:
  SchedulerTest() : model_(AwkwardModel()) {}

  std::vector<Outcome> Run(Engine& engine, const std::vector<Wish>& wishes,
                           SchedulerOptions options = {}) {
    Scheduler scheduler(engine, options);
    TestIntake intake(wishes);
    scheduler.Run(intake);
    for (const SlotStatus& slot : scheduler.slots())
      EXPECT_EQ(slot.state.load(), SlotStatus::kIdle);
    return intake.outcomes;
  }

  // What it gets alone.
  std::vector<int32_t> plain_tokens(Engine& engine, Wish wish) {
    wish.arrives = 0;
    wish.slot.reset();
    return Run(engine, {wish}, {.reuse_prefixes = false}).at(0).tokens;
  }

  TestModel model_;
};

std::vector<Wish> RandomWishes(size_t n, std::mt19937& random) {
  std::vector<Wish> wishes;
  for (size_t i = 0; i < n; ++i) {
    Wish wish;
    // Some share a prefix.
    wish.prompt = TestTokens(40, kVocab, 1 + random() % 3);
    wish.prompt.resize(1 + random() % 40);
    const auto tail = TestTokens(random() % 60, kVocab, 100 + random() % 50);
    wish.prompt.insert(wish.prompt.end(), tail.begin(), tail.end());
    wish.most = 1 + random() % 12;
    wish.seed = random() % 3;
    wish.arrives = random() % 30;
    wish.background = i % 3 == 1;
    wishes.push_back(std::move(wish));
  }
  return wishes;
}

// Two attention sockets with 2 chunks each: two long texts on the first do not fit there, and the
// younger one goes on where the other socket has room, computed again.
TEST_F(SchedulerTest, ASequenceMovesToAnotherAttentionSocket) {
  struct Watching : TestIntake {
    using TestIntake::TestIntake;
    void StepDone() override {
      for (size_t slot = 2; slot < 4; ++slot)
        most = std::max(most, scheduler->slots()[slot].generated_tokens.load());
      TestIntake::StepDone();
    }
    const Scheduler* scheduler = nullptr;
    uint32_t most = 0;  // tokens of a sequence of the second socket
  };
  const auto engine = MakeEngine(
      model_.file(), {.slots = 4, .kv_tokens = 512, .context = 512, .attention = {{1, 2}, {1, 2}}});
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 4; ++i)
    wishes.push_back({.prompt = TestTokens(30, kVocab, 70 + i),
                      .most = i % 2 == 0 ? 300u : 5u,  // the short ones on the second socket
                      .seed = 1 + i});
  Scheduler scheduler(*engine, {});
  Watching intake(wishes);
  intake.scheduler = &scheduler;
  scheduler.Run(intake);
  EXPECT_GT(scheduler.status().preempted.load(), 0u);
  EXPECT_EQ(intake.most, 300u);
  const auto alone_engine = MakeEngine(model_.file(), {});
  for (size_t i = 0; i < wishes.size(); ++i)
    EXPECT_EQ(intake.outcomes[i].tokens, Run(*alone_engine, {wishes[i]}).at(0).tokens) << i;
}

// A choice takes less time than to call the threads for it, so few sequences choose one after the
// other.
TEST_F(SchedulerTest, ManyTokensAreChosenOnAllThreads) {
  const auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 8});
  const auto alone_engine = MakeEngine(model_.file(), {});
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 8; ++i)
    wishes.push_back({.prompt = TestTokens(5 + i, kVocab, 50 + i), .most = 20, .seed = i});
  const auto together = Run(*engine, wishes);
  for (size_t i = 0; i < wishes.size(); ++i) {
    const auto alone = Run(*alone_engine, {wishes[i]}, {.reuse_prefixes = false}).at(0);
    EXPECT_EQ(alone.prepared, 0u);
    EXPECT_EQ(together[i].tokens, alone.tokens) << i;
    EXPECT_GE(together[i].prepared, 15u) << i;
  }
}

TEST_F(SchedulerTest, TokensAreThoseOfTheSequenceAlone) {
  std::mt19937 random(7);
  const auto alone_engine = MakeEngine(model_.file(), {});
  const auto colocated = MakeEngine(model_.file(), {.threads = 2, .slots = 5});
  const auto separated =
      MakeEngine(model_.file(), {.threads = 1, .attention = {{1, 2}, {1, 1}, {2, 2}}});
  // Two stages, three micro-batches in flight.
  const auto chain =
      MakeChainEngine(model_.file(), MakeTestChain(*model_.file(), {{1}, {1}}, 5, 3));
  ASSERT_EQ(chain->max_in_flight(), 3u);
  for (int round = 0; round < 6; ++round) {
    std::vector<Wish> wishes = RandomWishes(14, random);
    std::vector<Outcome> alone;
    for (const Wish& wish : wishes)
      alone.push_back(Run(*alone_engine, {wish}, {.reuse_prefixes = false}).at(0));
    for (Engine* engine : {colocated.get(), separated.get(), chain.get()}) {
      // Several times on the same engine, with what earlier runs left in the slots.
      const PolicyOptions policies[] = {{},
                                        {.prompt_rows = 13},
                                        {.policy = Policy::kDecodeFirst},
                                        {.policy = Policy::kPhases, .max_stall_ms = 0.2}};
      for (const PolicyOptions& policy : policies) {
        const auto together = Run(*engine, wishes, {.policy = policy});
        for (size_t i = 0; i < wishes.size(); ++i) {
          EXPECT_EQ(together[i].end, SequenceEnd::kComplete) << together[i].why;
          EXPECT_EQ(together[i].tokens, alone[i].tokens) << "round " << round << " request " << i;
        }
        std::shuffle(wishes.begin(), wishes.end(), random);
        alone.clear();
        for (const Wish& wish : wishes)
          alone.push_back(Run(*alone_engine, {wish}, {.reuse_prefixes = false}).at(0));
      }
    }
  }
}

// A mask that takes long keeps nobody but its own sequence.
TEST_F(SchedulerTest, WhoCanNotChooseYetSitsOutAndNobodyWaits) {
  const auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 3});
  const std::vector<Wish> wishes = {
      {.prompt = TestTokens(20, kVocab, 1), .most = 20, .seed = 1, .late = 40},
      {.prompt = TestTokens(25, kVocab, 2), .most = 30, .seed = 2},
      {.prompt = TestTokens(30, kVocab, 3), .most = 30, .seed = 3}};
  std::vector<Outcome> alone;
  for (const Wish& wish : wishes) alone.push_back(Run(*engine, {wish}).at(0));
  const auto together = Run(*engine, wishes);
  EXPECT_GT(together[0].sat_out, 100u);
  EXPECT_EQ(together[0].ended_as, 3u) << "the others have their tokens meanwhile";
  for (size_t i = 0; i < wishes.size(); ++i) {
    EXPECT_EQ(together[i].end, SequenceEnd::kComplete) << together[i].why;
    EXPECT_EQ(together[i].tokens, alone[i].tokens) << i;
    EXPECT_EQ(together[i].admissions, 1) << "nothing is computed again";
  }
}

// The same with beginnings that are longer than a chunk and shared while their sequences run, in
// caches with room for all and with room for little more than one: sequences share, copy, wait, are
// parked and go on.
TEST_F(SchedulerTest, TokensAreThoseOfTheSequenceAloneWhenTheyShareAndLackChunks) {
  const auto alone_engine = MakeEngine(model_.file(), {});
  const auto whole = MakeEngine(model_.file(), {.threads = 2, .slots = 6});
  const auto tight = MakeEngine(model_.file(), {.threads = 2, .slots = 6, .kv_tokens = 4 * 256});
  const auto separated = MakeEngine(
      model_.file(), {.threads = 1, .kv_tokens = 8 * 256, .attention = {{1, 3}, {2, 3}}});
  // A separated stage and a colocated one, which share the numbers of chunks.
  const TestChain mixed =
      MakeTestChain(*model_.file(), {{1, 1, {{1, 3}, {1, 3}}}, {1}}, 6, 3, 64, 8 * 256);
  const auto chain = MakeChainEngine(model_.file(), mixed);
  std::mt19937 random(3);
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 24; ++i) {
    Wish wish{.prompt = TestTokens(700, kVocab, 1 + i % 3)};
    wish.prompt.resize(200 + random() % 450);
    const auto tail = TestTokens(1 + random() % 30, kVocab, 100 + i);
    wish.prompt.insert(wish.prompt.end(), tail.begin(), tail.end());
    wish.most = 1 + random() % 40;
    wish.seed = 1 + i;
    wish.arrives = random() % 60;
    wish.background = i % 4 > 1;
    wish.late = i % 3 == 0 ? 5 : 0;
    wishes.push_back(std::move(wish));
  }
  std::vector<Outcome> alone;
  for (const Wish& wish : wishes)
    alone.push_back(Run(*alone_engine, {wish}, {.reuse_prefixes = false}).at(0));
  for (Engine* engine : {whole.get(), tight.get(), separated.get(), chain.get()}) {
    size_t reused = 0;
    const auto together = Run(*engine, wishes);
    for (size_t i = 0; i < wishes.size(); ++i) {
      EXPECT_EQ(together[i].end, SequenceEnd::kComplete) << together[i].why;
      EXPECT_EQ(together[i].tokens, alone[i].tokens) << "request " << i;
      reused += together[i].reused;
    }
    EXPECT_GT(reused, 1000u);
  }
}

// One slot: the text of the background, which came first, gives it back at once to each that comes,
// and goes on with the tokens that it would have had, out of what it left in the KV cache.
TEST_F(SchedulerTest, TheBackgroundGivesItsSlotToWhoeverWaits) {
  const auto engine = MakeEngine(model_.file(), {.slots = 1});
  const std::vector<Wish> wishes = {
      {.prompt = TestTokens(40, kVocab), .most = 60, .seed = 1, .background = true},
      {.prompt = TestTokens(20, kVocab, 2), .most = 5, .arrives = 10},
      {.prompt = TestTokens(20, kVocab, 3), .most = 5, .arrives = 11},
      {.prompt = TestTokens(20, kVocab, 4), .most = 5, .arrives = 30},
      {.prompt = TestTokens(20, kVocab, 5), .most = 5, .seed = 2, .background = true}};
  Scheduler scheduler(*engine, {});
  TestIntake intake(wishes);
  scheduler.Run(intake);
  EXPECT_EQ(scheduler.status().yielded.load(), 2u);
  EXPECT_EQ(scheduler.status().parked.load(), 0u) << "those are pauses that nobody wanted";
  EXPECT_EQ(scheduler.status().recomputed_tokens.load(), 0u);
  EXPECT_GT(scheduler.status().reused_tokens.load(), 40u);
  const std::vector<size_t> expected = {4, 1, 2, 3, 5};
  for (size_t i = 0; i < wishes.size(); ++i) {
    EXPECT_EQ(intake.outcomes[i].ended_as, expected[i]) << i;
    EXPECT_EQ(intake.outcomes[i].tokens,
              Run(*MakeEngine(model_.file(), {}), {wishes[i]}).at(0).tokens);
  }
}

// Those who wait for chunks get those of the background, though it was there first.
TEST_F(SchedulerTest, TheBackgroundGivesItsChunksToWhoeverWaits) {
  const auto engine = MakeEngine(model_.file(), {.slots = 3, .kv_tokens = 3 * 256});
  const std::vector<Wish> wishes = {
      {.prompt = TestTokens(500, kVocab), .most = 100, .seed = 1, .background = true},
      {.prompt = TestTokens(500, kVocab, 2), .most = 100, .arrives = 20}};
  TestIntake intake(wishes);
  Scheduler scheduler(*engine, {});
  scheduler.Run(intake);
  EXPECT_EQ(intake.outcomes[0].ended_as, 2u);
  EXPECT_EQ(intake.outcomes[1].ended_as, 1u);
  for (size_t i = 0; i < wishes.size(); ++i)
    EXPECT_EQ(intake.outcomes[i].tokens,
              Run(*MakeEngine(model_.file(), {}), {wishes[i]}).at(0).tokens);
}

// Prompts of the background come behind others', and are narrow beside somebody's next token.
TEST_F(SchedulerTest, PromptsOfTheBackgroundDelayNobody) {
  const auto engine = MakeEngine(model_.file(), {.slots = 3});
  std::vector<Wish> wishes = {{.prompt = TestTokens(600, kVocab), .most = 1, .background = true},
                              {.prompt = TestTokens(5, kVocab, 2), .most = 60},
                              {.prompt = TestTokens(200, kVocab, 3), .most = 1, .arrives = 3}};
  Scheduler scheduler(*engine, {.policy = {.prompt_rows = 100}});
  TestIntake intake(wishes);
  scheduler.Run(intake);
  EXPECT_EQ(intake.outcomes[2].ended_as, 1u);
  EXPECT_EQ(intake.outcomes[1].ended_as, 2u) << "600 rows, 8 a step, take longer than 60 tokens";
  EXPECT_EQ(intake.outcomes[0].ended_as, 3u);
}

// Nor do they have to be waited for by whoever begins as they do: 600 rows, 8 a step.
TEST_F(SchedulerTest, NobodyWaitsForTheBackgroundsPrefix) {
  const auto engine = MakeEngine(model_.file(), {.slots = 3});
  std::vector<Wish> wishes = {{.prompt = TestTokens(600, kVocab), .most = 1, .background = true},
                              {.prompt = TestTokens(5, kVocab, 2), .most = 60},
                              {.prompt = TestTokens(600, kVocab), .most = 1, .arrives = 3}};
  Scheduler scheduler(*engine, {.policy = {.prompt_rows = 100}});
  TestIntake intake(wishes);
  scheduler.Run(intake);
  EXPECT_EQ(intake.outcomes[2].ended_as, 1u);
  EXPECT_EQ(intake.outcomes[1].ended_as, 2u);
  EXPECT_EQ(intake.outcomes[0].ended_as, 3u);
}

// Four slots, and texts of the background for all of them, but only two at once: the others' steps
// have two rows of theirs at most.
TEST_F(SchedulerTest, TheBackgroundHasNoMoreSlotsThanItMay) {
  const auto engine = MakeEngine(model_.file(), {.slots = 4});
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 8; ++i)
    wishes.push_back(
        {.prompt = TestTokens(10, kVocab, 1 + i), .most = 20, .seed = 1, .background = true});
  for (uint32_t i = 0; i < 3; ++i)
    wishes.push_back(
        {.prompt = TestTokens(10, kVocab, 20 + i), .most = 20, .arrives = 10 + 40 * i});
  for (const size_t bound : {2u, 0u}) {
    Scheduler scheduler(*engine, {.background_slots = bound});
    class Looking : public TestIntake {
     public:
      Looking(const std::vector<Wish>& wishes, const Scheduler& scheduler)
          : TestIntake(wishes), scheduler_(scheduler) {}
      void StepDone() override {
        const auto busy = std::ranges::count_if(scheduler_.slots(), [](const SlotStatus& slot) {
          return slot.state.load() != SlotStatus::kIdle;
        });
        most = std::max(most, static_cast<size_t>(busy));
        TestIntake::StepDone();
      }
      size_t most = 0;

     private:
      const Scheduler& scheduler_;
    } intake(wishes, scheduler);
    scheduler.Run(intake);
    for (const Outcome& outcome : intake.outcomes) EXPECT_EQ(outcome.end, SequenceEnd::kComplete);
    EXPECT_EQ(intake.most, bound > 0 ? bound + 1 : 4u);
    EXPECT_EQ(scheduler.status().yielded.load() > 0, bound == 0);
  }
}

// A prompt that many send at once is computed once.
TEST_F(SchedulerTest, APromptThatIsBeingComputedIsWaitedForAndShared) {
  const auto engine = MakeEngine(model_.file(), {.slots = 4, .max_batch_tokens = 64});
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 4; ++i)
    wishes.push_back({.prompt = TestTokens(600, kVocab, 1), .most = 8, .seed = 1 + i});
  Scheduler scheduler(*engine, {});
  TestIntake intake(wishes);
  scheduler.Run(intake);
  EXPECT_EQ(scheduler.status().prefill_rows.load(), 600u + 3);
  for (size_t i = 1; i < 4; ++i) EXPECT_EQ(intake.outcomes[i].reused, 599u);
  for (size_t i = 0; i < 4; ++i)
    EXPECT_EQ(intake.outcomes[i].tokens,
              Run(*MakeEngine(model_.file(), {}), {wishes[i]}).at(0).tokens);
  // Two whole chunks of the four are one copy; the third is each one's own.
  EXPECT_EQ(scheduler.status().used_kv_chunks.load(), 2u + 4);
  EXPECT_EQ(scheduler.status().shared_kv_chunks.load(), 2u);
}

TEST_F(SchedulerTest, AComparisonThatCanFail) {
  const auto engine = MakeEngine(model_.file(), {});
  const Wish one{.prompt = TestTokens(20, kVocab, 1), .most = 10, .seed = 1};
  Wish other = one;
  other.seed = 2;
  Wish third = one;
  third.prompt[3] ^= 1;
  const auto outcomes = Run(*engine, {one, other, third});
  EXPECT_NE(outcomes[0].tokens, outcomes[1].tokens);
  EXPECT_NE(outcomes[0].tokens, outcomes[2].tokens);
}

TEST_F(SchedulerTest, APrefixIsReused) {
  const auto engine = MakeEngine(model_.file(), {.slots = 2});
  Wish first{.prompt = TestTokens(50, kVocab, 1), .most = 5};
  Wish second = first;  // the same prefix, then another tail
  second.prompt.resize(40);
  const auto tail = TestTokens(10, kVocab, 9);
  second.prompt.insert(second.prompt.end(), tail.begin(), tail.end());
  second.arrives = 100;
  Wish third = first;  // reuses all of it except the last token, whose logits are wanted
  third.arrives = 200;
  Wish stranger{.prompt = TestTokens(30, kVocab, 77), .most = 5, .arrives = 50};
  const auto outcomes = Run(*engine, {first, second, third, stranger});
  EXPECT_EQ(outcomes[0].reused, 0u);
  EXPECT_GE(outcomes[1].reused, 40u);  // the tail's first token may equal the generated one
  EXPECT_EQ(outcomes[3].reused, 0u);   // it takes the other slot, so the first one's KV is kept
  EXPECT_GE(outcomes[2].reused, 40u);
  EXPECT_EQ(outcomes[2].tokens, outcomes[0].tokens);
  EXPECT_EQ(Run(*engine, {first}, {.reuse_prefixes = false})[0].reused, 0u);
}

// Whoever names a slot waits for it, however many others are free, and begins with what that has.
TEST_F(SchedulerTest, ANamedSlotIsWaitedFor) {
  const auto engine = MakeEngine(model_.file(), {.slots = 3});
  const Wish plain{.prompt = TestTokens(50, kVocab, 1), .most = 5};
  Wish first = plain, second = plain, third = plain, other = plain;
  first.slot = second.slot = third.slot = SlotId(1);
  first.most = 20;
  second.arrives = third.arrives = 3;  // while the first runs
  other.prompt = TestTokens(30, kVocab, 7);
  other.arrives = 3;
  Wish elsewhere = plain, again = plain;
  elsewhere.slot = SlotId(2);
  elsewhere.arrives = 100;
  again.slot = SlotId(1);
  again.arrives = 200;
  const auto outcomes = Run(*engine, {first, second, third, other, elsewhere, again});
  for (const size_t i : {0u, 1u, 2u, 5u}) EXPECT_EQ(outcomes[i].slot, SlotId(1)) << i;
  EXPECT_EQ(outcomes[4].slot, SlotId(2));
  EXPECT_EQ(outcomes[0].ended_as, 2u) << "who names no slot does not wait for those that do";
  EXPECT_EQ(outcomes[3].ended_as, 1u);
  EXPECT_EQ(outcomes[1].reused, 49u);
  EXPECT_EQ(outcomes[4].reused, 0u) << "the slot had nothing of it";
  EXPECT_EQ(outcomes[5].reused, 49u);
  for (const size_t i : {1u, 2u, 4u, 5u})
    EXPECT_EQ(outcomes[i].tokens, plain_tokens(*engine, plain));
}

// The background leaves the slot that somebody else names, and goes on.
TEST_F(SchedulerTest, TheBackgroundLeavesANamedSlot) {
  const auto engine = MakeEngine(model_.file(), {.slots = 2});
  Wish job{.prompt = TestTokens(20, kVocab, 1), .most = 30, .background = true};
  Wish named{.prompt = TestTokens(20, kVocab, 2), .most = 5, .arrives = 4};
  named.slot = SlotId(0);
  const auto outcomes = Run(*engine, {job, named});
  EXPECT_EQ(outcomes[1].slot, SlotId(0));
  EXPECT_EQ(outcomes[1].ended_as, 1u);
  EXPECT_EQ(outcomes[0].tokens, plain_tokens(*engine, job));
}

TEST_F(SchedulerTest, APromptsProgressIsTold) {
  const auto engine = MakeEngine(model_.file(), {.slots = 2, .max_batch_tokens = 16});
  const Wish first{.prompt = TestTokens(50, kVocab, 1), .most = 5};
  Wish again = first;
  again.arrives = 100;
  const auto outcomes = Run(*engine, {first, again});
  EXPECT_EQ(outcomes[0].computed, (std::vector<size_t>{16, 32, 48, 50}));
  EXPECT_EQ(outcomes[1].computed, std::vector<size_t>{50});
}

// Reuse must not cross tenants: it is visible to the client in cached_tokens and in the time to the
// first token.
TEST_F(SchedulerTest, APrefixIsReusedForItsTenantOnly) {
  const auto engine = MakeEngine(model_.file(), {.slots = 2});
  const Wish first{.prompt = TestTokens(50, kVocab, 1), .most = 5, .tenant = 1};
  Wish guess = first, own = first, again = first;
  guess.tenant = 2;
  guess.arrives = 100;
  own.arrives = 200;
  again.tenant = 2;
  again.arrives = 300;
  const auto outcomes = Run(*engine, {first, guess, own, again});
  EXPECT_EQ(outcomes[1].reused, 0u);
  EXPECT_EQ(outcomes[2].reused, 49u);
  EXPECT_EQ(outcomes[3].reused, 49u) << "what it had computed for itself";
  for (const Outcome& outcome : outcomes) EXPECT_EQ(outcome.tokens, outcomes[0].tokens);
}

// A token that is made to overflow in the first layer: only its embedding is nonzero in a channel
// that the FFN's norm scales so much that gate times up is not finite. (In attention, quantising
// would hide it.)
constexpr int32_t kGlitch = 7;
void Plant(const model::GgufFile& file) {
  constexpr size_t kChannel = 3;
  std::fstream out(file.path(), std::ios::in | std::ios::out | std::ios::binary);
  const auto put = [&](const model::TensorInfo& tensor, size_t at, float value) {
    out.seekp(static_cast<std::streamoff>(tensor.file_offset_bytes + at * sizeof value));
    out.write(reinterpret_cast<const char*>(&value), sizeof value);
  };
  const model::TensorInfo& embedding = file.Tensor("token_embd.weight");
  for (size_t token = 0; token < embedding.rows; ++token)
    put(embedding, token * embedding.cols + kChannel, token == kGlitch ? 1.0f : 0.0f);
  const model::TensorInfo& output = file.Tensor("blk.0.attn_output.weight");
  for (size_t i = 0; i < output.cols; ++i) put(output, kChannel * output.cols + i, 0.0f);
  put(file.Tensor("blk.0.ffn_norm.weight"), kChannel, 1e37f);
}

TEST_F(SchedulerTest, ARowThatOverflowsEndsItsOwnSequenceOnly) {
  Plant(*model_.file());
  const auto without = [](std::vector<int32_t> tokens) {
    std::replace(tokens.begin(), tokens.end(), kGlitch, kGlitch + 1);
    return tokens;
  };
  const auto alone = MakeEngine(model_.file(), {});
  const auto together = MakeEngine(model_.file(), {.slots = 4});
  const auto chain =
      MakeChainEngine(model_.file(), MakeTestChain(*model_.file(), {{1}, {1}}, 4, 3));
  for (Engine* engine : {together.get(), chain.get()}) {
    std::vector<Wish> wishes;
    for (uint32_t i = 0; i < 4; ++i)
      wishes.push_back({.prompt = without(TestTokens(20, kVocab, i)), .most = 12, .seed = 1 + i});
    wishes[1].prompt.back() = kGlitch;
    wishes[2].prompt[5] = kGlitch;
    const auto outcomes = Run(*engine, wishes);
    // The third has it in the middle of its prompt: keys and values are quantised, which makes them
    // finite.
    for (const size_t i : {0, 2, 3}) {
      EXPECT_EQ(outcomes[i].tokens, Run(*alone, {wishes[i]}).at(0).tokens);
      EXPECT_GT(outcomes[i].tokens.size(), 0u);
    }
    EXPECT_EQ(outcomes[1].end, SequenceEnd::kFailed);
    EXPECT_NE(outcomes[1].why.find("not finite at position 19"), std::string::npos)
        << outcomes[1].why;
    // Its slot can be used again, and what it left there is not reused.
    const auto again = Run(*engine, {wishes[1], wishes[0]});
    EXPECT_EQ(again[0].reused, 0u);
    EXPECT_EQ(again[1].tokens, outcomes[0].tokens);
  }
}

TEST_F(SchedulerTest, TheSequenceUnusedForLongestIsForgottenFirst) {
  const auto engine = MakeEngine(model_.file(), {.slots = 3, .kv_tokens = 4 * 256});
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 5; ++i)
    wishes.push_back({.prompt = TestTokens(30, kVocab, 10 + i), .most = 2, .arrives = 100 * i});
  for (const uint32_t again : {1, 2, 3, 4, 0})  // the fifth took the chunk of the first
    wishes.push_back(
        {.prompt = TestTokens(30, kVocab, 10 + again), .most = 2, .arrives = 1000 + 100 * again});
  wishes.back().arrives = 5000;
  const auto outcomes = Run(*engine, wishes);
  for (size_t i = 5; i < 9; ++i) EXPECT_EQ(outcomes[i].reused, 29u) << i;
  EXPECT_EQ(outcomes[9].reused, 0u);
}

// Caches that are full of long sequences: who goes on from one of them does not cost another its
// beginning.
TEST_F(SchedulerTest, AFullCacheIsShortenedNotForgotten) {
  const auto engine = MakeEngine(model_.file(), {.slots = 4});  // 12 chunks, three for each
  std::vector<Wish> wishes;
  for (uint32_t turn = 0; turn < 3; ++turn) {
    for (uint32_t i = 0; i < 4; ++i)
      wishes.push_back(
          {.prompt = TestTokens(600, kVocab, 10 + i), .most = 40, .arrives = 400 * turn});
  }
  const auto outcomes = Run(*engine, wishes);
  for (size_t i = 4; i < wishes.size(); ++i) {
    EXPECT_EQ(outcomes[i].reused, 599u) << i;
    EXPECT_EQ(outcomes[i].tokens, outcomes[i % 4].tokens);
  }
}

// What ended sequences hold is room for new ones, in the slot that is taken too: both run at once.
TEST_F(SchedulerTest, AFullCacheOfEndedSequencesKeepsNobodyWaiting) {
  const auto engine = MakeEngine(model_.file(), {.slots = 2});
  std::vector<Wish> old, wishes;
  for (uint32_t i = 0; i < 2; ++i) {
    old.push_back({.prompt = TestTokens(700, kVocab, 10 + i), .most = 60});
    wishes.push_back(
        {.prompt = TestTokens(700, kVocab, 20 + i), .most = 60, .arrives = 500 + 15 * i});
  }
  wishes.insert(wishes.begin(), old.begin(), old.end());
  const auto steps = [&](const std::vector<Wish>& of) {
    Scheduler scheduler(*engine, {.reuse_prefixes = false});
    TestIntake intake(of);
    scheduler.Run(intake);
    return scheduler.status().steps.load();
  };
  const uint64_t alone = steps(old), both = steps(wishes);
  EXPECT_LE(both, 2 * alone + 30);
}

// Conversations outnumber the slots many times, and each goes on where it was.
TEST_F(SchedulerTest, EndedSequencesAreKeptBesideTheSlots) {
  for (const bool separated : {false, true}) {
    const auto engine = MakeEngine(
        model_.file(), separated
                           ? TestEngineOptions{.kv_tokens = 40 * 256, .attention = {{1, 1}, {1, 1}}}
                           : TestEngineOptions{.slots = 2, .kv_tokens = 40 * 256});
    const auto alone = MakeEngine(model_.file(), {});
    std::vector<Wish> wishes;
    for (uint32_t turn = 0; turn < 2; ++turn) {
      for (uint32_t i = 0; i < 12; ++i) {
        wishes.push_back({.prompt = TestTokens(290 + 20 * turn, kVocab, 10 + i),
                          .most = 5,
                          .arrives = 1000 * turn + 30 * i});
      }
    }
    const auto outcomes = Run(*engine, wishes);
    for (size_t i = 0; i < wishes.size(); ++i) {
      EXPECT_GE(outcomes[i].reused, i < 12 ? 0u : 290u) << i;
      EXPECT_EQ(outcomes[i].tokens,
                Run(*alone, {wishes[i]}, {.reuse_prefixes = false}).at(0).tokens);
    }
  }
}

TEST_F(SchedulerTest, PromptsThatDoNotFitAreRefusedWithNumbers) {
  const auto engine = MakeEngine(model_.file(), {.slots = 2, .context = 64});
  const auto outcomes = Run(*engine, {{.prompt = TestTokens(65, kVocab), .most = 5},
                                      {.prompt = {}, .most = 5},
                                      {.prompt = TestTokens(64, kVocab), .most = 5},
                                      {.prompt = TestTokens(60, kVocab), .most = 50}});
  EXPECT_EQ(outcomes[0].end, SequenceEnd::kRefused);
  EXPECT_NE(outcomes[0].why.find("65 tokens"), std::string::npos);
  EXPECT_NE(outcomes[0].why.find("context of 64"), std::string::npos);
  EXPECT_EQ(outcomes[1].end, SequenceEnd::kRefused);
  EXPECT_EQ(outcomes[2].end, SequenceEnd::kContextFull);
  EXPECT_EQ(outcomes[2].tokens.size(), 1u);
  EXPECT_EQ(outcomes[3].end, SequenceEnd::kContextFull);
  EXPECT_EQ(outcomes[3].tokens.size(), 4u) << "prompt and text fill the context";
}

TEST_F(SchedulerTest, ACancelledSequenceFreesItsSlot) {
  const auto engine = MakeEngine(model_.file(), {.slots = 1});
  const auto outcomes =
      Run(*engine, {{.prompt = TestTokens(20, kVocab), .most = 500, .cancel_after = 3},
                    {.prompt = TestTokens(20, kVocab, 2), .most = 4},
                    {.prompt = TestTokens(20, kVocab, 3), .most = 4, .cancel_after = 0}});
  EXPECT_EQ(outcomes[0].end, SequenceEnd::kCancelled);
  EXPECT_EQ(outcomes[0].tokens.size(), 3u);  // none after the cancellation
  EXPECT_EQ(outcomes[1].end, SequenceEnd::kComplete);
  EXPECT_EQ(outcomes[2].end, SequenceEnd::kCancelled);
  EXPECT_EQ(outcomes[2].admissions, 0);
}

// Checks by the number of steps that the other sequence gets its tokens while a long prompt runs.
TEST_F(SchedulerTest, ALongPromptDoesNotStallOthers) {
  const auto engine = MakeEngine(model_.file(), {.slots = 2});
  Scheduler scheduler(*engine, {.policy = {.prompt_rows = 16}});
  std::vector<Wish> wishes = {{.prompt = TestTokens(5, kVocab), .most = 60},
                              {.prompt = TestTokens(600, kVocab, 2), .most = 1, .arrives = 5}};
  TestIntake intake(wishes);
  scheduler.Run(intake);
  // 600 rows at 16 per step are 38 steps, in each of which the other sequence got a token; it needs
  // about 60 in all.
  EXPECT_LE(scheduler.status().steps.load(), 64u);
  EXPECT_GE(scheduler.status().steps.load(), 60u);
  EXPECT_EQ(scheduler.status().prefill_rows.load(), 605u);
}

TEST_F(SchedulerTest, SequencesAreSpreadOverAttentionSockets) {
  const auto engine = MakeEngine(model_.file(), {.threads = 1, .attention = {{1, 4}, {1, 4}}});
  Scheduler scheduler(*engine, {});
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 4; ++i)
    wishes.push_back({.prompt = TestTokens(10, kVocab, i), .most = 4});
  TestIntake intake(wishes);
  scheduler.Run(intake);
  size_t first = 0, second = 0;
  for (size_t slot = 0; slot < 8; ++slot)
    (slot < 4 ? first : second) += scheduler.slots()[slot].cached_tokens.load() > 0;
  EXPECT_EQ(first, 2u);
  EXPECT_EQ(second, 2u);
}

}  // namespace
}  // namespace larder::pipeline::scheduler
