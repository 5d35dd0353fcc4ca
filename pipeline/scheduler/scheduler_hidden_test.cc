// Sequences that want hidden states instead of tokens, over an engine of numbers: each position's
// own state, in order, whatever the KV cache had, other sequences do and the chain loses.
#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <random>
#include <vector>

#include "pipeline/scheduler/hostile_engine_testing.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

struct Request {
  std::vector<int32_t> prompt;
  Wanted wanted = Wanted::kHiddenOfAll;
  std::vector<std::vector<float>> states;  // since the last admission
  size_t first = 0, reused = 0;            // position of states[0]
  std::optional<SequenceEnd> end;
};

class HiddenSequence : public Sequence {
 public:
  explicit HiddenSequence(Request& request) : request_(request) {}
  std::span<const int32_t> prompt() const override { return request_.prompt; }
  bool cancelled() const override { return false; }
  Wanted wanted() const override { return request_.wanted; }
  void Admitted(size_t reused) override {
    request_.states.clear();
    request_.reused = reused;
  }
  std::optional<int32_t> Next(std::span<const float>) override {
    ADD_FAILURE() << "asked for a token";
    return std::nullopt;
  }
  void Hidden(size_t position, std::span<const float> state) override {
    if (request_.states.empty()) request_.first = position;
    EXPECT_EQ(position, request_.first + request_.states.size());
    request_.states.emplace_back(state.begin(), state.end());
  }
  void Ended(SequenceEnd end, const std::string& why) override {
    EXPECT_FALSE(request_.end) << why;
    request_.end = end;
  }

 private:
  Request& request_;
};

// Hands out the requests two at a time, and between them sequences that generate tokens.
class MixedIntake : public Intake {
 public:
  MixedIntake(std::vector<Request>& requests, std::vector<Wish>& wishes)
      : requests_(requests), wishes_(wishes), outcomes(wishes.size()) {}
  std::unique_ptr<Sequence> Take() override {
    if (taken_ >= 2 * (steps_ + 1)) return nullptr;
    ++taken_;
    if (text_ < wishes_.size() && taken_ % 3 == 0) {
      const size_t i = text_++;
      return std::make_unique<TestSequence>(wishes_[i], outcomes[i]);
    }
    if (next_ == requests_.size()) return nullptr;
    return std::make_unique<HiddenSequence>(requests_[next_++]);
  }
  void StepDone() override { ++steps_; }
  bool WaitForWork(int) override {
    ++steps_;
    return next_ < requests_.size() || text_ < wishes_.size();
  }

 private:
  std::vector<Request>& requests_;
  std::vector<Wish>& wishes_;
  size_t next_ = 0, text_ = 0, taken_ = 0, steps_ = 0;

 public:
  std::vector<Outcome> outcomes;
};

std::vector<float> StateOf(std::span<const int32_t> tokens, size_t vocab) {
  uint64_t state = 0;
  for (const int32_t token : tokens) state = HostileEngine::After(state, token);
  std::vector<float> logits(vocab);
  HostileEngine::LogitsOf(state, logits);
  logits.resize(4);
  return logits;
}

void Check(EngineLimits limits, double loss, size_t kv_chunks) {
  const size_t vocab = limits.vocab, context = limits.capacity.context;
  std::mt19937 random(7);
  std::vector<std::vector<int32_t>> beginnings(3);
  for (auto& beginning : beginnings)
    for (size_t i = 0; i < context / 2; ++i)
      beginning.push_back(static_cast<int32_t>(random() % vocab));
  std::vector<Request> requests(200);
  for (size_t i = 0; i < requests.size(); ++i) {
    Request& request = requests[i];
    request.wanted = i % 3 == 0 ? Wanted::kHiddenOfLast : Wanted::kHiddenOfAll;
    const auto& beginning = beginnings[random() % 3];
    const size_t length = 1 + random() % context;  // also a full context
    for (size_t k = 0; k < length; ++k)
      request.prompt.push_back(k < beginning.size() && i % 2 == 0
                                   ? beginning[k]
                                   : static_cast<int32_t>(random() % vocab));
  }
  std::vector<Wish> wishes(40);
  for (Wish& wish : wishes) wish.prompt = {beginnings[0][0], 2, 3};
  VirtualClock clock;
  HostileEngine engine(limits, clock, loss, 3, kv_chunks);
  Scheduler scheduler(engine, {.patience_ms = 1'000'000'000, .clock = &clock});
  MixedIntake intake(requests, wishes);
  scheduler.Run(intake);
  bool any_reused = false;
  for (const Request& request : requests) {
    if (loss > 0 && request.end == SequenceEnd::kUnavailable) continue;  // eight losses in a row
    ASSERT_EQ(request.end, SequenceEnd::kComplete);
    const std::span<const int32_t> prompt = request.prompt;
    const bool all = request.wanted == Wanted::kHiddenOfAll;
    ASSERT_EQ(request.states.size(), all ? prompt.size() : 1);
    ASSERT_EQ(request.first, all ? 0 : prompt.size() - 1);
    any_reused = any_reused || request.reused > 0;
    ASSERT_TRUE(!all || request.reused == 0);
    for (size_t k = 0; k < request.states.size(); ++k)
      ASSERT_EQ(request.states[k], StateOf(prompt.first(request.first + k + 1), vocab));
  }
  EXPECT_TRUE(any_reused);
  for (const Outcome& outcome : intake.outcomes) EXPECT_TRUE(outcome.end);
}

TEST(SchedulerHiddenTest, EachPositionGetsItsOwnState) {
  Check({.capacity = {.slots = 4, .context = 96, .max_batch_tokens = 32},
         .vocab = 50,
         .max_logits = 5},
        0, 0);
}

TEST(SchedulerHiddenTest, OverSocketsInFlightWithFewChunks) {
  Check({.capacity = {.slots = 4, .context = 96, .max_batch_tokens = 16, .max_in_flight = 3},
         .vocab = 50,
         .max_logits = 3,
         .attention_slot_ends = {SlotId(2), SlotId(4)}},
        0, 7);
}

TEST(SchedulerHiddenTest, BeginsAgainAfterALoss) {
  Check({.capacity = {.slots = 4, .context = 64, .max_batch_tokens = 32},
         .vocab = 50,
         .max_logits = 32,
         .can_be_lost = true},
        0.02, 0);
}

}  // namespace
}  // namespace larder::pipeline::scheduler
