#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "kernels/gemm/gemm_generate.h"

namespace larder::kernels::inline gemm {
namespace {

GemmFn Generate(Isa isa, const GemmShape& shape, size_t rows, size_t panels) {
  if (isa == Isa::kAvx512Vnni) return GenerateGemmAvx512(shape, rows, panels);
  return GenerateGemmAvx2(shape, rows, panels, isa == Isa::kAvxVnni);
}

void CheckAgainstReference(Isa isa, const Gemm& gemm, size_t max_rows);

}  // namespace

Gemm Gemm::Make(Isa isa, const GemmShape& shape, const KernelTuning& tuning) {
  LARDER_CHECK(shape.panel.blocks > 0 && shape.x_stride_bytes % 16 == 0 && shape.y_stride_bytes % 4 == 0);
  if (!HostHas(isa)) throw Error("kernels: this CPU has no {}; it has {}", IsaName(isa), IsaName(BestIsa()));
  if (tuning.tile_rows == 0 || tuning.tile_rows > KernelTuning::kMaxTileRows) {
    throw Error("kernels: tiles of {} rows; expected 1 to {}", tuning.tile_rows, KernelTuning::kMaxTileRows);
  }
  Gemm gemm;
  gemm.shape_ = shape;
  gemm.panel_bytes_ = shape.panel.bytes();
  gemm.max_tile_ = tuning.tile_rows;
  gemm.group_panels_ = std::max<size_t>(1, tuning.group_bytes / gemm.panel_bytes_);
  if (isa == Isa::kScalar) return gemm;  // no tiles: Run calls the reference
  for (size_t rows = 1; rows <= gemm.max_tile_; ++rows) {
    const size_t panels = tuning.panels_for_rows[rows];
    gemm.tiles_[rows] = {Generate(isa, shape, rows, panels),
                         panels == 1 ? nullptr : Generate(isa, shape, rows, 1), panels};
  }
  CheckAgainstReference(isa, gemm, gemm.max_tile_);
  return gemm;
}

namespace {

void CheckAgainstReference(Isa isa, const Gemm& gemm, size_t max_rows) {
  const GemmShape& shape = gemm.shape();
  // 5 panels, which no default tile divides evenly, or as many as the caller's rows of y have room for.
  const size_t n_panels = std::clamp<size_t>(shape.y_stride_bytes / (kPanelRows * sizeof(float)), 1, 5);
  const size_t blocks = shape.panel.blocks, panel_bytes = shape.panel.bytes();
  std::minstd_rand random(20260101);
  auto allocate = [](size_t bytes) {
    return std::unique_ptr<uint8_t, void (*)(void*)>(
        static_cast<uint8_t*>(std::aligned_alloc(64, RoundUp(bytes, 64))), std::free);
  };
  auto panels = allocate(n_panels * panel_bytes);
  auto x = allocate(max_rows * shape.x_stride_bytes + blocks * sizeof(ActBlock));
  const size_t y_floats = max_rows * shape.y_stride_bytes / 4 + n_panels * kPanelRows;
  std::vector<model::Q8Block> weights(kPanelRows * blocks);
  for (size_t p = 0; p < n_panels; ++p) {
    for (model::Q8Block& block : weights) {  // scales must be finite: f16 in [2^-8, 2^-6)
      block.d = static_cast<uint16_t>(0x1C00 + (random() >> 8) % 0x800);
      for (int8_t& q : block.q) q = static_cast<int8_t>(random() >> 8);
    }
    const model::Q8Block* rows[kPanelRows];
    for (size_t r = 0; r < kPanelRows; ++r) rows[r] = &weights[r * blocks];
    shape.panel.format.pack(rows, blocks, panels.get() + p * panel_bytes);
  }
  for (size_t m = 0; m < max_rows; ++m) {
    for (size_t b = 0; b < blocks; ++b) {
      ActBlock block{};
      for (int8_t& q : block.q) {
        // Mostly random, but some blocks are at the extremes, so that a saturating accumulator would show.
        q = b % 3 == 0 ? (m % 2 ? int8_t{127} : int8_t{-127})
                       : static_cast<int8_t>((random() >> 8) % 255 - 127);
        block.sum += q;
      }
      const float d = 0.0001f * static_cast<float>(1 + (random() >> 8) % 1000);
      block.d = __builtin_bit_cast(float, __builtin_bit_cast(uint32_t, d) & ~3u);
      block.minus_md = -kMagic * block.d;
      block.start = kMagicBits - 128 * block.sum;
      std::memcpy(x.get() + m * shape.x_stride_bytes + b * sizeof(ActBlock), &block, sizeof(block));
    }
  }
  const auto* acts = reinterpret_cast<const ActBlock*>(x.get());
  // A row's result does not depend on the number of rows, so one reference serves the tiles of all sizes.
  constexpr float kUntouched = 0.25f;
  std::vector<float> reference(y_floats, kUntouched), got(y_floats);
  GemmReference(shape, panels.get(), acts, reference.data(), n_panels, max_rows);
  for (size_t rows = 1; rows <= max_rows; ++rows) {
    std::fill(got.begin(), got.end(), kUntouched);
    gemm.Run(panels.get(), acts, got.data(), n_panels, rows);
    for (size_t m = 0; m < max_rows; ++m) {
      for (size_t i = 0; i < n_panels * kPanelRows; ++i) {
        const size_t at = m * shape.y_stride_bytes / sizeof(float) + i;
        const float expected = m < rows ? reference[at] : kUntouched;
        if (__builtin_bit_cast(uint32_t, expected) == __builtin_bit_cast(uint32_t, got[at])) continue;
        throw Error(
            "kernels: the generated {} product of {} blocks x {} rows differs from its reference: row {}, "
            "output {} is {:a}, expected {:a}; "
            "run with --isa scalar and report this CPU",
            IsaName(isa), blocks, rows, m, i, got[at], expected);
      }
    }
  }
}

}  // namespace
}  // namespace larder::kernels::gemm
