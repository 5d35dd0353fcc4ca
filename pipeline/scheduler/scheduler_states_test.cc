// Sequences whose layers have states (model::Recurrence): their tokens are those that they have
// alone, whatever runs beside them; they go on where a state was kept.
#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "base/temporary_folder_testing.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/engine/engine_testing.h"
#include "pipeline/kv_store/kv_store.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

// Three layers with states, and one with keys and values.
model::SynthOptions StatesModel() {
  model::SynthOptions options;
  options.shape = {.architecture = "qwen35",
                   .layers = 4,
                   .dim = 96,
                   .ffn = 128,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_size = 32,
                   .vocab = kVocab,
                   .context = 1024,
                   .tied = true};
  options.type = model::TensorType::kF32;
  return options;
}

class SchedulerStatesTest : public testing::Test {
 protected:
  SchedulerStatesTest() : model_(StatesModel()), alone_(MakeEngine(model_.file(), {})) {}

  static std::vector<Outcome> Run(Scheduler& scheduler, const std::vector<Wish>& wishes) {
    TestIntake intake(wishes);
    scheduler.Run(intake);
    return intake.outcomes;
  }
  static std::vector<Outcome> Run(Engine& engine, const std::vector<Wish>& wishes,
                                  SchedulerOptions options = {}) {
    Scheduler scheduler(engine, options);
    return Run(scheduler, wishes);
  }

  // What it gets alone.
  std::vector<int32_t> TokensOf(Wish wish) {
    wish.arrives = 0;
    wish.slot.reset();
    wish.draft = nullptr;
    return Run(*alone_, {wish}, {.reuse_prefixes = false}).at(0).tokens;
  }

  TestModel model_;
  std::unique_ptr<Engine> alone_;
};

TEST_F(SchedulerStatesTest, TokensAreThoseOfTheSequenceAlone) {
  const auto whole = MakeEngine(model_.file(), {.threads = 2, .slots = 5});
  const auto tight = MakeEngine(model_.file(), {.threads = 3, .slots = 5, .kv_tokens = 4 * 256});
  const auto separated = MakeEngine(
      model_.file(), {.threads = 1, .kv_tokens = 8 * 256, .attention = {{1, 3}, {2, 3}}});
  const TestChain stages =
      MakeTestChain(*model_.file(), {{2, 1, {{1, 3}, {1, 3}}}, {2, 2}}, 6, 3, 64, 8 * 256);
  const auto chain = MakeChainEngine(model_.file(), stages);
  std::mt19937 random(5);
  const std::vector<int32_t> drafts = TestTokens(1000, kVocab, 9);
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 18; ++i) {
    Wish wish{.prompt = TestTokens(500, kVocab, 1 + i % 3)};
    wish.prompt.resize(20 + random() % 400);
    const auto tail = TestTokens(1 + random() % 30, kVocab, 100 + i);
    wish.prompt.insert(wish.prompt.end(), tail.begin(), tail.end());
    wish.most = 1 + random() % 30;
    wish.seed = 1 + i;
    wish.arrives = random() % 60;
    wish.background = i % 4 > 1;
    if (i % 2 == 0) wish.draft = &drafts;  // which a state could not take back
    wishes.push_back(std::move(wish));
  }
  std::vector<std::vector<int32_t>> alone;
  for (const Wish& wish : wishes) alone.push_back(TokensOf(wish));
  const std::pair<const char*, Engine*> engines[] = {{"whole", whole.get()},
                                                     {"tight", tight.get()},
                                                     {"separated", separated.get()},
                                                     {"chain", chain.get()}};
  for (const auto& [name, engine] : engines) {
    SCOPED_TRACE(name);
    for (int again = 0; again < 2; ++again) {
      const auto together = Run(*engine, wishes);
      for (size_t i = 0; i < wishes.size(); ++i) {
        EXPECT_EQ(together[i].end, SequenceEnd::kComplete) << together[i].why;
        EXPECT_EQ(together[i].tokens, alone[i]) << "request " << i;
      }
    }
  }
}

TEST_F(SchedulerStatesTest, AConversationGoesOnFromItsEnd) {
  const auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 2});
  Scheduler scheduler(*engine, {});
  Wish turn{.prompt = TestTokens(300, kVocab), .most = 12};
  Outcome answer = Run(scheduler, {turn}).at(0);
  EXPECT_EQ(answer.reused, 0u);
  for (int turns = 0; turns < 3; ++turns) {
    // The last token was not computed.
    const size_t computed = turn.prompt.size() + answer.tokens.size() - 1;
    turn.prompt.insert(turn.prompt.end(), answer.tokens.begin(), answer.tokens.end());
    const auto question = TestTokens(20, kVocab, 50 + static_cast<uint32_t>(turns));
    turn.prompt.insert(turn.prompt.end(), question.begin(), question.end());
    answer = Run(scheduler, {turn}).at(0);
    EXPECT_EQ(answer.reused, computed);
    EXPECT_EQ(answer.tokens, TokensOf(turn));
  }
}

// The next turn's template often drops what a prompt ended with, or what was answered.
TEST_F(SchedulerStatesTest, ATurnGoesOnALittleBeforeTheEndOfThePromptBefore) {
  const auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 2});
  Scheduler scheduler(*engine, {});
  Wish turn{.prompt = TestTokens(300, kVocab), .most = 12};
  EXPECT_EQ(Run(scheduler, {turn}).at(0).tokens, TokensOf(turn));
  for (int again = 0; again < 2; ++again) {
    const Outcome same = Run(scheduler, {turn}).at(0);
    EXPECT_EQ(same.reused, 284u);
    EXPECT_EQ(same.tokens, TokensOf(turn));
  }
  turn.prompt.resize(295);
  const auto other = TestTokens(100, kVocab, 50);
  turn.prompt.insert(turn.prompt.end(), other.begin(), other.end());
  const Outcome next = Run(scheduler, {turn}).at(0);
  EXPECT_EQ(next.reused, 284u);
  EXPECT_EQ(next.tokens, TokensOf(turn));
  turn.prompt.resize(390);
  EXPECT_EQ(Run(scheduler, {turn}).at(0).reused, 379u);
}

TEST_F(SchedulerStatesTest, WhereSequencesPartTheirStateIsKept) {
  const auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 3});
  Scheduler scheduler(*engine, {});
  const auto with_tail = [](uint32_t seed) {
    Wish wish{.prompt = TestTokens(200, kVocab), .most = 5};
    const auto tail = TestTokens(80, kVocab, seed);
    wish.prompt.insert(wish.prompt.end(), tail.begin(), tail.end());
    return wish;
  };
  const size_t reused[] = {0, 0, 200, 200};
  for (uint32_t i = 0; i < 4; ++i) {
    const Wish wish = with_tail(40 + i);
    const Outcome outcome = Run(scheduler, {wish}).at(0);
    EXPECT_EQ(outcome.reused, reused[i]) << i;
    EXPECT_EQ(outcome.tokens, TokensOf(wish));
  }
  // Those that come at the same time wait for the first one to have been there.
  std::vector<Wish> together;
  for (uint32_t i = 0; i < 4; ++i) {
    together.push_back(with_tail(60 + i));
    together.back().prompt[0] = 7;
  }
  const auto outcomes = Run(scheduler, together);
  for (size_t i = 0; i < together.size(); ++i) {
    EXPECT_EQ(outcomes[i].reused, i == 0 ? 0u : 200u) << i;
    EXPECT_EQ(outcomes[i].tokens, TokensOf(together[i]));
  }
}

TEST_F(SchedulerStatesTest, ALongPromptHasStatesOnItsWay) {
  model::SynthOptions synth = StatesModel();
  synth.shape.context = 6000;
  const TestModel model(synth);
  const auto engine = MakeEngine(model.file(), {.threads = 2, .context = 6000});
  const auto fresh = MakeEngine(model.file(), {.threads = 2, .context = 6000});
  Scheduler scheduler(*engine, {});
  const Wish whole{.prompt = TestTokens(5000, kVocab), .most = 2};
  Run(scheduler, {whole});
  for (const auto& [common, reused] : {std::pair(4900, 4096), std::pair(3000, 2048)}) {
    Wish part = whole;
    part.prompt.resize(static_cast<size_t>(common));
    part.prompt.push_back(3);
    const Outcome outcome = Run(scheduler, {part}).at(0);
    EXPECT_EQ(outcome.reused, static_cast<size_t>(reused));
    EXPECT_EQ(outcome.tokens, Run(*fresh, {part}, {.reuse_prefixes = false}).at(0).tokens);
  }
}

// So has a long answer, and a turn can be sent again in another version.
TEST_F(SchedulerStatesTest, ALongAnswerHasStatesOnItsWay) {
  model::SynthOptions synth = StatesModel();
  synth.shape.context = 4000;
  const TestModel model(synth);
  const auto engine = MakeEngine(model.file(), {.threads = 2, .slots = 2, .context = 4000});
  const auto fresh = MakeEngine(model.file(), {.threads = 2, .context = 4000});
  Scheduler scheduler(*engine, {});
  Wish turn{.prompt = TestTokens(100, kVocab), .most = 2300};
  const Outcome answer = Run(scheduler, {turn}).at(0);
  turn.most = 3;
  const auto next_turn = [&](size_t of_answer, uint32_t question) {
    Wish next = turn;
    next.prompt.insert(next.prompt.end(), answer.tokens.begin(),
                       answer.tokens.begin() + static_cast<std::ptrdiff_t>(of_answer));
    const auto asked = TestTokens(30, kVocab, question);
    next.prompt.insert(next.prompt.end(), asked.begin(), asked.end());
    const Outcome outcome = Run(scheduler, {next}).at(0);
    EXPECT_EQ(outcome.tokens, Run(*fresh, {next}, {.reuse_prefixes = false}).at(0).tokens);
    return outcome.reused;
  };
  EXPECT_EQ(next_turn(2300, 50), 2399u);
  EXPECT_EQ(next_turn(2300, 51), 2399u) << "another version";
  EXPECT_EQ(next_turn(2200, 52), 2048u) << "another answer";
  EXPECT_EQ(next_turn(2300, 53), 2399u);
}

TEST_F(SchedulerStatesTest, WhatEndedIsKeptWithoutASlot) {
  const auto engine = MakeEngine(model_.file(), {.slots = 1});
  Scheduler scheduler(*engine, {});
  Wish first{.prompt = TestTokens(100, kVocab), .most = 5};
  const Outcome answer = Run(scheduler, {first}).at(0);
  const Wish second{.prompt = TestTokens(100, kVocab, 2), .most = 5};
  EXPECT_EQ(Run(scheduler, {second}).at(0).tokens, TokensOf(second));
  first.prompt.insert(first.prompt.end(), answer.tokens.begin(), answer.tokens.end());
  const Outcome again = Run(scheduler, {first}).at(0);
  EXPECT_EQ(again.reused, 104u);
  EXPECT_EQ(again.tokens, TokensOf(first));
}

// As many conversations as there are states beside those of the slots: each keeps its end.
TEST_F(SchedulerStatesTest, EachConversationKeepsItsLastState) {
  const auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 2, .kv_tokens = 12 * 256});
  Scheduler scheduler(*engine, {});
  std::vector<Wish> conversations;
  for (uint32_t i = 0; i < 8; ++i)
    conversations.push_back({.prompt = TestTokens(100, kVocab, i + 1), .most = 4});
  for (int turns = 0; turns < 3; ++turns) {
    for (Wish& of : conversations) {
      const size_t had = of.prompt.size();
      const Outcome outcome = Run(scheduler, {of}).at(0);
      EXPECT_EQ(outcome.reused, turns == 0 ? 0 : had - 6) << turns;
      EXPECT_EQ(outcome.tokens, TokensOf(of));
      of.prompt.insert(of.prompt.end(), outcome.tokens.begin(), outcome.tokens.end());
      const auto question = TestTokens(5, kVocab, static_cast<uint32_t>(100 + turns));
      of.prompt.insert(of.prompt.end(), question.begin(), question.end());
    }
  }
}

// With too few states for all, what is lost is computed again.
TEST_F(SchedulerStatesTest, LostStatesCostTime) {
  const auto engine = MakeEngine(model_.file(), {.threads = 2, .slots = 2});
  Scheduler scheduler(*engine, {});
  std::mt19937 random(8);
  std::vector<Wish> conversations;
  for (uint32_t i = 0; i < 24; ++i)
    conversations.push_back({.prompt = TestTokens(60, kVocab, i), .most = 3});
  size_t reused = 0, lost = 0;
  for (size_t turn = 0; turn < 100; ++turn) {
    Wish& of = conversations[random() % conversations.size()];
    const Outcome outcome = Run(scheduler, {of}).at(0);
    EXPECT_EQ(outcome.tokens, TokensOf(of));
    (outcome.reused > 0 ? reused : lost) += 1;
    of.prompt.insert(of.prompt.end(), outcome.tokens.begin(), outcome.tokens.end());
    const auto question = TestTokens(5, kVocab, static_cast<uint32_t>(100 + turn));
    of.prompt.insert(of.prompt.end(), question.begin(), question.end());
  }
  EXPECT_GT(reused, 5u);
  EXPECT_GT(lost, 20u);
}

// After a restart a prompt goes on from what files have: keys and values, and a state.
TEST_F(SchedulerStatesTest, FilesHaveStates) {
  const std::vector<TestStage> chains[] = {
      {}, {{2}, {2}}, {{2, 1, {{1, 1}}}, {2, 2}}, {{1}, {3, 1, {{2, 1}}}}};
  for (const std::vector<TestStage>& stages : chains) {
    SCOPED_TRACE(fmt::format("{} stages", stages.size()));
    const TemporaryFolder folder;
    Wish wish{.prompt = TestTokens(600, kVocab), .most = 20};
    for (const size_t reused : {0, 512, 512}) {
      const KvPartOptions files{.folder = folder / "kv", .most_bytes = 1 << 30};
      std::unique_ptr<Engine> engine;
      if (stages.empty()) {
        engine = MakeEngine(model_.file(), {.threads = 3, .slots = 2});
      } else {
        ChainOptions options;
        options.kv_files = files;
        engine =
            MakeChainEngine(model_.file(), MakeTestChain(*model_.file(), stages, 1, 2), options);
      }
      KvStore store(files, "serving", 1, engine->kv().shape(), engine->kv_channel());
      Scheduler scheduler(*engine, {.tier = &store.tier()});
      const Outcome outcome = Run(scheduler, {wish}).at(0);
      EXPECT_EQ(outcome.reused, reused);
      EXPECT_EQ(outcome.tokens, TokensOf(wish));
      wish.prompt.back() += 1;
    }
  }
}

// Of a long answer, too, behind its last whole chunk.
TEST_F(SchedulerStatesTest, FilesHaveStatesOfAnswers) {
  const TemporaryFolder folder;
  Wish turn{.prompt = TestTokens(100, kVocab), .most = 500};
  for (const size_t reused : {size_t{0}, size_t{512}}) {
    const auto engine = MakeEngine(model_.file(), {.threads = 2});
    KvStore store({.folder = folder / "kv", .most_bytes = 1 << 30}, "serving", 1,
                  engine->kv().shape(), engine->kv_channel());
    Scheduler scheduler(*engine, {.tier = &store.tier()});
    const Outcome outcome = Run(scheduler, {turn}).at(0);
    EXPECT_EQ(outcome.reused, reused);
    EXPECT_EQ(outcome.tokens, TokensOf(turn));
    turn.prompt.insert(turn.prompt.end(), outcome.tokens.begin(), outcome.tokens.end());
    turn.most = 5;
  }
}

TEST_F(SchedulerStatesTest, AnEngineRefusesToCutAState) {
  const auto rows = [](size_t begin, size_t end) {
    std::vector<TokenRow> of_slot;
    for (size_t i = begin; i < end; ++i)
      of_slot.push_back({static_cast<int32_t>(i % kVocab), SlotId(0), static_cast<uint32_t>(i)});
    return of_slot;
  };
  alone_->Run(rows(0, 20));
  try {
    alone_->Run(rows(10, 12));
    ADD_FAILURE();
  } catch (const Error& error) {
    EXPECT_STREQ(
        error.what(),
        "slot 0 can't go on at position 10: synth has layers with states, and the last one "
        "before it is of position 0");
  }
  alone_->Run(rows(20, 22));  // nothing is lost
  alone_->Run(rows(0, 3));
}

}  // namespace
}  // namespace larder::pipeline::scheduler
