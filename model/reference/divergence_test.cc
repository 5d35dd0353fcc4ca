#include "model/reference/divergence.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace larder::model::inline reference {
namespace {

using Logits = std::vector<float>;
constexpr float kInfinity = std::numeric_limits<float>::infinity();
const float kLog3 = std::log(3.0f);

TEST(LogSoftmax, ByHandAndAtAnyHeight) {
  for (const float height : {0.0f, 1e6f, -1e6f}) {
    const auto p = LogSoftmax(Logits{height, height, height, height});
    for (const double v : p) EXPECT_NEAR(v, -std::log(4.0), 1e-12);
  }
  const auto p = LogSoftmax(Logits{kLog3, 0, -kInfinity});
  EXPECT_NEAR(p[0], std::log(0.75), 1e-7);  // kLog3 is a float
  EXPECT_NEAR(p[1], std::log(0.25), 1e-7);
  EXPECT_EQ(p[2], -kInfinity);
}

TEST(KlDivergence, ByHand) {
  const Logits p = {kLog3, 0}, q = {0, 0};  // 3/4, 1/4 against 1/2, 1/2
  EXPECT_NEAR(KlDivergence(p, q), 0.75 * std::log(1.5) + 0.25 * std::log(0.5), 1e-7);
  EXPECT_NEAR(KlDivergence(q, p), 0.5 * std::log(2.0 / 3) + 0.5 * std::log(2.0), 1e-7);
  EXPECT_NEAR(KlDivergence(p, Logits{kLog3 + 5, 5}), 0, 1e-7);  // a constant changes no softmax
  EXPECT_EQ(KlDivergence(p, p), 0);
}

TEST(KlDivergence, ZeroProbabilities) {
  EXPECT_EQ(KlDivergence(Logits{0, -kInfinity}, Logits{0, -kInfinity}), 0);
  EXPECT_NEAR(KlDivergence(Logits{0, -kInfinity}, Logits{0, 0}), std::log(2.0), 1e-12);
  EXPECT_EQ(KlDivergence(Logits{0, 0}, Logits{0, -kInfinity}), kInfinity);
}

TEST(KlDivergence, WhatHasNoSoftmaxIsInfinitelyFar) {
  const Logits good = {0, 1};
  for (const Logits& bad : {Logits{std::nanf(""), 0}, Logits{0, std::nanf("")},
                            Logits{kInfinity, 0}, Logits{-kInfinity, -kInfinity}}) {
    EXPECT_EQ(KlDivergence(good, bad), kInfinity);
    EXPECT_EQ(KlDivergence(bad, good), kInfinity);
    EXPECT_EQ(KlDivergence(bad, bad), kInfinity);
  }
}

TEST(Top1, LowestOfEquals) { EXPECT_EQ(Top1(Logits{-3, -1, -2, -1}), 1); }

TEST(CompareLogits, PlantedDifferences) {
  const Logits truth = {0, 0, kLog3, 0, -2, -1};  // rows of 2
  const Divergence same = CompareLogits(truth, truth, 2);
  EXPECT_EQ(same.rows, 3u);
  EXPECT_EQ(same.mean_kl, 0);
  EXPECT_EQ(same.max_kl, 0);
  EXPECT_EQ(same.top1_agreement, 1);
  EXPECT_EQ(same.max_logit_error, 0);

  Logits other = truth;
  other[2] = 0;  // a tie: Top1 stays 0
  const Divergence one = CompareLogits(truth, other, 2);
  const double kl = 0.75 * std::log(1.5) + 0.25 * std::log(0.5);
  EXPECT_NEAR(one.max_kl, kl, 1e-7);
  EXPECT_NEAR(one.mean_kl, kl / 3, 1e-7);
  EXPECT_EQ(one.median_kl, 0);
  EXPECT_EQ(one.max_kl_row, 1u);
  EXPECT_NEAR(one.top1_agreement, 1, 1e-12);
  EXPECT_NEAR(one.max_logit_error, kLog3, 1e-7);
  const std::span<const float> rows = truth, others = other;
  EXPECT_NEAR(CompareLogits(rows.first(4), others.first(4), 2).median_kl, kl / 2, 1e-7)
      << "the mean of the middle two";

  other = truth;
  other[4] = -0.5f;  // both values negative, and the other token wins
  const Divergence negative = CompareLogits(truth, other, 2);
  EXPECT_EQ(negative.max_kl_row, 2u);
  EXPECT_NEAR(negative.top1_agreement, 2.0 / 3, 1e-12);
  EXPECT_NEAR(negative.max_logit_error, 1.5, 1e-7);
}

TEST(CompareLogits, ANanIsSeenWhereverItIs) {
  const Logits truth = {0, 1, 2, 3};
  for (size_t i = 0; i < truth.size(); ++i) {
    Logits other = truth;
    other[i] = std::nanf("");
    for (const Divergence& d : {CompareLogits(truth, other, 2), CompareLogits(other, truth, 2)}) {
      EXPECT_EQ(d.mean_kl, kInfinity);
      EXPECT_EQ(d.max_kl, kInfinity);
      EXPECT_EQ(d.max_kl_row, i / 2);
      EXPECT_EQ(d.max_logit_error, kInfinity);
    }
  }
}

}  // namespace
}  // namespace larder::model::reference
