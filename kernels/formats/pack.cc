#include "kernels/formats/pack.h"

#include <cstring>

namespace larder::kernels {
namespace {

constexpr uint32_t kToUnsigned = 0x80808080u;  // adds 128 to each of four signed bytes

// Where block b of a panel keeps its 16 scales and its 8 weight vectors.
inline size_t ScaleOffset(size_t b) { return b / 2 * kPairBytes + b % 2 * 32; }
inline size_t WeightOffset(size_t b) { return b / 2 * kPairBytes + 64 + b % 2 * 512; }

}  // namespace

void PackPanel(const model::Q8Block* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  static const model::Q8Block kZero{};
  for (size_t b = 0; b < blocks; ++b) {
    uint16_t* scales = reinterpret_cast<uint16_t*>(panel + ScaleOffset(b));
    uint32_t* weights = reinterpret_cast<uint32_t*>(panel + WeightOffset(b));
    for (size_t r = 0; r < kPanelRows; ++r) {
      const model::Q8Block& block = rows[r] ? rows[r][b] : kZero;
      scales[r] = block.d;
      uint32_t quads[8];
      std::memcpy(quads, block.q, sizeof(quads));
      for (size_t j = 0; j < 8; ++j) weights[j * kPanelRows + r] = quads[j] ^ kToUnsigned;
    }
  }
  if (blocks % 2) std::memset(panel + ScaleOffset(blocks), 0, 32);
}

void UnpackRow(const uint8_t* panel, size_t row, size_t blocks, float* out) {
  for (size_t b = 0; b < blocks; ++b) {
    uint16_t d;
    std::memcpy(&d, panel + ScaleOffset(b) + 2 * row, sizeof(d));
    const float scale = model::F16ToF32(d);
    const uint8_t* weights = panel + WeightOffset(b) + 4 * row;
    for (size_t j = 0; j < 8; ++j) {
      for (size_t i = 0; i < 4; ++i) {
        out[b * kBlock + 4 * j + i] = scale * static_cast<float>(static_cast<int>(weights[64 * j + i]) - 128);
      }
    }
  }
}

void PackKey(const model::Q8Block* key, size_t blocks, size_t position_in_page, uint8_t* page) {
  for (size_t b = 0; b < blocks; ++b) {
    std::memcpy(page + ScaleOffset(b) + 2 * position_in_page, &key[b].d, sizeof(key[b].d));
    uint32_t quads[8];
    std::memcpy(quads, key[b].q, sizeof(quads));
    uint8_t* weights = page + WeightOffset(b) + 4 * position_in_page;
    for (size_t j = 0; j < 8; ++j) {
      const uint32_t quad = quads[j] ^ kToUnsigned;
      std::memcpy(weights + 64 * j, &quad, sizeof(quad));
    }
  }
}

void PackValue(const model::Q8Block* value, size_t blocks, size_t position_in_page, uint8_t* page) {
  uint8_t* bytes = page + ValueScaleBytes(blocks) + position_in_page * blocks * kBlock;
  for (size_t b = 0; b < blocks; ++b) {
    std::memcpy(page + (b * kPagePositions + position_in_page) * 2, &value[b].d, sizeof(value[b].d));
    std::memcpy(bytes + b * kBlock, value[b].q, kBlock);
  }
}

}  // namespace larder::kernels
