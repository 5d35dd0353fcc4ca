#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats {

void UnpackRow(const PanelShape& shape, const uint8_t* panel, size_t row, float* out) {
  for (size_t b = 0; b < shape.blocks; ++b) {
    model::Q8Block block;
    shape.format.unpack(panel, b, row, &block);
    model::DequantizeQ8_0(&block, {out + b * kBlock, kBlock});
  }
}

}  // namespace larder::kernels::formats
