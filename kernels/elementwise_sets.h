// Internal to kernels/: how GetElementwise and MakeValues come by their functions. Set-up only.
#pragma once

#include "kernels/elementwise.h"

namespace larder::kernels {

// The scalar set: plain C++, defines the bits.
Elementwise ScalarElementwise();

// kAvx2 or kAvx512Vnni, not yet checked. The host has it.
Elementwise GenerateElementwise(Isa);
ValuesFn GenerateValues(Isa, const ValuesShape&);

// Runs every kernel of both sets on the same inputs; throws Error at the first difference of one bit: names
// the kernel, the size, the place and both values.
void CheckElementwise(const Elementwise& candidate, const Elementwise& reference);
void CheckValues(Isa, ValuesFn candidate, const ValuesShape&);

// The place of the first difference between a[n] and b[n], bit by bit (so -0 is not +0, and equal NaNs are
// equal), or n.
size_t FirstDifference(const float* a, const float* b, size_t n);

}  // namespace larder::kernels
