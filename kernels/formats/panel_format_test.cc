// Panel formats: the place of each byte, and that unpacking returns the packed rows.
#include "kernels/formats/panel_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <vector>

#include "base/memory.h"
#include "model/gguf/quants.h"

namespace larder::kernels::inline formats {
namespace {

// A pair is a cache line of scales and twice 512 bytes of weights; an odd last block keeps the
// whole line.
static_assert(kQ8Panel.group_bytes() == 64 + 2 * 512);
static_assert(kQ8Panel.bytes(1) == 64 + 512);
static_assert(kQ8Panel.bytes(2) == 1088);
static_assert(kQ8Panel.bytes(5) == 2 * 1088 + 576);
static_assert(kQ8Panel.scale_offset(0) == 0 && kQ8Panel.scale_offset(1) == 32);
static_assert(kQ8Panel.weight_offset(0) == 64 && kQ8Panel.weight_offset(1) == 64 + 512);
static_assert(kQ8Panel.scale_offset(4) == 2 * 1088 && kQ8Panel.scale_offset(5) == 2 * 1088 + 32);
static_assert(kQ8Panel.weight_offset(4) == 2 * 1088 + 64);
static_assert(kQ4_0Panel.bytes(5) == 2 * (64 + 2 * 256) + 64 + 256);
// As many bytes as in the file.
static_assert(kQ4KPanel.bytes(16) == kPanelRows * 2 * sizeof(model::Q4KBlock));
static_assert(kQ4KPanel.weight_offset(9) == kQ4KPanel.group_bytes() + 256 + 256);
static_assert(kQ6KPanel.bytes(8) == kPanelRows * (sizeof(model::Q6KBlock) + 2));  // d is a float32
static_assert(kQ6KPanel.weight_offset(9) == kQ6KPanel.group_bytes() + 320 + 384);
static_assert(kQ4_1Panel.bytes(2) == kPanelRows * 2 * sizeof(model::Q4_1Block));
static_assert(kMxfp4Panel.bytes(2) == kQ4_0Panel.bytes(2));
static_assert(kQ5KPanel.bytes(8) == kPanelRows * sizeof(model::Q5KBlock));
static_assert(kQ5_0Panel.bytes(2) == kPanelRows * 2 * sizeof(model::Q5Block));
static_assert(kQ5_1Panel.bytes(2) == kPanelRows * 2 * sizeof(model::Q5_1Block));
static_assert(kIq4XsPanel.bytes(8) == kPanelRows * (sizeof(model::Iq4XsBlock) + 4));
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

std::vector<uint8_t> Pack(const PanelFormat& format, const std::vector<model::Q8Block>& rows,
                          size_t blocks, size_t n_rows) {
  std::vector<uint8_t> panel(format.bytes(blocks) + kCacheLineBytes, kUntouched);
  const void* at[kPanelRows] = {};  // rows after n_rows: zeros
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
        ASSERT_EQ(vector[4 * r + k % 4], block.q[k] + 128)
            << "row " << r << ", input " << b * kBlock + k;
      }
    }
  }
}

TEST(PanelFormat, WritesAllItsBytesAndNoOther) {
  for (const size_t blocks : {1, 2, 3, 6}) {
    const auto panel = Pack(kQ8Panel, RandomBlocks(kPanelRows * blocks), blocks, 0);
    const size_t bytes = kQ8Panel.bytes(blocks);
    for (size_t b = 0; b < blocks + blocks % 2; ++b) {  // also the scales of the block that an odd
                                                        // number lacks
      for (size_t i = 0; i < kQ8Panel.scale_bytes; ++i)
        EXPECT_EQ(panel[kQ8Panel.scale_offset(b) + i], 0);
    }
    for (size_t b = 0; b < blocks; ++b) {
      for (size_t i = 0; i < kQ8Panel.weight_bytes; ++i)
        EXPECT_EQ(panel[kQ8Panel.weight_offset(b) + i], 128);
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
        PanelBlock block;
        shape.format.unpack(panel.data(), b, r, &block);
        EXPECT_EQ(std::memcmp(block.q, want.q, sizeof(want.q)), 0)
            << blocks << " blocks, row " << r;
        EXPECT_EQ(block.scale[0], model::F16ToF32(want.d));
        EXPECT_EQ(block.minimum, 0.0f);
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
      q8_panel::PackRow(&rows[r * blocks], blocks, r, panel.data());
    }
    EXPECT_EQ(panel, whole) << blocks << " blocks";
  }
}

// Every format: a row unpacks to the values of its GGUF type, computed from the file's own layout.
TEST(PanelFormat, EachFormatKeepsTheValuesOfItsType) {
  std::minstd_rand random(3);
  for (const PanelFormat* format : kPanelFormats) {
    for (const size_t blocks : {format->group_blocks, 3 * format->group_blocks}) {
      const PanelShape shape{blocks, *format};
      const size_t row_bytes = shape.row_bytes(), n_rows = kPanelRows - 3;
      std::vector<uint8_t> rows(n_rows * row_bytes);
      const void* at[kPanelRows] = {};
      for (size_t r = 0; r < n_rows; ++r) {
        FillRandomRow(shape, random, &rows[r * row_bytes]);
        at[r] = &rows[r * row_bytes];
      }
      std::vector<uint8_t> panel(shape.bytes() + kCacheLineBytes, kUntouched);
      format->pack(at, blocks, panel.data());
      for (size_t i = shape.bytes(); i < panel.size(); ++i) EXPECT_EQ(panel[i], kUntouched);
      std::vector<float> expected(blocks * kBlock), got(blocks * kBlock);
      for (size_t r = 0; r < kPanelRows; ++r) {
        std::fill(expected.begin(), expected.end(), 0.0f);
        if (r < n_rows && format->type == model::TensorType::kQ8_0) {
          model::DequantizeQ8_0(reinterpret_cast<const model::Q8Block*>(&rows[r * row_bytes]),
                                expected);
        } else if (r < n_rows) {
          model::DequantizeQuants(format->type, reinterpret_cast<const char*>(&rows[r * row_bytes]),
                                  expected);
        }
        UnpackRow(shape, panel.data(), r, got.data());
        ASSERT_EQ(expected, got) << format->name << ", " << blocks << " blocks, row " << r;
      }
    }
  }
}

TEST(PanelFormat, TypesWithoutAPanelBecomeQ8_0) {
  EXPECT_EQ(PanelFormatOf(model::TensorType::kQ4_K).type, model::TensorType::kQ4_K);
  EXPECT_EQ(PanelFormatOf(model::TensorType::kQ6_K).type, model::TensorType::kQ6_K);
  EXPECT_EQ(PanelFormatOf(model::TensorType::kQ3_K).type, model::TensorType::kQ8_0);
  EXPECT_EQ(PanelFormatOf(model::TensorType::kF16).type, model::TensorType::kQ8_0);
}

}  // namespace
}  // namespace larder::kernels::formats
