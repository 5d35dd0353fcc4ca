#include "kernels/recurrent/recurrent.h"

#include "kernels/recurrent/recurrent_sets.h"
#include "kernels/rows/kernel_sets.h"

namespace larder::kernels::inline recurrent {
namespace {

// Covers every tail of a vector, and runs of one token and of several.
constexpr size_t kCheckedSizes[] = {1, 2, 7, 15, 16, 17, 33, 64};

void Check(const Recurrent& set, const Recurrent& reference) {
  for (const Pattern pattern : {Pattern::kGaussian, Pattern::kWide}) {
    for (const size_t n : kCheckedSizes) CheckRecurrent(set, reference, pattern, n);
  }
}

constexpr KernelSets<Recurrent> kRecurrentSets = {ScalarRecurrent, GenerateRecurrent, Check};

}  // namespace

const Recurrent& GetRecurrent(Isa isa) { return KernelSetOf<Recurrent, kRecurrentSets>(isa); }

}  // namespace larder::kernels::recurrent
