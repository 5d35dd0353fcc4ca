#include <algorithm>

#include "kernels/gemm/gemm.h"

namespace larder::kernels::inline gemm {

void Gemm::RunTile(const TilesOfRows& of_rows, const uint8_t* panels, size_t panel_bytes,
                   const ActBlock* x, float* y, size_t n_panels, size_t rows, size_t tile_panels,
                   const InputSlice& slice) {
  // In 32 bits: a division of 64 takes three times as long, and a product of one row may take 100
  // ns.
  const size_t rest = static_cast<uint32_t>(n_panels) % static_cast<uint32_t>(tile_panels);
  const size_t whole = n_panels - rest;
  if (whole > 0) of_rows[tile_panels](panels, x, y, whole, &slice);
  if (rest == 0) return;
  panels += whole * panel_bytes;
  y += whole * kPanelRows;
  if (slice.keeps_sums()) {
    InputSlice of_rest = slice;
    of_rest.sums += whole * rows * kPanelRows;
    of_rows[rest](panels, x, y, rest, &of_rest);
  } else {
    of_rows[rest](panels, x, y, rest, &slice);
  }
}

void Gemm::RunSlices(const Walk& walk, const uint8_t* panels, const ActBlock* x,
                     const uint32_t* rows_of_x, float* y, size_t n_panels, size_t m) const {
  // the sums of chunks that are cut
  alignas(kCacheLineBytes) float sums[SliceSpec::kMaxSumsBytes / sizeof(float)];
  alignas(kCacheLineBytes) uint8_t unpacked[kMaxUnpackedBytes];
  const auto& [tile, slice] = walk.schedule;
  // Tiles of nearly equal size: 9 rows are 3 + 3 + 3, not 4 + 4 + 1.
  const size_t n_tiles = CeilDiv(m, tile.rows), small_rows = m / n_tiles,
               larger_tiles = m % n_tiles;
  // Row slices of nearly equal size, too.
  const size_t most_tiles = std::min(slice.rows / tile.rows, n_tiles);
  const size_t slice_tiles = CeilDiv(n_tiles, CeilDiv(n_tiles, most_tiles));
  const size_t whole = walk.panels > 0          ? walk.panels
                       : walk.steps.size() == 1 ? n_panels
                                                : tile.panels;
  const size_t group = walk.unpack ? std::min(whole, SliceSpec::kMaxUnpackedPanels) : whole;
  const size_t panel_bytes = walk.unpack ? unpacked_bytes_ : panel_bytes_;
  for (size_t p = 0; p < n_panels; p += group) {
    const size_t n = std::min(group, n_panels - p);
    size_t row = 0;  // the first of the slice
    for (size_t first = 0, end = 0; first < n_tiles; first = end) {
      end = std::min(first + slice_tiles, n_tiles);
      size_t done = 0;  // rows of the slice
      for (const Step& step : walk.steps) {
        const uint8_t* step_panels = panels + p * panel_bytes_ + step.panel_offset;
        const auto* step_x = reinterpret_cast<const uint8_t*>(x) + step.x_offset;
        auto* step_y = reinterpret_cast<uint8_t*>(y + p * kPanelRows);
        InputSlice inputs = step.slice;
        if (walk.unpack) {
          walk.unpack(step_panels, unpacked, n, inputs.blocks);
          step_panels = unpacked;
        }
        done = 0;
        for (size_t t = first; t < end; ++t) {
          const size_t rows = small_rows + (t < larger_tiles), at = row + done;
          inputs.sums = inputs.keeps_sums() ? &sums[done * n * kPanelRows] : nullptr;
          inputs.rows = rows_of_x != nullptr ? rows_of_x + at : nullptr;
          const size_t first_row = rows_of_x != nullptr ? 0 : at;
          RunTile((t == first ? walk.first : walk.next)[rows], step_panels, panel_bytes,
                  reinterpret_cast<const ActBlock*>(step_x + first_row * shape_.x_stride_bytes),
                  reinterpret_cast<float*>(step_y + at * shape_.y_stride_bytes), n, rows,
                  tile.panels, inputs);
          done += rows;
        }
      }
      row += done;
    }
  }
}

void Gemm::RunRows(const uint8_t* panels, const ActBlock* x, const uint32_t* rows, float* y,
                   size_t n_panels, size_t m) const {
  if (m < one_pass_.size() && one_pass_[m].tile_panels > 0) {
    const OnePass& pass = one_pass_[m];
    if (rows == nullptr) {
      RunTile(pass.tiles, panels, panel_bytes_, x, y, n_panels, m, pass.tile_panels, pass.slice);
    } else {
      InputSlice slice = pass.slice;
      slice.rows = rows;
      RunTile(pass.tiles, panels, panel_bytes_, x, y, n_panels, m, pass.tile_panels, slice);
    }
    return;
  }
  if (walks_.empty()) {
    GemmReference(shape_, panels, x, y, n_panels, m, rows);
    return;
  }
  RunSlices(walks_[walk_of_[ScheduleTable::Class(m)]], panels, x, rows, y, n_panels, m);
}

}  // namespace larder::kernels::gemm
