// kQ4_0Panel and kIq4NlPanel: packing and unpacking. A block of the file is a block of the panel, row by row.
#include <cstring>

#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats::q4_panel {
namespace {

constexpr size_t kCodeVectors = kBlockVectors / 2;

template <typename Value>
void Unpack(const uint8_t* panel, size_t block, size_t row, PanelBlock* out, Value value) {
  uint16_t d;
  std::memcpy(&d, panel + kQ4_0Panel.scale_offset(block) + row * sizeof(d), sizeof(d));
  out->scale = model::F16ToF32(d);
  out->minimum = 0;
  const uint8_t* codes = panel + kQ4_0Panel.weight_offset(block) + row * kVectorInputs;
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const uint8_t code = codes[i / kVectorInputs * kVectorBytes + i % kVectorInputs];
    out->q[i] = value(code & 15u);
    out->q[i + kBlock / 2] = value(code >> 4u);
  }
}

}  // namespace

void Pack(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  static constexpr model::Q4Block kZero{};
  for (size_t b = 0; b < blocks; ++b) {
    uint8_t *scales = panel + kQ4_0Panel.scale_offset(b), *codes = panel + kQ4_0Panel.weight_offset(b);
    for (size_t r = 0; r < kPanelRows; ++r) {
      const model::Q4Block& block = rows[r] ? static_cast<const model::Q4Block*>(rows[r])[b] : kZero;
      std::memcpy(scales + r * sizeof(block.d), &block.d, sizeof(block.d));
      for (size_t j = 0; j < kCodeVectors; ++j)
        std::memcpy(codes + j * kVectorBytes + r * kVectorInputs, block.q + j * kVectorInputs, kVectorInputs);
    }
  }
  if (blocks % 2) std::memset(panel + kQ4_0Panel.scale_offset(blocks), 0, kQ4_0Panel.scale_bytes);
}

void UnpackQ4_0(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(panel, block, row, out,
         [](unsigned code) { return static_cast<int8_t>(static_cast<int>(code) - 8); });
}

void UnpackIq4Nl(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(panel, block, row, out, [](unsigned code) { return model::kIq4Values[code]; });
}

}  // namespace larder::kernels::formats::q4_panel
