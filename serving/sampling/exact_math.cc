#include "serving/sampling/exact_math.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace larder::serving::inline sampling {
namespace {

// ln2 is split so that n * kLn2High is exact.
constexpr double kLn2High = 0x1.62e42feep-1, kLn2Low = 0x1.a39ef35793c76p-33;

// 1/0! .. 1/13!
constexpr auto kInverseFactorials = [] {
  std::array<double, 14> f{1};
  double factorial = 1;
  for (size_t i = 1; i < f.size(); ++i) f[i] = 1 / (factorial *= static_cast<double>(i));
  return f;
}();

}  // namespace

// 2^n * (Taylor series of degree 13 in r), |r| <= ln2/2; the truncation error is 4e-18.
double ExpOfNegative(double x) {
  if (x < -700)
    return 0;  // e^-700 = 1e-304; a smaller n would also run out of the exponent field below
  const double n = std::nearbyint(x * 0x1.71547652b82fep+0);
  const double r = (x - n * kLn2High) - n * kLn2Low;
  double sum = kInverseFactorials.back();
  for (size_t i = kInverseFactorials.size() - 1; i > 0; --i)
    sum = sum * r + kInverseFactorials[i - 1];
  return sum * std::bit_cast<double>(static_cast<uint64_t>(static_cast<int64_t>(n) + 1023) << 52);
}

// x = m * 2^n with m in [0.70, 1.42); ln m = 2 artanh(s) = 2 (s + s^3/3 + s^5/5 + ...), s =
// (m-1)/(m+1), |s|
// <= 0.174. The first term left out is 2 s^27/27 < 3e-22.
double Log(double x) {
  constexpr uint64_t kMantissa = (uint64_t{1} << 52) - 1;
  const auto bits = std::bit_cast<uint64_t>(x);
  double n = static_cast<double>(static_cast<int64_t>(bits >> 52) - 1023);
  double m = std::bit_cast<double>((bits & kMantissa) | uint64_t{1023} << 52);  // 1 to 2
  if (m > 1.41) {
    m *= 0.5;
    n += 1;
  }
  const double s = (m - 1) / (m + 1), s2 = s * s;
  double sum = 0;
  for (int i = 25; i > 1; i -= 2) sum = (sum + 1.0 / i) * s2;
  return n * kLn2High + (n * kLn2Low + 2 * (s + s * sum));
}

double Exp(double x) {
  if (x <= 0) return ExpOfNegative(x);
  return x > 690 ? 1e300 : 1 / ExpOfNegative(-x);
}

}  // namespace larder::serving::sampling
