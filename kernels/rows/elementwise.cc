#include "kernels/rows/elementwise.h"

#include "base/error.h"
#include "kernels/rows/elementwise_sets.h"

namespace larder::kernels::inline rows {
namespace {

// Covers every tail of AVX2 and AVX-512 vectors and of blocks, in about a millisecond.
constexpr size_t kCheckedSizes[] = {1, 7, 15, 16, 17, 31, 32, 33, 64, 100, 172};

Elementwise MakeChecked(Isa isa) {
  if (!HostHas(isa)) {
    throw Error("kernels: this CPU (or its operating system) lacks {}; choose {} or less",
                IsaName(isa), IsaName(BestIsa()));
  }
  const Elementwise set = GenerateElementwise(isa);
  const Elementwise reference = ScalarElementwise();
  for (const Pattern pattern : {Pattern::kGaussian, Pattern::kWide}) {
    for (const size_t n : kCheckedSizes) CheckElementwise(set, reference, pattern, n);
  }
  return set;
}

Elementwise Make(Isa isa) {
  if (isa == Isa::kScalar) return ScalarElementwise();
  if (isa != Isa::kAvxVnni || !HostHas(isa)) return MakeChecked(isa);
  // It adds only integer dot products to AVX2: the elementwise kernels are the same.
  Elementwise set = GetElementwise(Isa::kAvx2);
  set.isa = isa;
  return set;
}

template <Isa isa>
const Elementwise& Set() {
  // The first caller makes it while others wait; if that throws, the next call tries again.
  static const Elementwise set = Make(isa);
  return set;
}

}  // namespace

const Elementwise& GetElementwise(Isa isa) {
  constexpr const Elementwise& (*kSets[])() = {Set<Isa::kScalar>, Set<Isa::kAvx2>,
                                               Set<Isa::kAvxVnni>, Set<Isa::kAvx512Vnni>};
  return kSets[static_cast<size_t>(isa)]();
}

}  // namespace larder::kernels::rows
