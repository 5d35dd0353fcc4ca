#include "kernels/rows/elementwise.h"

#include "kernels/rows/elementwise_sets.h"
#include "kernels/rows/kernel_sets.h"

namespace larder::kernels::inline rows {
namespace {

// Covers every tail of AVX2 and AVX-512 vectors and of blocks, in about a millisecond.
constexpr size_t kCheckedSizes[] = {1, 7, 15, 16, 17, 31, 32, 33, 64, 100, 172};

void Check(const Elementwise& set, const Elementwise& reference) {
  for (const Pattern pattern : {Pattern::kGaussian, Pattern::kWide}) {
    for (const size_t n : kCheckedSizes) CheckElementwise(set, reference, pattern, n);
  }
}

constexpr KernelSets<Elementwise> kElementwiseSets = {ScalarElementwise, GenerateElementwise,
                                                      Check};

}  // namespace

const Elementwise& GetElementwise(Isa isa) {
  return KernelSetOf<Elementwise, kElementwiseSets>(isa);
}

}  // namespace larder::kernels::rows
