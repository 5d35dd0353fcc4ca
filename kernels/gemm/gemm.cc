#include "kernels/gemm/gemm.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "kernels/gemm/gemm_generate.h"

namespace larder::kernels::inline gemm {
namespace {

GemmFn GenerateTile(Isa isa, const TileShape& tile) {
  return isa == Isa::kAvx512Vnni ? GenerateGemmAvx512(tile) : GenerateGemmAvx2(tile, isa == Isa::kAvxVnni);
}

}  // namespace

bool TileFits(Isa isa, const TileSpec& tile) {
  const auto [rows, panels] = tile;
  if (rows < 1 || rows > KernelTuning::kMaxTileRows || panels < 1 || panels > KernelTuning::kMaxTilePanels)
    return false;
  switch (isa) {
    case Isa::kAvx512Vnni:
      return 2 * rows * panels + 2 * panels + 1 <= 32;
    case Isa::kAvxVnni:
      return panels == 1 && 4 * rows + 3 <= 16;
    case Isa::kAvx2:
      return panels == 1 && 4 * rows + 5 <= 16;
    case Isa::kScalar:
      break;
  }
  return true;
}

Gemm Gemm::Make(Isa isa, const GemmShape& shape, const KernelTuning& tuning) {
  LARDER_CHECK(shape.panel.blocks > 0 && shape.x_stride_bytes % 16 == 0 && shape.y_stride_bytes % 4 == 0);
  if (!HostHas(isa)) throw Error("kernels: this CPU has no {}; it has {}", IsaName(isa), IsaName(BestIsa()));
  for (size_t m = 1; m <= kMaxRows; ++m) {
    if (TileFits(isa, tuning.tiles[m])) continue;
    throw Error(
        "kernels: a tile of {} rows x {} panels, for products of {} rows, does not fit the registers of {}",
        tuning.tiles[m].rows, tuning.tiles[m].panels, m, IsaName(isa));
  }
  Gemm gemm;
  gemm.shape_ = shape;
  gemm.panel_bytes_ = shape.panel.bytes();
  gemm.chunk_bytes_ = shape.panel.format.bytes(std::min(shape.panel.blocks, kSumBlocks));
  gemm.tuning_ = tuning;
  if (isa == Isa::kScalar) return gemm;  // no tiles: Run calls the reference
  gemm.Generate(isa);
  gemm.CheckAgainstReference(isa);
  return gemm;
}

void Gemm::Generate(Isa isa) {
  // Every number of rows that a tile may get, and every number of panels that may be left over.
  std::array<size_t, kMaxRows + 1> most_panels{};  // [rows]; 0: no such tile
  for (size_t m = 1; m <= kMaxRows; ++m) {
    const TileSpec& tile = tuning_.tiles[m];
    const size_t n_tiles = CeilDiv(m, tile.rows);
    // Products of more rows than the table has cut them into tiles of more than half of the largest.
    const size_t first = m == kMaxRows ? CeilDiv(tile.rows, size_t{2}) : m / n_tiles;
    const size_t last = m == kMaxRows ? tile.rows : CeilDiv(m, n_tiles);
    for (size_t rows = first; rows <= last; ++rows)
      most_panels[rows] = std::max(most_panels[rows], tile.panels);
  }
  const size_t blocks = shape_.panel.blocks;
  std::vector<std::pair<size_t, bool>> kinds;  // of chunks: blocks, whether it accumulates
  for (size_t block = 0; block < blocks; block += kSumBlocks) {
    const std::pair kind{std::min(kSumBlocks, blocks - block), block > 0 || shape_.accumulate};
    const auto known = std::find(kinds.begin(), kinds.end(), kind);
    chunks_.push_back({.panel_offset = shape_.panel.format.scale_offset(block),
                       .x_offset = block * sizeof(ActBlock),
                       .tiles = static_cast<size_t>(known - kinds.begin())});
    if (known == kinds.end()) kinds.push_back(kind);
  }
  for (const auto& [chunk_blocks, accumulate] : kinds) {
    Tiles& tiles = tiles_.emplace_back();
    for (size_t rows = 1; rows <= kMaxRows; ++rows) {
      for (size_t panels = 1; panels <= most_panels[rows]; ++panels)
        tiles[rows][panels] =
            GenerateTile(isa, {shape_, {rows, panels}, chunk_blocks, accumulate, tuning_.prefetch_bytes});
    }
  }
}

void Gemm::CheckAgainstReference(Isa isa) const {
  const GemmShape& shape = shape_;
  // 7 panels: of the tiles that take up to 4, each runs and each number of panels is left over; or as many as
  // the caller's rows of y have room for.
  const size_t n_panels = std::clamp<size_t>(shape.y_stride_bytes / (kPanelRows * sizeof(float)), 1, 7);
  const size_t max_rows = kMaxRows;
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
  // An output does not depend on the number of rows or panels, so one reference serves all tiles.
  constexpr float kUntouched = 0.25f;
  std::vector<float> reference(y_floats, kUntouched), got(y_floats);
  GemmReference(shape, panels.get(), acts, reference.data(), n_panels, max_rows);
  const auto check = [&](const TileSpec& tile) {
    std::fill(got.begin(), got.end(), kUntouched);
    for (const Chunk& chunk : chunks_) {
      RunTile(tiles_[chunk.tiles], panels.get() + chunk.panel_offset,
              reinterpret_cast<const ActBlock*>(x.get() + chunk.x_offset), got.data(), n_panels, tile);
    }
    for (size_t m = 0; m < max_rows; ++m) {
      for (size_t i = 0; i < n_panels * kPanelRows; ++i) {
        const size_t at = m * shape.y_stride_bytes / sizeof(float) + i;
        const float expected = m < tile.rows ? reference[at] : kUntouched;
        if (__builtin_bit_cast(uint32_t, expected) == __builtin_bit_cast(uint32_t, got[at])) continue;
        throw Error(
            "kernels: the generated {} product of {} blocks with tiles of {} rows x {} panels differs from "
            "its "
            "reference: row {}, output {} is {:a}, expected {:a}; run with --isa scalar and report this CPU",
            IsaName(isa), blocks, tile.rows, tile.panels, m, i, got[at], expected);
      }
    }
  };
  for (size_t rows = 1; rows <= max_rows; ++rows) {
    for (size_t of_panels = 1; of_panels <= kMaxPanels; ++of_panels) {
      if (tiles_[0][rows][of_panels]) check({rows, of_panels});
    }
  }
}

}  // namespace larder::kernels::gemm
