// The rotation angles: plain, linear (Chen 2023, arXiv 2306.15595), llama3 (per-frequency factors
// from the file) and YaRN (Peng 2023, arXiv 2309.00071, sections 3.2 and 3.4), with the constants
// and roundings that GGUF files are made for.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "model/config/config.h"

namespace larder::model::inline config {
namespace {

// The (fractional) pair that makes `turns` rotations over the original context: base^(2i/d) =
// context / (2 pi turns).
double PairOfTurns(const RotarySpec& rotary, double turns) {
  const double rotary_dim = static_cast<double>(rotary.dim);
  const double context = static_cast<double>(rotary.original_context);
  return rotary_dim * std::log(context / (turns * 2.0 * std::numbers::pi)) /
         (2.0 * std::log(rotary.base));
}

struct Rotation {
  std::vector<double> inverse_frequency;  // per pair: angle per position
  double magnitude = 1.0;
};

Rotation MakeRotation(const RotarySpec& rotary) {
  const size_t pairs = rotary.dim / 2;
  LARDER_CHECK(rotary.dim % 2 == 0, "{} rotated elements", rotary.dim);
  LARDER_CHECK(rotary.freq_factors.empty() || rotary.freq_factors.size() == pairs, "{} factors",
               rotary.freq_factors.size());
  Rotation rotation;
  rotation.inverse_frequency.resize(pairs);
  double low = 0.0, high = 0.0;
  const bool yarn = rotary.scaling == RopeScaling::kYarn;
  if (yarn) {
    low = PairOfTurns(rotary, rotary.yarn_beta_fast);
    high = PairOfTurns(rotary, rotary.yarn_beta_slow);
    if (rotary.yarn_whole_pairs) {
      low = std::floor(low);
      high = std::ceil(high);
    }
    low = std::max(0.0, low);
    high = std::min(static_cast<double>(rotary.dim) - 1.0, high);
    rotation.magnitude = rotary.yarn_attn_factor;
    if (rotary.yarn_ext_factor != 0.0)
      rotation.magnitude *= 1.0 + 0.1 * std::log(rotary.scale_factor);
    rotation.magnitude /= 1.0 + 0.1 * rotary.yarn_log_multiplier * std::log(rotary.scale_factor);
  }
  rotation.magnitude *= rotary.magnitude;
  for (size_t i = 0; i < pairs; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotary.dim);
    double own = std::pow(rotary.base, exponent);
    if (!rotary.freq_factors.empty()) own /= static_cast<double>(rotary.freq_factors[i]);
    if (rotary.scaling == RopeScaling::kNone) {
      rotation.inverse_frequency[i] = own;
      continue;
    }
    const double interpolated = own / rotary.scale_factor;
    double keep = 0.0;  // 1: high frequency, as trained; 0: low frequency, interpolated
    if (yarn) {
      const double ramp = (static_cast<double>(i) - low) / std::max(0.001, high - low);
      keep = (1.0 - std::clamp(ramp, 0.0, 1.0)) * rotary.yarn_ext_factor;
    }
    rotation.inverse_frequency[i] = interpolated * (1.0 - keep) + own * keep;
  }
  return rotation;
}

std::vector<float> TableOf(const Rotation& rotation, size_t positions) {
  const size_t pairs = rotation.inverse_frequency.size();
  std::vector<float> table(positions * 2 * pairs);
  for (size_t p = 0; p < positions; ++p) {
    float* row = table.data() + p * 2 * pairs;
    for (size_t i = 0; i < pairs; ++i) {
      const double angle = static_cast<double>(p) * rotation.inverse_frequency[i];
      row[2 * i] = static_cast<float>(std::cos(angle) * rotation.magnitude);
      row[2 * i + 1] = static_cast<float>(std::sin(angle) * rotation.magnitude);
    }
  }
  return table;
}

}  // namespace

std::vector<float> RopeTable(const RotarySpec& rotary, size_t positions) {
  return TableOf(MakeRotation(rotary), positions);
}

std::vector<float> UnitRopeTable(const RotarySpec& rotary, size_t positions) {
  Rotation rotation = MakeRotation(rotary);
  rotation.magnitude = 1.0;
  return TableOf(rotation, positions);
}

}  // namespace larder::model::config
