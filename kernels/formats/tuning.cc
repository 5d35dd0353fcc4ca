#include "kernels/formats/tuning.h"

namespace larder::kernels::inline formats {
namespace {

// 32 registers: a tile of rows x panels needs 2 * rows * panels + 2 * panels + 1 of them. 6 x 2 is the best
// for data in L1; but where all rows fit one tile, its panels are read once from the last-level cache and
// never again, and one pass of a tile of one panel is faster than two of better ones. A group of 8 panels
// stays in any L2. 24 registers hold sums of values, the others the values being added. 28 queries are two
// tiles of 14 in the score product; with 2 blocks per head their scores and weights take about 90 KB of L2.
KernelTuning Avx512() {
  KernelTuning tuning{
      .group_bytes = 144 * 1024, .prefetch_bytes = 1024, .value_sums = 24, .value_queries = 16};
  tuning.tiles.fill({6, 2});
  tuning.tiles[1] = {1, 4};
  tuning.tiles[2] = {2, 4};
  tuning.tiles[3] = {3, 3};
  tuning.tiles[4] = {4, 3};
  for (size_t rows = 7; rows <= 14; ++rows) tuning.tiles[rows] = {rows, 1};
  return tuning;
}

// 16 registers, and a panel's 16 outputs take two of them. 6 x 2 hold sums of values, two hold a value and
// one a broadcast weight.
KernelTuning Avx2(size_t tile_rows) {
  KernelTuning tuning{.value_sums = 6, .value_queries = 6};
  tuning.tiles.fill({tile_rows, 1});
  return tuning;
}

}  // namespace

KernelTuning DefaultTuning(Isa isa) {
  switch (isa) {
    case Isa::kAvx512Vnni:
      return Avx512();
    case Isa::kAvxVnni:
      return Avx2(3);
    case Isa::kAvx2:
      return Avx2(2);
    case Isa::kScalar:
      break;  // the reference has no tiles
  }
  return {.value_sums = 16, .value_queries = 16};
}

}  // namespace larder::kernels::formats
