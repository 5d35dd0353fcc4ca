// Sequences that want the logits of their prompts, over an engine of numbers: each position's own,
// once, whatever the KV cache had, other sequences do and the chain loses; and the tokens that they
// get without.
#include <gtest/gtest.h>

#include <memory>
#include <mutex>
#include <random>
#include <vector>

#include "pipeline/scheduler/hostile_engine_testing.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

struct Scored {
  Wish wish;
  bool plain = false;                      // it wants tokens only
  std::vector<std::vector<float>> logits;  // [position]; empty: they have not come
  Outcome outcome;
};

class ScoredSequence : public TestSequence {
 public:
  explicit ScoredSequence(Scored& scored)
      : TestSequence(scored.wish, scored.outcome), scored_(scored) {
    scored_.logits.resize(scored.wish.prompt.size());
  }
  Wanted wanted() const override { return Wanted::kPromptLogits; }
  void PromptLogits(size_t position, std::span<const float> logits) override {
    ASSERT_LT(position + 1, scored_.logits.size());
    EXPECT_TRUE(scored_.logits[position].empty()) << "position " << position << " came twice";
    EXPECT_TRUE(scored_.outcome.tokens.empty()) << "after the first token";
    scored_.logits[position].assign(logits.begin(), logits.end());
  }

 private:
  Scored& scored_;
};

// Hands out two at a time.
class ScoredIntake : public Intake {
 public:
  explicit ScoredIntake(std::vector<Scored>& all) : all_(all) {}
  std::unique_ptr<Sequence> Take() override {
    if (next_ >= 2 * (steps_ + 1) || next_ == all_.size()) return nullptr;
    Scored& one = all_[next_++];
    if (one.plain) return std::make_unique<TestSequence>(one.wish, one.outcome);
    return std::make_unique<ScoredSequence>(one);
  }
  void StepDone() override { ++steps_; }
  bool WaitForWork(int) override {
    ++steps_;
    return next_ < all_.size();
  }

 private:
  std::vector<Scored>& all_;
  size_t next_ = 0, steps_ = 0;
};

std::vector<float> LogitsAfter(std::span<const int32_t> tokens, size_t vocab) {
  uint64_t state = 0;
  for (const int32_t token : tokens) state = HostileEngine::After(state, token);
  std::vector<float> logits(vocab);
  HostileEngine::LogitsOf(state, logits);
  return logits;
}

std::vector<int32_t> Likeliest(std::vector<int32_t> tokens, size_t count, size_t vocab) {
  const size_t prompt = tokens.size();
  for (size_t i = 0; i < count; ++i) {
    const std::vector<float> logits = LogitsAfter(tokens, vocab);
    tokens.push_back(
        static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
  }
  return {tokens.begin() + static_cast<std::ptrdiff_t>(prompt), tokens.end()};
}

void CheckScores(const EngineLimits& limits, double loss, size_t kv_chunks, size_t count = 200,
                 bool backgrounds = false) {
  const size_t vocab = limits.vocab, context = limits.capacity.context;
  std::mt19937 random(11);
  std::vector<int32_t> beginning;
  for (size_t i = 0; i < context / 2; ++i)
    beginning.push_back(static_cast<int32_t>(random() % vocab));
  std::vector<Scored> all(count);
  for (size_t i = 0; i < all.size(); ++i) {
    Wish& wish = all[i].wish;
    all[i].plain = i % 3 == 2;
    wish.most = 1 + random() % 6;
    wish.background = backgrounds && i % 4 == 0;
    wish.late = i % 5 == 0 ? 2 : 0;
    const size_t length = 1 + random() % (context - wish.most);
    for (size_t k = 0; k < length; ++k)
      wish.prompt.push_back(k < beginning.size() && i % 2 == 0
                                ? beginning[k]
                                : static_cast<int32_t>(random() % vocab));
  }
  VirtualClock clock;
  HostileEngine engine(limits, clock, loss, 3, kv_chunks);
  Scheduler scheduler(engine, {.patience_ms = 1'000'000'000, .clock = &clock});
  ScoredIntake intake(all);
  scheduler.Run(intake);
  size_t again = 0;
  for (const Scored& one : all) {
    if (loss > 0 && one.outcome.end == SequenceEnd::kUnavailable) continue;
    ASSERT_EQ(one.outcome.end, SequenceEnd::kComplete);
    ASSERT_EQ(one.outcome.tokens, Likeliest(one.wish.prompt, one.wish.most, vocab));
    again += one.outcome.admissions > 1;
    for (size_t k = 0; k + 1 < one.logits.size(); ++k)
      ASSERT_EQ(one.logits[k], LogitsAfter(std::span(one.wish.prompt).first(k + 1), vocab))
          << "position " << k << " of " << one.wish.prompt.size();
  }
  EXPECT_GT(again, 0u) << "none began again";
}

TEST(SchedulerPromptLogitsTest, EachPositionComesOnce) {
  CheckScores({.capacity = {.slots = 4, .context = 96, .max_batch_tokens = 32},
               .vocab = 50,
               .max_logits = 5},
              0, 0);
}

TEST(SchedulerPromptLogitsTest, OnAllThreadsOfALargeVocabulary) {
  CheckScores({.capacity = {.slots = 4, .context = 64, .max_batch_tokens = 32},
               .vocab = 40'000,
               .max_logits = 32},
              0, 0, 30);
}

TEST(SchedulerPromptLogitsTest, OverSocketsInFlightWithFewChunks) {
  CheckScores({.capacity = {.slots = 4, .context = 96, .max_batch_tokens = 16, .max_in_flight = 3},
               .vocab = 50,
               .max_logits = 3,
               .attention_slot_ends = {SlotId(2), SlotId(4)}},
              0, 14);
}

TEST(SchedulerPromptLogitsTest, GoesOnAfterALoss) {
  CheckScores({.capacity = {.slots = 4, .context = 64, .max_batch_tokens = 32, .max_in_flight = 2},
               .vocab = 50,
               .max_logits = 32,
               .can_be_lost = true},
              0.02, 0);
}

TEST(SchedulerPromptLogitsTest, GoesOnAfterItMadeWay) {
  CheckScores({.capacity = {.slots = 2, .context = 96, .max_batch_tokens = 16},
               .vocab = 50,
               .max_logits = 16},
              0, 0, 200,
              /*backgrounds=*/true);
}

// A sequence that decodes is kept waiting no longer by a prompt whose logits take much longer than
// its rows: soon the rows of a step are as many as the stall allows.
TEST(SchedulerPromptLogitsTest, TheStallCountsWhatLogitsTake) {
  const EngineLimits limits{.capacity = {.slots = 2, .context = 4096, .max_batch_tokens = 256},
                            .vocab = 50,
                            .max_logits = 256};
  VirtualClock clock;
  HostileEngine engine(limits, clock, 0, 3);
  engine.logit_row_ns = 4'000;  // beside 2,000 of the row itself
  Scheduler scheduler(engine, {.policy = {.max_stall_ms = 0.4}, .clock = &clock});
  // Learns what a row takes, first without logits, then with them.
  for (const bool plain : {true, false}) {
    std::vector<Scored> warm(1);
    warm[0].wish = {.prompt = std::vector<int32_t>(3000, plain), .most = 1};
    warm[0].plain = plain;
    ScoredIntake intake(warm);
    scheduler.Run(intake);
  }
  engine.longest_step_ns = 0;
  std::vector<Scored> two(2);
  two[0].wish = {.prompt = std::vector<int32_t>(3000, 9), .most = 1};
  two[1].wish = {.prompt = {1, 2}, .most = 200};
  ScoredIntake intake(two);
  scheduler.Run(intake);
  EXPECT_LT(engine.longest_step_ns, 600'000u);
  EXPECT_GT(engine.longest_step_ns, 250'000u) << "and it uses what the stall leaves";
}

}  // namespace
}  // namespace larder::pipeline::scheduler
