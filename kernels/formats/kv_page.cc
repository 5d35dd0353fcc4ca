#include "kernels/formats/kv_page.h"

#include <cstring>

namespace larder::kernels::inline formats {

void PackValue(const ValuePage& layout, const model::Q8Block* value, size_t position_in_page,
               uint8_t* page) {
  uint8_t* bytes = page + layout.value_offset(position_in_page);
  for (size_t b = 0; b < layout.blocks; ++b) {
    std::memcpy(page + layout.scale_offset(b, position_in_page), &value[b].d, sizeof(value[b].d));
    std::memcpy(bytes + b * kBlock, value[b].q, kBlock);
  }
}

}  // namespace larder::kernels::formats
