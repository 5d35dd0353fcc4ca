#include "kernels/gemm/gemm_tile.h"

#include <fmt/format.h>

namespace larder::kernels::inline gemm {

namespace x86 = asmjit::x86;

std::string TileName(const TileShape& tile, Isa isa) {
  return fmt::format("larder::gemm.{}.{}blocks.{}x{}{}.{}", tile.gemm.panel.format.name,
                     tile.gemm.panel.blocks, tile.spec.rows, tile.spec.panels,
                     tile.spec.prefetch == Prefetch::kNone ? "" : ".ahead", IsaName(isa));
}

x86::Mem GemmTile::Out(int m, int i) const {
  return x86::ptr(y_, static_cast<int32_t>(static_cast<size_t>(m) * shape_.y_stride_bytes +
                                           static_cast<size_t>(i) * vector_bytes()));
}

x86::Mem GemmTile::Kept(int m, int i) const {
  return x86::ptr(sums_, static_cast<int32_t>(static_cast<size_t>(m) * row_bytes() +
                                              static_cast<size_t>(i) * vector_bytes()));
}

void GemmTile::PrefetchWeights(size_t block_in_pair) {
  if (tile_.spec.prefetch == Prefetch::kNone) return;
  const size_t weights = format().weight_offset(block_in_pair), end = weights + format().weight_bytes;
  for (int p = 0; p < panels_; ++p) {
    for (size_t at = block_in_pair == 0 ? 0 : weights; at < end; at += kCacheLineBytes) {
      const x86::Mem line = Panel(p, at + tile_.spec.prefetch_bytes);
      switch (tile_.spec.prefetch) {
        case Prefetch::kNone:
        case Prefetch::kT0:
          a_.prefetcht0(line);
          break;
        case Prefetch::kT1:
          a_.prefetcht1(line);
          break;
        case Prefetch::kNta:
          a_.prefetchnta(line);
          break;
      }
    }
  }
}

void GemmTile::EmitBlock(size_t block_in_pair) {
  PrefetchWeights(block_in_pair);
  Block(block_in_pair);
}

void GemmTile::LoadSums() {
  const int vectors = static_cast<int>(row_bytes() / vector_bytes());
  for (int m = 0; m < rows_; ++m) {
    for (int i = 0; i < vectors; ++i) a_.vmovups(SumVector(m, i), Kept(m, i));
  }
}

void GemmTile::StoreSums() {
  const int vectors = static_cast<int>(row_bytes() / vector_bytes());
  const auto for_all = [&](auto&& emit) {
    for (int m = 0; m < rows_; ++m) {
      for (int i = 0; i < vectors; ++i) emit(m, i, SumVector(m, i));
    }
  };
  asmjit::Label add = a_.newLabel(), keep = a_.newLabel(), stored = a_.newLabel();
  a_.cmp(Field(offsetof(InputSlice, end)), static_cast<int>(InputSlice::End::kAdd));
  a_.je(add);
  a_.ja(keep);
  for_all([&](int m, int i, const x86::Vec& sum) { a_.vmovups(Out(m, i), sum); });
  a_.jmp(stored);
  a_.bind(add);
  for_all([&](int m, int i, const x86::Vec& sum) {
    a_.vaddps(sum, sum, Out(m, i));
    a_.vmovups(Out(m, i), sum);
  });
  a_.jmp(stored);
  a_.bind(keep);
  for_all([&](int m, int i, const x86::Vec& sum) { a_.vmovups(Kept(m, i), sum); });
  a_.bind(stored);
}

void GemmTile::Emit() {
  asmjit::Label next_group = a_.newLabel(), resume = a_.newLabel(), begun = a_.newLabel();
  asmjit::Label next_pair = a_.newLabel(), odd = a_.newLabel(), summed = a_.newLabel(), done = a_.newLabel();
  a_.test(count_, count_);
  a_.jz(done);
  a_.mov(sums_, Field(offsetof(InputSlice, sums)));
  a_.bind(next_group);
  a_.cmp(Field(offsetof(InputSlice, resumes)), 0);
  a_.jne(resume);
  Zero();
  a_.jmp(begun);
  a_.bind(resume);
  LoadSums();
  a_.bind(begun);
  a_.mov(block_x_, x_);
  a_.mov(panel_, group_);
  a_.mov(pairs_, Field(offsetof(InputSlice, blocks)));
  a_.shr(pairs_, 1);
  a_.jz(odd);
  a_.align(asmjit::AlignMode::kCode, 64);
  a_.bind(next_pair);
  EmitBlock(0);
  EmitBlock(1);
  a_.add(panel_, format().pair_bytes());
  a_.add(block_x_, 2 * sizeof(ActBlock));
  a_.dec(pairs_);
  a_.jnz(next_pair);
  a_.bind(odd);
  if (shape_.panel.blocks % 2) {
    a_.test(Field(offsetof(InputSlice, blocks)), 1);
    a_.jz(summed);
    EmitBlock(0);
  }
  a_.bind(summed);
  StoreSums();
  a_.add(group_, static_cast<int64_t>(static_cast<size_t>(panels_) * shape_.panel.bytes()));
  a_.add(y_, static_cast<int64_t>(row_bytes()));
  a_.add(sums_, static_cast<int64_t>(static_cast<size_t>(rows_) * row_bytes()));
  a_.sub(count_, panels_);
  a_.jnz(next_group);
  a_.bind(done);
  a_.vzeroupper();
  a_.ret();
}

}  // namespace larder::kernels::gemm
