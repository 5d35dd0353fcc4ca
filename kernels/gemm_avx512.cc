// The AVX-512 VNNI generator of matrix products.
//
// A tile is `rows` activation rows x `panels` panels of 16 outputs. Registers: an int32 and a float
// accumulator for each (row, panel), a weight vector and a scale vector for each panel, one for broadcasts:
// 2*rows*panels + 2*panels + 1 <= 32.
//
// Work per block of 32 inputs, row and panel: 8 vpdpbusd and 2 fused multiply-adds on the two 512-bit ports
// (the integer accumulator is read as a float, see ActBlock): at most 8/10 of the VNNI peak. A conversion and
// a separate multiplication would make that 8/11. With one panel the broadcasts are memory operands of
// vpdpbusd: 11 loads for 10 port cycles' worth of arithmetic, so the two load ports bind before the
// arithmetic does. With two panels one broadcast load serves two vpdpbusd.
#include <asmjit/x86.h>

#include "base/check.h"
#include "kernels/gemm_generate.h"
#include "kernels/jit.h"

namespace larder::kernels {
namespace {

namespace x86 = asmjit::x86;

class Avx512Tile {
 public:
  Avx512Tile(x86::Assembler& a, const GemmShape& shape, int rows, int panels)
      : a_(a), shape_(shape), rows_(rows), panels_(panels) {
    LARDER_CHECK(2 * rows * panels + 2 * panels + 1 <= 32, "tile {} x {}", rows, panels);
  }

  void Emit() {
    const int64_t panel_bytes = static_cast<int64_t>(PanelBytes(shape_.blocks));
    asmjit::Label next_group = a_.newLabel(), done = a_.newLabel();
    a_.test(count_, count_);
    a_.jz(done);
    a_.bind(next_group);
    for (int p = 0; p < panels_; ++p) {
      for (int m = 0; m < rows_; ++m) a_.vpxord(Sum(p, m), Sum(p, m), Sum(p, m));
    }
    a_.mov(block_x_, x_);
    if (shape_.blocks / 2 > 0) {
      asmjit::Label next_pair = a_.newLabel();
      a_.mov(pairs_, static_cast<int64_t>(shape_.blocks / 2));
      a_.align(asmjit::AlignMode::kCode, 64);
      a_.bind(next_pair);
      Block(0);
      Block(1);
      a_.add(panel_, kPairBytes);
      a_.add(block_x_, 2 * sizeof(ActBlock));
      a_.dec(pairs_);
      a_.jnz(next_pair);
    }
    if (shape_.blocks % 2) {
      Block(0);
      a_.add(panel_, 64 + 512);
    }
    Store();
    if (panels_ > 1) a_.add(panel_, (panels_ - 1) * panel_bytes);
    a_.add(y_, panels_ * 64);
    a_.sub(count_, panels_);
    a_.jnz(next_group);
    a_.bind(done);
    a_.vzeroupper();
    a_.ret();
  }

 private:
  x86::Zmm Int(int p, int m) const { return x86::zmm(p * rows_ + m); }
  x86::Zmm Sum(int p, int m) const { return x86::zmm((panels_ + p) * rows_ + m); }
  x86::Zmm Weight(int p) const { return x86::zmm(2 * panels_ * rows_ + p); }
  x86::Zmm Scale(int p) const { return x86::zmm(2 * panels_ * rows_ + panels_ + p); }
  x86::Zmm Broadcast() const { return x86::zmm(2 * panels_ * rows_ + 2 * panels_); }

  int32_t RowOffset(int m, size_t block_in_pair, size_t field) const {
    return static_cast<int32_t>(m * shape_.x_stride_bytes + block_in_pair * sizeof(ActBlock) + field);
  }
  x86::Mem Act(int m, size_t b, size_t field) const {
    return x86::dword_ptr(block_x_, RowOffset(m, b, field));
  }
  x86::Mem ActBroadcast(int m, size_t b, size_t field) const {
    return x86::Mem(block_x_, RowOffset(m, b, field), 4)._1to16();
  }

  void Block(size_t b) {
    const int64_t panel_bytes = static_cast<int64_t>(PanelBytes(shape_.blocks));
    for (int m = 0; m < rows_; ++m) {
      a_.vpbroadcastd(Int(0, m), Act(m, b, offsetof(ActBlock, start)));
      for (int p = 1; p < panels_; ++p) a_.vmovdqa64(Int(p, m), Int(0, m));
    }
    for (size_t j = 0; j < 8; ++j) {
      for (int p = 0; p < panels_; ++p) {
        a_.vmovdqa64(Weight(p),
                     x86::zmmword_ptr(panel_, static_cast<int32_t>(p * panel_bytes + 64 + b * 512 + j * 64)));
      }
      for (int m = 0; m < rows_; ++m) {
        if (panels_ == 1) {
          a_.vpdpbusd(Int(0, m), Weight(0), ActBroadcast(m, b, 4 * j));
        } else {
          a_.vpbroadcastd(Broadcast(), Act(m, b, 4 * j));
          for (int p = 0; p < panels_; ++p) a_.vpdpbusd(Int(p, m), Weight(p), Broadcast());
        }
      }
    }
    for (int p = 0; p < panels_; ++p) {
      a_.vcvtph2ps(Scale(p), x86::ymmword_ptr(panel_, static_cast<int32_t>(p * panel_bytes + b * 32)));
    }
    for (int m = 0; m < rows_; ++m) {
      a_.vbroadcastss(Broadcast(), Act(m, b, offsetof(ActBlock, minus_md)));
      for (int p = 0; p < panels_; ++p) {
        // (kMagic + isum) * d - kMagic * d, rounded once: float(isum) * d.
        a_.vfmadd132ps(Int(p, m), Broadcast(), ActBroadcast(m, b, offsetof(ActBlock, d)));
        a_.vfmadd231ps(Sum(p, m), Int(p, m), Scale(p));
      }
    }
  }

  void Store() {
    for (int m = 0; m < rows_; ++m) {
      for (int p = 0; p < panels_; ++p) {
        const x86::Mem out = x86::zmmword_ptr(y_, static_cast<int32_t>(m * shape_.y_stride_bytes + p * 64));
        if (shape_.accumulate) a_.vaddps(Sum(p, m), Sum(p, m), out);
        a_.vmovups(out, Sum(p, m));
      }
    }
  }

  x86::Assembler& a_;
  const GemmShape& shape_;
  const int rows_, panels_;
  // System V arguments: panels, x, y, n_panels; then two scratch registers that need no saving.
  const x86::Gp panel_ = x86::rdi, x_ = x86::rsi, y_ = x86::rdx, count_ = x86::rcx;
  const x86::Gp block_x_ = x86::rax, pairs_ = x86::r8;
};

}  // namespace

GemmFn GenerateGemmAvx512(const GemmShape& shape, size_t rows, size_t panels) {
  return Jit::Generate<GemmFn>([&](x86::Assembler& a) {
    Avx512Tile(a, shape, static_cast<int>(rows), static_cast<int>(panels)).Emit();
  });
}

}  // namespace larder::kernels
