// kQ8Panel: packing and unpacking.
#include <cstring>

#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats::q8_panel {
namespace {

constexpr uint32_t kToUnsigned = 0x80808080u;  // adds 128 to each of four signed bytes

inline void PackBlock(const model::Q8Block& block, size_t b, size_t row, uint8_t* panel) {
  std::memcpy(panel + kQ8Panel.scale_offset(b) + row * sizeof(block.d), &block.d, sizeof(block.d));
  uint8_t* weights = panel + kQ8Panel.weight_offset(b) + row * kVectorInputs;
  for (size_t j = 0; j < kBlockVectors; ++j) {
    uint32_t quad;
    std::memcpy(&quad, block.q + j * kVectorInputs, sizeof(quad));
    quad ^= kToUnsigned;
    std::memcpy(weights + j * kVectorBytes, &quad, sizeof(quad));
  }
}

}  // namespace

void Pack(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  static constexpr model::Q8Block kZero{};
  for (size_t b = 0; b < blocks; ++b) {
    for (size_t r = 0; r < kPanelRows; ++r)
      PackBlock(rows[r] ? static_cast<const model::Q8Block*>(rows[r])[b] : kZero, b, r, panel);
  }
  if (blocks % 2) std::memset(panel + kQ8Panel.scale_offset(blocks), 0, kQ8Panel.scale_bytes);
}

void PackRow(const model::Q8Block* row_blocks, size_t blocks, size_t row, uint8_t* panel) {
  for (size_t b = 0; b < blocks; ++b) PackBlock(row_blocks[b], b, row, panel);
}

void Unpack(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  uint16_t d;
  std::memcpy(&d, panel + kQ8Panel.scale_offset(block) + row * sizeof(d), sizeof(d));
  out->scale[0] = out->scale[1] = model::F16ToF32(d);
  out->minimum = 0;
  const uint8_t* weights = panel + kQ8Panel.weight_offset(block) + row * kVectorInputs;
  for (size_t j = 0; j < kBlockVectors; ++j) {
    uint32_t quad;
    std::memcpy(&quad, weights + j * kVectorBytes, sizeof(quad));
    quad ^= kToUnsigned;
    std::memcpy(out->q + j * kVectorInputs, &quad, sizeof(quad));
  }
}

}  // namespace larder::kernels::formats::q8_panel
