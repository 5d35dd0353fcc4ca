// Sequences that draft: several rows of one in a step, several tokens from it, and the same tokens
// as without.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <vector>

#include "pipeline/scheduler/hostile_engine_testing.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

struct Machine {
  EngineLimits limits = {.capacity = {.slots = 4, .context = 128, .max_batch_tokens = 32},
                         .vocab = 24,
                         .max_logits = 16};
  double loss = 0;
  size_t kv_chunks = 0;
  size_t window = 0;
};

struct Result {
  std::vector<Outcome> outcomes;
  uint64_t steps = 0, decode_rows = 0;
};

Result RunOn(const Machine& machine, const std::vector<Wish>& wishes) {
  VirtualClock clock;
  HostileEngine engine(machine.limits, clock, machine.loss, 3, machine.kv_chunks, std::nullopt,
                       machine.window);
  Scheduler scheduler(engine, {.clock = &clock});
  TestIntake intake(wishes);
  scheduler.Run(intake);
  return {intake.outcomes, scheduler.status().steps, scheduler.status().decode_rows};
}

std::vector<Wish> SomeWishes(size_t count) {
  std::mt19937 random(5);
  std::vector<Wish> wishes;
  for (size_t i = 0; i < count; ++i) {
    Wish wish{.most = 5 + random() % 60, .seed = i % 3 == 0 ? 0 : static_cast<uint32_t>(i)};
    for (size_t k = 1 + random() % 40; k > 0; --k)
      wish.prompt.push_back(static_cast<int32_t>(random() % 24));
    wish.arrives = random() % 30;
    wish.late = i % 5 == 0 ? 3 : 0;
    wishes.push_back(wish);
  }
  return wishes;
}

void ExpectSameTexts(const Result& with, const Result& without) {
  for (size_t i = 0; i < without.outcomes.size(); ++i) {
    EXPECT_EQ(with.outcomes[i].tokens, without.outcomes[i].tokens) << "sequence " << i;
    EXPECT_EQ(with.outcomes[i].end, without.outcomes[i].end) << "sequence " << i;
  }
}

TEST(SchedulerDrafts, RightOnesComeInOneStep) {
  const Machine machine;
  std::vector<Wish> wishes = {{.prompt = {1, 2, 3}, .most = 41}};
  const Result alone = RunOn(machine, wishes);
  ASSERT_EQ(alone.outcomes[0].tokens.size(), 41u);
  wishes[0].draft = &alone.outcomes[0].tokens;
  const Result drafted = RunOn(machine, wishes);
  ExpectSameTexts(drafted, alone);
  EXPECT_EQ(alone.steps, 41u);   // one for the prompt, whose logits choose the first token
  EXPECT_EQ(drafted.steps, 9u);  // 5 of the other 40 tokens in each step
  EXPECT_EQ(drafted.decode_rows, 40u);
}

TEST(SchedulerDrafts, WrongOnesChangeNothing) {
  std::vector<Machine> machines(5);
  machines[1].limits.capacity.max_in_flight = 3;
  machines[1].limits.max_logits = 3;  // fewer rows than slots could draft
  machines[2].loss = 0.02;
  machines[3].kv_chunks = 12;  // of 32 that the slots could take: sequences are parked
  machines[4].window = 5;      // what is cut off with a wrong draft must not be missed
  for (const Machine& machine : machines) {
    const std::vector<Wish> wishes = SomeWishes(40);
    const Result alone = RunOn(machine, wishes);
    for (const size_t wrong_every : {1, 2, 5}) {
      std::vector<Wish> drafting = wishes;
      for (size_t i = 0; i < wishes.size(); ++i) {
        if (i % 4 == 1) continue;
        drafting[i].draft = &alone.outcomes[i].tokens;
        drafting[i].most_drafts = 1 + i % 6;
        drafting[i].wrong_every = wrong_every;
      }
      const Result drafted = RunOn(machine, drafting);
      ExpectSameTexts(drafted, alone);
      size_t drafts = 0;
      for (const Outcome& outcome : drafted.outcomes) drafts += outcome.drafts;
      EXPECT_GT(drafts, 40u);
    }
  }
}

// A draft never takes a row that another sequence needs for its next token.
TEST(SchedulerDrafts, EachSequenceHasItsRowBeforeOthersHaveMore) {
  Machine machine;
  machine.limits.max_logits = 4;
  const std::vector<int32_t> text(60, 1);
  std::vector<Wish> wishes;
  for (uint32_t i = 0; i < 4; ++i) wishes.push_back({.prompt = {1, 2}, .most = 50, .seed = i + 1});
  const Result alone = RunOn(machine, wishes);
  for (Wish& wish : wishes) wish.draft = &text;
  const Result drafted = RunOn(machine, wishes);
  ExpectSameTexts(drafted, alone);
  EXPECT_LE(drafted.steps, alone.steps);
}

}  // namespace
}  // namespace larder::pipeline::scheduler
