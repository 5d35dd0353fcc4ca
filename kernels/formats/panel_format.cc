#include "kernels/formats/panel_format.h"

#include <cstring>

namespace larder::kernels::inline formats {

const PanelFormat& PanelFormatOf(model::TensorType type) {
  for (const PanelFormat* format : kPanelFormats) {
    if (format->type == type) return *format;
  }
  return kQ8Panel;
}

void UnpackRow(const PanelShape& shape, const uint8_t* panel, size_t row, float* out) {
  for (size_t b = 0; b < shape.blocks; ++b) {
    PanelBlock block;
    shape.format.unpack(panel, b, row, &block);
    for (size_t i = 0; i < kBlock; ++i)
      out[b * kBlock + i] = block.scale * static_cast<float>(block.q[i]) - block.minimum;
  }
}

void FillRandomRow(const PanelShape& shape, std::minstd_rand& random, uint8_t* row) {
  const size_t row_bytes = shape.row_bytes();
  for (size_t i = 0; i < row_bytes; ++i) row[i] = static_cast<uint8_t>(random() >> 8);
  // The 16-bit floats with which blocks of these types begin.
  const size_t floats = shape.format.id == PanelFormatId::kQ4K ? 2 : 1;
  const size_t block_bytes = model::LayoutOfGgufType(static_cast<uint32_t>(shape.format.type)).bytes;
  for (size_t at = 0; at < row_bytes; at += block_bytes) {
    for (size_t i = 0; i < floats; ++i) {
      const auto scale = static_cast<uint16_t>(0x1C00 + (random() >> 8) % 0x800);
      std::memcpy(row + at + i * sizeof(scale), &scale, sizeof(scale));
    }
  }
}

}  // namespace larder::kernels::formats
