#include "kernels/formats/kv_page.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace larder::kernels::inline formats {
namespace {

// Scales come first, padded to whole cache lines; then the head's values at 16 positions.
static_assert(ValuePage{1}.value_offset(0) == 64 && ValuePage{1}.bytes() == 64 + 16 * 32);
static_assert(ValuePage{3}.value_offset(0) == 128 && ValuePage{3}.bytes() == 128 + 16 * 96);
static_assert(ValuePage{4}.value_offset(2) == 128 + 2 * 128);
static_assert(ValuePage{4}.scale_offset(3, 5) == (3 * 16 + 5) * 2);
static_assert(kPagePositions == kPanelRows);  // a position is a row of the key panel

TEST(ValuePage, APositionLiesWhereThePageSays) {
  const ValuePage layout{3};
  std::vector<uint8_t> page(layout.bytes(), 0);
  for (size_t position = 0; position < kPagePositions; ++position) {
    model::Q8Block value[3];
    for (size_t b = 0; b < 3; ++b) {
      value[b].d = static_cast<uint16_t>(100 * b + position);
      for (size_t i = 0; i < kBlock; ++i)
        value[b].q[i] = static_cast<int8_t>(position * 7 + b * 32 + i);
    }
    PackValue(layout, value, position, page.data());
  }
  for (size_t position = 0; position < kPagePositions; ++position) {
    for (size_t b = 0; b < 3; ++b) {
      uint16_t scale;
      std::memcpy(&scale, &page[layout.scale_offset(b, position)], sizeof(scale));
      EXPECT_EQ(scale, 100 * b + position);
      for (size_t i = 0; i < kBlock; ++i) {
        EXPECT_EQ(static_cast<int8_t>(page[layout.value_offset(position) + b * kBlock + i]),
                  static_cast<int8_t>(position * 7 + b * 32 + i));
      }
    }
  }
}

}  // namespace
}  // namespace larder::kernels::formats
