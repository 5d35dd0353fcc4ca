#include "kernels/formats/tuning.h"

#include <algorithm>
#include <utility>

namespace larder::kernels::inline formats {

namespace {

double Ratio(size_t a, size_t b) {
  return static_cast<double>(std::max(a, b)) / static_cast<double>(std::max<size_t>(1, std::min(a, b)));
}

double BytesRatio(size_t a, size_t b) {
  return Ratio(std::min(a, KernelTuning::kMostTunedBytes), std::min(b, KernelTuning::kMostTunedBytes));
}

}  // namespace

bool KernelTuning::Tuned::IsFor(const PanelShape& of, size_t of_bytes) const {
  return panel.format.type == of.format.type && Ratio(panel.blocks, of.blocks) <= 4 &&
         BytesRatio(weight_bytes, of_bytes) <= 2;
}

const ScheduleTable& KernelTuning::For(const PanelShape& panel, size_t weight_bytes) const {
  const Tuned* nearest = nullptr;
  const auto distance = [&](const Tuned& of) {
    return std::pair(Ratio(of.panel.blocks, panel.blocks), BytesRatio(of.weight_bytes, weight_bytes));
  };
  for (const Tuned& of : tuned) {
    if (of.IsFor(panel, weight_bytes) && (!nearest || distance(of) < distance(*nearest))) nearest = &of;
  }
  return nearest ? nearest->products : products;
}

KernelTuning DefaultTuning(Isa isa) {
  KernelTuning tuning{.products = AnalyticSchedules(isa, HostCore())};
  // 24 of 32 registers hold sums of values, the others the values being added; of 16 registers 6 x 2 hold
  // sums, two a value and one a broadcast weight. 28 queries are two tiles of 14 in the score product; with 2
  // blocks per head their scores and weights take about 90 KB of L2.
  switch (isa) {
    case Isa::kAvx512Vnni:
      tuning.value_sums = 24;
      tuning.value_queries = 16;
      break;
    case Isa::kAvxVnni:
    case Isa::kAvx2:
      tuning.value_sums = tuning.value_queries = 6;
      break;
    case Isa::kScalar:
      tuning.value_sums = tuning.value_queries = 16;
      break;
  }
  return tuning;
}

}  // namespace larder::kernels::formats
