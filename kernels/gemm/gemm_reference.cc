// The scalar reference of the matrix products: it defines their bits.
#include <cmath>

#include "kernels/gemm/gemm.h"

namespace larder::kernels {

void GemmReference(const GemmShape& shape, const uint8_t* panels, const ActBlock* x, float* y,
                   size_t n_panels, size_t m_rows) {
  for (size_t p = 0; p < n_panels; ++p) {
    const uint8_t* panel = panels + p * PanelBytes(shape.blocks);
    for (size_t m = 0; m < m_rows; ++m) {
      const auto* row =
          reinterpret_cast<const ActBlock*>(reinterpret_cast<const uint8_t*>(x) + m * shape.x_stride_bytes);
      float acc[kPanelRows] = {};
      for (size_t b = 0; b < shape.blocks; ++b) {
        const uint8_t* pair = panel + b / 2 * kPairBytes;
        const auto* scales = reinterpret_cast<const uint16_t*>(pair + b % 2 * 32);
        const uint8_t* weights = pair + 64 + b % 2 * 512;
        for (size_t r = 0; r < kPanelRows; ++r) {
          int32_t isum = 0;
          for (size_t k = 0; k < kBlock; ++k) {
            isum += (static_cast<int32_t>(weights[k / 4 * 64 + 4 * r + k % 4]) - 128) * row[b].q[k];
          }
          acc[r] = std::fma(static_cast<float>(isum) * row[b].d, model::F16ToF32(scales[r]), acc[r]);
        }
      }
      float* out =
          reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(y) + m * shape.y_stride_bytes) + p * kPanelRows;
      for (size_t r = 0; r < kPanelRows; ++r) out[r] = shape.accumulate ? out[r] + acc[r] : acc[r];
    }
  }
}

}  // namespace larder::kernels
