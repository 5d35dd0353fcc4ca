#include <algorithm>
#include <bit>

#include "base/check.h"
#include "pipeline/stage/packed_weights.h"

namespace larder::pipeline::inline stage {

void PackedWeights::KeepLogitRows(const model::BatchRows& batch) {
  if (batch.logit_rows > 0) std::copy_n(batch.logit_row, batch.logit_rows, logit_row_.data());
}

std::span<const float> PackedWeights::logits(size_t i) const {
  return {weights_->activations().logits.row(i), plan_.config.vocab};
}

void PackedWeights::Hidden(size_t i, std::span<float> out) const {
  LARDER_CHECK(out.size() == plan_.config.dim);
  weights_->FinalNorm(weights_->activations().x.row(logit_row_[i]), out.data());
}

bool PackedWeights::finite(size_t i) const {
  const float* x = weights_->activations().x.row(logit_row_[i]);
  constexpr uint32_t kExponent = 0x7f800000;
  uint32_t bad = 0;
  for (size_t k = 0; k < plan_.config.dim; ++k)
    bad |= (std::bit_cast<uint32_t>(x[k]) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

}  // namespace larder::pipeline::stage
