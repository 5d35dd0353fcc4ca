#include "kernels/formats/tuning.h"

namespace larder::kernels::inline formats {
namespace {

// 32 registers: a tile of rows x panels needs 2 * rows * panels + 2 * panels + 1 of them. 24 registers hold
// sums of values, the others the values being added. 28 queries are two tiles of 14 in the score product;
// with 2 blocks per head their scores and weights take about 90 KB of L2.
KernelTuning Avx512() {
  KernelTuning tuning{.value_sums = 24, .value_queries = 16};
  tuning.tiles.fill({4, 3});
  tuning.tiles[1] = {1, 4};
  tuning.tiles[2] = {2, 4};
  tuning.tiles[5] = {5, 2};
  tuning.tiles[6] = {6, 2};
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
