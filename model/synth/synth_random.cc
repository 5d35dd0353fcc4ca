#include "model/synth/synth_random.h"

#include <algorithm>
#include <cmath>
#include <string_view>

namespace larder::model::inline synth {
namespace {

// +-127 is three standard deviations: a block's largest of 32 is about 2.1.
constexpr double kTargetSigma = 127.0 / 3.0;

}  // namespace

double NormalCdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

uint64_t HashText(uint64_t seed, std::string_view text) {
  uint64_t hash = HashBits(seed, text.size());
  for (const char c : text) hash = HashBits(hash, static_cast<unsigned char>(c));
  return hash;
}

NormalTable::NormalTable() {
  size_t filled = 0;
  for (int q = -127; q <= 127; ++q) {
    const double below = q == 127 ? 1.0 : NormalCdf((q + 0.5) / kTargetSigma);
    const auto end = static_cast<size_t>(std::lround(below * static_cast<double>(kSize)));
    for (; filled < end; ++filled) quantile_[filled] = static_cast<int8_t>(q);
  }
  double squares = 0.0;
  for (const int8_t q : quantile_) squares += static_cast<double>(q) * q;
  sigma_ = static_cast<float>(std::sqrt(squares / static_cast<double>(kSize)));
}

void NormalTable::FillQ8_0(uint64_t key, uint64_t first_block, size_t blocks, float deviation,
                           Q8Block* out) const {
  const float unit = deviation / (sigma_ * std::sqrt(1.0f + kScaleSpread * kScaleSpread / 3.0f));
  for (size_t b = 0; b < blocks; ++b) {
    const uint64_t counter = (first_block + b) * 9;  // eight hashes for four weights each, one for
                                                     // the scale
    Q8Block& block = out[b];
    block.d = F32ToF16(unit * (1.0f + kScaleSpread * UniformOf(HashBits(key, counter + 8))));
    for (size_t h = 0; h < kBlock / 4; ++h) {
      const uint64_t bits = HashBits(key, counter + h);
      for (size_t k = 0; k < 4; ++k) block.q[4 * h + k] = Pick(bits >> (16 * k));
    }
  }
}

void NormalTable::FillF32(uint64_t key, uint64_t first, size_t n, float deviation,
                          float* out) const {
  // A uniform fraction of a step is added to the INT8 value, which makes the distribution
  // continuous. Its variance is 1/12.
  const float unit = deviation / std::sqrt(sigma_ * sigma_ + 1.0f / 12.0f);
  for (size_t i = 0; i < n; ++i) {
    const uint64_t bits = HashBits(key, first + i);
    const auto fraction = static_cast<float>(bits >> 40) * 0x1p-24f - 0.5f;
    out[i] = unit * (static_cast<float>(Pick(bits)) + fraction);
  }
}

}  // namespace larder::model::synth
