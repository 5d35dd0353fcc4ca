#include "weight_node/routing/routing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

namespace larder::weight_node::inline routing {
namespace {

using model::ExpertGating;

struct Choice {
  std::vector<uint16_t> experts;
  std::vector<float> weights;
  float shared = 0;
};

Choice Choose(const RouterRule& rule, std::vector<float> logits,
              kernels::Isa isa = kernels::Isa::kScalar) {
  Choice choice{std::vector<uint16_t>(rule.used), std::vector<float>(rule.used)};
  logits.resize(RouterFloats(rule.experts), -7.0f);  // what lies behind a row must not matter
  std::vector<float> by(logits.size());
  ChooseExperts(rule, kernels::GetElementwise(isa), logits.data(), by.data(),
                {choice.experts.data(), choice.weights.data(), &choice.shared}, 0);
  return choice;
}

std::vector<float> RandomLogits(size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> gaussian;
  std::vector<float> logits(n);
  // Coarse, so that many are equal.
  for (float& logit : logits) logit = std::round(4.0f * gaussian(random)) / 4.0f;
  return logits;
}

TEST(Routing, ChoosesTheLargestOfEqualOnesTheLower) {
  for (const size_t experts : {1, 4, 8, 17, 128, 512}) {
    for (const size_t used : {size_t{1}, size_t{2}, size_t{8}, kMostUsed}) {
      if (used > experts) continue;
      const std::vector<float> logits = RandomLogits(experts, static_cast<uint32_t>(experts));
      std::vector<uint16_t> order(experts);
      std::iota(order.begin(), order.end(), uint16_t{0});
      std::ranges::stable_sort(order, std::ranges::greater(),
                               [&](uint16_t e) { return logits[e]; });
      order.resize(used);
      std::ranges::sort(order);
      for (const ExpertGating gating : {ExpertGating::kSoftmax, ExpertGating::kSigmoid})
        EXPECT_EQ(Choose({.experts = experts, .used = used, .gating = gating}, logits).experts,
                  order);
    }
  }
}

TEST(Routing, WeightsAreTheDefinitions) {
  const std::vector<float> logits = {0.5f, -1.0f, 2.0f, 1.5f, 2.0f};
  const auto expect = [](const Choice& choice, const std::vector<uint16_t>& experts,
                         const std::vector<double>& weights) {
    EXPECT_EQ(choice.experts, experts);
    for (size_t i = 0; i < weights.size(); ++i) EXPECT_NEAR(choice.weights[i], weights[i], 1e-6);
  };
  double all = 0;
  for (const float l : logits) all += std::exp(l);
  expect(Choose({.experts = 5, .used = 2}, logits), {2, 4}, {0.5, 0.5});
  expect(Choose({.experts = 5, .used = 2, .normalise = false, .scale = 2.0f}, logits), {2, 4},
         {2 * std::exp(2.0) / all, 2 * std::exp(2.0) / all});
  const std::vector<float> scales = {9, 9, 3, 9, 0.5f};
  for (const bool normalise : {true, false}) {
    const double w = normalise ? 0.5 : std::exp(2.0) / all;
    expect(Choose({.experts = 5,
                   .used = 2,
                   .normalise = normalise,
                   .scale = 2.0f,
                   .scales = scales.data()},
                  logits),
           {2, 4}, {6 * w, w});
  }
  const double s = 1 / (1 + std::exp(-2.0)), t = 1 / (1 + std::exp(-0.5));
  const std::vector<float> bias = {1.0f, 0, 0.1f, 0, 0};
  const RouterRule sigmoid{
      .experts = 5, .used = 2, .gating = ExpertGating::kSigmoid, .bias = bias.data()};
  expect(Choose(sigmoid, logits), {0, 2}, {t / (s + t), s / (s + t)});
  const double p = std::exp(0.5) / all, q = std::exp(2.0) / all;
  expect(Choose({.experts = 5, .used = 2, .bias = bias.data()}, logits), {0, 2},
         {p / (p + q), q / (p + q)});
  std::vector<float> with_shared = logits;
  with_shared.push_back(0.5f);
  EXPECT_NEAR(Choose({.experts = 5, .used = 2, .shared_gate = true}, with_shared).shared, t, 1e-6);
  EXPECT_EQ(Choose({.experts = 5, .used = 2}, with_shared).shared, 1.0f);
}

TEST(Routing, ChoosesAmongTheBestGroups) {
  // Groups of three: the best expert is alone in its group, and the largest sums of two are those
  // of the first and the last, whose third is larger than the best of another.
  const std::vector<float> logits = {1, 1, 0.5f, 3, -9, -9, 0, 0, 0, 1, 1, 0.5f};
  RouterRule rule{
      .experts = 12, .used = 5, .gating = ExpertGating::kSigmoid, .groups = 4, .groups_used = 2};
  EXPECT_EQ(Choose(rule, logits).experts, (std::vector<uint16_t>{0, 1, 2, 9, 10}));
  rule.groups_used = 4;
  EXPECT_EQ(Choose(rule, logits).experts, (std::vector<uint16_t>{0, 1, 3, 9, 10}));
  // The bias chooses groups, too, and does not weigh.
  const std::vector<float> bias = {0, 0, 0, 0, 0, 0, 9, 9, 0, 0, 0, 0};
  rule.groups_used = 1;
  rule.used = 2;
  rule.bias = bias.data();
  const Choice by_bias = Choose(rule, logits);
  EXPECT_EQ(by_bias.experts, (std::vector<uint16_t>{6, 7}));
  EXPECT_EQ(by_bias.weights, (std::vector<float>{0.5f, 0.5f}));
  rule.bias = nullptr;
  EXPECT_EQ(Choose(rule, logits).experts, (std::vector<uint16_t>{0, 1}))
      << "of equal ones the lower";
  rule.gating = ExpertGating::kSoftmax;  // exp(3) is more than 2 exp(1)
  EXPECT_EQ(Choose(rule, logits).experts, (std::vector<uint16_t>{3, 4}));
}

TEST(Routing, InstructionSetsAgree) {
  const std::vector<float> bias = RandomLogits(60, 3);
  for (const float* of : {static_cast<const float*>(nullptr), bias.data()}) {
    for (const ExpertGating gating : {ExpertGating::kSoftmax, ExpertGating::kSigmoid}) {
      for (const bool normalise : {false, true}) {
        const RouterRule rule{.experts = 60,
                              .used = 6,
                              .gating = gating,
                              .normalise = normalise,
                              .bias = of,
                              .shared_gate = true};
        const std::vector<float> logits = RandomLogits(61, 7);
        const Choice scalar = Choose(rule, logits), best = Choose(rule, logits, kernels::BestIsa());
        EXPECT_EQ(scalar.experts, best.experts);
        EXPECT_EQ(scalar.weights, best.weights);
        EXPECT_EQ(scalar.shared, best.shared);
      }
    }
  }
}

TEST(Routing, AnyNumbersGiveDifferentExperts) {
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  for (std::vector<float> logits :
       {std::vector<float>{nan, nan, nan, nan}, {nan, 1, nan, 2}, {inf, -inf, inf, nan}}) {
    for (const auto& [normalise, groups] :
         {std::pair{false, 1}, std::pair{true, 1}, std::pair{true, 2}}) {
      const auto of = static_cast<size_t>(groups);
      const Choice choice =
          Choose({.experts = 4, .used = 3, .normalise = normalise, .groups = of, .groups_used = of},
                 logits);
      for (size_t i = 0; i < 3; ++i) {
        EXPECT_LT(choice.experts[i], 4);
        if (i > 0) {
          EXPECT_LT(choice.experts[i - 1], choice.experts[i]);
        }
      }
    }
  }
}

TEST(Routing, ANumberIsChosenBeforeNaN) {
  const float nan = std::nanf("");
  EXPECT_EQ(Choose({.experts = 5, .used = 2}, {nan, 1, nan, 2, -1}).experts,
            (std::vector<uint16_t>{1, 3}));
}

// Each choice of each row is in the table once, with its weight, rows ascending.
TEST(Routing, TheTableHasEachPairOnce) {
  const RouterRule rule{.experts = 7, .used = 2};
  constexpr size_t kBegin = 3, kRows = 11;
  std::vector<uint16_t> experts((kBegin + kRows) * 2, 6);
  std::vector<float> weights(experts.size(), -1.0f), shared(kBegin + kRows);
  std::mt19937 random(5);
  for (size_t m = kBegin; m < kBegin + kRows; ++m) {
    experts[2 * m] = static_cast<uint16_t>(random() % 3);
    experts[2 * m + 1] = static_cast<uint16_t>(3 + random() % 3);  // nobody chooses the last
    weights[2 * m] = static_cast<float>(2 * m);
    weights[2 * m + 1] = static_cast<float>(2 * m + 1);
  }
  std::vector<uint32_t> first(8, 99), row(2 * kRows, 99);
  std::vector<float> weight(2 * kRows, -1.0f);
  const RoutingTable table{first.data(), row.data(), weight.data()};
  SortByExpert(rule, {experts.data(), weights.data(), shared.data()}, kBegin, kRows, table);
  EXPECT_EQ(first.front(), 0u);
  EXPECT_EQ(first.back(), 2 * kRows);
  EXPECT_EQ(table.count(6), 0u);
  std::vector<bool> seen(experts.size());
  for (size_t e = 0; e < 7; ++e) {
    for (uint32_t i = first[e]; i < first[e + 1]; ++i) {
      const auto pair = static_cast<size_t>(weight[i]);
      EXPECT_FALSE(seen[pair]);
      seen[pair] = true;
      EXPECT_EQ(experts[pair], e);
      EXPECT_EQ(row[i], pair / 2);
      if (i > first[e]) {
        EXPECT_LT(row[i - 1], row[i]);
      }
    }
  }
  EXPECT_EQ(std::ranges::count(seen, true), static_cast<std::ptrdiff_t>(2 * kRows));
}

// Each unit has one thread, and no thread has more than a unit above an equal share.
TEST(Routing, SharesOfTheWorkAreEqual) {
  std::mt19937 random(9);
  for (size_t round = 0; round < 300; ++round) {
    const size_t experts = 1 + random() % 64, units = 1 + random() % 12,
                 threads = 2 + random() % 30;
    std::vector<uint32_t> first(experts + 1);
    uint64_t work = 0, most_of_unit = 0;
    for (size_t e = 0; e < experts; ++e) {
      first[e + 1] = first[e] + (random() % 3 == 0 ? random() % 40 : 0);
      work += units * WorkOf(first[e + 1] - first[e]);
      most_of_unit = std::max(most_of_unit, WorkOf(first[e + 1] - first[e]));
    }
    const RoutingTable table{first.data(), nullptr, nullptr};
    std::vector<uint64_t> of_thread(threads);
    uint64_t at = 0;
    for (size_t e = 0; e < experts; ++e) {
      for (size_t u = 0; u < units && table.count(e) > 0; ++u) {
        size_t owners = 0;
        for (size_t t = 0; t < threads; ++t) {
          if (!PartOfWork(table, experts, units, t, threads).contains(at)) continue;
          ++owners;
          of_thread[t] += WorkOf(table.count(e));
        }
        ASSERT_EQ(owners, 1u) << "round " << round << " expert " << e << " unit " << u;
        at += WorkOf(table.count(e));
      }
    }
    EXPECT_EQ(at, work);
    EXPECT_LE(*std::ranges::max_element(of_thread), work / threads + most_of_unit);
  }
}

}  // namespace
}  // namespace larder::weight_node::routing
