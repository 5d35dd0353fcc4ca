// Internal to kernels/: the generators behind Gemm::Make.
#pragma once

#include <string>

#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline gemm {

// What one generated function computes: exactly spec.rows rows, a number of panels that spec.panels
// divides.
struct TileShape {
  const GemmShape& gemm;
  TileSpec spec;
};

// A tile's name for perf: larder::gemm.q8.32blocks.6x2.avx512-vnni; .ahead before the instruction
// set says that it prefetches.
std::string TileName(const TileShape&, Isa);
std::string UnpackName(const TileShape&, Isa);

using UnpackFn = Gemm::UnpackFn;

// The tile must fit the registers (TileFits).
GemmFn GenerateGemmAvx512(const TileShape&);
// avx_vnni: vpdpbusd on 256 bits; otherwise AVX2's vpsignb, vpmaddubsw and vpmaddwd.
GemmFn GenerateGemmAvx2(const TileShape&, bool avx_vnni);
// Functions that unpack weights into the form that tiles of the same instruction set multiply. The
// spec has one row and one panel; only its prefetch is used. unpacked: a shape in the
// UnpackedFormat.
UnpackFn GenerateUnpackAvx512(const TileShape&, const PanelShape& unpacked);
UnpackFn GenerateUnpackAvx2(const TileShape&, const PanelShape& unpacked, bool avx_vnni);

}  // namespace larder::kernels::gemm
