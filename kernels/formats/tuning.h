// KernelTuning: how kernels divide their work into tiles. No value changes a bit of any result, so the two
// ends of a link may use different ones. Chosen at set-up and passed to the functions that make kernels. The
// defaults are constants, found by measurement.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/formats/isa.h"

namespace larder::kernels::inline formats {

struct KernelTuning {
  static constexpr size_t kMaxTileRows = 16;

  // Matrix products (kernels/gemm/). A tile is a number of rows of activations times a number of panels whose
  // sums all stay in registers; Gemm::Make refuses tiles that do not fit.
  size_t tile_rows = 1;                                    // rows of the largest tile, 1 .. kMaxTileRows
  std::array<size_t, kMaxTileRows + 1> panels_for_rows{};  // [rows]: panels of a tile of that many rows
  // For products of more than tile_rows rows: bytes of a group of panels, which stays in L1 besides the
  // activations while all tiles pass over it. A group has at least one panel.
  size_t group_bytes = 24 * 1024;

  // Weighted sums of values (MakeValues). More sums than registers are correct but slow.
  size_t value_sums = 1;     // 16-lane sums kept in registers during a pass over a chunk
  size_t value_queries = 1;  // the most queries per kernel, at most value_sums, so that one sum of each fits

  // Attention: queries (rows x heads of a group) per pass over a chunk; at least those of one row.
  size_t tile_queries = 28;
};

KernelTuning DefaultTuning(Isa);

}  // namespace larder::kernels::formats
