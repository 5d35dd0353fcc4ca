// Internal to kernels/: the common part of the generators of matrix products: registers of the
// System V calling convention, addresses of operands, and the loops over panels and groups of
// blocks around a tile's own instructions.
#pragma once

#include <asmjit/x86.h>

#include <array>
#include <utility>
#include <vector>

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

  // Emits the whole function. For each group of `panels` panels: zeros or the kept sums, then Block
  // for each block, then the sums are stored or kept. The constants that the code reads follow it.
  void Emit();
  // Emits an UnpackFn: UnpackBlock for each block of each panel.
  void EmitUnpack(const PanelShape& unpacked);

 protected:
  virtual void Prepare() = 0;  // loads registers that do not change in the function
  virtual void Zero() = 0;
  virtual void Block(size_t block_in_group) = 0;
  virtual void UnpackBlock(size_t block_in_group) = 0;
  // The i-th vector of row m's sums, of its 16 * panels outputs in ascending order.
  virtual asmjit::x86::Vec SumVector(int m, int i) const = 0;
  virtual size_t vector_bytes() const = 0;

  // The address of a field (4 bytes) of row m's ActBlock in the current block.
  asmjit::x86::Mem Act(int m, size_t block_in_group, size_t field) const {
    const size_t in_row = block_in_group * sizeof(ActBlock) + field;
    if (shape_.listed && m > 0)
      return asmjit::x86::dword_ptr(block_x_, kRowOffsets[m - 1], 0, static_cast<int32_t>(in_row));
    return asmjit::x86::dword_ptr(block_x_,
                                  static_cast<int32_t>(m * shape_.x_stride_bytes + in_row));
  }
  // The address `offset` bytes into panel p's current group of blocks.
  asmjit::x86::Mem Panel(int p, size_t offset) const {
    return asmjit::x86::ptr(panel_, static_cast<int32_t>(p * shape_.panel.bytes() + offset));
  }
  const PanelFormat& format() const { return shape_.panel.format; }
  // In UnpackBlock: the format to unpack to, and the address `offset` bytes into its current
  // blocks.
  bool unpacks() const { return unpacked_ != nullptr; }
  const PanelFormat& unpacked() const { return unpacked_->format; }
  asmjit::x86::Mem Unpacked(size_t offset) const {
    return asmjit::x86::ptr(block_x_, static_cast<int32_t>(offset));
  }
  // The address of a constant of 32 bytes that lies behind the code: one 32-bit word repeated, or
  // the bytes of a table twice.
  asmjit::x86::Mem Repeated(uint32_t word);
  asmjit::x86::Mem Table(const std::array<int8_t, 16>& bytes, uint8_t plus);

  asmjit::x86::Assembler& a_;
  const TileShape& tile_;
  const GemmShape& shape_;
  const int rows_, panels_;

 private:
  // Fetches a block's weights ahead; for the first block of a group, the group's scales too.
  void PrefetchWeights(size_t block_in_group);
  void EmitBlock(size_t block_in_group);
  void EmitConstants();
  using Constant = std::array<uint8_t, 32>;
  asmjit::x86::Mem AddressOf(const Constant&);
  // Of listed rows: x_ of the first one goes onto the stack, the others' distances from it into
  // registers.
  void BeginRows();
  void EndRows();
  void LoadSums();
  void StoreSums();
  size_t row_bytes() const { return static_cast<size_t>(panels_) * kPanelRows * sizeof(float); }
  asmjit::x86::Mem Out(int m, int i) const;   // the address of vector i of row m in y
  asmjit::x86::Mem Kept(int m, int i) const;  // the same in InputSlice::sums
  asmjit::x86::Mem Field(size_t offset) const {
    return asmjit::x86::qword_ptr(slice_, static_cast<int32_t>(offset));
  }

  std::vector<std::pair<Constant, asmjit::Label>> constants_;
  const PanelShape* unpacked_ = nullptr;

  // Arguments: panels, x, y, n_panels, slice; then caller-saved scratch registers.
  const asmjit::x86::Gp group_ = asmjit::x86::rdi, x_ = asmjit::x86::rsi, y_ = asmjit::x86::rdx,
                        count_ = asmjit::x86::rcx, slice_ = asmjit::x86::r8;
  const asmjit::x86::Gp block_x_ = asmjit::x86::rax, groups_ = asmjit::x86::r9,
                        panel_ = asmjit::x86::r10, sums_ = asmjit::x86::r11;
  // Of listed rows behind the first one; kSavedRows of them belong to the caller.
  static constexpr int kSavedRows = 6;
  static constexpr asmjit::x86::Gp kRowOffsets[Gemm::kMostListedRows - 1] = {
      asmjit::x86::rbx, asmjit::x86::rbp, asmjit::x86::r12, asmjit::x86::r13,
      asmjit::x86::r14, asmjit::x86::r15, asmjit::x86::rsi};
};

}  // namespace larder::kernels::gemm
