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
// set says that it prefetches, .listed that its rows come from a list.
std::string TileName(const TileShape&, Isa);
std::string UnpackName(const TileShape&, Isa);

using UnpackFn = Gemm::UnpackFn;

// One for each instruction set (gemm.cc has the table). The tile must fit the registers (TileFits).
GemmFn GenerateGemmAvx512(const TileShape&);
GemmFn GenerateGemmAvxVnni(const TileShape&);  // vpdpbusd on 256 bits
GemmFn GenerateGemmAvx2(const TileShape&);     // vpsignb, vpmaddubsw and vpmaddwd
// Functions that unpack weights into the form that tiles of the same instruction set multiply. The
// spec has one row and one panel; only its prefetch is used. unpacked: a shape in the
// UnpackedFormat.
UnpackFn GenerateUnpackAvx512(const TileShape&, const PanelShape& unpacked);
UnpackFn GenerateUnpackAvxVnni(const TileShape&, const PanelShape& unpacked);
UnpackFn GenerateUnpackAvx2(const TileShape&, const PanelShape& unpacked);

}  // namespace larder::kernels::gemm
