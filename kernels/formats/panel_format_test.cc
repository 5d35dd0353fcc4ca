// Panel formats: the place of each byte, and that unpacking returns the packed rows.
#include "kernels/formats/panel_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/memory.h"

namespace larder::kernels::inline formats {
namespace {

// A pair is a cache line of scales and twice 512 bytes of weights; an odd last block keeps the whole line.
static_assert(kQ8Panel.pair_bytes() == 64 + 2 * 512);
static_assert(kQ8Panel.bytes(1) == 64 + 512);
static_assert(kQ8Panel.bytes(2) == 1088);
static_assert(kQ8Panel.bytes(5) == 2 * 1088 + 576);
static_assert(kQ8Panel.scale_offset(0) == 0 && kQ8Panel.scale_offset(1) == 32);
static_assert(kQ8Panel.weight_offset(0) == 64 && kQ8Panel.weight_offset(1) == 64 + 512);
static_assert(kQ8Panel.scale_offset(4) == 2 * 1088 && kQ8Panel.scale_offset(5) == 2 * 1088 + 32);
static_assert(kQ8Panel.weight_offset(4) == 2 * 1088 + 64);
static_assert(kVectorBytes == 64 && kBlockVectors == 8);
static_assert(PanelShape{5}.bytes() == kQ8Panel.bytes(5));

constexpr uint8_t kUntouched = 0xA5;

// Rows of random blocks, in which every int8 value occurs as a weight.
std::vector<model::Q8Block> RandomBlocks(size_t n) {
  std::mt19937 random(7);
  std::vector<model::Q8Block> blocks(n);
  for (model::Q8Block& block : blocks) {
    block.d = static_cast<uint16_t>(random() % 0x7C00);  // finite
    for (int8_t& q : block.q) q = static_cast<int8_t>(random());
  }
  return blocks;
}

std::vector<uint8_t> Pack(const PanelFormat& format, const std::vector<model::Q8Block>& rows, size_t blocks,
                          size_t n_rows) {
  std::vector<uint8_t> panel(format.bytes(blocks) + kCacheLineBytes, kUntouched);
  const model::Q8Block* at[kPanelRows] = {};  // rows after n_rows: zeros
  for (size_t r = 0; r < n_rows; ++r) at[r] = &rows[r * blocks];
  format.pack(at, blocks, panel.data());
  return panel;
}

TEST(PanelFormat, EachByteIsWhereTheFormatSays) {
  const size_t blocks = 3;
  const auto rows = RandomBlocks(kPanelRows * blocks);
  const auto panel = Pack(kQ8Panel, rows, blocks, kPanelRows);
  for (size_t r = 0; r < kPanelRows; ++r) {
    for (size_t b = 0; b < blocks; ++b) {
      const model::Q8Block& block = rows[r * blocks + b];
      uint16_t scale;
      std::memcpy(&scale, &panel[kQ8Panel.scale_offset(b) + 2 * r], sizeof(scale));
      EXPECT_EQ(scale, block.d);
      for (size_t k = 0; k < kBlock; ++k) {
        const uint8_t* vector = &panel[kQ8Panel.weight_offset(b) + k / 4 * 64];
        ASSERT_EQ(vector[4 * r + k % 4], block.q[k] + 128) << "row " << r << ", input " << b * kBlock + k;
      }
    }
  }
}

TEST(PanelFormat, WritesAllItsBytesAndNoOther) {
  for (const size_t blocks : {1, 2, 3, 6}) {
    const auto panel = Pack(kQ8Panel, RandomBlocks(kPanelRows * blocks), blocks, 0);
    const size_t bytes = kQ8Panel.bytes(blocks);
    for (size_t b = 0; b < blocks + blocks % 2;
         ++b) {  // also the scales of the block that an odd number lacks
      for (size_t i = 0; i < kQ8Panel.scale_bytes; ++i) EXPECT_EQ(panel[kQ8Panel.scale_offset(b) + i], 0);
    }
    for (size_t b = 0; b < blocks; ++b) {
      for (size_t i = 0; i < kQ8Panel.weight_bytes; ++i) EXPECT_EQ(panel[kQ8Panel.weight_offset(b) + i], 128);
    }
    for (size_t i = bytes; i < panel.size(); ++i) EXPECT_EQ(panel[i], kUntouched);
  }
}

TEST(PanelFormat, RowsComeBackExactly) {
  for (const size_t blocks : {1, 2, 3, 6, 33}) {
    const PanelShape shape{blocks};
    const size_t n_rows = kPanelRows - 3;
    const auto rows = RandomBlocks(n_rows * blocks);
    const auto panel = Pack(shape.format, rows, blocks, n_rows);
    std::vector<float> expected(blocks * kBlock), got(blocks * kBlock);
    for (size_t r = 0; r < kPanelRows; ++r) {
      for (size_t b = 0; b < blocks; ++b) {
        const model::Q8Block want = r < n_rows ? rows[r * blocks + b] : model::Q8Block{};
        model::Q8Block block;
        shape.format.unpack(panel.data(), b, r, &block);
        EXPECT_EQ(std::memcmp(&block, &want, sizeof(block)), 0) << blocks << " blocks, row " << r;
      }
      std::fill(expected.begin(), expected.end(), 0.0f);
      if (r < n_rows) model::DequantizeQ8_0(&rows[r * blocks], expected);
      UnpackRow(shape, panel.data(), r, got.data());
      EXPECT_EQ(expected, got) << blocks << " blocks, row " << r;
    }
  }
}

// Writing rows one by one, in any order, gives the panel that pack() makes.
TEST(PanelFormat, RowByRowIsTheSamePanel) {
  for (const size_t blocks : {1, 2, 5}) {
    const auto rows = RandomBlocks(kPanelRows * blocks);
    const auto whole = Pack(kQ8Panel, rows, blocks, kPanelRows);
    auto panel = Pack(kQ8Panel, rows, blocks, 0);
    for (size_t i = 0; i < kPanelRows; ++i) {
      const size_t r = (5 * i + 3) % kPanelRows;
      kQ8Panel.pack_row(&rows[r * blocks], blocks, r, panel.data());
    }
    EXPECT_EQ(panel, whole) << blocks << " blocks";
  }
}

}  // namespace
}  // namespace larder::kernels::formats
