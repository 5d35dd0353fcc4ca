// Internal to kernels/: the generators behind Gemm::Make.
#pragma once

#include <string>

#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline gemm {

// What one generated function computes: exactly spec.rows rows, a number of panels that spec.panels divides.
struct TileShape {
  const GemmShape& gemm;
  TileSpec spec;
};

// A tile's name for perf: larder::gemm.q8.32blocks.6x2.avx512-vnni; .ahead before the instruction set says
// that it prefetches.
std::string TileName(const TileShape&, Isa);

// The tile must fit the registers (TileFits).
GemmFn GenerateGemmAvx512(const TileShape&);
// avx_vnni: vpdpbusd on 256 bits; otherwise AVX2's vpsignb, vpmaddubsw and vpmaddwd.
GemmFn GenerateGemmAvx2(const TileShape&, bool avx_vnni);

}  // namespace larder::kernels::gemm
