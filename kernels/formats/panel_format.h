// PanelFormat: the memory layout of a weight matrix. A matrix is a sequence of panels of 16 rows; a
// tile of a matrix product reads a panel from front to back. All offsets and sizes within panels
// come from this file. A format is one of GGUF's weight types, rearranged. To add one, add a
// constant to kPanelFormats and its functions (like q8_panel.cc). If its codes or scales are of a
// new kind, teach the tiles to load these (kernels/gemm/).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

#include "model/gguf/formats.h"

namespace larder::kernels::inline formats {

using model::kBlock;

// The same for every format, because a kernel's vector has 16 outputs and an integer dot product
// adds 4 inputs: rows per panel; inputs per weight vector; bytes per weight vector, with weights as
// bytes; vectors per block.
inline constexpr size_t kPanelRows = 16;
inline constexpr size_t kVectorInputs = 4;
inline constexpr size_t kVectorBytes = kPanelRows * kVectorInputs;
inline constexpr size_t kBlockVectors = kBlock / kVectorInputs;

// A product's inputs are summed in chunks of this many blocks (1,024 inputs), and chunks are added
// in ascending order, whoever computes them: so neither slices of the inputs nor threads that share
// them change a bit.
inline constexpr size_t kSumBlocks = 32;

// One block of a row, as the products take it: weight[i] = scale[i / 16] * q[i] - minimum.
struct PanelBlock {
  float scale[2] = {};  // of its first and second half; equal except in formats with half_scales
  float minimum = 0;
  int8_t q[kBlock] = {};
};

// How a format stores its weights (PanelCodes) and its scales (PanelScales). Tiles have code for
// each of these kinds, not for each format.
enum class PanelCodes : uint8_t {
  kBytes,    // 8 vectors; vector j holds inputs 4j..4j+3 of rows 0..15: byte 4 * row + i = q + 128,
             // unsigned
  kNibbles,  // 4 vectors; vector j holds the codes of vector j in the low halves of its bytes and
             // those of vector j + 4 in the high halves; q = code - 8, or with minimums q = code
  kTable,    // as kNibbles; q = table[code]
  // 5 vectors: the codes of vectors 0 to 4 in bits 3 to 7 of their bytes. The code of vector 5 has
  // its highest three bits in bits 0 to 2 of the first vector and its lowest two in bits 1 and 2 of
  // the second; that of vector 6 has them at the same bits of the third and fourth; that of vector
  // 7 has its highest three bits in the fifth, then one bit each in bit 0 of the second and of the
  // fourth. q = code - 16, or with minimums q = code.
  kFiveBits,
  kSixBits,   // 6 vectors, 3 for each half of the block: the codes of vectors 0, 1, 2 of the half
              // in bits 2 to 7 of their bytes; the code of vector 3 in their bits 0 and 1, its
              // highest two bits in the first vector; q = code - 32
  kUnpacked,  // 8 vectors, in the form that the tiles of an instruction set multiply; used for
              // slices, never for panels
};
// Numbers of vectors: per block in kNibbles and kTable, per block in kFiveBits, per half block in
// kSixBits.
inline constexpr size_t kNibbleVectors = kBlockVectors / 2, kFiveVectors = 5, kTripleVectors = 3;
enum class PanelScales : uint8_t {
  kF16,            // per block: f16 [16 rows]
  kF16AndMinimum,  // the same, then f16 [16 rows] that are added: minimums with their sign changed
  kBf16,           // per block: bfloat16 [16 rows]
  kSixBitWords,    // in the group's header, scales and minimums (namespace six_bit_words)
  kInt8,           // in the group's header, one per block (namespace int8_scales)
  kInt8Halves,     // the same, one per half block
  // With kUnpacked, per block: float32 [16 rows]; the same for each half; the same, then minimums
  // with their sign changed.
  kF32,
  kF32Halves,
  kF32AndMinimum,
};

// A panel of `blocks` blocks of 32 inputs, in groups of group_blocks blocks:
//   header; scales of each block of the group; weights of each block of the group.
// So scales fill whole cache lines. A last group of fewer blocks is stored without the weights that
// it lacks (their scales are there, zero). Panels are 64-byte aligned, and so are each block's
// weights. Rows after the matrix's last have weight and scale 0.
struct PanelFormat {
  model::TensorType type;  // the type whose rows pack() takes; a type has one format; its blocks
                           // hold whole groups or one block
  std::string_view name;
  PanelCodes codes;
  // Bits of a code when it is multiplied as an unsigned number. (A weight is its code minus half of
  // the range; with minimums it is the code.) 8 for kBytes; for kTable, as many as its values need.
  size_t code_bits;
  PanelScales scales;
  const std::array<int8_t, 16>* table;  // the values of kTable
  size_t group_blocks;                  // 2, or the blocks of a super-block
  size_t header_bytes;                  // per group
  size_t scale_bytes;                   // per block: the scales of its 16 rows
  size_t weight_bytes;                  // per block: the weights of its 16 rows

  // Writes a whole panel, bytes(blocks) at `panel`. rows[r] points to the `blocks` blocks of row r
  // in the format's `type`, or is null for a row of zeros.
  void (*pack)(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
  // Reads back a block of a row: exactly the values that the kernels compute with.
  void (*unpack)(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);

  // Whether blocks have a minimum other than 0.
  constexpr bool has_minimum() const {
    return scales == PanelScales::kF16AndMinimum || scales == PanelScales::kSixBitWords ||
           scales == PanelScales::kF32AndMinimum;
  }
  // Whether each half of a block has a scale of its own.
  constexpr bool half_scales() const {
    return scales == PanelScales::kInt8Halves || scales == PanelScales::kF32Halves;
  }

  constexpr size_t group_bytes() const {
    return header_bytes + group_blocks * (scale_bytes + weight_bytes);
  }
  constexpr size_t bytes(size_t blocks) const {
    const size_t rest = blocks % group_blocks;
    const size_t last =
        rest > 0 ? header_bytes + group_blocks * scale_bytes + rest * weight_bytes : 0;
    return blocks / group_blocks * group_bytes() + last;
  }
  // The offsets within a panel of a block's group, scales, and weights.
  constexpr size_t group_offset(size_t block) const { return block / group_blocks * group_bytes(); }
  constexpr size_t scale_offset(size_t block) const {
    return group_offset(block) + header_bytes + block % group_blocks * scale_bytes;
  }
  // With kF32Halves: the offset of the scales of half `half` of the block.
  constexpr size_t half_scale_offset(size_t block, size_t half) const {
    return scale_offset(block) + half * kPanelRows * sizeof(float);
  }
  // With kF16AndMinimum and kF32AndMinimum: the offset of the block's minimums.
  constexpr size_t minimum_offset(size_t block) const {
    return scale_offset(block) + scale_bytes / 2;
  }
  // With kInt8 and kInt8Halves: the offset of the integer scales of half `half` of the block.
  constexpr size_t int8_offset(size_t block, size_t half) const;
  constexpr size_t weight_offset(size_t block) const {
    return group_offset(block) + header_bytes + group_blocks * scale_bytes +
           block % group_blocks * weight_bytes;
  }
  // The offset of a block's stored vector; with kSixBits, of the first vector of half `half`.
  constexpr size_t vector_offset(size_t block, size_t vector) const {
    return weight_offset(block) + vector * kVectorBytes;
  }
  constexpr size_t half_offset(size_t block, size_t half) const {
    return vector_offset(block, half * kTripleVectors);
  }
};

namespace q8_panel {
void Pack(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
// Writes the `blocks` blocks of row `row` of a panel; the other rows stay as they are.
void PackRow(const model::Q8Block* row_blocks, size_t blocks, size_t row, uint8_t* panel);
void Unpack(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
}  // namespace q8_panel
namespace block_panel {
void PackQ4_0(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ4_0(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackQ4_1(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ4_1(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackQ5_0(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ5_0(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackQ5_1(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ5_1(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackIq4Nl(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackIq4Nl(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackMxfp4(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackMxfp4(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
}  // namespace block_panel
namespace super_panel {
void PackQ4K(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ4K(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackQ5K(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ5K(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackQ6K(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ6K(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void PackIq4Xs(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackIq4Xs(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
}  // namespace super_panel

inline constexpr PanelFormat kQ8Panel{.type = model::TensorType::kQ8_0,
                                      .name = "q8_0",
                                      .codes = PanelCodes::kBytes,
                                      .code_bits = 8,
                                      .scales = PanelScales::kF16,
                                      .table = nullptr,
                                      .group_blocks = 2,
                                      .header_bytes = 0,
                                      .scale_bytes = kPanelRows * sizeof(model::Q8Block::d),
                                      .weight_bytes = kBlockVectors * kVectorBytes,
                                      .pack = q8_panel::Pack,
                                      .unpack = q8_panel::Unpack};

// The products of weights in kQ4_0Panel, kQ5_0Panel, kIq4NlPanel and kMxfp4Panel have the bits of
// the same weights in kQ8Panel.
inline constexpr PanelFormat kQ4_0Panel = [] {
  PanelFormat format = kQ8Panel;
  format.type = model::TensorType::kQ4_0;
  format.name = "q4_0";
  format.codes = PanelCodes::kNibbles;
  format.code_bits = 4;
  format.weight_bytes = kBlockVectors / 2 * kVectorBytes;
  format.pack = block_panel::PackQ4_0;
  format.unpack = block_panel::UnpackQ4_0;
  return format;
}();
inline constexpr PanelFormat kQ5_0Panel = [] {
  PanelFormat format = kQ8Panel;
  format.type = model::TensorType::kQ5_0;
  format.name = "q5_0";
  format.codes = PanelCodes::kFiveBits;
  format.code_bits = 5;
  format.weight_bytes = kQ4_0Panel.weight_bytes + kVectorBytes;
  format.pack = block_panel::PackQ5_0;
  format.unpack = block_panel::UnpackQ5_0;
  return format;
}();
inline constexpr PanelFormat kIq4NlPanel = [] {
  PanelFormat format = kQ4_0Panel;
  format.type = model::TensorType::kIQ4_NL;
  format.name = "iq4_nl";
  format.codes = PanelCodes::kTable;
  format.code_bits = 8;
  format.table = &model::kIq4Values;
  format.pack = block_panel::PackIq4Nl;
  format.unpack = block_panel::UnpackIq4Nl;
  return format;
}();
// The scales are powers of two; a bfloat16 holds any of them. That takes a quarter of a bit more
// per weight than in the file.
inline constexpr PanelFormat kMxfp4Panel = [] {
  PanelFormat format = kIq4NlPanel;
  format.type = model::TensorType::kMXFP4;
  format.name = "mxfp4";
  format.scales = PanelScales::kBf16;
  format.table = &model::kMxfp4Values;
  format.code_bits = 5;  // -12 to 12
  format.pack = block_panel::PackMxfp4;
  format.unpack = block_panel::UnpackMxfp4;
  return format;
}();
static_assert(std::all_of(model::kMxfp4Values.begin(), model::kMxfp4Values.end(), [](int value) {
  return value >= -(1 << (kMxfp4Panel.code_bits - 1)) && value < 1 << (kMxfp4Panel.code_bits - 1);
}));
inline constexpr PanelFormat kQ4_1Panel = [] {
  PanelFormat format = kQ4_0Panel;
  format.type = model::TensorType::kQ4_1;
  format.name = "q4_1";
  format.scales = PanelScales::kF16AndMinimum;
  format.scale_bytes = 2 * kQ4_0Panel.scale_bytes;
  format.pack = block_panel::PackQ4_1;
  format.unpack = block_panel::UnpackQ4_1;
  return format;
}();
inline constexpr PanelFormat kQ5_1Panel = [] {
  PanelFormat format = kQ5_0Panel;
  format.type = model::TensorType::kQ5_1;
  format.name = "q5_1";
  format.scales = PanelScales::kF16AndMinimum;
  format.scale_bytes = 2 * kQ5_0Panel.scale_bytes;
  format.pack = block_panel::PackQ5_1;
  format.unpack = block_panel::UnpackQ5_1;
  return format;
}();

// The scales and minimums of 8 blocks, as many bytes as in the file: f16 d [16 rows], f16 dmin [16
// rows], then 3 vectors of a 32-bit word for each row with 6-bit numbers: word w has numbers
// 5w..5w+4 in its bits 0..29, of the scales of blocks 0..7 and the minimums of blocks 0..6; the
// minimum of block 7 is in the bits 30 and 31 of the words, lowest bits first.
// weight = (d * scale) * code - dmin * minimum, both products exact in float32.
namespace six_bit_words {
inline constexpr size_t kDOffset = 0, kDminOffset = 32, kWordOffset = 64;
inline constexpr size_t kWords = 3, kWordNumbers = 5, kNumberBits = 6;
inline constexpr size_t kNumbers = 2 * model::kSuperBlocks;  // the last one is split
inline constexpr size_t kBytes = kWordOffset + kWords * kVectorBytes;
constexpr size_t word_offset(size_t word) { return kWordOffset + word * kVectorBytes; }
}  // namespace six_bit_words
inline constexpr PanelFormat kQ4KPanel = [] {
  PanelFormat format = kQ4_0Panel;
  format.type = model::TensorType::kQ4_K;
  format.name = "q4_k";
  format.scales = PanelScales::kSixBitWords;
  format.group_blocks = model::kSuperBlocks;
  format.header_bytes = six_bit_words::kBytes;
  format.scale_bytes = 0;
  format.pack = super_panel::PackQ4K;
  format.unpack = super_panel::UnpackQ4K;
  return format;
}();
inline constexpr PanelFormat kQ5KPanel = [] {
  PanelFormat format = kQ4KPanel;
  format.type = model::TensorType::kQ5_K;
  format.name = "q5_k";
  format.codes = PanelCodes::kFiveBits;
  format.code_bits = 5;
  format.weight_bytes = kQ5_0Panel.weight_bytes;
  format.pack = super_panel::PackQ5K;
  format.unpack = super_panel::UnpackQ5K;
  return format;
}();

// The scales of 8 blocks: float32 d [16 rows], then int8 scale [16 rows] of each block or half
// block; a weight's scale is their product, exact in float32. This takes a sixteenth of a bit more
// per weight than the file (an eighth for IQ4_XS, whose scales have 6 bits there).
namespace int8_scales {
inline constexpr size_t kDOffset = 0, kScaleOffset = 64;
// With kSixBits tiles multiply codes that are this many times too large, with a d that is as much
// smaller.
inline constexpr float kSixBitTimes = 4;
}  // namespace int8_scales
constexpr size_t PanelFormat::int8_offset(size_t block, size_t half) const {
  const size_t in_group = block % group_blocks;
  return group_offset(block) + int8_scales::kScaleOffset +
         (half_scales() ? 2 * in_group + half : in_group) * kPanelRows;
}
inline constexpr PanelFormat kQ6KPanel = [] {
  PanelFormat format = kQ4KPanel;
  format.type = model::TensorType::kQ6_K;
  format.name = "q6_k";
  format.codes = PanelCodes::kSixBits;
  format.code_bits = 6;
  format.scales = PanelScales::kInt8Halves;
  format.header_bytes = int8_scales::kScaleOffset + 2 * model::kSuperBlocks * kPanelRows;
  format.weight_bytes = kBlockVectors * kVectorBytes * 6 / 8;
  format.pack = super_panel::PackQ6K;
  format.unpack = super_panel::UnpackQ6K;
  return format;
}();
inline constexpr PanelFormat kIq4XsPanel = [] {
  PanelFormat format = kQ4KPanel;
  format.type = model::TensorType::kIQ4_XS;
  format.name = "iq4_xs";
  format.codes = PanelCodes::kTable;
  format.code_bits = 8;
  format.table = &model::kIq4Values;
  format.scales = PanelScales::kInt8;
  format.header_bytes = int8_scales::kScaleOffset + model::kSuperBlocks * kPanelRows;
  format.pack = super_panel::PackIq4Xs;
  format.unpack = super_panel::UnpackIq4Xs;
  return format;
}();

inline constexpr std::array kPanelFormats = {&kQ8Panel,   &kQ4_0Panel,  &kQ4_1Panel,  &kQ5_0Panel,
                                             &kQ5_1Panel, &kIq4NlPanel, &kMxfp4Panel, &kQ4KPanel,
                                             &kQ5KPanel,  &kQ6KPanel,   &kIq4XsPanel};

// The format in which a slice of this format's panels is kept for a product of many rows, so that
// its weights are unpacked once and not for each tile. It has no pack and no unpack.
constexpr PanelFormat UnpackedFormat(const PanelFormat& packed) {
  PanelFormat format = kQ8Panel;
  format.type = packed.type;
  format.name = packed.name;
  format.codes = PanelCodes::kUnpacked;
  format.code_bits = packed.code_bits;
  format.scales = packed.half_scales()   ? PanelScales::kF32Halves
                  : packed.has_minimum() ? PanelScales::kF32AndMinimum
                                         : PanelScales::kF32;
  format.scale_bytes = kPanelRows * sizeof(float) * (format.scales == PanelScales::kF32 ? 1 : 2);
  format.pack = nullptr;
  format.unpack = nullptr;
  return format;
}

// The format that holds weights of a GGUF type as they are, or kQ8Panel, for which others are
// converted to Q8_0 (GgufFile::ReadRowsQ8_0).
const PanelFormat& PanelFormatOf(model::TensorType type);

// The panels of one matrix. blocks: per row, ceil(inputs / 32).
struct PanelShape {
  size_t blocks = 0;
  PanelFormat format = kQ8Panel;
  constexpr size_t bytes() const { return format.bytes(blocks); }  // per panel
  // Bytes of a row in the format's type.
  size_t row_bytes() const { return model::RowBytes(format.type, blocks * kBlock); }
  bool operator==(const PanelShape& other) const {
    return blocks == other.blocks && format.type == other.format.type;
  }
};

// Converts row `row` of a panel to 32 * blocks floats: scale * q - minimum, the product and the
// difference rounded.
void UnpackRow(const PanelShape&, const uint8_t* panel, size_t row, float* out);

// For checks and measurements: writes a row of random weights in the format's type, row_bytes()
// bytes at `row`. Its scales are in [2^-8, 2^-6).
void FillRandomRow(const PanelShape&, std::minstd_rand& random, uint8_t* row);

}  // namespace larder::kernels::formats
