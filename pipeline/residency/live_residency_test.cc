// Estimates from planted times: no test reads a clock.
#include "pipeline/residency/live_residency.h"

#include <gtest/gtest.h>

#include <array>
#include <memory>
#include <set>
#include <vector>

namespace larder::pipeline::inline residency {
namespace {

using Bytes = std::vector<std::vector<uint64_t>>;
constexpr WindowTicks kKnown{.cached = 100, .memory = 500};

TEST(ShareOfTicks, IsWhereTheTimeLiesBetweenThoseOfCacheAndMemory) {
  EXPECT_EQ(ShareOfTicks(100, kKnown), 1);
  EXPECT_EQ(ShareOfTicks(400, kKnown), 0.25);
  EXPECT_EQ(ShareOfTicks(500, kKnown), 0);
  EXPECT_EQ(ShareOfTicks(60, kKnown), 1) << "from L2";
  EXPECT_EQ(ShareOfTicks(1e9, kKnown), 0) << "the kernel stopped the thread";
  EXPECT_EQ(ShareOfTicks(100, {}), 0);
}

TEST(ResidencyEstimate, WeighsThreadsAndPartsByTheirBytes) {
  ResidencyEstimate estimate(Bytes{{3000, 1000}, {1000, 0}});
  estimate.Add(0, 0, 1);
  estimate.Add(1, 0, 0);
  EXPECT_FALSE(estimate.share()) << "a part of thread 0 has not been sampled";
  EXPECT_FALSE(estimate.of_thread(0));
  EXPECT_EQ(estimate.of_thread(1), 0.0);
  EXPECT_EQ(estimate.of_part(0), 0.75);
  estimate.Add(0, 1, 0.5);
  EXPECT_EQ(estimate.share(), 3500.0 / 5000);
  EXPECT_EQ(estimate.of_thread(0), 3500.0 / 4000);
  EXPECT_EQ(estimate.of_part(1), 0.5);
}

TEST(ResidencyEstimate, FollowsWithinAFewSamplesButNotOneOfThem) {
  ResidencyEstimate estimate(Bytes{{1000}});
  estimate.Add(0, 0, 1);
  estimate.Add(0, 0, 0);
  EXPECT_EQ(estimate.share(), 0.75);
  for (int i = 0; i < 10; ++i) estimate.Add(0, 0, 0);
  EXPECT_LT(estimate.share().value_or(1), 0.05);
  for (int i = 0; i < 12; ++i) estimate.Add(0, 0, 1);
  EXPECT_GT(estimate.share().value_or(0), 0.95);
}

TEST(ResidencyEstimate, OfNothingThatIsSampledIsNone) {
  EXPECT_FALSE(ResidencyEstimate(Bytes{{0, 0}}).share());
}

// Two threads with three parts, of which thread 1 has too little of the last; a reader that says
// which windows were read, and the times that the test plants.
class LiveResidencyTest : public testing::Test {
 protected:
  static constexpr size_t kPartBytes = 4 * kWindowBytes;

  LiveResidencyTest() : memory_(6 * kPartBytes) {
    read_ = {};
    evicted_ = {};
    live_.SetTicks(std::vector<WindowTicks>(2, kKnown));
    threadpool::PoolOptions options;
    options.cpus.resize(2);
    pool_ = std::make_unique<threadpool::Pool>(std::move(options));
    for (size_t t = 0; t < 2; ++t) {
      threadpool::ProgramBuilder builder;
      for (size_t part = 0; part < 3; ++part) live_.AddSample(t, part, builder);
      steps_.push_back(builder.Take());
      programs_.push_back({steps_[t].data(), static_cast<uint32_t>(steps_[t].size())});
    }
  }
  std::span<const std::byte> Part(size_t thread, size_t part) const {
    const bool small = thread == 1 && part == 2;
    return {memory_.data() + (3 * thread + part) * kPartBytes,
            small ? kWindowBytes - 1 : kPartBytes};
  }
  // A micro-batch at this time, and the parts that it sampled.
  std::set<size_t> Execute(uint64_t now) {
    for (auto& window : read_) window = nullptr;
    live_.Begin(now);
    pool_->Execute(programs_, nullptr, 0);
    live_.End(now);
    std::set<size_t> parts;
    for (size_t t = 0; t < 2; ++t) {
      if (read_[t] == nullptr) continue;
      const auto at = static_cast<size_t>(read_[t] - memory_.data());
      EXPECT_EQ(at / kPartBytes / 3, t);
      EXPECT_LE(at % kPartBytes + kWindowBytes, kPartBytes) << "beyond the part's end";
      parts.insert(at / kPartBytes % 3);
    }
    return parts;
  }
  static uint64_t Read(const std::byte* window) {
    const bool second = window >= second_thread_;
    read_[second ? 1 : 0] = window;
    return evicted_[second ? 1 : 0] ? 500 : 100;
  }

  static inline const std::byte* second_thread_ = nullptr;
  static inline std::array<const std::byte*, 2> read_{};
  static inline std::array<bool, 2> evicted_{};
  std::vector<std::byte> memory_;
  LiveResidency live_{[this] {
                        second_thread_ = memory_.data() + 3 * kPartBytes;
                        return LiveResidency::Weights{{Part(0, 0), Part(0, 1), Part(0, 2)},
                                                      {Part(1, 0), Part(1, 1), Part(1, 2)}};
                      }(),
                      &Read};
  std::unique_ptr<threadpool::Pool> pool_;
  std::vector<std::vector<threadpool::Step>> steps_;
  std::vector<threadpool::Program> programs_;
};

TEST_F(LiveResidencyTest, SamplesAPartAfterTheOtherAndRestsBetween) {
  EXPECT_EQ(steps_[1].size(), 2u) << "a part smaller than a window is not sampled";
  uint64_t now = 1000;
  for (const size_t part : {0, 1, 2, 0}) {
    EXPECT_EQ(Execute(now), std::set<size_t>{part});
    EXPECT_EQ(Execute(now + 400 * 100 - 1), std::set<size_t>{}) << "400 times what it took";
    now += 400 * 100;
  }
}

TEST_F(LiveResidencyTest, SeesWhoseWeightsAreEvictedAndThatTheyComeBack) {
  uint64_t now = 1000;
  const auto run = [&](int rounds) {
    for (int i = 0; i < 3 * rounds; ++i) Execute(now += 1'000'000);
  };
  run(1);
  EXPECT_EQ(live_.estimate().share(), 1.0);
  evicted_[1] = true;
  run(12);
  EXPECT_EQ(live_.estimate().of_thread(0), 1.0);
  EXPECT_LT(live_.estimate().of_thread(1).value_or(1), 0.05);
  EXPECT_NEAR(live_.estimate().of_part(0).value_or(-1), 0.5, 0.03);
  EXPECT_EQ(live_.estimate().of_part(2), 1.0) << "thread 0's alone";
  EXPECT_NEAR(live_.estimate().share().value_or(-1), 0.6, 0.03);
  evicted_[1] = false;
  run(12);
  EXPECT_GT(live_.estimate().share().value_or(0), 0.97);
}

TEST_F(LiveResidencyTest, WithoutADifferenceBetweenCacheAndMemoryThereIsNoFigure) {
  const WindowTicks close{.cached = 100, .memory = 110};
  live_.SetTicks(std::vector<WindowTicks>{kKnown, close});
  EXPECT_EQ(Execute(1000), std::set<size_t>{});
  EXPECT_FALSE(live_.estimate().share());
}

}  // namespace
}  // namespace larder::pipeline::residency
