// Random weights for synth.cc. They are counter-based, so that any row of any tensor can be made
// alone. Private to model/.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "model/gguf/formats.h"

namespace larder::model::inline synth {

// 64 hash bits of a counter: the finaliser of splitmix64 (Steele, Lea and Flood 2014).
inline uint64_t HashBits(uint64_t key, uint64_t counter) {
  uint64_t x = key + (counter + 1) * 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}
uint64_t HashText(uint64_t seed, std::string_view text);

// Uniform in [-1, 1), from the upper 24 of 64 hash bits.
inline float UniformOf(uint64_t bits) { return static_cast<float>(bits >> 40) * 0x1p-23f - 1.0f; }

// The standard normal distribution's share below x.
double NormalCdf(double x);

// Blocks' scales differ by up to this share, as in real models. They are uniform in 1 +- it, whose
// mean square is 1 + kScaleSpread^2 / 3.
inline constexpr float kScaleSpread = 0.25f;

// Normal variates directly as INT8: 12 hash bits look up the quantile. So one 64-bit hash makes
// four weights of a Q8_0 block, and no Gaussian has to be quantised.
class NormalTable {
 public:
  NormalTable();
  int8_t Pick(uint64_t bits) const { return quantile_[bits & (kSize - 1)]; }
  float sigma() const { return sigma_; }  // standard deviation of Pick over uniform bits, exact

  // Make the values of the tensor with key `key`, from block `first_block` or element `first` on.
  void FillQ8_0(uint64_t key, uint64_t first_block, size_t blocks, float deviation,
                Q8Block* out) const;
  void FillF32(uint64_t key, uint64_t first, size_t n, float deviation, float* out) const;

 private:
  static constexpr size_t kSize = 4096;
  std::array<int8_t, kSize> quantile_;
  float sigma_ = 0.0f;
};

}  // namespace larder::model::synth
