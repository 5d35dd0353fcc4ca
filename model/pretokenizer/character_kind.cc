#include "model/pretokenizer/character_kind.h"

#include <algorithm>
#include <vector>

namespace larder::model::inline pretokenizer {

const Kind* KindTable() {
  static const std::vector<Kind> kTable = [] {
    constexpr size_t kCodes = 0x110000;
    std::vector<Kind> table(kCodes);
    const auto runs = UnicodeRuns();
    for (size_t i = 0; i < runs.size(); ++i) {
      const size_t end = i + 1 < runs.size() ? runs[i + 1] >> 8 : kCodes;
      std::fill(table.begin() + (runs[i] >> 8), table.begin() + static_cast<ptrdiff_t>(end),
                static_cast<Kind>(runs[i] & 0xFF));
    }
    return table;
  }();
  return kTable.data();
}

}  // namespace larder::model::pretokenizer
