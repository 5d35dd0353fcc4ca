// PanelFormat: the memory layout of a weight matrix. A matrix is a sequence of panels of 16 rows; a tile of a
// matrix product reads a panel from front to back. All offsets and sizes within panels come from this file.
// Another format (4-bit weights) would add a constant beside kQ8Panel, its functions (as q8_panel.cc), and
// the way that a tile loads its weights (LoadWeights in kernels/gemm/).
#pragma once

#include <cstddef>
#include <cstdint>
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

enum class PanelFormatId : uint8_t { kQ8 };

// A panel of `blocks` blocks of 32 inputs. Blocks are stored in pairs, so that scales fill whole cache lines:
//   scales of the first block, of the second; weights of the first block, of the second.
// An odd last block is stored as a pair without the second block's weights (its scales are there, zero).
// Panels are 64-byte aligned, and so are each block's weights. Rows after the matrix's last and inputs beyond
// its width have weight 0 and scale 0.
struct PanelFormat {
  PanelFormatId id;
  std::string_view name;
  size_t scale_bytes;   // per block: the scales of its 16 rows
  size_t weight_bytes;  // per block: the weights of its 16 rows

  // Writes a whole panel, bytes(blocks) at `panel`. rows[r] points to the `blocks` blocks of row r, or is
  // null for a row of zeros.
  void (*pack)(const model::Q8Block* const rows[kPanelRows], size_t blocks, uint8_t* panel);
  // Writes the `blocks` blocks of row `row` of a panel; the other rows stay as they are.
  void (*pack_row)(const model::Q8Block* row_blocks, size_t blocks, size_t row, uint8_t* panel);
  // Reads back a block of a row: exactly the values that the kernels compute with.
  void (*unpack)(const uint8_t* panel, size_t block, size_t row, model::Q8Block* out);

  constexpr size_t pair_bytes() const { return 2 * (scale_bytes + weight_bytes); }
  constexpr size_t odd_block_bytes() const { return 2 * scale_bytes + weight_bytes; }  // of an odd last block
  constexpr size_t bytes(size_t blocks) const {
    return blocks / 2 * pair_bytes() + blocks % 2 * odd_block_bytes();
  }
  // The offsets of a block's scales and weights within a panel.
  constexpr size_t scale_offset(size_t block) const {
    return block / 2 * pair_bytes() + block % 2 * scale_bytes;
  }
  constexpr size_t weight_offset(size_t block) const {
    return block / 2 * pair_bytes() + 2 * scale_bytes + block % 2 * weight_bytes;
  }
};

namespace q8_panel {
void Pack(const model::Q8Block* const rows[kPanelRows], size_t blocks, uint8_t* panel);
void PackRow(const model::Q8Block* row_blocks, size_t blocks, size_t row, uint8_t* panel);
void Unpack(const uint8_t* panel, size_t block, size_t row, model::Q8Block* out);
}  // namespace q8_panel

// 8-bit weights, f16 scales. Scales: [16 rows]. Weights: 8 vectors; vector j holds inputs 4j..4j+3 of rows
// 0..15: byte 4 * row + i = weight(row, 4j + i) + 128, unsigned.
inline constexpr PanelFormat kQ8Panel{.id = PanelFormatId::kQ8,
                                      .name = "q8",
                                      .scale_bytes = kPanelRows * sizeof(model::Q8Block::d),
                                      .weight_bytes = kBlockVectors * kVectorBytes,
                                      .pack = q8_panel::Pack,
                                      .pack_row = q8_panel::PackRow,
                                      .unpack = q8_panel::Unpack};

// The panels of one matrix. blocks: per row, ceil(inputs / 32).
struct PanelShape {
  size_t blocks = 0;
  PanelFormat format = kQ8Panel;
  constexpr size_t bytes() const { return format.bytes(blocks); }  // per panel
};

// Converts row `row` of a panel to 32 * blocks floats, exactly scale * weight.
void UnpackRow(const PanelShape&, const uint8_t* panel, size_t row, float* out);

}  // namespace larder::kernels::formats
