// The AVX2 generator of matrix products, with VNNI on 256 bits (AVX-VNNI) or without. One panel at
// a time: its 16 outputs are two halves of 8 lanes, so a tile of `rows` rows (3 with VNNI, 2
// without) holds 2*rows integer and 2*rows float accumulators in 16 registers.
//
// Without VNNI, weights of 8 bits become signed again (xor 0x80), then |w| * sign(a, w) by
// vpmaddubsw, which cannot saturate (2 * 128 * 127 < 2^15), widened by vpmaddwd. The unsigned
// weights with signed activations would saturate (2 * 255 * 127 > 2^15). Codes of 4, 5 and 6 bits
// are multiplied as they are, unsigned, and sums of 8, 4 and 2 of their products fit 16 bits
// (8 * 2 * 15 * 127 < 2^15): two instructions for each vector and row instead of four. What the
// codes are too large by is subtracted from the block's sum (ActBlock::start).
#include <asmjit/x86.h>

#include <algorithm>
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
  Avx2Tile(x86::Assembler& a, const TileShape& tile, bool avx_vnni)
      : GemmTile(a, tile), vnni_(avx_vnni) {}

 private:
  x86::Ymm Int(int h, int m) const { return x86::ymm(h * rows_ + m); }
  x86::Ymm Sum(int h, int m) const { return x86::ymm((kHalves + h) * rows_ + m); }
  x86::Ymm Scratch(int i) const { return x86::ymm(2 * kHalves * rows_ + i); }
  x86::Ymm Magic() const { return Scratch(2); }

  // What the weights of a block are unpacked with: a mask or a table. Not if narrow().
  x86::Ymm Unpacking() const { return Scratch(vnni_ ? 3 : 5); }
  // Without VNNI: codes are multiplied as they are.
  bool narrow() const { return !vnni_ && format().code_bits < 8; }
  // Without VNNI, if not narrow(): 1 in each 16-bit lane, 0x80 in each byte, and what integer sums
  // start from (ActBlock).
  x86::Ymm Ones() const { return Scratch(3); }
  x86::Ymm Flip() const { return Scratch(4); }
  x86::Ymm Start() const { return Scratch(6); }

  void Prepare() override {
    if (narrow()) return;
    if (!vnni_) {
      a_.vpcmpeqb(Ones(), Ones(), Ones());
      a_.vpabsb(Flip(), Ones());     // 1 in each byte
      a_.vpsllw(Flip(), Flip(), 7);  // no carry leaves a byte
      a_.vpsrlw(Ones(), Ones(), 15);
      a_.mov(x86::eax, kMagicBits);
      a_.vmovd(Start().xmm(), x86::eax);
      a_.vpbroadcastd(Start(), Start().xmm());
    }
    switch (format().codes) {
      case PanelCodes::kBytes:
      case PanelCodes::kUnpacked:
        break;
      case PanelCodes::kNibbles:
        a_.vmovdqu(Unpacking(), Repeated(format().has_minimum() ? 0x0F0F0F0Fu : 0xF0F0F0F0u));
        break;
      case PanelCodes::kTable:
        a_.vmovdqu(Unpacking(), Table(*format().table, vnni_ ? 128 : 0));
        break;
      case PanelCodes::kFiveBits:
        a_.vmovdqu(Unpacking(), Repeated(0xF8F8F8F8u));
        break;
      case PanelCodes::kSixBits:
        a_.vmovdqu(Unpacking(), Repeated(0xFCFCFCFCu));
        break;
    }
  }

  // Loads half h of weight vector j of block b into `to`. VNNI: as unsigned bytes weight + 128
  // (ActBlock::start subtracts the 128) or a multiple of that: 16 * (weight + 8) of kNibbles, 8 *
  // (weight + 16) of kFiveBits, 4 * (weight + 32) of kSixBits; of formats with minimums the code,
  // of kFiveBits 8 times the code. Else the code if narrow(), or the weight as a signed byte. Uses
  // `other`.
  void LoadWeights(const x86::Ymm& to, const x86::Ymm& other, size_t b, size_t j, int h) {
    const bool high = j >= kNibbleVectors;
    const size_t half = static_cast<size_t>(h) * (kVectorBytes / kHalves);
    const auto vector = [&](size_t i) { return Panel(0, format().vector_offset(b, i) + half); };
    const x86::Mem codes = vector(j % kNibbleVectors);
    const auto shifted = [&](const x86::Ymm& into, size_t i, uint32_t by, uint32_t mask) {
      a_.vmovdqa(into, vector(i));
      a_.vpsllw(into, into, by);
      a_.vpand(into, into, Repeated(mask));
    };
    switch (format().codes) {
      case PanelCodes::kBytes:
        vnni_ ? a_.vmovdqa(to, vector(j)) : a_.vpxor(to, Flip(), vector(j));
        break;
      case PanelCodes::kUnpacked:
        a_.vmovdqa(to, vector(j));
        break;
      case PanelCodes::kNibbles:
        a_.vmovdqa(to, codes);
        if (narrow() || format().has_minimum()) {
          if (high) a_.vpsrlw(to, to, 4);
        } else {
          if (!high) a_.vpsllw(to, to, 4);
        }
        narrow() ? a_.vpand(to, to, Repeated(0x0F0F0F0Fu)) : a_.vpand(to, to, Unpacking());
        break;
      case PanelCodes::kTable:
        a_.vmovdqa(to, codes);
        if (high) a_.vpsrlw(to, to, 4);
        a_.vpand(to, to, Repeated(0x0F0F0F0Fu));
        if (narrow()) {
          a_.vmovdqu(other,
                     Table(*format().table, static_cast<uint8_t>(1u << (format().code_bits - 1))));
          a_.vpshufb(to, other, to);
        } else {
          a_.vpshufb(to, Unpacking(), to);
        }
        break;
      case PanelCodes::kFiveBits:
        if (j < kFiveVectors) {
          narrow() ? a_.vmovdqa(to, vector(j)) : a_.vpand(to, Unpacking(), vector(j));
        } else {
          const bool last = j + 1 == kBlockVectors;
          const size_t first = last ? 4 : (j - kFiveVectors) * 2;
          shifted(to, first, 5, 0xE0E0E0E0u);
          last ? shifted(other, 1, 4, 0x10101010u) : shifted(other, first + 1, 2, 0x18181818u);
          a_.vpor(to, to, other);
          if (last) {
            shifted(other, 3, 3, 0x08080808u);
            a_.vpor(to, to, other);
          }
        }
        if (!narrow()) break;
        a_.vpsrlw(to, to, 3);
        a_.vpand(to, to, Repeated(0x1F1F1F1Fu));
        break;
      case PanelCodes::kSixBits: {
        const size_t half_vectors = kBlockVectors / 2;
        const size_t triple = j / half_vectors * kTripleVectors, i = j % half_vectors;
        if (i < kTripleVectors) {
          narrow() ? a_.vmovdqa(to, vector(triple + i))
                   : a_.vpand(to, Unpacking(), vector(triple + i));
        } else {
          shifted(to, triple, 6, 0xC0C0C0C0u);
          shifted(other, triple + 1, 4, 0x30303030u);
          a_.vpor(to, to, other);
          shifted(other, triple + 2, 2, 0x0C0C0C0Cu);
          a_.vpor(to, to, other);
        }
        if (!narrow()) break;
        a_.vpsrlw(to, to, 2);
        a_.vpand(to, to, Repeated(0x3F3F3F3Fu));
        break;
      }
    }
  }

  // Multiplies scales by the part of the weights' multiples that weights are: LoadWeights.
  void Reduce(const x86::Ymm& scales) {
    if (narrow()) return;
    float part = 1;
    if (format().codes == PanelCodes::kFiveBits) part = 0x1p-3f;
    if (format().codes == PanelCodes::kNibbles && !format().has_minimum()) part = 0x1p-4f;
    if (part != 1) a_.vmulps(scales, scales, Repeated(std::bit_cast<uint32_t>(part)));
  }

  // Loads half h of the scales of a part of block b. Uses `other`.
  void LoadScales(const x86::Ymm& to, const x86::Ymm& other, size_t b, size_t part, int h) {
    const auto row = static_cast<size_t>(h) * (kPanelRows / kHalves);
    const x86::Mem scales = Panel(0, format().scale_offset(b) + row * sizeof(uint16_t));
    switch (format().scales) {
      case PanelScales::kF16:
      case PanelScales::kF16AndMinimum:
        a_.vcvtph2ps(to, scales);
        Reduce(to);
        break;
      case PanelScales::kBf16:
        a_.vpmovzxwd(to, scales);
        a_.vpslld(to, to, 16);
        break;
      case PanelScales::kSixBitWords:
        LoadNumber(to, other, b, six_bit_words::kDOffset, h);
        break;
      case PanelScales::kInt8:
      case PanelScales::kInt8Halves:
        a_.vpmovsxbd(to, Panel(0, format().int8_offset(b, part) + row));
        a_.vcvtdq2ps(to, to);
        a_.vmulps(to, to, Panel(0, int8_scales::kDOffset + row * sizeof(float)));
        if (narrow() && format().codes == PanelCodes::kSixBits)
          a_.vmulps(to, to, Repeated(std::bit_cast<uint32_t>(int8_scales::kSixBitTimes)));
        break;
      case PanelScales::kF32:
      case PanelScales::kF32Halves:
      case PanelScales::kF32AndMinimum:
        a_.vmovaps(to, Panel(0, format().half_scale_offset(b, part) + row * sizeof(float)));
        break;
    }
  }
  // Loads half h of the minimums of block b, with their sign changed if the panel has them so.
  void LoadMinimums(const x86::Ymm& to, const x86::Ymm& other, size_t b, int h) {
    if (format().scales == PanelScales::kSixBitWords) {
      LoadNumber(to, other, model::kSuperBlocks + b, six_bit_words::kDminOffset, h);
    } else {
      const auto row = static_cast<size_t>(h) * (kPanelRows / kHalves);
      if (format().scales == PanelScales::kF32AndMinimum) {
        a_.vmovaps(to, Panel(0, format().minimum_offset(b) + row * sizeof(float)));
      } else {
        a_.vcvtph2ps(to, Panel(0, format().minimum_offset(b) + row * sizeof(uint16_t)));
      }
    }
  }
  // to = half h of number n of the group's words times d or dmin.
  void LoadNumber(const x86::Ymm& to, const x86::Ymm& other, size_t n, size_t factor, int h) {
    const auto word = [&](size_t w) {
      return Panel(
          0, six_bit_words::word_offset(w) + static_cast<size_t>(h) * (kVectorBytes / kHalves));
    };
    if (n + 1 == six_bit_words::kNumbers) {
      a_.vmovdqa(to, word(2));
      a_.vpsrld(to, to, 30);
      for (const size_t w : {1, 0}) {
        a_.vpslld(to, to, 2);
        a_.vmovdqa(other, word(w));
        a_.vpsrld(other, other, 30);
        a_.vpor(to, to, other);
      }
    } else {
      a_.vmovdqa(to, word(n / six_bit_words::kWordNumbers));
      a_.vpsrld(
          to, to,
          static_cast<uint32_t>(n % six_bit_words::kWordNumbers * six_bit_words::kNumberBits));
      a_.vpand(to, to, Repeated(63));
    }
    a_.vcvtdq2ps(to, to);
    a_.vcvtph2ps(other, Panel(0, factor + static_cast<size_t>(h) *
                                              (kPanelRows / kHalves * sizeof(uint16_t))));
    if (factor == six_bit_words::kDOffset) Reduce(other);
    a_.vmulps(to, to, other);
  }

  void Zero() override {
    for (int m = 0; m < rows_; ++m) {
      for (int h = 0; h < kHalves; ++h) a_.vpxor(Sum(h, m), Sum(h, m), Sum(h, m));
    }
  }

  x86::Vec SumVector(int m, int i) const override { return Sum(i, m); }
  size_t vector_bytes() const override { return kPanelRows / kHalves * sizeof(float); }

  // Vectors [begin, end) of the block, which are a part of it.
  void DotVnni(size_t b, size_t part, size_t begin, size_t end) {
    for (int m = 0; m < rows_; ++m) {
      if (format().has_minimum()) {  // its codes are unsigned by nature
        a_.vmovdqu(Int(0, m), Repeated(std::bit_cast<uint32_t>(kMagicBits)));
      } else if (format().half_scales()) {
        a_.vpbroadcastd(Int(0, m),
                        Act(m, b, offsetof(ActBlock, half_starts) + part * sizeof(int32_t)));
      } else {
        a_.vpbroadcastd(Int(0, m), Act(m, b, offsetof(ActBlock, start)));
      }
      a_.vmovdqa(Int(1, m), Int(0, m));
    }
    for (size_t j = begin; j < end; ++j) {
      if (format().codes != PanelCodes::kBytes) {  // unpacked once for all rows
        for (int h = 0; h < kHalves; ++h) {
          LoadWeights(Scratch(0), Scratch(1), b, j, h);
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
          // Loaded again from L1 for each row: there are too few registers.
          LoadWeights(Scratch(0), Scratch(1), b, j, h);
          a_.vex().vpdpbusd(Int(h, m), Scratch(0), Scratch(1));
        }
      }
    }
  }

  void DotAvx2(size_t b, size_t begin, size_t end) {
    const x86::Ymm signed_w = Scratch(0), abs_w = Scratch(1), product = Scratch(2);
    for (int m = 0; m < rows_; ++m) {
      for (int h = 0; h < kHalves; ++h) a_.vmovdqa(Int(h, m), Start());
    }
    for (size_t j = begin; j < end; ++j) {
      for (int h = 0; h < kHalves; ++h) {
        LoadWeights(signed_w, abs_w, b, j, h);
        a_.vpabsb(abs_w, signed_w);
        for (int m = 0; m < rows_; ++m) {
          a_.vpbroadcastd(product, Act(m, b, j * kVectorInputs));
          a_.vpsignb(product, product, signed_w);
          a_.vpmaddubsw(product, abs_w, product);
          a_.vpmaddwd(product, product, Ones());
          a_.vpaddd(Int(h, m), Int(h, m), product);
        }
      }
    }
  }

  // Vectors [begin, end) of the block, which are a part of it, if narrow().
  void DotNarrow(size_t b, size_t part, size_t begin, size_t end) {
    const size_t in_16_bits = size_t{8} >> (format().code_bits - 4);  // vectors whose products fit
    const bool at_once = end - begin <= in_16_bits;
    const x86::Ymm weights[kHalves] = {Scratch(0), Scratch(1)}, act = Scratch(2),
                   product = Scratch(3);
    const auto short_sum = [&](int h, int m) {
      return at_once ? Int(h, m) : Scratch(4 + h * rows_ + m);
    };
    const x86::Mem ones = Repeated(0x00010001u);
    for (size_t first = begin; first < end; first += in_16_bits) {
      const size_t stop = std::min(first + in_16_bits, end);
      for (size_t j = first; j < stop; ++j) {
        for (int h = 0; h < kHalves; ++h) LoadWeights(weights[h], product, b, j, h);
        for (int m = 0; m < rows_; ++m) {
          a_.vpbroadcastd(act, Act(m, b, j * kVectorInputs));
          for (int h = 0; h < kHalves; ++h) {
            const x86::Ymm sum = short_sum(h, m);
            a_.vpmaddubsw(j == first ? sum : product, weights[h], act);
            if (j != first) a_.vpaddw(sum, sum, product);
          }
        }
      }
      for (int m = 0; m < rows_; ++m) {
        for (int h = 0; h < kHalves; ++h) {
          const x86::Ymm sum = short_sum(h, m);
          a_.vpmaddwd(first == begin ? Int(h, m) : sum, sum, ones);
          if (first != begin) a_.vpaddd(Int(h, m), Int(h, m), sum);
        }
      }
    }
    if (format().has_minimum()) return;
    // start - kMagicBits = -128 times the sum of activations; a code is half its range more than
    // the weight.
    const auto shift = static_cast<uint32_t>(8 - format().code_bits);
    const size_t field = format().half_scales()
                             ? offsetof(ActBlock, half_starts) + part * sizeof(int32_t)
                             : offsetof(ActBlock, start);
    for (int m = 0; m < rows_; ++m) {
      a_.vpbroadcastd(act, Act(m, b, field));
      a_.vpsubd(act, act, Repeated(std::bit_cast<uint32_t>(kMagicBits)));
      a_.vpsrad(act, act, shift);
      for (int h = 0; h < kHalves; ++h) a_.vpaddd(Int(h, m), Int(h, m), act);
    }
  }

  void Block(size_t b) override {
    const x86::Ymm scale = Scratch(0), broadcast = Scratch(1);
    const size_t parts = format().half_scales() ? 2 : 1, vectors = kBlockVectors / parts;
    for (size_t part = 0; part < parts; ++part) {
      const size_t begin = part * vectors, end = begin + vectors;
      if (vnni_) {
        DotVnni(b, part, begin, end);
      } else if (narrow()) {
        DotNarrow(b, part, begin, end);
      } else {
        DotAvx2(b, begin, end);
      }
      for (int h = 0; h < kHalves; ++h) {
        LoadScales(scale, broadcast, b, part, h);
        for (int m = 0; m < rows_; ++m) {
          a_.vbroadcastss(broadcast, Act(m, b, offsetof(ActBlock, d)));
          if (!narrow()) {
            // The accumulator's bits, read as a float, are kMagic + isum; the difference is exact
            // (see ActBlock).
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
    if (!format().has_minimum()) return;
    for (int h = 0; h < kHalves; ++h) {
      LoadMinimums(scale, broadcast, b, h);
      for (int m = 0; m < rows_; ++m) {
        a_.vbroadcastss(broadcast, Act(m, b, offsetof(ActBlock, d_sum)));
        format().scales == PanelScales::kSixBitWords ? a_.vfnmadd231ps(Sum(h, m), scale, broadcast)
                                                     : a_.vfmadd231ps(Sum(h, m), scale, broadcast);
      }
    }
  }

  void UnpackBlock(size_t b) override {
    const x86::Ymm vector = Scratch(0), other = Scratch(1);
    const size_t half_bytes = kVectorBytes / kHalves;
    for (size_t j = 0; j < kBlockVectors; ++j) {
      for (int h = 0; h < kHalves; ++h) {
        LoadWeights(vector, other, b, j, h);
        a_.vmovdqa(Unpacked(unpacked().vector_offset(b, j) + static_cast<size_t>(h) * half_bytes),
                   vector);
      }
    }
    const size_t parts = format().half_scales() ? 2 : 1;
    for (int h = 0; h < kHalves; ++h) {
      const size_t at = static_cast<size_t>(h) * vector_bytes();
      for (size_t part = 0; part < parts; ++part) {
        LoadScales(vector, other, b, part, h);
        a_.vmovaps(Unpacked(unpacked().half_scale_offset(b, part) + at), vector);
      }
      if (!format().has_minimum()) continue;
      LoadMinimums(vector, other, b, h);
      if (format().scales == PanelScales::kSixBitWords)
        a_.vxorps(vector, vector, Repeated(1u << 31));
      a_.vmovaps(Unpacked(unpacked().minimum_offset(b) + at), vector);
    }
  }

  const bool vnni_;
};

GemmFn Generate(const TileShape& tile, Isa isa) {
  return Jit::Generate<GemmFn>(TileName(tile, isa), [&](x86::Assembler& a) {
    Avx2Tile(a, tile, isa == Isa::kAvxVnni).Emit();
  });
}

UnpackFn GenerateUnpack(const TileShape& tile, const PanelShape& unpacked, Isa isa) {
  return Jit::Generate<UnpackFn>(UnpackName(tile, isa), [&](x86::Assembler& a) {
    Avx2Tile(a, tile, isa == Isa::kAvxVnni).EmitUnpack(unpacked);
  });
}

}  // namespace

GemmFn GenerateGemmAvx2(const TileShape& tile) { return Generate(tile, Isa::kAvx2); }
GemmFn GenerateGemmAvxVnni(const TileShape& tile) { return Generate(tile, Isa::kAvxVnni); }
UnpackFn GenerateUnpackAvx2(const TileShape& tile, const PanelShape& unpacked) {
  return GenerateUnpack(tile, unpacked, Isa::kAvx2);
}
UnpackFn GenerateUnpackAvxVnni(const TileShape& tile, const PanelShape& unpacked) {
  return GenerateUnpack(tile, unpacked, Isa::kAvxVnni);
}

}  // namespace larder::kernels::gemm
