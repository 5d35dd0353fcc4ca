// KernelTuning: how kernels divide their work into tiles. No value changes a bit of any result, so the two
// ends of a link may use different ones. Chosen at set-up and passed to the functions that make kernels. The
// defaults are constants, found by measurement.
#pragma once

#include <array>
#include <cstddef>

#include "kernels/formats/isa.h"

namespace larder::kernels::inline formats {

// A tile of a matrix product: rows of activations times panels of weights, whose sums all stay in registers.
struct TileSpec {
  size_t rows = 1;
  size_t panels = 1;
  bool operator==(const TileSpec&) const = default;
};

struct KernelTuning {
  static constexpr size_t kMaxTileRows = 16;
  static constexpr size_t kMaxTilePanels = 8;

  // Matrix products (kernels/gemm/). tiles[m]: the largest tile for a product of m rows; the last one is for
  // all larger m. A product is cut into as few tiles as that allows, of nearly equal size. Gemm::Make refuses
  // tiles that do not fit the registers.
  std::array<TileSpec, kMaxTileRows + 1> tiles{};
  // For products of several tiles: bytes of a group of panels (of one chunk of inputs), over which all tiles
  // pass before the next group is read. A group has at least the panels of one tile.
  size_t group_bytes = 24 * 1024;
  // A tile fetches the weights of its panels this many bytes ahead into L1; 0: leaves it to the CPU, whose
  // prefetchers lose a panel's stream where the next panel begins.
  size_t prefetch_bytes = 0;

  const TileSpec& tile(size_t m) const { return tiles[m < kMaxTileRows ? m : kMaxTileRows]; }

  // Weighted sums of values (MakeValues). More sums than registers are correct but slow.
  size_t value_sums = 1;     // 16-lane sums kept in registers during a pass over a chunk
  size_t value_queries = 1;  // the most queries per kernel, at most value_sums, so that one sum of each fits

  // Attention: queries (rows x heads of a group) per pass over a chunk; at least those of one row.
  size_t tile_queries = 28;
};

KernelTuning DefaultTuning(Isa);

}  // namespace larder::kernels::formats
