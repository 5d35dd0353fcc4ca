// A chain that is lost while sequences run: each goes on where it was once the chain is whole
// again, with the tokens that it gets alone; none waits for ever.
#include <gtest/gtest.h>

#include <functional>
#include <thread>

#include "base/clock.h"
#include "pipeline/engine/chain_process_testing.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace larder::pipeline::inline scheduler {
namespace {

constexpr double kLongS = 40;  // only a hang takes so long

// Calls `between` after each step and while there is nothing to do; ends when it returns false. As
// in a server, sequences are there from the beginning or are added later.
class LiveIntake : public Intake {
 public:
  explicit LiveIntake(std::function<bool()> between) : between_(std::move(between)) {}
  void Add(const Wish& wish, Outcome& outcome) {
    waiting_.push_back(std::make_unique<TestSequence>(wish, outcome));
  }
  std::unique_ptr<Sequence> Take() override {
    if (waiting_.empty()) return nullptr;
    auto first = std::move(waiting_.front());
    waiting_.pop_front();
    return first;
  }
  void StepDone() override {
    if (!ended_) ended_ = !between_();
    if (SecondsSince(start_ns_) > kLongS && !ended_) {
      ADD_FAILURE() << "still running after " << kLongS << " s";
      ended_ = true;
    }
  }
  bool WaitForWork(int most_ms) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(most_ms));
    return !ended_ || !waiting_.empty();
  }

 private:
  std::function<bool()> between_;
  std::deque<std::unique_ptr<Sequence>> waiting_;
  const int64_t start_ns_ = NowNs();
  bool ended_ = false;
};

class SchedulerLostTest : public testing::TestWithParam<rdma::Transport> {
 protected:
  SchedulerLostTest()
      : model_(FourLayers()),
        stages_(model_, kSlots, GetParam()),
        alone_(MakeEngine(model_.file(), {})) {}

  std::vector<int32_t> Alone(const Wish& wish) {
    Scheduler scheduler(*alone_, {.reuse_prefixes = false});
    std::vector<Wish> wishes = {wish};
    TestIntake intake(wishes);
    scheduler.Run(intake);
    return intake.outcomes[0].tokens;
  }
  static Wish Asks(uint32_t seed, size_t most, size_t prompt = 25) {
    return {.prompt = TestTokens(prompt, kVocab, 50 + seed), .most = most, .seed = seed};
  }
  static void ExpectIdle(const Scheduler& scheduler, const Engine& engine) {
    // Lost frames count as finished; otherwise a watchdog would report the engine as hung.
    EXPECT_EQ(engine.status().frames_started.load(), engine.status().frames_finished.load());
    EXPECT_GT(engine.status().frames_started.load(), 0u);
    for (const SlotStatus& slot : scheduler.slots())
      EXPECT_EQ(slot.state.load(), SlotStatus::kIdle);
    EXPECT_EQ(scheduler.status().waiting.load(), 0u);
  }
  // Expects the tokens to be a prefix of those that the sequence gets alone.
  void ExpectBeginning(const Outcome& outcome, const Wish& wish) {
    std::vector<int32_t> expected = Alone(wish);
    ASSERT_LE(outcome.tokens.size(), expected.size());
    expected.resize(outcome.tokens.size());
    EXPECT_EQ(outcome.tokens, expected);
  }

  TestModel model_;
  StageProcesses stages_;
  std::unique_ptr<Engine> alone_;
};

TEST_P(SchedulerLostTest, AllGoOnWhereTheyWere) {
  for (const size_t victim : {1, 0}) {
    const auto engine = stages_.Connect();
    Scheduler scheduler(*engine, {.patience_ms = 30'000});
    // Three have slots; two wait behind them and have no tokens when the stage is killed.
    std::vector<Wish> wishes = {Asks(1, 200), Asks(2, 120), Asks(0, 150),
                                Asks(3, 8),   Asks(4, 8),   Asks(5, 8)};
    size_t had[3] = {};
    std::vector<Outcome> outcomes(wishes.size());
    bool killed = false, back = false;
    LiveIntake intake([&] {
      if (!killed && outcomes[0].tokens.size() >= 10 && outcomes[2].tokens.size() >= 10) {
        stages_.Kill(victim);
        killed = true;
      } else if (killed && !back && scheduler.outage()) {
        EXPECT_FALSE(scheduler.outage()->refusing);
        for (size_t i = 0; i < 3; ++i) {
          EXPECT_FALSE(outcomes[i].end) << outcomes[i].why;
          had[i] = outcomes[i].tokens.size();
        }
        stages_.Start(victim);
        back = true;
        intake.Add(wishes[5], outcomes[5]);  // arrives while the stage is gone
      }
      return !std::all_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.end; });
    });
    for (size_t i = 0; i < 5; ++i) intake.Add(wishes[i], outcomes[i]);
    scheduler.Run(intake);
    EXPECT_TRUE(back);
    for (size_t i = 0; i < 3; ++i) {
      EXPECT_GE(had[i], 10u);
      EXPECT_EQ(outcomes[i].admissions, 1);
    }
    for (size_t i = 0; i < outcomes.size(); ++i) {
      EXPECT_EQ(outcomes[i].end, SequenceEnd::kComplete) << outcomes[i].why;
      EXPECT_EQ(outcomes[i].tokens, Alone(wishes[i]))
          << "request " << i << " after stage " << victim;
    }
    EXPECT_EQ(scheduler.status().lost.load(), 1u);
    EXPECT_EQ(scheduler.status().parked.load(), 3u);
    // A token that was about to be submitted is not in the KV cache yet.
    const size_t made = 3 * 25 + had[0] + had[1] + had[2];
    EXPECT_LE(scheduler.status().recomputed_tokens.load(), made);
    EXPECT_GE(scheduler.status().recomputed_tokens.load() + 3, made);
    EXPECT_FALSE(scheduler.outage());
    ExpectIdle(scheduler, *engine);
  }
}

TEST_P(SchedulerLostTest, APromptThatWasUnderWayBeginsAnew) {
  const auto engine = stages_.Connect();
  Scheduler scheduler(*engine, {.patience_ms = 30'000});
  const Wish wish = Asks(7, 6, 700);  // a dozen frames before its first token
  Outcome outcome;
  bool killed = false;
  LiveIntake intake([&] {
    if (!killed && scheduler.slots()[0].cached_tokens.load() +
                           scheduler.slots()[1].cached_tokens.load() +
                           scheduler.slots()[2].cached_tokens.load() >=
                       200) {
      EXPECT_TRUE(outcome.tokens.empty());
      stages_.Kill(0);
      stages_.Start(0);
      killed = true;
    }
    return !outcome.end;
  });
  intake.Add(wish, outcome);
  scheduler.Run(intake);
  EXPECT_TRUE(killed);
  EXPECT_EQ(outcome.end, SequenceEnd::kComplete) << outcome.why;
  EXPECT_EQ(outcome.admissions, 2);
  EXPECT_EQ(outcome.reused, 0u);
  EXPECT_EQ(outcome.tokens, Alone(wish));
  ExpectIdle(scheduler, *engine);
}

TEST_P(SchedulerLostTest, WhoComesWhileAStageIsAwayIsRefusedAfterAWhile) {
  const auto engine = stages_.Connect();
  Scheduler scheduler(*engine, {.patience_ms = 3000});
  const Wish early = Asks(1, 5), late = Asks(2, 5), after = Asks(3, 5);
  Outcome of_early, of_late, of_after;
  int64_t killed_ns = 0, refused_ns = 0;
  bool back = false, asked = false, asked_again = false;
  LiveIntake intake([&] {
    if (killed_ns == 0) {  // without any request: the loss must still be noticed
      stages_.Kill(1);
      killed_ns = NowNs();
    } else if (scheduler.outage() && !asked) {
      intake.Add(early, of_early);
      asked = true;
    } else if (of_early.end && refused_ns == 0) {
      refused_ns = NowNs();
      EXPECT_TRUE(scheduler.outage() && scheduler.outage()->refusing);
      intake.Add(late, of_late);
    } else if (of_late.end && !back) {
      stages_.Start(1);
      back = true;
    } else if (back && !scheduler.outage() && !asked_again) {  // the outage ends without requests
      intake.Add(after, of_after);
      asked_again = true;
    }
    return !of_after.end;
  });
  scheduler.Run(intake);
  for (const Outcome* refused : {&of_early, &of_late}) {
    EXPECT_EQ(refused->end, SequenceEnd::kUnavailable);
    EXPECT_TRUE(refused->tokens.empty());
    EXPECT_NE(refused->why.find(stages_.chain().stages[1].socket), std::string::npos)
        << refused->why;
  }
  EXPECT_GE(refused_ns - killed_ns, 3'000'000'000);
  EXPECT_LT(refused_ns - killed_ns, 10'000'000'000);  // patience, one attempt, and slack for a busy
                                                      // machine
  EXPECT_EQ(of_after.end, SequenceEnd::kComplete) << of_after.why;
  EXPECT_EQ(of_after.tokens, Alone(after));
  ExpectIdle(scheduler, *engine);
}

// A second loss while the tokens are computed again, with both kinds of sequences: with tokens and
// without.
TEST_P(SchedulerLostTest, ASecondLossWhileTheyAreComputedAgain) {
  const auto engine = stages_.Connect();
  Scheduler scheduler(*engine, {.patience_ms = 30'000});
  const std::vector<Wish> wishes = {Asks(1, 40, 500), Asks(2, 30, 300), Asks(3, 20, 400)};
  std::vector<Outcome> outcomes(wishes.size());
  int kills = 0;
  uint64_t rows = 0;
  LiveIntake intake([&] {
    const uint64_t prefilled = scheduler.status().prefill_rows.load();
    if (kills == 0 ? outcomes[0].tokens.size() >= 5 && outcomes[1].tokens.size() >= 5
                   : kills < 4 && prefilled > rows + 100) {
      stages_.Kill(static_cast<size_t>(kills % 2));
      stages_.Start(static_cast<size_t>(kills % 2));
      ++kills;
      rows = prefilled;
    }
    return !std::all_of(outcomes.begin(), outcomes.end(), [](const Outcome& o) { return o.end; });
  });
  for (size_t i = 0; i < wishes.size(); ++i) intake.Add(wishes[i], outcomes[i]);
  scheduler.Run(intake);
  EXPECT_EQ(kills, 4);
  for (size_t i = 0; i < wishes.size(); ++i) {
    EXPECT_EQ(outcomes[i].end, SequenceEnd::kComplete) << outcomes[i].why;
    EXPECT_EQ(outcomes[i].tokens, Alone(wishes[i])) << "request " << i;
  }
  ExpectIdle(scheduler, *engine);
}

TEST_P(SchedulerLostTest, RunningOnesEndWhenPatienceIsOver) {
  const auto engine = stages_.Connect();
  Scheduler scheduler(*engine, {.patience_ms = 1500});
  const std::vector<Wish> wishes = {Asks(1, 400), Asks(2, 400)};
  std::vector<Outcome> outcomes(wishes.size());
  int64_t killed_ns = 0;
  LiveIntake intake([&] {
    if (killed_ns == 0 && outcomes[0].tokens.size() >= 10 && outcomes[1].tokens.size() >= 10) {
      stages_.Kill(1);
      killed_ns = NowNs();
    }
    return !(outcomes[0].end && outcomes[1].end);
  });
  for (size_t i = 0; i < wishes.size(); ++i) intake.Add(wishes[i], outcomes[i]);
  scheduler.Run(intake);
  EXPECT_GE(NowNs() - killed_ns, 1'500'000'000);
  for (size_t i = 0; i < wishes.size(); ++i) {
    EXPECT_EQ(outcomes[i].end, SequenceEnd::kUnavailable);
    EXPECT_NE(outcomes[i].why.find(stages_.chain().stages[1].socket), std::string::npos)
        << outcomes[i].why;
    ExpectBeginning(outcomes[i], wishes[i]);
  }
  ExpectIdle(scheduler, *engine);
}

INSTANTIATE_TEST_SUITE_P(Links, SchedulerLostTest,
                         testing::Values(rdma::Transport::kSharedMemory, rdma::Transport::kTcp),
                         [](const auto& transport) {
                           return rdma::TransportName(transport.param);
                         });

}  // namespace
}  // namespace larder::pipeline::scheduler
