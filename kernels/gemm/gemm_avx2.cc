// The AVX2 generator of matrix products, with VNNI on 256 bits (AVX-VNNI) or without. One panel at a time:
// its 16 outputs are two halves of 8 lanes, so a tile of `rows` rows (3 with VNNI, 2 without) holds 2*rows
// integer and 2*rows float accumulators in 16 registers.
//
// Without VNNI: weights become signed again (xor 0x80), then |w| * sign(a, w) by vpmaddubsw (2 * 128 * 127 <
// 2^15: it cannot saturate), widened by vpmaddwd. The unsigned weights with signed activations would saturate
// (2 * 255 * 127 > 2^15).
#include <asmjit/x86.h>

#include <bit>

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

  // What the weights of a block are unpacked with: a mask or a table.
  x86::Ymm Unpacking() const { return Scratch(vnni_ ? 3 : 5); }

  void Prepare() override {
    switch (format().id) {
      case PanelFormatId::kQ8_0:
        break;
      case PanelFormatId::kQ4_0:
        a_.vmovdqu(Unpacking(), Repeated(0xF0F0F0F0u));
        break;
      case PanelFormatId::kQ4K:
        a_.vmovdqu(Unpacking(), Repeated(0x0F0F0F0Fu));
        break;
      case PanelFormatId::kIq4Nl:
        a_.vmovdqu(Unpacking(), Table(model::kIq4Values, vnni_ ? 128 : 0));
        break;
    }
  }

  // Loads half h of weight vector j of block b into `to`. VNNI: as unsigned bytes weight + 128
  // (ActBlock::start subtracts the 128), or 16 * (weight + 8) for kQ4_0Panel, whose scales are taken by
  // sixteenths. Else, given 0x80 in each byte of `flip`, as signed bytes, 16 * weight for kQ4_0Panel. The
  // codes of weights with a minimum are loaded as they are.
  void LoadWeights(const x86::Ymm& to, size_t b, size_t j, int h, const x86::Ymm* flip = nullptr) {
    constexpr size_t kCodeVectors = kBlockVectors / 2;
    const bool high = j >= kCodeVectors;
    const size_t half = static_cast<size_t>(h) * (kVectorBytes / kHalves);
    const auto codes = Panel(0, format().weight_offset(b) + j % kCodeVectors * kVectorBytes + half);
    switch (format().id) {
      case PanelFormatId::kQ8_0: {
        const x86::Mem at = Panel(0, format().weight_offset(b) + j * kVectorBytes + half);
        flip ? a_.vpxor(to, *flip, at) : a_.vmovdqa(to, at);
        break;
      }
      case PanelFormatId::kQ4_0:
        a_.vmovdqa(to, codes);
        if (!high) a_.vpsllw(to, to, 4);
        a_.vpand(to, to, Unpacking());
        if (flip) a_.vpxor(to, to, *flip);
        break;
      case PanelFormatId::kQ4K:
        a_.vmovdqa(to, codes);
        if (high) a_.vpsrlw(to, to, 4);
        a_.vpand(to, to, Unpacking());
        break;
      case PanelFormatId::kIq4Nl:
        a_.vmovdqa(to, codes);
        if (high) a_.vpsrlw(to, to, 4);
        a_.vpand(to, to, Repeated(0x0F0F0F0Fu));
        a_.vpshufb(to, Unpacking(), to);
        break;
    }
  }

  // Loads half h of the scales of block b. Uses `other`.
  void LoadScales(const x86::Ymm& to, const x86::Ymm& other, size_t b, int h) {
    const size_t half = static_cast<size_t>(h) * (format().scale_bytes / kHalves);
    switch (format().id) {
      case PanelFormatId::kQ8_0:
      case PanelFormatId::kIq4Nl:
        a_.vcvtph2ps(to, Panel(0, format().scale_offset(b) + half));
        break;
      case PanelFormatId::kQ4_0:
        a_.vcvtph2ps(to, Panel(0, format().scale_offset(b) + half));
        a_.vmulps(to, to, Repeated(std::bit_cast<uint32_t>(0x1p-4f)));
        break;
      case PanelFormatId::kQ4K:
        LoadQ4KNumber(to, other, b, q4k_panel::kDOffset, h);
        break;
    }
  }
  // to = half h of number n of the group's words times d or dmin.
  void LoadQ4KNumber(const x86::Ymm& to, const x86::Ymm& other, size_t n, size_t factor, int h) {
    const auto word = [&](size_t w) {
      return Panel(
          0, q4k_panel::kWordOffset + w * kVectorBytes + static_cast<size_t>(h) * (kVectorBytes / kHalves));
    };
    if (n + 1 == q4k_panel::kNumbers) {
      a_.vmovdqa(to, word(2));
      a_.vpsrld(to, to, 30);
      for (const size_t w : {1, 0}) {
        a_.vpslld(to, to, 2);
        a_.vmovdqa(other, word(w));
        a_.vpsrld(other, other, 30);
        a_.vpor(to, to, other);
      }
    } else {
      a_.vmovdqa(to, word(n / q4k_panel::kWordNumbers));
      a_.vpsrld(to, to, static_cast<uint32_t>(n % q4k_panel::kWordNumbers * q4k_panel::kNumberBits));
      a_.vpand(to, to, Repeated(63));
    }
    a_.vcvtdq2ps(to, to);
    a_.vcvtph2ps(other,
                 Panel(0, factor + static_cast<size_t>(h) * (kPanelRows / kHalves * sizeof(uint16_t))));
    a_.vmulps(to, to, other);
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
      if (format().has_minimum) {  // its codes are unsigned by nature
        a_.vmovdqu(Int(0, m), Repeated(std::bit_cast<uint32_t>(kMagicBits)));
      } else {
        a_.vpbroadcastd(Int(0, m), Act(m, b, offsetof(ActBlock, start)));
      }
      a_.vmovdqa(Int(1, m), Int(0, m));
    }
    for (size_t j = 0; j < kBlockVectors; ++j) {
      if (format().id != PanelFormatId::kQ8_0) {  // unpacked once for all rows
        for (int h = 0; h < kHalves; ++h) {
          LoadWeights(Scratch(0), b, j, h);
          for (int m = 0; m < rows_; ++m) {
            a_.vpbroadcastd(Scratch(1), Act(m, b, j * kVectorInputs));
            a_.vex().vpdpbusd(Int(h, m), Scratch(0), Scratch(1));
          }
        }
        continue;
      }
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
      LoadScales(scale, broadcast, b, h);
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
      if (!format().has_minimum) continue;
      LoadQ4KNumber(scale, broadcast, model::kSuperBlocks + b, q4k_panel::kDminOffset, h);
      for (int m = 0; m < rows_; ++m) {
        a_.vbroadcastss(broadcast, Act(m, b, offsetof(ActBlock, d_sum)));
        a_.vfnmadd231ps(Sum(h, m), scale, broadcast);
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
