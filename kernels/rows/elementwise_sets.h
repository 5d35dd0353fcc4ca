// Internal to kernels/: how GetElementwise and MakeValues come by their functions, and how these are checked.
// Set-up only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/rows/elementwise.h"

namespace larder::kernels {

// The scalar set: plain C++, defines the bits.
Elementwise ScalarElementwise();

// kAvx2 or kAvx512Vnni, not yet checked. The host has it.
Elementwise GenerateElementwise(Isa);

// Inputs to compare on. kWide: magnitudes from 2^-60 to 2^30; kTiny: denormal numbers and zeros of both
// signs; kHuge: 1e30 and -1e30 among ordinary numbers; kEqual: all the same.
enum class Pattern { kGaussian, kWide, kTiny, kHuge, kEqual, kZero };
inline constexpr Pattern kPatterns[] = {Pattern::kGaussian, Pattern::kWide,  Pattern::kTiny,
                                        Pattern::kHuge,     Pattern::kEqual, Pattern::kZero};
const char* PatternName(Pattern);
std::vector<float> MakeInput(Pattern, size_t n, uint32_t seed);

// Runs every kernel of both sets on the same n elements; throws Error at the first difference of one bit:
// names the kernel, the size, the pattern, the place and both values. Also when a kernel writes past its
// output.
void CheckElementwise(const Elementwise& candidate, const Elementwise& reference, Pattern, size_t n);

// The same for a values kernel, for the first `positions` positions.
void CheckValues(Isa, ValuesFn candidate, const ValuesShape&, size_t positions);

// The place of the first difference between two arrays of 4-byte words, bit by bit (so -0 is not +0, and a
// NaN equals itself), or `words`.
size_t FirstDifference(const void* a, const void* b, size_t words);
// Throws Error if the arrays differ.
void RequireSameBits(Isa, const char* kernel, const char* pattern, size_t n, const void* got,
                     const void* want, size_t words);

}  // namespace larder::kernels
