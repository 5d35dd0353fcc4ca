// The AVX-512 VNNI generator of matrix products.
//
// A tile is `rows` activation rows x `panels` panels of 16 outputs. Registers: an int32 and a float
// accumulator for each (row, panel), a weight vector and a scale vector for each panel, one for
// broadcasts: 2*rows*panels + 2*panels + 1 <= 32. That is odd, so there is always one more. Tiles
// of few rows have several, for what their format needs (Prepare).
//
// Work per block of 32 inputs, row and panel: 8 vpdpbusd and 2 fused multiply-adds on the two
// 512-bit ports (the integer accumulator is read as a float, see ActBlock): at most 8/10 of the
// VNNI peak. A conversion and a separate multiplication would make that 8/11. With one panel the
// broadcasts are memory operands of vpdpbusd (ActLoad::kEmbedded): 11 loads per 10 arithmetic
// instructions, so the two load ports are the limit. With two panels one broadcast load serves two
// vpdpbusd.
#include <asmjit/x86.h>

#include <array>
#include <bit>
#include <utility>
#include <vector>

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

  // Registers that nothing above uses, from the first one on.
  x86::Zmm Take() { return x86::zmm(next_++); }
  bool HasSpare(int count) const { return next_ + count <= kRegisters; }

  // A word in all lanes. Word: a register, if Hold found one, or memory.
  void Hold(uint32_t word) {
    if (!HasSpare(1)) return;
    const x86::Zmm reg = Take();
    a_.vpbroadcastd(reg, Dword(Repeated(word)));
    held_.emplace_back(word, reg);
  }
  asmjit::Operand Word(uint32_t word) {
    for (const auto& [known, reg] : held_) {
      if (known == word) return reg;
    }
    return Dword(Repeated(word))._1to16();
  }
  void Fill(const x86::Zmm& to, uint32_t word) {
    const asmjit::Operand held = Word(word);
    held.isReg() ? a_.emit(x86::Inst::kIdVmovdqa64, to, held)
                 : a_.emit(x86::Inst::kIdVpbroadcastd, to, Dword(Repeated(word)));
  }
  static x86::Mem Dword(x86::Mem mem) {
    mem.setSize(sizeof(uint32_t));
    return mem;
  }
  void And(const x86::Zmm& to, const asmjit::Operand& from, uint32_t word) {
    const asmjit::Operand held = Word(word);
    if (held.isReg()) {
      a_.emit(x86::Inst::kIdVpandd, to, held, from);
    } else {
      if (from != to) a_.emit(x86::Inst::kIdVmovdqa64, to, from);
      a_.emit(x86::Inst::kIdVpandd, to, to, held);
    }
  }
  // Shift 16-bit words, which takes bits across bytes.
  void ShiftLeft(const x86::Zmm& to, const asmjit::Operand& from, int bits) {
    a_.emit(x86::Inst::kIdVpsllw, to, from, asmjit::Imm(bits));
  }
  void ShiftRight(const x86::Zmm& to, const asmjit::Operand& from, int bits) {
    a_.emit(x86::Inst::kIdVpsrlw, to, from, asmjit::Imm(bits));
  }
  // to = the bits of `to` where `word` has ones, those of `other` elsewhere.
  void Select(const x86::Zmm& to, const x86::Zmm& other, uint32_t word) {
    a_.emit(x86::Inst::kIdVpternlogd, to, other, Word(word), asmjit::Imm(0xE4));
  }

  // Vectors of a panel's codes from which one after the other weights are unpacked: loaded once, if
  // there are registers.
  int CodeVectors() const { return kCodeVectorsOf[static_cast<size_t>(format().codes)]; }

  // Whether codes in the high halves of bytes have accumulators of their own, 16 times as large as
  // the others: of one or two rows this saves more shifts than it adds.
  bool Splits() const {
    return !unpacks() && format().codes == PanelCodes::kNibbles && rows_ <= 2 &&
           HasSpare(2 + panels_ + panels_ * rows_);
  }

  void Prepare() override {
    if (format().codes == PanelCodes::kTable) {
      table_ = Take();
      a_.vbroadcasti32x4(table_, Table(*format().table, 128));
    }
    const int code_vectors = CodeVectors() * panels_;
    splits_ = Splits();
    if (splits_ || HasSpare(code_vectors)) {
      for (int i = 0; i < code_vectors; ++i) codes_.push_back(Take());
    }
    if (splits_) {
      for (int i = 0; i < panels_ * rows_; ++i) high_.push_back(Take());
    }
    switch (format().codes) {
      case PanelCodes::kBytes:
      case PanelCodes::kUnpacked:
        break;
      case PanelCodes::kNibbles:
        if (splits_ || format().has_minimum()) Hold(kLowHalves);
        if (splits_ || !format().has_minimum()) Hold(kHighHalves);
        break;
      case PanelCodes::kTable:
        Hold(kLowHalves);
        break;
      case PanelCodes::kFiveBits:
        for (const uint32_t word : {kFiveBits, kTopThree, kHighHalves}) Hold(word);
        break;
      case PanelCodes::kSixBits:
        for (const uint32_t word : {kSixBits, kTopTwo, kHighHalves}) Hold(word);
        break;
    }
    // The group's factors: d, and dmin.
    const bool words = format().scales == PanelScales::kSixBitWords;
    const int factors = panels_ * (words ? 2 : HasInt8Scales() ? 1 : 0);
    if (HasSpare(factors)) {
      for (int i = 0; i < factors; ++i) factors_.push_back(Take());
    }
    if (words) Hold(kNumberMask);
    if (format().has_minimum()) Hold(static_cast<uint32_t>(kMagicBits));
  }

  // The start of integer accumulators: bits of kMagic, minus what unsigned weights add too much.
  void Start(size_t b, int half) {
    constexpr int32_t kSixteenth = kMagicBits / 16;  // exact
    for (int m = 0; m < rows_; ++m) {
      if (format().has_minimum()) {  // its codes are unsigned by nature
        Fill(Int(0, m), static_cast<uint32_t>(kMagicBits));
        if (splits_) a_.vpxord(High(0, m), High(0, m), High(0, m));
      } else if (splits_) {
        // Codes are 8 more than the weights: a sixteenth of the start, which High() becomes,
        // subtracts 8 times the sum of activations.
        a_.vpbroadcastd(High(0, m), Act(m, b, offsetof(ActBlock, start)));
        Fill(Int(0, m), static_cast<uint32_t>(kMagicBits - kSixteenth));
      } else if (format().half_scales()) {
        a_.vpbroadcastd(Int(0, m), Act(m, b,
                                       offsetof(ActBlock, half_starts) +
                                           static_cast<size_t>(half) * sizeof(int32_t)));
      } else {
        a_.vpbroadcastd(Int(0, m), Act(m, b, offsetof(ActBlock, start)));
      }
      for (int p = 1; p < panels_; ++p) {
        a_.vmovdqa64(Int(p, m), Int(0, m));
        if (splits_) a_.vmovdqa64(High(p, m), High(0, m));
      }
    }
  }

  // Vector i of the codes of block b. fresh: load it now, where codes are kept.
  asmjit::Operand CodesAt(int p, size_t b, size_t i, bool fresh) {
    const x86::Mem at = Panel(p, format().vector_offset(b, i));
    if (codes_.empty()) return at;
    const x86::Zmm kept = Codes(p, static_cast<int>(i) % CodeVectors());
    if (fresh) a_.vmovdqa64(kept, at);
    return kept;
  }

  // Loads weight vector j of block b of each panel into Weight(p), as unsigned bytes: weight + 128
  // (ActBlock::start subtracts the 128) or a multiple of that: 16 * (weight + 8) with kNibbles, 8 *
  // (weight + 16) with kFiveBits, 4 * (weight + 32) with kSixBits. With minimums it is the code
  // (with kFiveBits, 8 times the code). Vectors must be loaded in the order of InOrder.
  void LoadWeights(size_t b, size_t j) {
    const bool high = j >= kNibbleVectors;
    for (int p = 0; p < panels_; ++p) {
      switch (format().codes) {
        case PanelCodes::kBytes:
        case PanelCodes::kUnpacked:
          a_.vmovdqa64(Weight(p), Panel(p, format().vector_offset(b, j)));
          break;
        case PanelCodes::kNibbles: {
          const asmjit::Operand codes = CodesAt(p, b, j % kNibbleVectors, !high);
          const bool low_bits = format().has_minimum();  // the code is wanted in the low bits of
                                                         // the byte
          const uint32_t mask = low_bits ? kLowHalves : kHighHalves;
          if (high != low_bits) {
            And(Weight(p), codes, mask);
          } else {
            low_bits ? ShiftRight(Weight(p), codes, 4) : ShiftLeft(Weight(p), codes, 4);
            And(Weight(p), Weight(p), mask);
          }
          break;
        }
        case PanelCodes::kTable: {
          const asmjit::Operand codes = CodesAt(p, b, j % kNibbleVectors, !high);
          if (high) ShiftRight(Weight(p), codes, 4);
          And(Weight(p), high ? Weight(p) : codes, kLowHalves);
          a_.vpshufb(Weight(p), table_, Weight(p));
          break;
        }
        case PanelCodes::kFiveBits: {
          const auto codes = [&](size_t i) { return CodesAt(p, b, i, false); };
          if (j < kFiveVectors) {
            And(Weight(p), CodesAt(p, b, j, true), kFiveBits);
            break;
          }
          if (j + 1 < kBlockVectors) {
            const size_t first = (j - kFiveVectors) * 2;
            ShiftLeft(Weight(p), codes(first), 5);
            ShiftLeft(Broadcast(), codes(first + 1), 2);
            Select(Weight(p), Broadcast(), kTopThree);
          } else {
            ShiftLeft(Weight(p), codes(4), 5);
            ShiftLeft(Broadcast(), codes(1), 4);
            Select(Weight(p), Broadcast(), kTopThree);
            ShiftLeft(Broadcast(), codes(3), 3);
            Select(Weight(p), Broadcast(), kHighHalves);
          }
          And(Weight(p), Weight(p), kFiveBits);
          break;
        }
        case PanelCodes::kSixBits: {
          const size_t half_vectors = kBlockVectors / 2;
          const size_t triple = j / half_vectors * kTripleVectors, i = j % half_vectors;
          if (i < kTripleVectors) {
            And(Weight(p), CodesAt(p, b, triple + i, true), kSixBits);
          } else {
            ShiftLeft(Weight(p), CodesAt(p, b, triple, false), 6);
            ShiftLeft(Broadcast(), CodesAt(p, b, triple + 1, false), 4);
            Select(Weight(p), Broadcast(), kTopTwo);
            ShiftLeft(Broadcast(), CodesAt(p, b, triple + 2, false), 2);
            Select(Weight(p), Broadcast(), kHighHalves);
            And(Weight(p), Weight(p), kSixBits);
          }
          break;
        }
      }
    }
  }
  // The i-th vector of a block to be loaded: two that share their bytes come one after the other.
  size_t InOrder(size_t i) const { return CodeVectors() == 1 ? i / 2 + i % 2 * kNibbleVectors : i; }

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
    const auto codes = [&](int p) { return Codes(p, 0); };
    for (size_t j = 0; j < kNibbleVectors; ++j) {
      for (int p = 0; p < panels_; ++p) {
        const asmjit::Operand kept = CodesAt(p, b, j, true);
        And(Weight(p), kept, kLowHalves);
        And(Codes(p, 0), kept, kHighHalves);
      }
      Dots(b, j, low_of, weight);
      Dots(b, j + kNibbleVectors, high_of, codes);
    }
    for (int m = 0; m < rows_; ++m) {
      for (int p = 0; p < panels_; ++p) {
        a_.vpsrad(High(p, m), High(p, m), 4);
        a_.vpaddd(Int(p, m), Int(p, m), High(p, m));
      }
    }
  }

  // Multiplies scales by the part of the weights' multiples that weights are: LoadWeights.
  void Reduce(const x86::Zmm& scales) {
    float part = 1;
    if (format().codes == PanelCodes::kFiveBits) part = 0x1p-3f;
    if (format().codes == PanelCodes::kNibbles && !format().has_minimum() && !splits_)
      part = 0x1p-4f;
    if (part != 1)
      a_.vmulps(scales, scales, Dword(Repeated(std::bit_cast<uint32_t>(part)))._1to16());
  }

  // Scale(p) = the scale that Int's sums are to be multiplied with.
  void LoadScales(size_t b, int half) {
    for (int p = 0; p < panels_; ++p) {
      switch (format().scales) {
        case PanelScales::kF16:
        case PanelScales::kF16AndMinimum:
          a_.vcvtph2ps(Scale(p), Panel(p, format().scale_offset(b)));
          Reduce(Scale(p));
          break;
        case PanelScales::kBf16:
          a_.vpmovzxwd(Scale(p), Panel(p, format().scale_offset(b)));
          a_.vpslld(Scale(p), Scale(p), 16);
          break;
        case PanelScales::kSixBitWords:
          if (b == 0 && HoldsFactors()) {
            a_.vcvtph2ps(Factor(p, 0), Panel(p, six_bit_words::kDOffset));
            Reduce(Factor(p, 0));
            a_.vcvtph2ps(Factor(p, 1), Panel(p, six_bit_words::kDminOffset));
          }
          LoadNumber(p, b, 0);
          break;
        case PanelScales::kInt8:
        case PanelScales::kInt8Halves: {
          if (b == 0 && half == 0 && HoldsFactors())
            a_.vmovaps(Factor(p, 0), Panel(p, int8_scales::kDOffset));
          a_.vpmovsxbd(Scale(p), Panel(p, format().int8_offset(b, static_cast<size_t>(half))));
          a_.vcvtdq2ps(Scale(p), Scale(p));
          HoldsFactors() ? a_.vmulps(Scale(p), Scale(p), Factor(p, 0))
                         : a_.vmulps(Scale(p), Scale(p), Panel(p, int8_scales::kDOffset));
          break;
        }
        case PanelScales::kF32:
        case PanelScales::kF32Halves:
        case PanelScales::kF32AndMinimum:
          a_.vmovaps(Scale(p), Panel(p, format().half_scale_offset(b, static_cast<size_t>(half))));
          break;
      }
    }
  }
  // Scale(p) = number n of the group's words times d (factor 0) or dmin (1). Uses Weight(p).
  void LoadNumber(int p, size_t n, int factor) {
    const auto word = [&](size_t w) { return Panel(p, six_bit_words::word_offset(w)); };
    const x86::Zmm number = Scale(p), other = Weight(p);
    if (n + 1 == six_bit_words::kNumbers) {
      a_.vpsrld(number, word(2), 30);
      for (const size_t w : {1, 0}) {
        a_.vpslld(number, number, 2);
        a_.vpsrld(other, word(w), 30);
        a_.vpord(number, number, other);
      }
    } else {
      const auto shift =
          static_cast<uint32_t>(n % six_bit_words::kWordNumbers * six_bit_words::kNumberBits);
      a_.vpsrld(number, word(n / six_bit_words::kWordNumbers), shift);
      And(number, number, kNumberMask);
    }
    a_.vcvtdq2ps(number, number);
    if (HoldsFactors()) {
      a_.vmulps(number, number, Factor(p, factor));
    } else {
      a_.vcvtph2ps(other,
                   Panel(p, factor == 0 ? six_bit_words::kDOffset : six_bit_words::kDminOffset));
      if (factor == 0) Reduce(other);
      a_.vmulps(number, number, other);
    }
  }

  void Block(size_t b) override {
    const int parts = format().half_scales() ? 2 : 1;
    const size_t part_vectors = kBlockVectors / static_cast<size_t>(parts);
    for (int part = 0; part < parts; ++part) {
      Start(b, part);
      if (splits_) {
        SplitDots(b);
      } else {
        for (size_t i = 0; i < part_vectors; ++i) {
          const size_t j = InOrder(static_cast<size_t>(part) * part_vectors + i);
          LoadWeights(b, j);
          Dots(
              b, j, [&](int p, int m) { return Int(p, m); }, [&](int p) { return Weight(p); });
        }
      }
      LoadScales(b, part);
      for (int m = 0; m < rows_; ++m) {
        a_.vbroadcastss(Broadcast(), Act(m, b, offsetof(ActBlock, minus_md)));
        for (int p = 0; p < panels_; ++p) {
          // (kMagic + isum) * d - kMagic * d, rounded once: float(isum) * d.
          a_.vfmadd132ps(Int(p, m), Broadcast(), Act(m, b, offsetof(ActBlock, d))._1to16());
          a_.vfmadd231ps(Sum(p, m), Int(p, m), Scale(p));
        }
      }
    }
    if (!format().has_minimum()) return;
    const bool negated = format().scales != PanelScales::kSixBitWords;
    LoadMinimums(b);
    for (int m = 0; m < rows_; ++m) {
      for (int p = 0; p < panels_; ++p) {
        const auto d_sum = Act(m, b, offsetof(ActBlock, d_sum))._1to16();
        negated ? a_.vfmadd231ps(Sum(p, m), Scale(p), d_sum)
                : a_.vfnmadd231ps(Sum(p, m), Scale(p), d_sum);
      }
    }
  }

  // Scale(p) = the minimums of block b, with their sign changed except for kSixBitWords.
  void LoadMinimums(size_t b) {
    for (int p = 0; p < panels_; ++p) {
      if (format().scales == PanelScales::kSixBitWords) {
        LoadNumber(p, model::kSuperBlocks + b, 1);
      } else if (format().scales == PanelScales::kF16AndMinimum) {
        a_.vcvtph2ps(Scale(p), Panel(p, format().minimum_offset(b)));
      } else {
        a_.vmovaps(Scale(p), Panel(p, format().minimum_offset(b)));
      }
    }
  }

  void UnpackBlock(size_t b) override {
    const size_t parts = format().half_scales() ? 2 : 1, part_vectors = kBlockVectors / parts;
    for (size_t part = 0; part < parts; ++part) {
      for (size_t i = 0; i < part_vectors; ++i) {
        const size_t j = InOrder(part * part_vectors + i);
        LoadWeights(b, j);
        a_.vmovdqa64(Unpacked(unpacked().vector_offset(b, j)), Weight(0));
      }
      LoadScales(b, static_cast<int>(part));
      a_.vmovaps(Unpacked(unpacked().half_scale_offset(b, part)), Scale(0));
    }
    if (!format().has_minimum()) return;
    LoadMinimums(b);
    if (format().scales == PanelScales::kSixBitWords)
      a_.vpxord(Scale(0), Scale(0), Dword(Repeated(kSignBit))._1to16());
    a_.vmovaps(Unpacked(unpacked().minimum_offset(b)), Scale(0));
  }

  x86::Vec SumVector(int m, int i) const override { return Sum(i, m); }
  size_t vector_bytes() const override { return kPanelRows * sizeof(float); }

  static constexpr int kRegisters = 32;
  // Bits of bytes.
  static constexpr uint32_t kLowHalves = 0x0F0F0F0Fu, kHighHalves = 0xF0F0F0F0u;
  static constexpr uint32_t kSixBits = 0xFCFCFCFCu, kTopTwo = 0xC0C0C0C0u;
  static constexpr uint32_t kFiveBits = 0xF8F8F8F8u, kTopThree = 0xE0E0E0E0u;
  // By PanelCodes: the registers that CodesAt keeps for a panel.
  static constexpr std::array<int, 6> kCodeVectorsOf = {0, 1, 1, kFiveVectors, kTripleVectors, 0};
  static constexpr uint32_t kSignBit = 1u << 31;
  static constexpr uint32_t kNumberMask = (1u << six_bit_words::kNumberBits) - 1;

  bool HasInt8Scales() const {
    return format().scales == PanelScales::kInt8 || format().scales == PanelScales::kInt8Halves;
  }
  x86::Zmm Codes(int p, int i) const {
    const int index = p * CodeVectors() + i;
    return codes_[static_cast<size_t>(index)];
  }
  x86::Zmm High(int p, int m) const {
    const int index = p * rows_ + m;
    return high_[static_cast<size_t>(index)];
  }
  bool HoldsFactors() const { return !factors_.empty(); }
  x86::Zmm Factor(int p, int i) const {
    return factors_[static_cast<size_t>(p) + static_cast<size_t>(i * panels_)];
  }

  int next_ = 2 * panels_ * rows_ + 2 * panels_ + 1;
  bool splits_ = false;
  std::vector<x86::Zmm> codes_;    // as stored; empty: loaded again for each weight vector
  std::vector<x86::Zmm> high_;     // accumulators of tiles that split
  std::vector<x86::Zmm> factors_;  // d of each panel, then dmin; empty: in memory
  std::vector<std::pair<uint32_t, x86::Zmm>> held_;
  x86::Zmm table_;
};

}  // namespace

GemmFn GenerateGemmAvx512(const TileShape& tile) {
  return Jit::Generate<GemmFn>(TileName(tile, Isa::kAvx512Vnni),
                               [&](x86::Assembler& a) { Avx512Tile(a, tile).Emit(); });
}

UnpackFn GenerateUnpackAvx512(const TileShape& tile, const PanelShape& unpacked) {
  return Jit::Generate<UnpackFn>(UnpackName(tile, Isa::kAvx512Vnni), [&](x86::Assembler& a) {
    Avx512Tile(a, tile).EmitUnpack(unpacked);
  });
}

}  // namespace larder::kernels::gemm
