// Internal to kernels/: the generators behind Gemm::Make. Each returns a function for exactly `rows`
// activation rows that takes a number of panels divisible by `panels`.
#pragma once

#include <string>

#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline gemm {

// A tile's name for perf: larder::gemm.q8.64blocks.14x1.avx512-vnni, with .add before the instruction set if
// it accumulates.
std::string TileName(const GemmShape&, size_t rows, size_t panels, Isa);

GemmFn GenerateGemmAvx512(const GemmShape&, size_t rows, size_t panels);
// avx_vnni: vpdpbusd on 256 bits; otherwise AVX2's vpsignb, vpmaddubsw and vpmaddwd.
GemmFn GenerateGemmAvx2(const GemmShape&, size_t rows, size_t panels, bool avx_vnni);

}  // namespace larder::kernels::gemm
