// The AVX-512 VNNI generator of matrix products.
//
// A tile is `rows` activation rows x `panels` panels of 16 outputs. Registers: an int32 and a float
// accumulator for each (row, panel), a weight vector and a scale vector for each panel, one for broadcasts:
// 2*rows*panels + 2*panels + 1 <= 32. That is odd, so there is always one more, for a mask or a table.
//
// Work per block of 32 inputs, row and panel: 8 vpdpbusd and 2 fused multiply-adds on the two 512-bit ports
// (the integer accumulator is read as a float, see ActBlock): at most 8/10 of the VNNI peak. A conversion and
// a separate multiplication would make that 8/11. With one panel the broadcasts are memory operands of
// vpdpbusd (ActLoad::kEmbedded): 11 loads per 10 arithmetic instructions, so the two load ports are the
// limit. With two panels one broadcast load serves two vpdpbusd.
#include <asmjit/x86.h>

#include <bit>

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

  // What the weights of a block are unpacked with: a mask or a table.
  x86::Zmm Unpacking() const { return x86::zmm(2 * panels_ * rows_ + 2 * panels_ + 1); }
  // Of tiles of few rows, which have registers left: a second mask, the codes as they are stored, integer
  // accumulators for the codes in the high halves of the bytes, d and dmin of a group.
  int first_spare() const { return 2 * panels_ * rows_ + 2 * panels_ + 2; }
  x86::Zmm HighMask() const { return x86::zmm(first_spare()); }
  x86::Zmm Codes(int p) const { return x86::zmm(first_spare() + 1 + p); }
  x86::Zmm High(int p, int m) const { return x86::zmm(first_spare() + 1 + panels_ + p * rows_ + m); }
  x86::Zmm Factor(int p, int i) const {
    return x86::zmm(first_spare() + (splits_ ? 1 + panels_ + panels_ * rows_ : 0) + 2 * p + i);
  }
  static constexpr int kRegisters = 32;
  // Whether codes in the high halves have accumulators of their own, 16 times as large as the others: of one
  // or two rows this saves more shifts than it adds.
  bool Splits() const {
    const bool masks = format().id == PanelFormatId::kQ4_0 || format().id == PanelFormatId::kQ4K;
    return masks && rows_ <= 2 && first_spare() + 1 + panels_ + panels_ * rows_ <= kRegisters;
  }
  bool HoldsFactors() const {
    return format().id == PanelFormatId::kQ4K && Factor(panels_ - 1, 1).id() < kRegisters;
  }

  x86::Mem Word(uint32_t word) { return Dword(Repeated(word))._1to16(); }
  static x86::Mem Dword(x86::Mem mem) {
    mem.setSize(sizeof(uint32_t));
    return mem;
  }
  void Fill(const x86::Zmm& to, uint32_t word) { a_.vpbroadcastd(to, Dword(Repeated(word))); }

  void Prepare() override {
    if (splits_) {
      Fill(Unpacking(), 0x0F0F0F0Fu);
      Fill(HighMask(), 0xF0F0F0F0u);
      return;
    }
    switch (format().id) {
      case PanelFormatId::kQ8_0:
        break;
      case PanelFormatId::kQ4_0:
        Fill(Unpacking(), 0xF0F0F0F0u);
        break;
      case PanelFormatId::kQ4K:
        Fill(Unpacking(), 0x0F0F0F0Fu);
        break;
      case PanelFormatId::kIq4Nl:
        a_.vbroadcasti32x4(Unpacking(), Table(model::kIq4Values, 128));
        break;
    }
  }

  // The start of integer accumulators: bits of kMagic, minus what unsigned weights add too much.
  void Start(size_t b) {
    constexpr int32_t kSixteenth = kMagicBits / 16;  // exact
    for (int m = 0; m < rows_; ++m) {
      // Codes with a minimum are unsigned by nature. Those of kQ4_0Panel are 8 more than the weights: a
      // sixteenth of the start, which High() becomes, subtracts 8 times the sum of activations.
      const x86::Zmm& signed_start = splits_ ? High(0, m) : Int(0, m);
      if (format().has_minimum) {
        Fill(Int(0, m), static_cast<uint32_t>(kMagicBits));
        if (splits_) a_.vpxord(High(0, m), High(0, m), High(0, m));
      } else {
        a_.vpbroadcastd(signed_start, Act(m, b, offsetof(ActBlock, start)));
        if (splits_) Fill(Int(0, m), static_cast<uint32_t>(kMagicBits - kSixteenth));
      }
      for (int p = 1; p < panels_; ++p) {
        a_.vmovdqa64(Int(p, m), Int(0, m));
        if (splits_) a_.vmovdqa64(High(p, m), High(0, m));
      }
    }
  }

  // Loads weight vector j of block b of each panel into Weight(p), as unsigned bytes: weight + 128
  // (ActBlock::start subtracts the 128), 16 * (weight + 8) for kQ4_0Panel (Scale has a sixteenth of the
  // scale), or the code of a weight with a minimum. With Start and the loads of the scales the only code of
  // the tile that depends on the format.
  void LoadWeights(size_t b, size_t j) {
    const bool high = j >= kCodeVectors;
    for (int p = 0; p < panels_; ++p) {
      const auto codes = Panel(p, format().weight_offset(b) + j % kCodeVectors * kVectorBytes);
      switch (format().id) {
        case PanelFormatId::kQ8_0:
          a_.vmovdqa64(Weight(p), Panel(p, format().weight_offset(b) + j * kVectorBytes));
          break;
        case PanelFormatId::kQ4_0:
          if (!high) a_.vpsllw(Weight(p), codes, 4);
          high ? a_.vpandq(Weight(p), Unpacking(), codes) : a_.vpandq(Weight(p), Unpacking(), Weight(p));
          break;
        case PanelFormatId::kQ4K:
          if (high) a_.vpsrlw(Weight(p), codes, 4);
          high ? a_.vpandq(Weight(p), Unpacking(), Weight(p)) : a_.vpandq(Weight(p), Unpacking(), codes);
          break;
        case PanelFormatId::kIq4Nl:
          high ? a_.vpsrlw(Weight(p), codes, 4) : a_.vmovdqa64(Weight(p), codes);
          a_.vpandd(Weight(p), Weight(p), Word(0x0F0F0F0Fu));
          a_.vpshufb(Weight(p), Unpacking(), Weight(p));
          break;
      }
    }
  }

  // Adds the products of weight vectors, which `weight` has, with inputs 4j..4j+3.
  template <typename Into, typename From>
  void Dots(size_t b, size_t j, const Into& into, const From& weight) {
    for (int m = 0; m < rows_; ++m) {
      if (tile_.spec.load == ActLoad::kEmbedded) {
        a_.vpdpbusd(into(0, m), weight(0), Act(m, b, j * kVectorInputs)._1to16());
      } else {
        a_.vpbroadcastd(Broadcast(), Act(m, b, j * kVectorInputs));
        for (int p = 0; p < panels_; ++p) a_.vpdpbusd(into(p, m), weight(p), Broadcast());
      }
    }
  }

  void SplitDots(size_t b) {
    const auto low_of = [&](int p, int m) { return Int(p, m); };
    const auto high_of = [&](int p, int m) { return High(p, m); };
    const auto weight = [&](int p) { return Weight(p); };
    const auto codes = [&](int p) { return Codes(p); };
    for (size_t j = 0; j < kCodeVectors; ++j) {
      for (int p = 0; p < panels_; ++p) {
        a_.vmovdqa64(Codes(p), Panel(p, format().weight_offset(b) + j * kVectorBytes));
        a_.vpandd(Weight(p), Codes(p), Unpacking());
        a_.vpandd(Codes(p), Codes(p), HighMask());
      }
      Dots(b, j, low_of, weight);
      Dots(b, j + kCodeVectors, high_of, codes);
    }
    for (int m = 0; m < rows_; ++m) {
      for (int p = 0; p < panels_; ++p) {
        a_.vpsrad(High(p, m), High(p, m), 4);
        a_.vpaddd(Int(p, m), Int(p, m), High(p, m));
      }
    }
  }

  void LoadScales(size_t b) {
    for (int p = 0; p < panels_; ++p) {
      switch (format().id) {
        case PanelFormatId::kQ8_0:
        case PanelFormatId::kIq4Nl:
          a_.vcvtph2ps(Scale(p), Panel(p, format().scale_offset(b)));
          break;
        case PanelFormatId::kQ4_0:
          a_.vcvtph2ps(Scale(p), Panel(p, format().scale_offset(b)));
          if (!splits_) a_.vmulps(Scale(p), Scale(p), Word(std::bit_cast<uint32_t>(0x1p-4f)));
          break;
        case PanelFormatId::kQ4K:
          if (b == 0 && holds_factors_) {
            a_.vcvtph2ps(Factor(p, 0), Panel(p, q4k_panel::kDOffset));
            a_.vcvtph2ps(Factor(p, 1), Panel(p, q4k_panel::kDminOffset));
          }
          LoadQ4KNumber(p, b, 0);
          break;
      }
    }
  }
  // Scale(p) = number n of the group's words times d (factor 0) or dmin (1). Uses Weight(p).
  void LoadQ4KNumber(int p, size_t n, int factor) {
    const auto word = [&](size_t w) { return Panel(p, q4k_panel::kWordOffset + w * kVectorBytes); };
    const x86::Zmm number = Scale(p), other = Weight(p);
    if (n + 1 == q4k_panel::kNumbers) {
      a_.vpsrld(number, word(2), 30);
      for (const size_t w : {1, 0}) {
        a_.vpslld(number, number, 2);
        a_.vpsrld(other, word(w), 30);
        a_.vpord(number, number, other);
      }
    } else {
      const auto shift = static_cast<uint32_t>(n % q4k_panel::kWordNumbers * q4k_panel::kNumberBits);
      a_.vpsrld(number, word(n / q4k_panel::kWordNumbers), shift);
      a_.vpandd(number, number, Word(63));
    }
    a_.vcvtdq2ps(number, number);
    if (holds_factors_) {
      a_.vmulps(number, number, Factor(p, factor));
    } else {
      a_.vcvtph2ps(other, Panel(p, factor == 0 ? q4k_panel::kDOffset : q4k_panel::kDminOffset));
      a_.vmulps(number, number, other);
    }
  }

  void Block(size_t b) override {
    Start(b);
    if (splits_) {
      SplitDots(b);
    } else {
      for (size_t j = 0; j < kBlockVectors; ++j) {
        LoadWeights(b, j);
        Dots(
            b, j, [&](int p, int m) { return Int(p, m); }, [&](int p) { return Weight(p); });
      }
    }
    LoadScales(b);
    for (int m = 0; m < rows_; ++m) {
      a_.vbroadcastss(Broadcast(), Act(m, b, offsetof(ActBlock, minus_md)));
      for (int p = 0; p < panels_; ++p) {
        // (kMagic + isum) * d - kMagic * d, rounded once: float(isum) * d.
        a_.vfmadd132ps(Int(p, m), Broadcast(), Act(m, b, offsetof(ActBlock, d))._1to16());
        a_.vfmadd231ps(Sum(p, m), Int(p, m), Scale(p));
      }
    }
    if (!format().has_minimum) return;
    for (int p = 0; p < panels_; ++p) LoadQ4KNumber(p, model::kSuperBlocks + b, 1);
    for (int m = 0; m < rows_; ++m) {
      for (int p = 0; p < panels_; ++p)
        a_.vfnmadd231ps(Sum(p, m), Scale(p), Act(m, b, offsetof(ActBlock, d_sum))._1to16());
    }
  }

  x86::Vec SumVector(int m, int i) const override { return Sum(i, m); }
  size_t vector_bytes() const override { return kPanelRows * sizeof(float); }

  static constexpr size_t kCodeVectors = kBlockVectors / 2;
  const bool splits_ = Splits(), holds_factors_ = HoldsFactors();
};

}  // namespace

GemmFn GenerateGemmAvx512(const TileShape& tile) {
  return Jit::Generate<GemmFn>(TileName(tile, Isa::kAvx512Vnni),
                               [&](x86::Assembler& a) { Avx512Tile(a, tile).Emit(); });
}

}  // namespace larder::kernels::gemm
