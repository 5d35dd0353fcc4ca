#include "kernels/formats/panel_format.h"

#include <cstring>
#include <span>

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
      out[b * kBlock + i] =
          block.scale[i / (kBlock / 2)] * static_cast<float>(block.q[i]) - block.minimum;
  }
}

void FillRandomRow(const PanelShape& shape, std::minstd_rand& random, uint8_t* row) {
  const size_t row_bytes = shape.row_bytes();
  for (size_t i = 0; i < row_bytes; ++i) row[i] = static_cast<uint8_t>(random() >> 8);
  const std::span<const size_t> halves = model::F16Offsets(shape.format.type);
  const size_t block_bytes =
      model::LayoutOfGgufType(static_cast<uint32_t>(shape.format.type)).bytes;
  for (size_t at = 0; at < row_bytes; at += block_bytes) {
    for (const size_t half : halves) {
      const auto scale = static_cast<uint16_t>(0x1C00 + (random() >> 8) % 0x800);
      std::memcpy(row + at + half, &scale, sizeof(scale));
    }
    // MXFP4's scale is a power of two: 2^(its byte - 128).
    if (halves.empty()) row[at] = static_cast<uint8_t>(120 + (random() >> 8) % 2);
  }
}

}  // namespace larder::kernels::formats
