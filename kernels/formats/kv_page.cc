#include "kernels/formats/kv_page.h"

#include <cstring>

namespace larder::kernels::inline formats {

void PackValue(const ValuePage& layout, const int8_t* value, uint16_t scale,
               size_t position_in_page, uint8_t* page) {
  std::memcpy(page + layout.scale_offset(position_in_page), &scale, sizeof(scale));
  uint8_t* to = page + layout.value_offset(0, position_in_page);
  for (const int8_t* end = value + layout.elements(); value < end; value += kPanelRows) {
    for (size_t i = 0; i < kPanelRows; ++i)
      to[i * ValuePage::kTogether] = static_cast<uint8_t>(value[i]);
    to += ValuePage::kUnitVectors * ValuePage::kVectorBytes;
  }
}

}  // namespace larder::kernels::formats
