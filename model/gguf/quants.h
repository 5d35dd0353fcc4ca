// Block-quantised types other than Q8_0, as GGUF files store them: what their bytes mean. Each
// weight is the float32 that the format's definition gives, evaluated as written here, with no
// operation fused; other engines read the same values from the same file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "model/gguf/formats.h"

namespace larder::model::inline gguf {

// Writes x[n], n a multiple of the type's elements per block, from n / elements blocks.
void DequantizeQuants(TensorType type, const char* blocks, std::span<float> x);
// The same, but also reads Q8_0.
void DequantizeBlocks(TensorType type, const char* blocks, std::span<float> x);

// The number of the first block in `bytes` bytes that has a 16-bit scale that is infinite or NaN,
// or an exponent of MXFP4 that makes weights infinite; SIZE_MAX: none.
size_t FindBadScale(TensorType type, const char* blocks, size_t bytes);

// Q4_0, Q5_0 and IQ4_NL are an f16 scale times integers of up to 7 bits and a sign, 32 at a time:
// exactly a Q8_0 block.
bool IsExpandable(TensorType type);
void ExpandToQ8_0(TensorType type, const char* blocks, size_t n_blocks, Q8Block* out);

}  // namespace larder::model::gguf
