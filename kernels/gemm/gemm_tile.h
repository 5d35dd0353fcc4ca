// Internal to kernels/: the common part of the generators of matrix products: registers of the System V
// calling convention, addresses of operands, and the loops over panels and pairs of blocks around a tile's
// own instructions.
#pragma once

#include <asmjit/x86.h>

#include "kernels/gemm/gemm_generate.h"

namespace larder::kernels::inline gemm {

class GemmTile {
 public:
  GemmTile(asmjit::x86::Assembler& a, const TileShape& tile)
      : a_(a),
        tile_(tile),
        shape_(tile.gemm),
        rows_(static_cast<int>(tile.spec.rows)),
        panels_(static_cast<int>(tile.spec.panels)) {}
  virtual ~GemmTile() = default;

  // Emits the whole function: for each group of `panels` panels Zero, Block for each block, Store.
  void Emit();

 protected:
  // Fetches the cache lines of a block's weights, with the first block of a pair those of both blocks'
  // scales, tile_.prefetch_bytes ahead.
  void Prefetch(size_t block_in_pair);

  virtual void Zero() = 0;
  virtual void Block(size_t block_in_pair) = 0;
  virtual void Store() = 0;

  // The address of a field (4 bytes) of row m's ActBlock in the current block.
  asmjit::x86::Mem Act(int m, size_t block_in_pair, size_t field) const {
    return asmjit::x86::dword_ptr(
        block_x_, static_cast<int32_t>(m * shape_.x_stride_bytes + block_in_pair * sizeof(ActBlock) + field));
  }
  // The address `offset` bytes into panel p's current pair of blocks; Out: into row m's output for it.
  asmjit::x86::Mem Panel(int p, size_t offset) const {
    return asmjit::x86::ptr(panel_, static_cast<int32_t>(p * shape_.panel.bytes() + offset));
  }
  asmjit::x86::Mem Out(int m, size_t offset) const {
    return asmjit::x86::ptr(y_, static_cast<int32_t>(m * shape_.y_stride_bytes + offset));
  }
  const PanelFormat& format() const { return shape_.panel.format; }

  asmjit::x86::Assembler& a_;
  const TileShape& tile_;
  const GemmShape& shape_;
  const int rows_, panels_;

 private:
  // Arguments: panels, x, y, n_panels; then two caller-saved scratch registers.
  const asmjit::x86::Gp panel_ = asmjit::x86::rdi, x_ = asmjit::x86::rsi, y_ = asmjit::x86::rdx,
                        count_ = asmjit::x86::rcx;
  const asmjit::x86::Gp block_x_ = asmjit::x86::rax, pairs_ = asmjit::x86::r8;
};

}  // namespace larder::kernels::gemm
