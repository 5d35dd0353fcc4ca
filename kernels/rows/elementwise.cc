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

// AVX-VNNI adds only integer dot products to AVX2: the elementwise kernels are the same.
Elementwise AvxVnni() {
  if (!HostHas(Isa::kAvxVnni)) return MakeChecked(Isa::kAvxVnni);  // throws
  Elementwise set = GetElementwise(Isa::kAvx2);
  set.isa = Isa::kAvxVnni;
  return set;
}

}  // namespace

const Elementwise& GetElementwise(Isa isa) {
  // One static per set: the first caller makes it while others wait; if that throws, the next call
  // tries again.
  switch (isa) {
    case Isa::kScalar:
      break;
    case Isa::kAvx2: {
      static const Elementwise set = MakeChecked(Isa::kAvx2);
      return set;
    }
    case Isa::kAvxVnni: {
      static const Elementwise set = AvxVnni();
      return set;
    }
    case Isa::kAvx512Vnni: {
      static const Elementwise set = MakeChecked(Isa::kAvx512Vnni);
      return set;
    }
  }
  static const Elementwise scalar = ScalarElementwise();
  return scalar;
}

}  // namespace larder::kernels::rows
