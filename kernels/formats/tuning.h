// KernelTuning: how kernels cut their work into tiles. No value of it changes a bit of any result, so two
// ends of a link may differ in it. Chosen at set-up and handed to what makes kernels; today's defaults are
// constants, found by measuring.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/formats/isa.h"

namespace larder::kernels {

struct KernelTuning {
  static constexpr size_t kMaxTileRows = 16;

  // Matrix products (kernels/gemm/). A tile is some rows of activations times some panels, all of whose sums
  // stay in registers; Gemm::Make refuses tiles that do not fit.
  size_t tile_rows = 1;                                    // of the largest tile, 1 .. kMaxTileRows
  std::array<size_t, kMaxTileRows + 1> panels_for_rows{};  // [rows]: panels that a tile of so many rows takes
  // A group of panels stays in L1 beside the activations while all tiles of more than tile_rows rows pass
  // over it; at least one panel.
  size_t group_bytes = 24 * 1024;

  // Weighted sums of values (MakeValues). More sums than registers work, slowly.
  size_t value_sums = 1;     // 16-lane sums that a pass over a chunk's positions keeps in registers
  size_t value_queries = 1;  // the most queries of one kernel, at most value_sums: one sum of each fits

  // Attention: queries (rows x heads of a group) that one pass over a chunk serves; a group's at least.
  size_t tile_queries = 28;
};

KernelTuning DefaultTuning(Isa);

}  // namespace larder::kernels
