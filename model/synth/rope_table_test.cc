#include <gtest/gtest.h>

#include <cmath>

#include "model/config/config.h"
#include "model/synth/synth.h"

namespace larder::model::inline synth {
namespace {

ModelConfig Config(size_t rotary_dim, double base) {
  ModelConfig config;
  config.kinds.resize(1);
  config.kinds[0].rotary.dim = config.kinds[0].sizes.head_size = rotary_dim;
  config.kinds[0].rotary.base = base;
  return config;
}

struct Turn {
  float cos, sin;
};
Turn At(const ModelConfig& config, size_t position, size_t pair) {
  const std::vector<float> table = RopeTable(config.kinds[0].rotary, position + 1);
  EXPECT_EQ(table.size(), (position + 1) * config.kinds[0].rotary.dim);
  return {table[position * config.kinds[0].rotary.dim + 2 * pair],
          table[position * config.kinds[0].rotary.dim + 2 * pair + 1]};
}
void ExpectAngle(const Turn& turn, double angle, double magnitude = 1.0) {
  EXPECT_NEAR(turn.cos, magnitude * std::cos(angle), 1e-6);
  EXPECT_NEAR(turn.sin, magnitude * std::sin(angle), 1e-6);
}

// 10000^(-2/8) = 0.1, so that angles are decimal; sine and cosine of 0.3 from a printed table.
TEST(RopeTable, Plain) {
  const ModelConfig config = Config(8, 10000.0);
  for (size_t pair = 0; pair < 4; ++pair) {
    const Turn origin = At(config, 0, pair);
    EXPECT_EQ(origin.cos, 1.0f);
    EXPECT_EQ(origin.sin, 0.0f);
  }
  EXPECT_NEAR(At(config, 3, 1).cos, 0.955336489, 1e-7);
  EXPECT_NEAR(At(config, 3, 1).sin, 0.295520207, 1e-7);
  ExpectAngle(At(config, 5, 0), 5.0);
  ExpectAngle(At(config, 5, 2), 0.05);
  ExpectAngle(At(config, 5, 3), 0.005);
}

TEST(RopeTable, LinearIsSlower) {
  ModelConfig config = Config(8, 10000.0);
  config.kinds[0].rotary.scaling = RopeScaling::kLinear;
  config.kinds[0].rotary.scale_factor = 4.0;
  ExpectAngle(At(config, 12, 1), 0.3);
  ExpectAngle(At(config, 12, 0), 3.0);
}

TEST(RopeTable, FactorsDivide) {
  ModelConfig config = Config(8, 10000.0);
  config.kinds[0].rotary.freq_factors = {1.0f, 1.0f, 2.0f, 8.0f};
  ExpectAngle(At(config, 10, 1), 1.0);
  ExpectAngle(At(config, 10, 2), 0.05);
  ExpectAngle(At(config, 10, 3), 0.00125);
}

// Qwen2.5's published setting: base 1e6, heads of 128, factor 4, original context 32768. By hand: a
// wave turns 32 times at pair 64 ln(32768 / (64 pi)) / ln(1e6) = 23.6 and once at 39.65: up to pair
// 23 as trained, from 40 on interpolated, between in seventeenths; sines grow by
// 1 + 0.1 ln 4 = 1.1386294.
TEST(RopeTable, Yarn) {
  ModelConfig config = Config(128, 1e6);
  config.kinds[0].rotary.scaling = RopeScaling::kYarn;
  config.kinds[0].rotary.scale_factor = 4.0;
  config.kinds[0].rotary.original_context = 32768;
  constexpr double kMagnitude = 1.1386294361119891;
  const auto frequency = [](int pair) { return std::exp(-std::log(1e6) * pair / 64.0); };
  ExpectAngle(At(config, 0, 5), 0.0, kMagnitude);
  ExpectAngle(At(config, 100, 0), 100.0, kMagnitude);
  ExpectAngle(At(config, 100, 23), 100.0 * frequency(23), kMagnitude);
  ExpectAngle(At(config, 1000, 24), 1000.0 * frequency(24) * (16.0 / 17 + 1.0 / 17 / 4),
              kMagnitude);
  ExpectAngle(At(config, 1000, 31), 1000.0 * frequency(31) * (9.0 / 17 + 8.0 / 17 / 4), kMagnitude);
  ExpectAngle(At(config, 5000, 40), 5000.0 * frequency(40) / 4, kMagnitude);
  ExpectAngle(At(config, 5000, 63), 5000.0 * frequency(63) / 4, kMagnitude);
  config.kinds[0].rotary.yarn_attn_factor = 0.5;
  ExpectAngle(At(config, 100, 0), 100.0, kMagnitude / 2);
  config.kinds[0].rotary.yarn_ext_factor = 0.0;  // then it is linear, and sines do not grow
  config.kinds[0].rotary.yarn_attn_factor = 1.0;
  ExpectAngle(At(config, 100, 0), 25.0);
}

// Llama 3.1: base 500000, heads of 128, factor 8, original context 8192. Waves up to 2048 positions
// stay, those from 8192 on are 8 times as long. By hand for pair 30: wave 2 pi 500000^(30/64) =
// 2948.4, 2.7785 turns, smooth 0.59282, 1 / (0.40718 / 8 + 0.59282) = 1.5534.
TEST(RopeTable, Llama3Factors) {
  const std::vector<float> factors = Llama3FreqFactors(128, 500000.0, 8.0);
  ASSERT_EQ(factors.size(), 64u);
  for (size_t i = 0; i <= 28; ++i)
    EXPECT_EQ(factors[i], 1.0f) << i;  // 500000^(28/64) 2 pi = 1956.6
  EXPECT_GT(factors[29], 1.0f);        // 2401.6
  EXPECT_NEAR(factors[30], 1.5534, 2e-4);
  EXPECT_LT(factors[34], 8.0f);                                       // 6695
  for (size_t i = 35; i < 64; ++i) EXPECT_EQ(factors[i], 8.0f) << i;  // 8218
}

}  // namespace
}  // namespace larder::model::synth
