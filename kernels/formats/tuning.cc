#include "kernels/formats/tuning.h"

namespace larder::kernels::inline formats {

const ScheduleTable& KernelTuning::For(size_t blocks) const {
  const Tuned* nearest = nullptr;
  const auto ratio = [&](const Tuned& of) {
    const auto a = static_cast<double>(of.blocks), b = static_cast<double>(blocks);
    return a > b ? a / b : b / a;
  };
  for (const Tuned& of : tuned) {
    if (ratio(of) <= 4 && (!nearest || ratio(of) < ratio(*nearest))) nearest = &of;
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
