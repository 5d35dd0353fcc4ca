// Test support: logits and plain parameters.
#pragma once

#include <limits>
#include <vector>

#include "serving/sampling/sampling_params.h"

namespace larder::serving::inline sampling {

inline constexpr float kInfinity = std::numeric_limits<float>::infinity();
using Logits = std::vector<float>;

// Parameters with no step but the draw.
inline SamplingParams Plain(uint64_t seed = 1) {
  SamplingParams p;
  p.temperature = 1;
  p.top_k = 0;
  p.top_p = 1;
  p.min_p = 0;
  p.seed = seed;
  return p;
}

}  // namespace larder::serving::sampling
