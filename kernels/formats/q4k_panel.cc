// kQ4KPanel: packing and unpacking. A super-block of the file is a group of the panel, row by row.
#include <array>
#include <cstring>

#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats::q4k_panel {
namespace {

using model::kSuperBlocks;
using Words = std::array<uint32_t, kWords>;

constexpr size_t kCodeVectors = kBlockVectors / 2;
constexpr size_t kPairBytes = 4 * kCodeVectors * 2;  // of the file: weights of two blocks

// Number n of a row: the scale of block n, or the minimum of block n - 8.
uint32_t NumberAt(const Words& words, size_t n) {
  if (n + 1 == kNumbers) return words[0] >> 30 | words[1] >> 30 << 2 | words[2] >> 30 << 4;
  return words[n / kWordNumbers] >> n % kWordNumbers * kNumberBits & 63;
}

Words WordsOf(const uint8_t scales[12]) {
  Words words{};
  uint32_t last = 0;
  for (size_t b = 0; b < kSuperBlocks; ++b) {
    const auto [scale, min] = model::SixBits(scales, b);
    words[b / kWordNumbers] |= static_cast<uint32_t>(scale) << b % kWordNumbers * kNumberBits;
    const size_t n = kSuperBlocks + b;
    if (n + 1 == kNumbers) {
      last = min;
    } else {
      words[n / kWordNumbers] |= static_cast<uint32_t>(min) << n % kWordNumbers * kNumberBits;
    }
  }
  for (size_t w = 0; w < kWords; ++w) words[w] |= (last >> 2 * w & 3) << 30;
  return words;
}

void PackGroup(const model::Q4KBlock& from, size_t row, uint8_t* group) {
  std::memcpy(group + kDOffset + row * sizeof(from.d), &from.d, sizeof(from.d));
  std::memcpy(group + kDminOffset + row * sizeof(from.dmin), &from.dmin, sizeof(from.dmin));
  const Words words = WordsOf(from.scales);
  for (size_t w = 0; w < kWords; ++w)
    std::memcpy(group + kWordOffset + w * kVectorBytes + row * sizeof(uint32_t), &words[w], sizeof(uint32_t));
  for (size_t pair = 0; pair < kSuperBlocks / 2; ++pair) {
    uint8_t* even = group + kQ4KPanel.weight_offset(2 * pair) + row * kVectorInputs;
    for (size_t j = 0; j < kCodeVectors; ++j) {
      // Inputs 4j..4j+3 and the same 16 inputs later, of the even block in the low halves of the bytes and of
      // the odd one in the high halves.
      uint32_t first, second;
      const uint8_t* q = from.q + pair * kPairBytes + j * kVectorInputs;
      std::memcpy(&first, q, sizeof(first));
      std::memcpy(&second, q + kPairBytes / 2, sizeof(second));
      const uint32_t low = (first & 0x0F0F0F0Fu) | (second & 0x0F0F0F0Fu) << 4;
      const uint32_t high = (first >> 4 & 0x0F0F0F0Fu) | (second & 0xF0F0F0F0u);
      std::memcpy(even + j * kVectorBytes, &low, sizeof(low));
      std::memcpy(even + kQ4KPanel.weight_bytes + j * kVectorBytes, &high, sizeof(high));
    }
  }
}

}  // namespace

void Pack(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  static constexpr model::Q4KBlock kZero{};
  for (size_t g = 0; g < blocks / kSuperBlocks; ++g) {
    for (size_t r = 0; r < kPanelRows; ++r) {
      PackGroup(rows[r] ? static_cast<const model::Q4KBlock*>(rows[r])[g] : kZero, r,
                panel + g * kQ4KPanel.group_bytes());
    }
  }
}

void Unpack(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  const uint8_t* group = panel + kQ4KPanel.group_offset(block);
  const size_t b = block % kSuperBlocks;
  uint16_t d, dmin;
  std::memcpy(&d, group + kDOffset + row * sizeof(d), sizeof(d));
  std::memcpy(&dmin, group + kDminOffset + row * sizeof(dmin), sizeof(dmin));
  Words words;
  for (size_t w = 0; w < kWords; ++w)
    std::memcpy(&words[w], group + kWordOffset + w * kVectorBytes + row * sizeof(uint32_t), sizeof(uint32_t));
  out->scale = model::F16ToF32(d) * static_cast<float>(NumberAt(words, b));
  out->minimum = model::F16ToF32(dmin) * static_cast<float>(NumberAt(words, kSuperBlocks + b));
  const uint8_t* codes = panel + kQ4KPanel.weight_offset(block) + row * kVectorInputs;
  for (size_t i = 0; i < kBlock / 2; ++i) {
    const uint8_t code = codes[i / kVectorInputs * kVectorBytes + i % kVectorInputs];
    out->q[i] = static_cast<int8_t>(code & 15);
    out->q[i + kBlock / 2] = static_cast<int8_t>(code >> 4);
  }
}

}  // namespace larder::kernels::formats::q4k_panel
