// Internal to kernels/: the parts of GetElementwise and MakeValues, and the checks of their
// functions. Set-up only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/rows/elementwise.h"

namespace larder::kernels::inline rows {

// The scalar set in plain C++, which defines the bits.
Elementwise ScalarElementwise();

// Makes kAvx2 or kAvx512Vnni, unchecked. The host must have the instruction set.
Elementwise GenerateElementwise(Isa);

// Inputs of the comparisons. kWide: magnitudes from 2^-60 to 2^30; kTiny: denormal numbers and
// zeros of both signs; kHuge: 1e30 and -1e30 among ordinary numbers; kEqual: all elements the same.
enum class Pattern { kGaussian, kWide, kTiny, kHuge, kEqual, kZero };
inline constexpr Pattern kPatterns[] = {Pattern::kGaussian, Pattern::kWide,  Pattern::kTiny,
                                        Pattern::kHuge,     Pattern::kEqual, Pattern::kZero};
const char* PatternName(Pattern);
std::vector<float> MakeInput(Pattern, size_t n, uint32_t seed);

// Runs every kernel of both sets on the same n elements. Throws Error at the first difference of a
// bit, with the kernel, the size, the pattern, the place and both values; also if a kernel writes
// past its output.
void CheckElementwise(const Elementwise& candidate, const Elementwise& reference, Pattern,
                      size_t n);

// The same for a kernel of MakeValues, on n_pages value pages, at most ChunkWeights::kPages.
void CheckValues(Isa, ValuesFn candidate, const ValuesShape&, size_t n_pages);

// The index of the first difference between two arrays of 4-byte words, compared as bits (-0
// differs from +0, and a NaN equals itself); `words` if there is none.
size_t FirstDifference(const void* a, const void* b, size_t words);
// Throws Error if the arrays differ.
void RequireSameBits(Isa, const char* kernel, const char* pattern, size_t n, const void* got,
                     const void* want, size_t words);

}  // namespace larder::kernels::rows
