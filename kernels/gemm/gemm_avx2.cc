// The AVX2 generator of matrix products, with VNNI on 256 bits (AVX-VNNI) or without. One panel at a time:
// its 16 outputs are two halves of 8 lanes, so a tile of `rows` rows (3 with VNNI, 2 without) holds 2*rows
// integer and 2*rows float accumulators in 16 registers.
//
// Without VNNI: weights become signed again (xor 0x80), then |w| * sign(a, w) by vpmaddubsw (2 * 128 * 127 <
// 2^15: it cannot saturate), widened by vpmaddwd. The unsigned weights with signed activations would saturate
// (2 * 255 * 127 > 2^15).
#include <asmjit/x86.h>

#include "kernels/gemm/gemm_generate.h"
#include "kernels/gemm/gemm_tile.h"
#include "kernels/jit/jit.h"

namespace larder::kernels::inline gemm {
namespace {

namespace x86 = asmjit::x86;

constexpr int kHalves = 2;

class Avx2Tile final : public GemmTile {
 public:
  Avx2Tile(x86::Assembler& a, const TileShape& tile, bool avx_vnni) : GemmTile(a, tile), vnni_(avx_vnni) {}

 private:
  x86::Ymm Int(int h, int m) const { return x86::ymm(h * rows_ + m); }
  x86::Ymm Sum(int h, int m) const { return x86::ymm((kHalves + h) * rows_ + m); }
  x86::Ymm Scratch(int i) const { return x86::ymm(2 * kHalves * rows_ + i); }
  x86::Ymm Magic() const { return Scratch(2); }

  // Loads half h of weight vector j of block b into `to`: as bytes weight + 128 (VNNI; ActBlock::start
  // subtracts the 128), or, given 0x80 in each byte of `flip`, as signed bytes. The only code of the tile
  // that depends on how the format stores its weights.
  void LoadWeights(const x86::Ymm& to, size_t b, size_t j, int h, const x86::Ymm* flip = nullptr) {
    switch (format().id) {
      case PanelFormatId::kQ8: {
        const x86::Mem at = Panel(0, format().weight_offset(b) + j * kVectorBytes +
                                         static_cast<size_t>(h) * (kVectorBytes / kHalves));
        flip ? a_.vpxor(to, *flip, at) : a_.vmovdqa(to, at);
        break;
      }
    }
  }

  void Zero() override {
    for (int m = 0; m < rows_; ++m) {
      for (int h = 0; h < kHalves; ++h) a_.vpxor(Sum(h, m), Sum(h, m), Sum(h, m));
    }
  }

  x86::Vec SumVector(int m, int i) const override { return Sum(i, m); }
  size_t vector_bytes() const override { return kPanelRows / kHalves * sizeof(float); }

  void DotVnni(size_t b) {
    for (int m = 0; m < rows_; ++m) {
      a_.vpbroadcastd(Int(0, m), Act(m, b, offsetof(ActBlock, start)));
      a_.vmovdqa(Int(1, m), Int(0, m));
    }
    for (size_t j = 0; j < kBlockVectors; ++j) {
      for (int m = 0; m < rows_; ++m) {
        a_.vpbroadcastd(Scratch(1), Act(m, b, j * kVectorInputs));
        for (int h = 0; h < kHalves; ++h) {
          LoadWeights(Scratch(0), b, j, h);  // loaded again from L1 for each row: there are too few registers
          a_.vex().vpdpbusd(Int(h, m), Scratch(0), Scratch(1));
        }
      }
    }
  }

  void DotAvx2(size_t b) {
    const x86::Ymm signed_w = Scratch(0), abs_w = Scratch(1), product = Scratch(2), ones = Scratch(3),
                   flip = Scratch(4);
    a_.vpcmpeqb(flip, flip, flip);
    a_.vpsrlw(ones, flip, 15);  // 1 in each 16-bit lane
    a_.vpabsb(flip, flip);      // 1 in each byte
    a_.vpsllw(flip, flip, 7);   // 0x80 in each byte
    for (int m = 0; m < rows_; ++m) {
      for (int h = 0; h < kHalves; ++h) a_.vpxor(Int(h, m), Int(h, m), Int(h, m));
    }
    for (size_t j = 0; j < kBlockVectors; ++j) {
      for (int h = 0; h < kHalves; ++h) {
        LoadWeights(signed_w, b, j, h, &flip);
        a_.vpabsb(abs_w, signed_w);
        for (int m = 0; m < rows_; ++m) {
          a_.vpbroadcastd(product, Act(m, b, j * kVectorInputs));
          a_.vpsignb(product, product, signed_w);
          a_.vpmaddubsw(product, abs_w, product);
          a_.vpmaddwd(product, product, ones);
          a_.vpaddd(Int(h, m), Int(h, m), product);
        }
      }
    }
  }

  void Block(size_t b) override {
    vnni_ ? DotVnni(b) : DotAvx2(b);
    for (int h = 0; h < kHalves; ++h) {
      const x86::Ymm scale = Scratch(0), broadcast = Scratch(1);
      a_.vcvtph2ps(scale, Panel(0, format().scale_offset(b) +
                                       static_cast<size_t>(h) * (format().scale_bytes / kHalves)));
      for (int m = 0; m < rows_; ++m) {
        a_.vbroadcastss(broadcast, Act(m, b, offsetof(ActBlock, d)));
        if (vnni_) {
          // The accumulator's bits, read as a float, are kMagic + isum; the difference is exact (see
          // ActBlock).
          a_.vpbroadcastd(Magic(), Act(m, b, offsetof(ActBlock, minus_md)));
          a_.vfmadd132ps(Int(h, m), Magic(), broadcast);
        } else {
          a_.vcvtdq2ps(Int(h, m), Int(h, m));
          a_.vmulps(Int(h, m), Int(h, m), broadcast);
        }
        a_.vfmadd231ps(Sum(h, m), Int(h, m), scale);
      }
    }
  }
  const bool vnni_;
};

}  // namespace

GemmFn GenerateGemmAvx2(const TileShape& tile, bool avx_vnni) {
  return Jit::Generate<GemmFn>(TileName(tile, avx_vnni ? Isa::kAvxVnni : Isa::kAvx2),
                               [&](x86::Assembler& a) { Avx2Tile(a, tile, avx_vnni).Emit(); });
}

}  // namespace larder::kernels::gemm
