#include "node/tasks/residency_warning.h"

#include <fmt/format.h>

#include <algorithm>

namespace larder::node::inline tasks {

bool IsPlannedResident(const serving::SocketPlace& place) {
  return !place.l3_groups.empty() && std::ranges::all_of(place.l3_groups, [](const auto& l3) {
    return l3.budget_bytes != 0 && l3.weight_bytes <= l3.budget_bytes;
  });
}

bool ResidencyWarning::Due(int64_t now_ns, uint64_t frames, std::optional<double> live) {
  const bool computes = frames != frames_;
  frames_ = frames;
  if (!computes || !live) return false;
  if (*live > kHigh) armed_ = true;
  low_looks_ = *live < kLow ? low_looks_ + 1 : 0;
  if (!armed_ || low_looks_ < kLooks) return false;
  if (warned_ns_ && now_ns - *warned_ns_ < kRestNs) return false;
  armed_ = false;
  warned_ns_ = now_ns;
  return true;
}

std::string ResidencyLine(const serving::SocketPlace& place, std::optional<double> after_loading,
                          double live, uint64_t kv_bytes) {
  uint64_t l3_bytes = 0, weight_bytes = 0;
  for (const auto& l3 : place.l3_groups) {
    l3_bytes += l3.l3_bytes;
    weight_bytes += l3.weight_bytes;
  }
  const uint64_t room = l3_bytes - std::min(l3_bytes, weight_bytes);
  std::string line = fmt::format("{}: {:.0f} % of the weights are in L3 when they are read",
                                 place.name, 100 * live);
  if (after_loading) line += fmt::format(", of {:.0f} % after loading", 100 * *after_loading);
  const auto mb = [](uint64_t bytes) { return static_cast<double>(bytes) * 1e-6; };
  if (kv_bytes > room) {
    return line + fmt::format(
                      ": {:.1f} MB of KV are in use, and beside the weights L3 has {:.1f} "
                      "MB; fewer tokens at once (--active-kv-tokens), or an attention "
                      "socket of its own, leave them there",
                      mb(kv_bytes), mb(room));
  }
  return line + fmt::format(
                    ": the {:.1f} MB of KV in use have room beside them ({:.1f} MB), so "
                    "other work uses this L3; keep it off these cores (`larder doctor`)",
                    mb(kv_bytes), mb(room));
}

}  // namespace larder::node::tasks
