// Tries every order of the operations of WaitUntil, Publish and EpochFlag on an x86, for each pair
// of policies: no thread sleeps for ever. The same search must find a thread that does when a part
// is missing.
#include "sync/wait_model.h"

#include <gtest/gtest.h>

#include <memory>

#include "sync/barrier.h"
#include "sync/epoch_flag.h"
#include "sync/wait_policies_testing.h"

namespace larder::sync {
namespace {

using Mode = WaitPolicy::Mode;
using Order = std::memory_order;

constexpr WaitPolicy kSpinThenSleep{Mode::kAdaptive, 1};
constexpr WaitPolicy kPolicies[] = {kSpin, kSleepAtOnce, kSpinThenSleep};

std::string Name(const WaitPolicy& policy) {
  return policy.mode == Mode::kSpin ? "spin"
                                    : "sleep after " + std::to_string(policy.spin_iterations);
}

// Called before the words of a search are made: they are numbered from 0.
template <Weakness kWeakness>
struct Words {
  Words() { ModelWord<kWeakness>::count = 0; }
};

// Two flags, and a word that the producer of the first flag writes (plainly) before it signals.
template <Weakness kWeakness = Weakness::kNone>
struct Flags : Words<kWeakness> {
  using Machine = ModelMachine<kWeakness>;
  BasicEpochFlag<Machine> there, back;
  ModelWord<kWeakness> data;
  static constexpr size_t kWords = 5;
};

// Signals epochs 1..epochs, told that the waiters wait as `waiters` says.
template <Weakness kWeakness>
ModelThread Signaller(Flags<kWeakness>& flags, Mode waiters, uint32_t epochs) {
  return {[&flags, waiters, epochs] {
            for (uint32_t epoch = 1; epoch <= epochs; ++epoch) {
              flags.data.store(epoch, Order::relaxed);
              flags.there.Signal(epoch, waiters);
            }
          },
          Mode::kAdaptive};
}
// Waits for each of the epochs, and checks that what was written before is visible.
template <Weakness kWeakness>
ModelThread Waiter(Flags<kWeakness>& flags, const WaitPolicy& policy,
                   std::vector<uint32_t> epochs) {
  return {[&flags, policy, epochs] {
            for (const uint32_t epoch : epochs) {
              flags.there.Wait(epoch, policy);
              ModelRequire(flags.data.load(Order::relaxed) >= epoch);
            }
          },
          policy.mode};
}

template <Weakness kWeakness = Weakness::kNone>
ModelResult OneWaiter(const WaitPolicy& policy, Mode told, const std::vector<uint32_t>& epochs,
                      uint32_t spurious = 0) {
  Flags<kWeakness> flags;
  return ModelSearch({Signaller(flags, told, epochs.back()), Waiter(flags, policy, epochs)},
                     flags.kWords, spurious)
      .Run();
}

TEST(WaitModel, OneWaiterWakesIfTheSignallerKnowsHowItWaits) {
  for (const WaitPolicy& policy : kPolicies) {
    for (const Mode told : {Mode::kSpin, Mode::kAdaptive}) {
      const bool may_sleep_unknown = policy.mode == Mode::kAdaptive && told == Mode::kSpin;
      const ModelResult result = OneWaiter(policy, told, {1});
      EXPECT_EQ(result.stuck != "", may_sleep_unknown) << Name(policy) << result.stuck;
      EXPECT_GT(result.states, 10u);
    }
  }
}

TEST(WaitModel, SeveralSignalsInARow) {
  for (const WaitPolicy& policy : kPolicies) {
    for (const std::vector<uint32_t>& epochs : {std::vector<uint32_t>{1, 2, 3}, {3}}) {
      const ModelResult result = OneWaiter(policy, Mode::kAdaptive, epochs, 1);
      EXPECT_EQ(result.stuck, "") << Name(policy);
      EXPECT_GT(result.ends, 0u);
    }
  }
}

TEST(WaitModel, SpuriousWakesDoNoHarmAndAreNotReliedOn) {
  EXPECT_EQ(OneWaiter(kSleepAtOnce, Mode::kAdaptive, {1, 2}, 3).stuck, "");
  EXPECT_NE(OneWaiter(kSleepAtOnce, Mode::kSpin, {1}, 3).stuck, "");
}

TEST(WaitModel, TwoWaiters) {
  for (const WaitPolicy& one : kPolicies) {
    for (const WaitPolicy& other : {kSpin, kSleepAtOnce}) {
      Flags<> flags;
      const ModelResult result =
          ModelSearch({Signaller(flags, Mode::kAdaptive, 2), Waiter(flags, one, {1, 2}),
                       Waiter(flags, other, {2})},
                      flags.kWords)
              .Run();
      EXPECT_EQ(result.stuck, "") << Name(one) << ", " << Name(other);
    }
  }
}

// A weight and an attention socket: each signals the other and waits for it. The policy that counts
// is the waiter's. If each signalled by its own policy, a spinning socket would never wake a
// sleeping one.
TEST(WaitModel, TwoSidesOfTwoPoliciesSignalAsTheOtherWaits) {
  const auto run = [](const WaitPolicy& a, const WaitPolicy& b, Mode told_a, Mode told_b) {
    Flags<> flags;
    constexpr uint32_t kRounds = 2;
    return ModelSearch({{[&] {
                           for (uint32_t epoch = 1; epoch <= kRounds; ++epoch) {
                             flags.there.Signal(epoch, told_a);
                             flags.back.Wait(epoch, a);
                           }
                         },
                         a.mode},
                        {[&] {
                           for (uint32_t epoch = 1; epoch <= kRounds; ++epoch) {
                             flags.there.Wait(epoch, b);
                             flags.back.Signal(epoch, told_b);
                           }
                         },
                         b.mode}},
                       flags.kWords)
        .Run();
  };
  for (const WaitPolicy& a : kPolicies) {
    for (const WaitPolicy& b : kPolicies) {
      EXPECT_EQ(run(a, b, b.mode, a.mode).stuck, "") << Name(a) << ", " << Name(b);
      EXPECT_EQ(run(a, b, a.mode, b.mode).stuck != "", a.mode != b.mode)
          << Name(a) << ", " << Name(b);
    }
  }
}

// rdma::ShmLink::Fail: the fault is raised, then a monitor's thread moves a counter that its owner
// may be moving too. The waiter reads the fault after the counter; nothing else orders the two.
TEST(WaitModel, AFaultEndsTheWaitForACounterThatMayMove) {
  constexpr uint32_t kMoved = 0x8000'0000u;
  for (const WaitPolicy& policy : {kSpin, kSleepAtOnce}) {
    for (const uint32_t position : {0u, 1u}) {  // 1: has already had the frame that may come
      for (const bool moves : {false, true}) {
        const Words<Weakness::kNone> from_0;
        ModelWord<Weakness::kNone> sent, sleepers, fault;
        const ModelThread sender = {[&] {
                                      if (moves) Publish<ModelMachine<>>(sent, sleepers, 1);
                                    },
                                    Mode::kAdaptive};
        const ModelThread monitor = {[&] {
                                       fault.exchange(1, Order::release);
                                       Publish<ModelMachine<>>(sent, sleepers,
                                                               sent.load(Order::relaxed) ^ kMoved);
                                     },
                                     Mode::kAdaptive};
        const ModelThread waiter = {
            [&] {
              WaitUntil<ModelMachine<>>(sent, sleepers, policy, [&](uint32_t value) {
                return value != position || fault.load(Order::relaxed) != 0;
              });
            },
            policy.mode};
        EXPECT_EQ(ModelSearch({sender, monitor, waiter}, 3, 1).Run().stuck, "")
            << Name(policy) << ", position " << position << (moves ? ", a sender" : "");
      }
    }
  }
}

// All levels of the barrier: two packages, one with two groups, of which one has two threads. Each
// thread writes its word before it meets the others; afterwards it sees all of them.
template <typename Meet>
ModelResult SearchOfBarrier(const BarrierShape& shape, const WaitPolicy& policy, Meet meet) {
  std::vector<ModelThread> threads;
  for (size_t t = 0; t < shape.seats.size(); ++t) {
    threads.push_back({[&shape, policy, t, meet] {
                         // A thread is replayed from its start, so it makes the barrier anew; its
                         // words are the others' by their numbers.
                         const Words<Weakness::kNone> from_0;
                         BasicTreeBarrier<ModelMachine<>> barrier(shape, policy);
                         std::vector<std::unique_ptr<ModelWord<Weakness::kNone>>> data;
                         for (size_t i = 0; i < shape.seats.size(); ++i)
                           data.push_back(std::make_unique<ModelWord<Weakness::kNone>>());
                         data[t]->store(1, Order::relaxed);
                         if (meet(t)) barrier.Wait(static_cast<int>(t));
                         for (const auto& word : data)
                           ModelRequire(word->load(Order::relaxed) == 1);
                       },
                       policy.mode});
  }
  return ModelSearch(threads, 2 * shape.flags + shape.seats.size()).Run();
}

TEST(WaitModel, TheBarriersThreeLevels) {
  const std::vector<int> groups = {0, 1, 2}, packages = {0, 1, 1};
  const std::vector<int> pair = {0, 1, 1}, apart = {0, 1, 1};
  for (const WaitPolicy& policy : {kSpin, kSleepAtOnce}) {
    EXPECT_EQ(
        SearchOfBarrier(BarrierShape::Of(groups, packages), policy, [](size_t) { return true; })
            .stuck,
        "")
        << Name(policy);
    EXPECT_EQ(
        SearchOfBarrier(BarrierShape::Of(pair, apart), policy, [](size_t) { return true; }).stuck,
        "")
        << Name(policy);
  }
}

// ---- Planted faults, which the search must find.

TEST(WaitModelFinds, AThreadThatPassesTheBarrier) {
  const std::vector<int> groups = {0, 1, 2}, packages = {0, 1, 1};
  EXPECT_NE(
      SearchOfBarrier(BarrierShape::Of(groups, packages), kSpin, [](size_t t) { return t != 2; })
          .stuck,
      "");
}

// A level that lets its threads go on before the others have come.
TEST(WaitModelFinds, ALevelThatWaitsForNobody) {
  const std::vector<int> groups = {0, 1, 2}, packages = {0, 1, 1};
  for (size_t t : {0, 1}) {
    BarrierShape shape = BarrierShape::Of(groups, packages);
    shape.seats[t].fan_in.clear();
    EXPECT_NE(SearchOfBarrier(shape, kSpin, [](size_t) { return true; }).stuck, "") << t;
  }
}

TEST(WaitModelFinds, AStoreWithoutAFence) {
  EXPECT_EQ(OneWaiter(kSleepAtOnce, Mode::kAdaptive, {1}).stuck, "");
  const std::string stuck =
      OneWaiter<Weakness::kBufferedStore>(kSleepAtOnce, Mode::kAdaptive, {1}).stuck;
  EXPECT_NE(stuck.find("stores into its buffer"), std::string::npos) << stuck;
  EXPECT_NE(stuck.find("sleeps on"), std::string::npos) << stuck;
  EXPECT_EQ(OneWaiter<Weakness::kBufferedStore>(kSpin, Mode::kAdaptive, {1}).stuck, "")
      << "a spinner needs none";
}

TEST(WaitModelFinds, ASleepThatDoesNotCompare) {
  EXPECT_NE(OneWaiter<Weakness::kSleepWithoutComparing>(kSleepAtOnce, Mode::kAdaptive, {1}).stuck,
            "");
}

TEST(WaitModelFinds, ASignallerThatLooksForSleepersFirst) {
  const Words<Weakness::kNone> from_0;
  ModelWord<Weakness::kNone> word, sleepers;
  const ModelThread signaller = {[&] {
                                   const bool asleep = sleepers.load(Order::seq_cst) != 0;
                                   word.store(1, Order::seq_cst);
                                   if (asleep) ModelMachine<>::WakeAll(word);
                                 },
                                 Mode::kAdaptive};
  const ModelThread waiter = {[&] {
                                WaitUntil<ModelMachine<>>(
                                    word, sleepers, kSleepAtOnce,
                                    [](uint32_t value) { return value == 1; });
                              },
                              Mode::kAdaptive};
  EXPECT_NE(ModelSearch({signaller, waiter}, 2).Run().stuck, "");
}

TEST(WaitModelFinds, AWaiterThatDoesNotRegister) {
  const Words<Weakness::kNone> from_0;
  ModelWord<Weakness::kNone> word, sleepers;
  const ModelThread signaller = {[&] { Publish<ModelMachine<>>(word, sleepers, 1); },
                                 Mode::kAdaptive};
  const ModelThread waiter = {[&] {
                                for (uint32_t seen = 0; (seen = word.load(Order::seq_cst)) != 1;)
                                  ModelMachine<>::Sleep(word, seen);
                              },
                              Mode::kAdaptive};
  EXPECT_NE(ModelSearch({signaller, waiter}, 2).Run().stuck, "");
}

// A plain write must be visible when the flag is. Here it is done after the signal, which must be
// found.
TEST(WaitModelFinds, DataThatComesAfterItsFlag) {
  Flags<> flags;
  const ModelThread signaller = {[&] {
                                   flags.there.Signal(1);
                                   flags.data.store(1, Order::relaxed);
                                 },
                                 Mode::kAdaptive};
  EXPECT_NE(ModelSearch({signaller, Waiter(flags, kSpin, {1})}, flags.kWords).Run().stuck, "");
}

}  // namespace
}  // namespace larder::sync
