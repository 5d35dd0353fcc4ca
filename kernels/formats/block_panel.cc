// Panels of types whose blocks are 32 weights of 4 or 5 bits: packing and unpacking. A block of the
// file is a block of the panel, row by row.
#include <array>
#include <bit>
#include <cstring>

#include "kernels/formats/panel_codes.h"
#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats::block_panel {
namespace {

// From a row's scale to its minimum.
constexpr size_t kMinimumOffset = kQ4_1Panel.minimum_offset(0) - kQ4_1Panel.scale_offset(0);

// The codes of inputs 4j..4j+3, a byte each.
template <typename Block>
uint32_t CodesOf(const Block& block, size_t j) {
  const uint32_t low =
      LoadWord(block.q + j % kNibbleVectors * kVectorInputs) >> j / kNibbleVectors * 4 & kLow4;
  uint32_t fifth = 0;
  for (size_t i = 0; i < kVectorInputs; ++i) {
    const size_t input = j * kVectorInputs + i;
    fifth |= (block.fifth[input / 8] >> input % 8 & 1u) << 8 * i;
  }
  return low | fifth << 4;
}

// Calls write_scales(block, to) for each block of each row, where `to` is where the panel has the
// row's scale. Rows that are missing are blocks of zeros, whose scales are zero.
template <typename Block, typename WriteScales>
void Pack(const PanelFormat& format, const void* const rows[kPanelRows], size_t blocks,
          uint8_t* panel, WriteScales write_scales) {
  static constexpr Block kZero{};
  for (size_t b = 0; b < blocks; ++b) {
    uint8_t *scales = panel + format.scale_offset(b), *codes = panel + format.weight_offset(b);
    for (size_t r = 0; r < kPanelRows; ++r) {
      const Block& block = rows[r] ? static_cast<const Block*>(rows[r])[b] : kZero;
      uint8_t *scale = scales + r * sizeof(uint16_t), *code = codes + r * kVectorInputs;
      rows[r] ? write_scales(block, scale)
              : static_cast<void>(std::memset(scale, 0, sizeof(uint16_t)));
      if (!rows[r] && format.has_minimum())
        std::memset(scale + kMinimumOffset, 0, sizeof(uint16_t));
      if constexpr (requires { block.fifth; }) {
        std::array<uint32_t, kBlockVectors> words;
        for (size_t j = 0; j < kBlockVectors; ++j) words[j] = CodesOf(block, j);
        PackFiveBits(words, code);
      } else {
        for (size_t j = 0; j < kNibbleVectors; ++j)
          std::memcpy(code + j * kVectorBytes, block.q + j * kVectorInputs, kVectorInputs);
      }
    }
  }
  if (blocks % 2) std::memset(panel + format.scale_offset(blocks), 0, format.scale_bytes);
}

// For blocks that begin with an f16 scale, or with an f16 scale and an f16 minimum.
template <typename Block>
void PackHalves(const PanelFormat& format, const void* const rows[kPanelRows], size_t blocks,
                uint8_t* panel) {
  Pack<Block>(format, rows, blocks, panel, [](const Block& block, uint8_t* to) {
    std::memcpy(to, &block.d, sizeof(block.d));
    if constexpr (requires { block.m; })
      std::memcpy(to + kMinimumOffset, &block.m, sizeof(block.m));
  });
}

uint16_t LoadHalf(const uint8_t* at) {
  uint16_t half;
  std::memcpy(&half, at, sizeof(half));
  return half;
}

// value(code) is the integer of a code.
template <typename Value>
void Unpack(const PanelFormat& format, const uint8_t* panel, size_t block, size_t row,
            PanelBlock* out, Value value) {
  const uint8_t* scale = panel + format.scale_offset(block) + row * sizeof(uint16_t);
  const uint16_t half = LoadHalf(scale);
  out->scale[0] = out->scale[1] =
      format.scales == PanelScales::kBf16 ? model::Bf16ToF32(half) : model::F16ToF32(half);
  out->minimum = format.has_minimum() ? -model::F16ToF32(LoadHalf(scale + kMinimumOffset)) : 0;
  const uint8_t* codes = panel + format.weight_offset(block) + row * kVectorInputs;
  const bool five = format.codes == PanelCodes::kFiveBits;
  for (size_t i = 0; i < kBlock; ++i)
    out->q[i] = static_cast<int8_t>(value(five ? FiveBitsAt(codes, i) : NibbleAt(codes, i)));
}

}  // namespace

void PackQ4_0(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  PackHalves<model::Q4Block>(kQ4_0Panel, rows, blocks, panel);
}
void PackQ4_1(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  PackHalves<model::Q4_1Block>(kQ4_1Panel, rows, blocks, panel);
}
void PackQ5_0(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  PackHalves<model::Q5Block>(kQ5_0Panel, rows, blocks, panel);
}
void PackQ5_1(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  PackHalves<model::Q5_1Block>(kQ5_1Panel, rows, blocks, panel);
}
void PackIq4Nl(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  PackHalves<model::Q4Block>(kIq4NlPanel, rows, blocks, panel);
}
void PackMxfp4(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel) {
  Pack<model::Mxfp4Block>(
      kMxfp4Panel, rows, blocks, panel, [](const model::Mxfp4Block& block, uint8_t* to) {
        const auto scale = static_cast<uint16_t>(
            std::bit_cast<uint32_t>(model::Mxfp4Scale(block.e)) >> 16);  // exact
        std::memcpy(to, &scale, sizeof(scale));
      });
}

void UnpackQ4_0(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(kQ4_0Panel, panel, block, row, out,
         [](unsigned code) { return static_cast<int>(code) - 8; });
}
void UnpackQ4_1(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(kQ4_1Panel, panel, block, row, out, [](unsigned code) { return code; });
}
void UnpackQ5_0(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(kQ5_0Panel, panel, block, row, out,
         [](unsigned code) { return static_cast<int>(code) - 16; });
}
void UnpackQ5_1(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(kQ5_1Panel, panel, block, row, out, [](unsigned code) { return code; });
}
void UnpackIq4Nl(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(kIq4NlPanel, panel, block, row, out,
         [](unsigned code) { return model::kIq4Values[code]; });
}
void UnpackMxfp4(const uint8_t* panel, size_t block, size_t row, PanelBlock* out) {
  Unpack(kMxfp4Panel, panel, block, row, out,
         [](unsigned code) { return model::kMxfp4Values[code]; });
}

}  // namespace larder::kernels::formats::block_panel
