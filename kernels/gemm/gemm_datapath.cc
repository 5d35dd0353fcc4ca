#include <algorithm>

#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline gemm {

void Gemm::RunTile(const Tiles& tiles, const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels,
                   const TileSpec& tile) const {
  const auto& of_rows = tiles[tile.rows];
  const size_t rest = n_panels % tile.panels, whole = n_panels - rest;
  if (whole > 0) of_rows[tile.panels](panels, x, y, whole);
  if (rest > 0) of_rows[rest](panels + whole * panel_bytes_, x, y + whole * kPanelRows, rest);
}

void Gemm::Run(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels, size_t m) const {
  if (tiles_.empty()) {
    GemmReference(shape_, panels, x, y, n_panels, m);
    return;
  }
  const TileSpec& largest = tuning_.tile(m);
  // Tiles of nearly equal size: 9 rows are 3 + 3 + 3, not 4 + 4 + 1.
  const size_t n_tiles = CeilDiv(m, largest.rows), small_rows = m / n_tiles, larger_tiles = m % n_tiles;
  size_t group = n_panels;
  if (n_tiles > 1) {
    group = std::max<size_t>(1, tuning_.group_bytes / chunk_bytes_ / largest.panels) * largest.panels;
  } else if (chunks_.size() > 1) {
    group = largest.panels;
  }
  for (size_t p = 0; p < n_panels; p += group) {
    const size_t n = std::min(group, n_panels - p);
    for (const Chunk& chunk : chunks_) {
      const uint8_t* slice = panels + p * panel_bytes_ + chunk.panel_offset;
      const auto* row_x = reinterpret_cast<const uint8_t*>(x) + chunk.x_offset;
      auto* row_y = reinterpret_cast<uint8_t*>(y + p * kPanelRows);
      for (size_t t = 0; t < n_tiles; ++t) {
        const TileSpec tile{small_rows + (t < larger_tiles), largest.panels};
        RunTile(tiles_[chunk.tiles], slice, reinterpret_cast<const ActBlock*>(row_x),
                reinterpret_cast<float*>(row_y), n, tile);
        row_x += tile.rows * shape_.x_stride_bytes;
        row_y += tile.rows * shape_.y_stride_bytes;
      }
    }
  }
}

}  // namespace larder::kernels::gemm
