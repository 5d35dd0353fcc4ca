// Exponential and logarithm with the same bits on every machine. libm's are not used because their
// last bit differs between versions and CPUs, which would rarely give a different token. Only
// additions, multiplications and divisions of doubles, whose results IEEE 754 defines. No state;
// any thread.
#pragma once

namespace larder::serving::inline sampling {

// e^x for x <= 0; 0 below -700. Relative error some 4e-16.
double ExpOfNegative(double x);
// The natural logarithm of a normal x > 0. Absolute error some 2e-16, relative to the larger of 1
// and the result.
double Log(double x);
// e^x for any x, at most 1e300.
double Exp(double x);

}  // namespace larder::serving::sampling
