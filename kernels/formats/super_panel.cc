// Panels of types with super-blocks: packing and unpacking. A super-block of the file is a group of
// the panel, row by row.
#include <array>
#include <cstring>

#include "kernels/formats/panel_codes.h"
#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats::super_panel {
namespace {

using model::kSuperBlocks;

constexpr size_t kPairBytes = 2 * kBlock / 2;  // bytes in the file for the nibbles of two blocks
constexpr size_t kHalves = 2 * kSuperBlocks;   // half blocks in a group
constexpr size_t kHalfInputs = kBlock / 2, kHalfVectors = kBlockVectors / 2;

// Calls pack_group(super-block, row, group) for all of them. Rows that are missing are super-blocks
// of zeros.
template <typename Block, typename PackGroup>
void Pack(const PanelFormat& format, const void* const rows[kPanelRows], size_t blocks,
          uint8_t* panel, PackGroup pack_group) {
  static constexpr Block kZero{};
  for (size_t g = 0; g < blocks / kSuperBlocks; ++g) {
    for (size_t r = 0; r < kPanelRows; ++r)
      pack_group(rows[r] ? static_cast<const Block*>(rows[r])[g] : kZero, r,
                 panel + g * format.group_bytes());
  }
}

float LoadHalf(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return model::F16ToF32(half);
}

// Q4_K and Q5_K.

using Words = std::array<uint32_t, six_bit_words::kWords>;

// Number n of a row: the scale of block n, or the minimum of block n - 8.
uint32_t NumberAt(const Words& words, size_t n) {
  using namespace six_bit_words;
  if (n + 1 == kNumbers) return words[0] >> 30 | words[1] >> 30 << 2 | words[2] >> 30 << 4;
  return words[n / kWordNumbers] >> n % kWordNumbers * kNumberBits & 63;
}

Words WordsOf(const uint8_t scales[12]) {
  using namespace six_bit_words;
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

template <typename Block>
void PackWords(const Block& from, size_t row, uint8_t* group) {
  using namespace six_bit_words;
  std::memcpy(group + kDOffset + row * sizeof(from.d), &from.d, sizeof(from.d));
  std::memcpy(group + kDminOffset + row * sizeof(from.dmin), &from.dmin, sizeof(from.dmin));
  const Words words = WordsOf(from.scales);
  for (size_t w = 0; w < kWords; ++w)
    StoreWord(words[w], group + word_offset(w) + row * sizeof(uint32_t));
}

void UnpackWords(const uint8_t* group, size_t block, size_t row, PanelBlock* out) {
  using namespace six_bit_words;
  Words words;
  for (size_t w = 0; w < kWords; ++w)
    words[w] = LoadWord(group + word_offset(w) + row * sizeof(uint32_t));
  out->scale[0] = out->scale[1] = LoadHalf(group + kDOffset + row * sizeof(uint16_t)) *
                                  static_cast<float>(NumberAt(words, block % kSuperBlocks));
  out->minimum = LoadHalf(group + kDminOffset + row * sizeof(uint16_t)) *
                 static_cast<float>(NumberAt(words, kSuperBlocks + block % kSuperBlocks));
}

// In the file, the low halves of 32 bytes belong to an even block and the high ones to the odd one
// after it. The nibbles of inputs 4j..4j+3 of block b, a byte each.
uint32_t NibblesOf(const uint8_t* q, size_t b, size_t j) {
  return LoadWord(q + b / 2 * kPairBytes + j * kVectorInputs) >> b % 2 * 4 & kLow4;
}

// IQ4_XS and Q6_K: a scale, and d times `times`.

void PackD(uint16_t half, float times, size_t row, uint8_t* group) {
  const float d = model::F16ToF32(half) * times;  // exact
  std::memcpy(group + int8_scales::kDOffset + row * sizeof(d), &d, sizeof(d));
}
void PackScale(int8_t scale, uint8_t* at) { std::memcpy(at, &scale, sizeof(scale)); }
float ScaleAt(const PanelFormat& format, const uint8_t* panel, size_t block, size_t half,
              size_t row) {
  float d;
  int8_t scale;
  std::memcpy(&d, panel + format.group_offset(block) + int8_scales::kDOffset + row * sizeof(d),
              sizeof(d));
  std::memcpy(&scale, panel + format.int8_offset(block, half) + row, sizeof(scale));
  return d * static_cast<float>(scale);
}

// The codes of inputs 4j..4j+3 of a half block, a byte each.
uint32_t SixBitCodes(const model::Q6KBlock& from, size_t half, size_t j) {
  const size_t part = half / 8, quarter = half % 8 / 2,
               first = half % 2 * kHalfInputs + j * kVectorInputs;
  const uint32_t low =
      LoadWord(from.low + part * 64 + quarter % 2 * 32 + first) >> quarter / 2 * 4 & kLow4;
  const uint32_t high = LoadWord(from.high + part * 32 + first) >> quarter * 2 & kLow2;
  return low | high << 4;
}

}  // namespace

void PackQ4K(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  Pack<model::Q4KBlock>(
      kQ4KPanel, rows, blocks, panel, [](const model::Q4KBlock& from, size_t row, uint8_t* group) {
        PackWords(from, row, group);
        for (size_t b = 0; b < kSuperBlocks; ++b) {
          uint8_t* to = group + kQ4KPanel.weight_offset(b) + row * kVectorInputs;
          for (size_t j = 0; j < kNibbleVectors; ++j)
            StoreWord(NibblesOf(from.q, b, j) | NibblesOf(from.q, b, j + kNibbleVectors) << 4,
                      to + j * kVectorBytes);
        }
      });
}

void UnpackQ4K(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  UnpackWords(panel + kQ4KPanel.group_offset(block), block, row, out);
  const uint8_t* codes = panel + kQ4KPanel.weight_offset(block) + row * kVectorInputs;
  for (size_t i = 0; i < kBlock; ++i) out->q[i] = static_cast<int8_t>(NibbleAt(codes, i));
}

void PackQ5K(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  Pack<model::Q5KBlock>(
      kQ5KPanel, rows, blocks, panel, [](const model::Q5KBlock& from, size_t row, uint8_t* group) {
        PackWords(from, row, group);
        for (size_t b = 0; b < kSuperBlocks; ++b) {
          std::array<uint32_t, kBlockVectors> words;
          for (size_t j = 0; j < kBlockVectors; ++j)
            words[j] = NibblesOf(from.q, b, j) |
                       (LoadWord(from.fifth + j * kVectorInputs) >> b & kLow1) << 4;
          PackFiveBits(words, group + kQ5KPanel.weight_offset(b) + row * kVectorInputs);
        }
      });
}

void UnpackQ5K(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  UnpackWords(panel + kQ5KPanel.group_offset(block), block, row, out);
  const uint8_t* codes = panel + kQ5KPanel.weight_offset(block) + row * kVectorInputs;
  for (size_t i = 0; i < kBlock; ++i) out->q[i] = static_cast<int8_t>(FiveBitsAt(codes, i));
}

void PackQ6K(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  Pack<model::Q6KBlock>(
      kQ6KPanel, rows, blocks, panel, [](const model::Q6KBlock& from, size_t row, uint8_t* group) {
        PackD(from.d, 1 / int8_scales::kSixBitTimes, row, group);
        for (size_t half = 0; half < kHalves; ++half) {
          PackScale(from.scales[half], group + kQ6KPanel.int8_offset(half / 2, half % 2) + row);
          uint8_t* to = group + kQ6KPanel.half_offset(half / 2, half % 2) + row * kVectorInputs;
          std::array<uint32_t, kHalfVectors> words;
          for (size_t j = 0; j < kHalfVectors; ++j) words[j] = SixBitCodes(from, half, j);
          PackSixBits(words, to);
        }
      });
}

void UnpackQ6K(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  out->minimum = 0;
  for (size_t h = 0; h < 2; ++h) {
    out->scale[h] = ScaleAt(kQ6KPanel, panel, block, h, row) * int8_scales::kSixBitTimes;
    const uint8_t* at = panel + kQ6KPanel.half_offset(block, h) + row * kVectorInputs;
    for (size_t i = 0; i < kHalfInputs; ++i)
      out->q[h * kHalfInputs + i] = static_cast<int8_t>(static_cast<int>(SixBitsAt(at, i)) - 32);
  }
}

void PackIq4Xs(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  Pack<model::Iq4XsBlock>(
      kIq4XsPanel, rows, blocks, panel,
      [](const model::Iq4XsBlock& from, size_t row, uint8_t* group) {
        PackD(from.d, 1, row, group);
        for (size_t b = 0; b < kSuperBlocks; ++b) {
          const int low = from.scales_low[b / 2] >> b % 2 * 4 & 15,
                    high = from.scales_high >> 2 * b & 3;
          PackScale(static_cast<int8_t>((low | high << 4) - 32),
                    group + kIq4XsPanel.int8_offset(b, 0) + row);
          uint8_t* to = group + kIq4XsPanel.weight_offset(b) + row * kVectorInputs;
          for (size_t j = 0; j < kNibbleVectors; ++j)
            std::memcpy(to + j * kVectorBytes, from.q[b] + j * kVectorInputs, kVectorInputs);
        }
      });
}

void UnpackIq4Xs(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  out->minimum = 0;
  out->scale[0] = out->scale[1] = ScaleAt(kIq4XsPanel, panel, block, 0, row);
  const uint8_t* codes = panel + kIq4XsPanel.weight_offset(block) + row * kVectorInputs;
  for (size_t i = 0; i < kBlock; ++i) out->q[i] = model::kIq4Values[NibbleAt(codes, i)];
}

}  // namespace larder::kernels::formats::super_panel
