#include "kernels/gemm/gemm_tile.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

namespace larder::kernels::inline gemm {

namespace x86 = asmjit::x86;

std::string TileName(const TileShape& tile, Isa isa) {
  const PanelFormat& format = tile.gemm.panel.format;
  return fmt::format("larder::gemm.{}{}.{}blocks.{}x{}{}{}.{}", format.name,
                     format.codes == PanelCodes::kUnpacked ? ".unpacked" : "",
                     tile.gemm.panel.blocks, tile.spec.rows, tile.spec.panels,
                     tile.gemm.listed ? ".listed" : "",
                     tile.spec.prefetch == Prefetch::kNone ? "" : ".ahead", IsaName(isa));
}

std::string UnpackName(const TileShape& tile, Isa isa) {
  return fmt::format("larder::unpack.{}.{}blocks{}.{}", tile.gemm.panel.format.name,
                     tile.gemm.panel.blocks, tile.spec.prefetch == Prefetch::kNone ? "" : ".ahead",
                     IsaName(isa));
}

x86::Mem GemmTile::Out(int m, int i) const {
  return x86::ptr(y_, static_cast<int32_t>(static_cast<size_t>(m) * shape_.y_stride_bytes +
                                           static_cast<size_t>(i) * vector_bytes()));
}

x86::Mem GemmTile::Kept(int m, int i) const {
  return x86::ptr(sums_, static_cast<int32_t>(static_cast<size_t>(m) * row_bytes() +
                                              static_cast<size_t>(i) * vector_bytes()));
}

void GemmTile::PrefetchWeights(size_t block_in_group) {
  if (tile_.spec.prefetch == Prefetch::kNone) return;
  const size_t weights = format().weight_offset(block_in_group),
               end = weights + format().weight_bytes;
  for (int p = 0; p < panels_; ++p) {
    for (size_t at = block_in_group == 0 ? 0 : weights; at < end; at += kCacheLineBytes) {
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

void GemmTile::EmitBlock(size_t block_in_group) {
  PrefetchWeights(block_in_group);
  Block(block_in_group);
}

x86::Mem GemmTile::AddressOf(const Constant& constant) {
  for (const auto& [known, label] : constants_) {
    if (known == constant) return x86::ptr(label);
  }
  return x86::ptr(constants_.emplace_back(constant, a_.newLabel()).second);
}

x86::Mem GemmTile::Repeated(uint32_t word) {
  Constant constant;
  for (size_t i = 0; i < constant.size(); i += sizeof(word))
    std::memcpy(&constant[i], &word, sizeof(word));
  return AddressOf(constant);
}

x86::Mem GemmTile::Table(const std::array<int8_t, 16>& bytes, uint8_t plus) {
  Constant constant;
  for (size_t i = 0; i < constant.size(); ++i)
    constant[i] = static_cast<uint8_t>(static_cast<uint8_t>(bytes[i % bytes.size()]) + plus);
  return AddressOf(constant);
}

void GemmTile::BeginRows() {
  if (!shape_.listed) return;
  const auto load = [&](const x86::Gp& to, int m) {
    a_.mov(to.r32(), x86::dword_ptr(sums_, m * static_cast<int32_t>(sizeof(uint32_t))));
    a_.imul(to, to, static_cast<int32_t>(shape_.x_stride_bytes));
  };
  a_.mov(sums_, Field(offsetof(InputSlice, rows)));
  load(block_x_, 0);
  a_.add(x_, block_x_);
  for (int m = 1; m < std::min(rows_, kSavedRows + 1); ++m) a_.push(kRowOffsets[m - 1]);
  a_.push(x_);
  for (int m = 1; m < rows_; ++m) {
    load(kRowOffsets[m - 1], m);
    a_.sub(kRowOffsets[m - 1], block_x_);
  }
}

void GemmTile::EndRows() {
  if (!shape_.listed) return;
  a_.pop(x_);
  for (int m = std::min(rows_, kSavedRows + 1) - 1; m > 0; --m) a_.pop(kRowOffsets[m - 1]);
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
  asmjit::Label next_blocks = a_.newLabel(), odd = a_.newLabel(), summed = a_.newLabel(),
                done = a_.newLabel();
  const size_t group = format().group_blocks;
  a_.test(count_, count_);
  a_.jz(done);
  BeginRows();
  a_.mov(sums_, Field(offsetof(InputSlice, sums)));
  Prepare();
  a_.bind(next_group);
  a_.cmp(Field(offsetof(InputSlice, resumes)), 0);
  a_.jne(resume);
  Zero();
  a_.jmp(begun);
  a_.bind(resume);
  LoadSums();
  a_.bind(begun);
  shape_.listed ? a_.mov(block_x_, x86::qword_ptr(x86::rsp)) : a_.mov(block_x_, x_);
  a_.mov(panel_, group_);
  a_.mov(groups_, Field(offsetof(InputSlice, blocks)));
  a_.shr(groups_, std::countr_zero(group));
  a_.jz(odd);
  a_.align(asmjit::AlignMode::kCode, 64);
  a_.bind(next_blocks);
  for (size_t b = 0; b < group; ++b) EmitBlock(b);
  a_.add(panel_, format().group_bytes());
  a_.add(block_x_, group * sizeof(ActBlock));
  a_.dec(groups_);
  a_.jnz(next_blocks);
  a_.bind(odd);
  if (shape_.panel.blocks % group) {  // only of pairs
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
  EndRows();
  a_.bind(done);
  a_.vzeroupper();
  a_.ret();
  EmitConstants();
}

void GemmTile::EmitUnpack(const PanelShape& unpacked) {
  unpacked_ = &unpacked;
  // Arguments: panels, unpacked, n_panels, blocks.
  const x86::Gp to = x_, panels = y_, blocks = count_;
  const asmjit::Label next_panel = a_.newLabel(), next_blocks = a_.newLabel(), odd = a_.newLabel(),
                      panel_done = a_.newLabel(), done = a_.newLabel();
  const size_t group = format().group_blocks;
  a_.test(panels, panels);
  a_.jz(done);
  Prepare();
  a_.bind(next_panel);
  a_.mov(panel_, group_);
  a_.mov(block_x_, to);
  a_.mov(groups_, blocks);
  a_.shr(groups_, std::countr_zero(group));
  a_.jz(odd);
  a_.bind(next_blocks);
  for (size_t b = 0; b < group; ++b) {
    PrefetchWeights(b);
    UnpackBlock(b);
  }
  a_.add(panel_, format().group_bytes());
  a_.add(block_x_, unpacked.format.bytes(group));
  a_.dec(groups_);
  a_.jnz(next_blocks);
  a_.bind(odd);
  if (shape_.panel.blocks % group) {  // only of pairs
    a_.test(blocks, 1);
    a_.jz(panel_done);
    PrefetchWeights(0);
    UnpackBlock(0);
  }
  a_.bind(panel_done);
  a_.add(group_, static_cast<int64_t>(shape_.panel.bytes()));
  a_.add(to, static_cast<int64_t>(unpacked.bytes()));
  a_.dec(panels);
  a_.jnz(next_panel);
  a_.bind(done);
  a_.vzeroupper();
  a_.ret();
  EmitConstants();
}

void GemmTile::EmitConstants() {
  for (const auto& [constant, label] : constants_) {
    a_.align(asmjit::AlignMode::kData, constant.size());
    a_.bind(label);
    a_.embed(constant.data(), constant.size());
  }
}

}  // namespace larder::kernels::gemm
