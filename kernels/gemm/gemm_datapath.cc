#include <algorithm>

#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline gemm {

void Gemm::RunTile(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels, size_t rows) const {
  const Tile& tile = tiles_[rows];
  const size_t wide = n_panels / tile.panels * tile.panels;
  tile.wide(panels, x, y, wide);
  if (wide < n_panels) {
    tile.narrow(panels + wide * panel_bytes_, x, y + wide * kPanelRows, n_panels - wide);
  }
}

void Gemm::Run(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels, size_t m) const {
  if (tiles_[1].wide == nullptr) {
    GemmReference(shape_, panels, x, y, n_panels, m);
    return;
  }
  if (m <= max_tile_) {
    RunTile(panels, x, y, n_panels, m);
    return;
  }
  // Tiles of nearly equal size: 32 rows are 11 + 11 + 10, not 14 + 14 + 4.
  const size_t n_tiles = CeilDiv(m, max_tile_);
  for (size_t p = 0; p < n_panels; p += group_panels_) {
    const size_t group = std::min(group_panels_, n_panels - p);
    size_t row = 0;
    for (size_t t = 0; t < n_tiles; ++t) {
      const size_t rows = (m - row + (n_tiles - t) - 1) / (n_tiles - t);
      RunTile(panels + p * panel_bytes_,
              reinterpret_cast<const ActBlock*>(reinterpret_cast<const uint8_t*>(x) +
                                                row * shape_.x_stride_bytes),
              reinterpret_cast<float*>(reinterpret_cast<uint8_t*>(y) + row * shape_.y_stride_bytes) +
                  p * kPanelRows,
              group, rows);
      row += rows;
    }
  }
}

}  // namespace larder::kernels::gemm
