// The AVX-512 VNNI generator of matrix products.
//
// A tile is `rows` activation rows x `panels` panels of 16 outputs. Registers: an int32 and a float
// accumulator for each (row, panel), a weight vector and a scale vector for each panel, one for broadcasts:
// 2*rows*panels + 2*panels + 1 <= 32.
//
// Work per block of 32 inputs, row and panel: 8 vpdpbusd and 2 fused multiply-adds on the two 512-bit ports
// (the integer accumulator is read as a float, see ActBlock): at most 8/10 of the VNNI peak. A conversion and
// a separate multiplication would make that 8/11. With one panel the broadcasts are memory operands of
// vpdpbusd (ActLoad::kEmbedded): 11 loads per 10 arithmetic instructions, so the two load ports are the
// limit. With two panels one broadcast load serves two vpdpbusd.
#include <asmjit/x86.h>

#include "kernels/gemm/gemm_generate.h"
#include "kernels/gemm/gemm_tile.h"
#include "kernels/jit/jit.h"

namespace larder::kernels::inline gemm {
namespace {

namespace x86 = asmjit::x86;

class Avx512Tile final : public GemmTile {
 public:
  using GemmTile::GemmTile;

 private:
  x86::Zmm Int(int p, int m) const { return x86::zmm(p * rows_ + m); }
  x86::Zmm Sum(int p, int m) const { return x86::zmm((panels_ + p) * rows_ + m); }
  x86::Zmm Weight(int p) const { return x86::zmm(2 * panels_ * rows_ + p); }
  x86::Zmm Scale(int p) const { return x86::zmm(2 * panels_ * rows_ + panels_ + p); }
  x86::Zmm Broadcast() const { return x86::zmm(2 * panels_ * rows_ + 2 * panels_); }

  void Zero() override {
    for (int p = 0; p < panels_; ++p) {
      for (int m = 0; m < rows_; ++m) a_.vpxord(Sum(p, m), Sum(p, m), Sum(p, m));
    }
  }

  // Loads weight vector j of block b of each panel into Weight(p), as bytes weight + 128 (ActBlock::start
  // subtracts the 128). The only code of the tile that depends on how the format stores its weights.
  void LoadWeights(size_t b, size_t j) {
    switch (format().id) {
      case PanelFormatId::kQ8:
        for (int p = 0; p < panels_; ++p) {
          a_.vmovdqa64(Weight(p), Panel(p, format().weight_offset(b) + j * kVectorBytes));
        }
        break;
    }
  }

  void Block(size_t b) override {
    for (int m = 0; m < rows_; ++m) {
      a_.vpbroadcastd(Int(0, m), Act(m, b, offsetof(ActBlock, start)));
      for (int p = 1; p < panels_; ++p) a_.vmovdqa64(Int(p, m), Int(0, m));
    }
    for (size_t j = 0; j < kBlockVectors; ++j) {
      LoadWeights(b, j);
      for (int m = 0; m < rows_; ++m) {
        if (tile_.spec.load == ActLoad::kEmbedded) {
          a_.vpdpbusd(Int(0, m), Weight(0), Act(m, b, j * kVectorInputs)._1to16());
        } else {
          a_.vpbroadcastd(Broadcast(), Act(m, b, j * kVectorInputs));
          for (int p = 0; p < panels_; ++p) a_.vpdpbusd(Int(p, m), Weight(p), Broadcast());
        }
      }
    }
    for (int p = 0; p < panels_; ++p) a_.vcvtph2ps(Scale(p), Panel(p, format().scale_offset(b)));
    for (int m = 0; m < rows_; ++m) {
      a_.vbroadcastss(Broadcast(), Act(m, b, offsetof(ActBlock, minus_md)));
      for (int p = 0; p < panels_; ++p) {
        // (kMagic + isum) * d - kMagic * d, rounded once: float(isum) * d.
        a_.vfmadd132ps(Int(p, m), Broadcast(), Act(m, b, offsetof(ActBlock, d))._1to16());
        a_.vfmadd231ps(Sum(p, m), Int(p, m), Scale(p));
      }
    }
  }

  x86::Vec SumVector(int m, int i) const override { return Sum(i, m); }
  size_t vector_bytes() const override { return kPanelRows * sizeof(float); }
};

}  // namespace

GemmFn GenerateGemmAvx512(const TileShape& tile) {
  return Jit::Generate<GemmFn>(TileName(tile, Isa::kAvx512Vnni),
                               [&](x86::Assembler& a) { Avx512Tile(a, tile).Emit(); });
}

}  // namespace larder::kernels::gemm
