// When requests come.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace larder::node::inline loadgen {

// Nanoseconds from the first one on: a Poisson process of this rate, or all at once if it is
// infinite. The same seed gives the same.
std::vector<int64_t> Arrivals(size_t count, double requests_per_s, uint64_t seed);

// For people: how requests come, and how many there may be at a time; 0: any number.
std::string ArrivalsText(double requests_per_s, size_t max_concurrency);

}  // namespace larder::node::loadgen
