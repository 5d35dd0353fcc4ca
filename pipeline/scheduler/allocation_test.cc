// A step does not allocate, neither in the engine nor in the scheduler, whether colocated,
// separated or a chain. Allocations are counted on the thread that drives the engine, by this
// program's own operator new.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <new>

#include "base/sanitized_testing.h"
#include "pipeline/engine/chain_testing.h"
#include "pipeline/scheduler/scheduler.h"
#include "pipeline/scheduler/scheduler_testing.h"

namespace {
thread_local uint64_t allocations = 0;
}  // namespace

#if !LARDER_SANITIZED  // their operators find what ours would hide
// The nothrow form, which std::stable_sort uses, calls this one. Inlined, GCC takes their malloc
// and free for ones that do not belong together.
[[gnu::noinline]] void* operator new(size_t bytes) {
  ++allocations;
  if (void* memory = std::malloc(bytes != 0 ? bytes : 1)) return memory;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif

namespace larder::pipeline::inline scheduler {
namespace {

TEST(Allocation, IsCounted) {
  if (LARDER_SANITIZED) GTEST_SKIP() << "sanitizers count allocations themselves";
  const uint64_t before = allocations;
  std::vector<int> numbers = {3, 1, 2};
  EXPECT_EQ(allocations - before, 1u);
  std::stable_sort(numbers.begin(), numbers.end());
  EXPECT_GT(allocations - before, 1u);
}

// Runs prompts of kSlots sequences, then `steps` steps of one row each; returns the steps'
// allocations.
uint64_t AllocationsOfSteps(Engine& engine, uint32_t steps) {
  std::vector<TokenRow> rows;
  for (SlotId slot(0); slot.index() < kSlots; ++slot) {
    rows.clear();
    for (uint32_t position = 0; position < 9; ++position)
      rows.push_back({1, slot, position, position == 8});
    engine.Run(rows);
  }
  const uint64_t before = allocations;
  for (uint32_t step = 0; step < steps; ++step) {
    rows.clear();
    for (SlotId slot(0); slot.index() < kSlots; ++slot) rows.push_back({2, slot, 9 + step, true});
    engine.Submit(rows);
    engine.Collect();
  }
  return allocations - before;
}

TEST(Allocation, AStepOfTheEngineMakesNone) {
  if (LARDER_SANITIZED) GTEST_SKIP() << "sanitizers count allocations themselves";
  const TestModel model(FourLayers());
  {
    TestEngineOptions options;
    options.threads = 2;
    options.slots = kSlots;
    EXPECT_EQ(AllocationsOfSteps(*MakeEngine(model.file(), options), 40), 0u) << "colocated";
  }
  {
    TestEngineOptions options;
    options.attention = {{1, 1}, {1, 2}};
    EXPECT_EQ(AllocationsOfSteps(*MakeEngine(model.file(), options), 40), 0u) << "separated";
  }
  const TestChain chain = MakeTestChain(*model.file(), {{2}, {2}}, kSlots, 2);
  EXPECT_EQ(AllocationsOfSteps(*MakeChainEngine(model.file(), chain), 40), 0u) << "chain";
}

// Counts the allocations between its own calls, which do not allocate.
class CountingSequence : public Sequence {
 public:
  CountingSequence(size_t most, uint64_t& in_steps) : most_(most), in_steps_(in_steps) {}
  std::span<const int32_t> prompt() const override { return prompt_; }
  bool cancelled() const override { return false; }
  void Admitted(size_t) override {}
  std::optional<int32_t> Next(std::span<const float>) override {
    if (taken_ > 2)
      in_steps_ += allocations - before_;  // after admission and the first micro-batches
    before_ = allocations;
    if (++taken_ == most_) return std::nullopt;
    return 3;
  }
  void Ended(SequenceEnd, const std::string&) override {}

 private:
  const std::vector<int32_t> prompt_ = {1, 2, 3, 4, 5};
  const size_t most_;
  uint64_t& in_steps_;
  size_t taken_ = 0;
  uint64_t before_ = 0;
};

class CountingIntake : public Intake {
 public:
  std::unique_ptr<Sequence> Take() override {
    if (handed_ == kSlots) return nullptr;
    ++handed_;
    return std::make_unique<CountingSequence>(200, in_steps);
  }
  void StepDone() override {}
  bool WaitForWork(int) override { return false; }
  uint64_t in_steps = 0;

 private:
  size_t handed_ = 0;
};

TEST(Allocation, AStepOfTheSchedulerMakesNone) {
  if (LARDER_SANITIZED) GTEST_SKIP() << "sanitizers count allocations themselves";
  const TestModel model(FourLayers());
  TestEngineOptions options;
  options.slots = kSlots;
  const auto engine = MakeEngine(model.file(), options);
  Scheduler scheduler(*engine, {});
  CountingIntake intake;
  scheduler.Run(intake);
  EXPECT_GT(scheduler.status().decode_rows.load(), 500u);
  EXPECT_EQ(intake.in_steps, 0u);
}

}  // namespace
}  // namespace larder::pipeline::scheduler
