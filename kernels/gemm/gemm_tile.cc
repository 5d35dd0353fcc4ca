#include "kernels/gemm/gemm_tile.h"

#include <fmt/format.h>

#include "kernels/gemm/gemm_generate.h"

namespace larder::kernels::inline gemm {

std::string TileName(const GemmShape& shape, size_t rows, size_t panels, Isa isa) {
  return fmt::format("larder::gemm.{}.{}blocks.{}x{}{}.{}", shape.panel.format.name, shape.panel.blocks, rows,
                     panels, shape.accumulate ? ".add" : "", IsaName(isa));
}

void GemmTile::Emit() {
  const size_t blocks = shape_.panel.blocks;
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
    Block(0);
    Block(1);
    a_.add(panel_, format().pair_bytes());
    a_.add(block_x_, 2 * sizeof(ActBlock));
    a_.dec(pairs_);
    a_.jnz(next_pair);
  }
  if (blocks % 2) {
    Block(0);
    a_.add(panel_, format().odd_block_bytes());
  }
  Store();
  if (panels_ > 1) a_.add(panel_, static_cast<int64_t>((panels_ - 1) * shape_.panel.bytes()));
  a_.add(y_, panels_ * static_cast<int64_t>(kPanelRows * sizeof(float)));
  a_.sub(count_, panels_);
  a_.jnz(next_group);
  a_.bind(done);
  a_.vzeroupper();
  a_.ret();
}

}  // namespace larder::kernels::gemm
