// Internal to kernels/: the parts of GetRecurrent. Set-up only.
#pragma once

#include <cstddef>

#include "kernels/recurrent/recurrent.h"
#include "kernels/rows/elementwise_sets.h"

namespace larder::kernels::inline recurrent {

// The scalar set in plain C++, which defines the bits.
Recurrent ScalarRecurrent();

// Makes kAvx2 or kAvx512Vnni, unchecked. The host must have the instruction set.
Recurrent GenerateRecurrent(Isa);

// Coefficients of the series of artanh(z) / z in z^2, from the highest on.
inline constexpr float kAreaTangent[] = {1.0f / 17, 1.0f / 15, 1.0f / 13, 1.0f / 11, 1.0f / 9,
                                         1.0f / 7,  1.0f / 5,  1.0f / 3,  1.0f};

// Runs every kernel of both sets on the same inputs, n elements or tokens of them. Throws Error at
// the first difference of a bit.
void CheckRecurrent(const Recurrent& candidate, const Recurrent& reference, Pattern, size_t n);

}  // namespace larder::kernels::recurrent
