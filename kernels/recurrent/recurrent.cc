#include "kernels/recurrent/recurrent.h"

#include "base/error.h"
#include "kernels/recurrent/recurrent_sets.h"

namespace larder::kernels::inline recurrent {
namespace {

// Covers every tail of a vector, and runs of one token and of several.
constexpr size_t kCheckedSizes[] = {1, 2, 7, 15, 16, 17, 33, 64};

Recurrent MakeChecked(Isa isa) {
  if (!HostHas(isa)) {
    throw Error("kernels: this CPU (or its operating system) lacks {}; choose {} or less",
                IsaName(isa), IsaName(BestIsa()));
  }
  const Recurrent set = GenerateRecurrent(isa), reference = ScalarRecurrent();
  for (const Pattern pattern : {Pattern::kGaussian, Pattern::kWide}) {
    for (const size_t n : kCheckedSizes) CheckRecurrent(set, reference, pattern, n);
  }
  return set;
}

Recurrent Make(Isa isa) {
  if (isa == Isa::kScalar) return ScalarRecurrent();
  if (isa != Isa::kAvxVnni || !HostHas(isa)) return MakeChecked(isa);
  Recurrent set = GetRecurrent(Isa::kAvx2);  // it adds only integer dot products
  set.isa = isa;
  return set;
}

template <Isa isa>
const Recurrent& Set() {
  // The first caller makes it while others wait; if that throws, the next call tries again.
  static const Recurrent set = Make(isa);
  return set;
}

}  // namespace

const Recurrent& GetRecurrent(Isa isa) {
  constexpr const Recurrent& (*kSets[])() = {Set<Isa::kScalar>, Set<Isa::kAvx2>, Set<Isa::kAvxVnni>,
                                             Set<Isa::kAvx512Vnni>};
  return kSets[static_cast<size_t>(isa)]();
}

}  // namespace larder::kernels::recurrent
