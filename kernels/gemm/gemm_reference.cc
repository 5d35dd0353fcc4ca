// The scalar reference of the matrix products: it defines their bits, for every panel format.
#include <algorithm>
#include <cmath>

#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline gemm {

void GemmReference(const GemmShape& shape, const uint8_t* panels, const ActBlock* x, float* y,
                   size_t n_panels, size_t m_rows, const uint32_t* rows) {
  for (size_t p = 0; p < n_panels; ++p) {
    const uint8_t* panel = panels + p * shape.panel.bytes();
    for (size_t m = 0; m < m_rows; ++m) {
      const auto* row =
          reinterpret_cast<const ActBlock*>(reinterpret_cast<const uint8_t*>(x) +
                                            (rows != nullptr ? rows[m] : m) * shape.x_stride_bytes);
      float* out =
          reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(y) + m * shape.y_stride_bytes) +
          p * kPanelRows;
      for (size_t r = 0; r < kPanelRows; ++r) {
        for (size_t chunk = 0; chunk < shape.panel.blocks; chunk += kSumBlocks) {
          float acc = 0;
          for (size_t b = chunk; b < std::min(chunk + kSumBlocks, shape.panel.blocks); ++b) {
            PanelBlock weights;
            shape.panel.format.unpack(panel, b, r, &weights);
            int32_t isums[2] = {};
            for (size_t k = 0; k < kBlock; ++k)
              isums[k / (kBlock / 2)] += int32_t{weights.q[k]} * row[b].q[k];
            if (shape.panel.format.half_scales()) {
              for (size_t h = 0; h < 2; ++h)
                acc = std::fma(static_cast<float>(isums[h]) * row[b].d, weights.scale[h], acc);
            } else {
              acc = std::fma(static_cast<float>(isums[0] + isums[1]) * row[b].d, weights.scale[0],
                             acc);
            }
            if (shape.panel.format.has_minimum())
              acc = std::fma(-weights.minimum, row[b].d_sum, acc);
          }
          out[r] = chunk > 0 || shape.accumulate ? out[r] + acc : acc;
        }
      }
    }
  }
}

}  // namespace larder::kernels::gemm
