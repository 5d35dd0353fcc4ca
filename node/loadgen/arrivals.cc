#include "node/loadgen/arrivals.h"

#include <fmt/format.h>

#include <cmath>
#include <random>

namespace larder::node::inline loadgen {

// Exponential gaps make a Poisson process of the requested rate.
std::vector<int64_t> Arrivals(size_t count, double requests_per_s, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<int64_t> at_ns;
  double at_s = 0;
  for (size_t i = 0; i < count; ++i) {
    at_ns.push_back(static_cast<int64_t>(at_s * 1e9));
    if (std::isfinite(requests_per_s)) {
      const double uniform = static_cast<double>(random() >> 11) * 0x1.0p-53;
      at_s -= std::log1p(-uniform) / requests_per_s;
    }
  }
  return at_ns;
}

std::string ArrivalsText(double requests_per_s, size_t max_concurrency) {
  return fmt::format("{}, {}",
                     std::isfinite(requests_per_s)
                         ? fmt::format("Poisson arrivals, {} requests/s", requests_per_s)
                         : std::string("as fast as possible"),
                     max_concurrency > 0 ? fmt::format("at most {} at a time", max_concurrency)
                                         : std::string("any number at a time"));
}

}  // namespace larder::node::loadgen
