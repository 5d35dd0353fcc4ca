#include "kernels/gemm/gemm_tile.h"

#include <fmt/format.h>

namespace larder::kernels::inline gemm {

std::string TileName(const TileShape& tile, Isa isa) {
  return fmt::format("larder::gemm.{}.{}blocks.{}x{}{}.{}", tile.gemm.panel.format.name, tile.blocks,
                     tile.spec.rows, tile.spec.panels, tile.accumulate ? ".add" : "", IsaName(isa));
}

void GemmTile::Prefetch(size_t block_in_pair) {
  if (tile_.prefetch_bytes == 0) return;
  const size_t weights = format().weight_offset(block_in_pair), end = weights + format().weight_bytes;
  for (int p = 0; p < panels_; ++p) {
    for (size_t at = block_in_pair == 0 ? 0 : weights; at < end; at += kCacheLineBytes)
      a_.prefetcht0(Panel(p, at + tile_.prefetch_bytes));
  }
}

void GemmTile::Emit() {
  const size_t blocks = tile_.blocks, slice_bytes = format().bytes(blocks);
  asmjit::Label next_group = a_.newLabel(), done = a_.newLabel();
  a_.test(count_, count_);
  a_.jz(done);
  a_.bind(next_group);
  Zero();
  a_.mov(block_x_, x_);
  if (blocks / 2 > 0) {
    asmjit::Label next_pair = a_.newLabel();
    a_.mov(pairs_, static_cast<int64_t>(blocks / 2));
    a_.align(asmjit::AlignMode::kCode, 64);
    a_.bind(next_pair);
    Prefetch(0);
    Block(0);
    Prefetch(1);
    Block(1);
    a_.add(panel_, format().pair_bytes());
    a_.add(block_x_, 2 * sizeof(ActBlock));
    a_.dec(pairs_);
    a_.jnz(next_pair);
  }
  if (blocks % 2) {
    Prefetch(0);
    Block(0);
    a_.add(panel_, format().odd_block_bytes());
  }
  Store();
  const size_t next_panels = static_cast<size_t>(panels_) * shape_.panel.bytes() - slice_bytes;
  if (next_panels > 0) a_.add(panel_, next_panels);
  a_.add(y_, panels_ * static_cast<int64_t>(kPanelRows * sizeof(float)));
  a_.sub(count_, panels_);
  a_.jnz(next_group);
  a_.bind(done);
  a_.vzeroupper();
  a_.ret();
}

}  // namespace larder::kernels::gemm
