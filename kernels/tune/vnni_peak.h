// The peak rate of integer multiply-adds of one core: the limit for matrix products, which benches
// and `larder bench --breakdown` compare with.
#pragma once

#include "kernels/formats/isa.h"

namespace larder::kernels::inline tune {

// The calling thread's peak in billions of operations per second (a multiply-add of two bytes
// counts as two): the best of several samples in about `seconds`. It runs independent vpdpbusd on
// registers only, or for AVX2 the three instructions that replace it. 0 for the scalar set, or if
// the host lacks `isa`.
double PeakGops(Isa isa, double seconds);

}  // namespace larder::kernels::tune
