#include "kernels/formats/kv_page.h"

#include <gtest/gtest.h>

#include <cstring>
#include <vector>

namespace larder::kernels::inline formats {
namespace {

// Scales come first; then 16 elements after the other, 4 positions at a time.
static_assert(ValuePage::scale_offset(31) == 62 && ValuePage::kScaleBytes == 64);
static_assert(ValuePage{1}.bytes() == 64 + 32 * 32 && ValuePage{3}.bytes() == 64 + 32 * 96);
static_assert(ValuePage::value_offset(0, 0) == 64 && ValuePage::value_offset(0, 3) == 67);
static_assert(ValuePage::value_offset(1, 0) == 68 && ValuePage::value_offset(15, 4) == 64 + 124);
static_assert(ValuePage::value_offset(16, 0) == 64 + 16 * 32);
static_assert(kPagePositions == kPanelRows);  // a position is a row of the key panel
static_assert(kChunkPositions % kValuePagePositions == 0 &&
              kValuePagePositions % kPagePositions == 0);

TEST(ValuePage, APositionLiesWhereThePageSays) {
  const ValuePage layout{3};
  std::vector<uint8_t> page(layout.bytes(), 0);
  const auto value_of = [](size_t position, size_t i) {
    return static_cast<int8_t>(position * 7 + i);
  };
  for (size_t position = 0; position < kValuePagePositions; ++position) {
    std::vector<int8_t> value(layout.elements());
    for (size_t i = 0; i < value.size(); ++i) value[i] = value_of(position, i);
    PackValue(layout, value.data(), static_cast<uint16_t>(100 + position), position, page.data());
  }
  for (size_t position = 0; position < kValuePagePositions; ++position) {
    uint16_t scale;
    std::memcpy(&scale, &page[layout.scale_offset(position)], sizeof(scale));
    EXPECT_EQ(scale, 100 + position);
    for (size_t i = 0; i < layout.elements(); ++i)
      EXPECT_EQ(static_cast<int8_t>(page[layout.value_offset(i, position)]), value_of(position, i));
  }
}

}  // namespace
}  // namespace larder::kernels::formats
