// PanelFormat: the memory layout of a weight matrix. A matrix is a sequence of panels of 16 rows; a tile of a
// matrix product reads a panel from front to back. All offsets and sizes within panels come from this file.
// A format is a type of GGUF's weights, rearranged: it adds a constant to kPanelFormats, its functions (as
// q8_panel.cc), and the way that a tile loads its weights and scales (kernels/gemm/).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <random>
#include <string_view>

#include "model/gguf/formats.h"

namespace larder::kernels::inline formats {

using model::kBlock;

// The same for every format, because a kernel's vector has 16 outputs and an integer dot product adds 4
// inputs: rows per panel; inputs per weight vector; bytes per weight vector, with weights as bytes; vectors
// per block.
inline constexpr size_t kPanelRows = 16;
inline constexpr size_t kVectorInputs = 4;
inline constexpr size_t kVectorBytes = kPanelRows * kVectorInputs;
inline constexpr size_t kBlockVectors = kBlock / kVectorInputs;

// A product's inputs are summed in chunks of this many blocks (1,024 inputs), and chunks are added in
// ascending order, whoever computes them: so neither slices of the inputs nor threads that share them change
// a bit.
inline constexpr size_t kSumBlocks = 32;

// One block of a row, as the products take it: weight[i] = scale * q[i] - minimum.
struct PanelBlock {
  float scale = 0, minimum = 0;
  int8_t q[kBlock] = {};
};

enum class PanelFormatId : uint8_t { kQ8_0, kQ4_0, kIq4Nl, kQ4K };

// A panel of `blocks` blocks of 32 inputs, in groups of group_blocks blocks:
//   header; scales of each block of the group; weights of each block of the group.
// So scales fill whole cache lines. A last group of fewer blocks is stored without the weights that it lacks
// (their scales are there, zero). Panels are 64-byte aligned, and so are each block's weights. Rows after the
// matrix's last have weight and scale 0.
struct PanelFormat {
  PanelFormatId id;
  model::TensorType type;  // of the rows that pack takes; its blocks hold whole groups or one block
  std::string_view name;
  bool has_minimum;     // its blocks' minimum is not always 0
  size_t group_blocks;  // 2, or the blocks of a super-block
  size_t header_bytes;  // per group
  size_t scale_bytes;   // per block: the scales of its 16 rows
  size_t weight_bytes;  // per block: the weights of its 16 rows

  // Writes a whole panel, bytes(blocks) at `panel`. rows[r] points to the `blocks` blocks of row r in the
  // format's `type`, or is null for a row of zeros.
  void (*pack)(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
  // Reads back a block of a row: exactly the values that the kernels compute with.
  void (*unpack)(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);

  constexpr size_t group_bytes() const { return header_bytes + group_blocks * (scale_bytes + weight_bytes); }
  constexpr size_t bytes(size_t blocks) const {
    const size_t rest = blocks % group_blocks;
    const size_t last = rest > 0 ? header_bytes + group_blocks * scale_bytes + rest * weight_bytes : 0;
    return blocks / group_blocks * group_bytes() + last;
  }
  // The offsets within a panel of a block's group, scales, and weights.
  constexpr size_t group_offset(size_t block) const { return block / group_blocks * group_bytes(); }
  constexpr size_t scale_offset(size_t block) const {
    return group_offset(block) + header_bytes + block % group_blocks * scale_bytes;
  }
  constexpr size_t weight_offset(size_t block) const {
    return group_offset(block) + header_bytes + group_blocks * scale_bytes +
           block % group_blocks * weight_bytes;
  }
};

namespace q8_panel {
void Pack(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
// Writes the `blocks` blocks of row `row` of a panel; the other rows stay as they are.
void PackRow(const model::Q8Block* row_blocks, size_t blocks, size_t row, uint8_t* panel);
void Unpack(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
}  // namespace q8_panel
namespace q4_panel {
void Pack(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void UnpackQ4_0(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
void UnpackIq4Nl(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
}  // namespace q4_panel
namespace q4k_panel {
void Pack(const void* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void Unpack(const uint8_t* panel, size_t block, size_t row, PanelBlock* out);
}  // namespace q4k_panel

// 8-bit weights, f16 scales. Scales: [16 rows]. Weights: 8 vectors; vector j holds inputs 4j..4j+3 of rows
// 0..15: byte 4 * row + i = weight(row, 4j + i) + 128, unsigned.
inline constexpr PanelFormat kQ8Panel{.id = PanelFormatId::kQ8_0,
                                      .type = model::TensorType::kQ8_0,
                                      .name = "q8_0",
                                      .has_minimum = false,
                                      .group_blocks = 2,
                                      .header_bytes = 0,
                                      .scale_bytes = kPanelRows * sizeof(model::Q8Block::d),
                                      .weight_bytes = kBlockVectors * kVectorBytes,
                                      .pack = q8_panel::Pack,
                                      .unpack = q8_panel::Unpack};

// 4-bit codes, f16 scales. Weights: 4 vectors; vector j holds the codes of vector j of kQ8Panel in the low
// halves of its bytes and those of vector j + 4 in the high halves. A weight is code - 8. The products have
// the bits of the same weights in kQ8Panel.
inline constexpr PanelFormat kQ4_0Panel{.id = PanelFormatId::kQ4_0,
                                        .type = model::TensorType::kQ4_0,
                                        .name = "q4_0",
                                        .has_minimum = false,
                                        .group_blocks = 2,
                                        .header_bytes = 0,
                                        .scale_bytes = kPanelRows * sizeof(model::Q4Block::d),
                                        .weight_bytes = kBlockVectors / 2 * kVectorBytes,
                                        .pack = q4_panel::Pack,
                                        .unpack = q4_panel::UnpackQ4_0};

// The same with the weights kIq4Values[code].
inline constexpr PanelFormat kIq4NlPanel = [] {
  PanelFormat format = kQ4_0Panel;
  format.id = PanelFormatId::kIq4Nl;
  format.type = model::TensorType::kIQ4_NL;
  format.name = "iq4_nl";
  format.unpack = q4_panel::UnpackIq4Nl;
  return format;
}();

// Q4_K: 4-bit codes as in kQ4_0Panel; scales and minimums of 8 blocks in the group's header, as many bytes as
// in the file: f16 d [16 rows], f16 dmin [16 rows], then 3 vectors of a 32-bit word for each row with 6-bit
// numbers: word w has numbers 5w..5w+4 in its bits 0..29, of the scales of blocks 0..7 and the minimums of
// blocks 0..6; the minimum of block 7 is in the bits 30 and 31 of the words, lowest bits first.
// weight = (d * scale) * code - dmin * minimum, both products exact in float32.
namespace q4k_panel {
inline constexpr size_t kDOffset = 0, kDminOffset = 32, kWordOffset = 64;
inline constexpr size_t kWords = 3, kWordNumbers = 5, kNumberBits = 6;
inline constexpr size_t kNumbers = 2 * model::kSuperBlocks;  // the last one is split
}  // namespace q4k_panel
inline constexpr PanelFormat kQ4KPanel{
    .id = PanelFormatId::kQ4K,
    .type = model::TensorType::kQ4_K,
    .name = "q4_k",
    .has_minimum = true,
    .group_blocks = model::kSuperBlocks,
    .header_bytes = q4k_panel::kWordOffset + q4k_panel::kWords * kVectorBytes,
    .scale_bytes = 0,
    .weight_bytes = kBlockVectors / 2 * kVectorBytes,
    .pack = q4k_panel::Pack,
    .unpack = q4k_panel::Unpack};

inline constexpr std::array<const PanelFormat*, 4> kPanelFormats = {&kQ8Panel, &kQ4_0Panel, &kIq4NlPanel,
                                                                    &kQ4KPanel};

// The format that holds weights of a GGUF type as they are, or kQ8Panel, for which others are converted to
// Q8_0 (GgufFile::ReadRowsQ8_0).
const PanelFormat& PanelFormatOf(model::TensorType type);

// The panels of one matrix. blocks: per row, ceil(inputs / 32).
struct PanelShape {
  size_t blocks = 0;
  PanelFormat format = kQ8Panel;
  constexpr size_t bytes() const { return format.bytes(blocks); }  // per panel
  // Of a row in the format's type.
  size_t row_bytes() const { return model::RowBytes(format.type, blocks * kBlock); }
  bool operator==(const PanelShape& other) const {
    return blocks == other.blocks && format.id == other.format.id;
  }
};

// Converts row `row` of a panel to 32 * blocks floats: scale * q - minimum, the product and the difference
// rounded.
void UnpackRow(const PanelShape&, const uint8_t* panel, size_t row, float* out);

// For checks and measurements: a row of random weights in the format's type, `row_bytes()` at `row`, whose
// scales are in [2^-8, 2^-6).
void FillRandomRow(const PanelShape&, std::minstd_rand& random, uint8_t* row);

}  // namespace larder::kernels::formats
