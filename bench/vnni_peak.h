// The most integer multiply-adds a core can do: the limit that matrix products are held against.
#pragma once

#include "kernels/formats/isa.h"

namespace larder::bench {

// Billions of operations a second (a multiply-add of two bytes is two) of the calling thread, the best of
// samples over about `seconds`: independent vpdpbusd on registers only, or for AVX2 the three instructions
// that stand for it. 0 for the scalar set, and if the host lacks `isa`.
double PeakGops(kernels::Isa isa, double seconds);

}  // namespace larder::bench
