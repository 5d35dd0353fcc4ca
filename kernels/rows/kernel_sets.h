// Sets of kernels, one for each instruction set: a struct of function pointers with its `isa`.
// Internal to kernels/; set-up only.
#pragma once

#include "base/error.h"
#include "kernels/formats/isa.h"

namespace larder::kernels::inline rows {

template <typename Kernels>
struct KernelSets {
  Kernels (*scalar)();       // in plain C++, which defines the bits
  Kernels (*generate)(Isa);  // kAvx2 or kAvx512Vnni, unchecked
  // Throws Error at the first difference between a generated set and the scalar one.
  void (*check)(const Kernels& candidate, const Kernels& reference);
};

template <typename Kernels, const KernelSets<Kernels>& sets>
const Kernels& KernelSetOf(Isa);

template <typename Kernels, const KernelSets<Kernels>& sets>
Kernels MakeKernelSet(Isa isa) {
  if (isa == Isa::kScalar) return sets.scalar();
  if (!HostHas(isa)) {
    throw Error("kernels: this CPU (or its operating system) lacks {}; choose {} or less",
                IsaName(isa), IsaName(BestIsa()));
  }
  if (isa == Isa::kAvxVnni) {
    // It adds only integer dot products to AVX2: these kernels are the same.
    Kernels set = KernelSetOf<Kernels, sets>(Isa::kAvx2);
    set.isa = isa;
    return set;
  }
  const Kernels set = sets.generate(isa);
  sets.check(set, sets.scalar());
  return set;
}

template <typename Kernels, const KernelSets<Kernels>& sets, Isa isa>
const Kernels& OnlyKernelSet() {
  // The first caller makes it while others wait; if that throws, the next call tries again.
  static const Kernels set = MakeKernelSet<Kernels, sets>(isa);
  return set;
}

// The set for `isa`, made and checked once per process. Throws Error if the host lacks it.
template <typename Kernels, const KernelSets<Kernels>& sets>
const Kernels& KernelSetOf(Isa isa) {
  constexpr const Kernels& (*kOfIsa[])() = {
      OnlyKernelSet<Kernels, sets, Isa::kScalar>, OnlyKernelSet<Kernels, sets, Isa::kAvx2>,
      OnlyKernelSet<Kernels, sets, Isa::kAvxVnni>, OnlyKernelSet<Kernels, sets, Isa::kAvx512Vnni>};
  return kOfIsa[static_cast<size_t>(isa)]();
}

}  // namespace larder::kernels::rows
