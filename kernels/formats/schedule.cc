#include "kernels/formats/schedule.h"

#include <algorithm>

#include "kernels/formats/act_block.h"
#include "kernels/formats/host_cpu.h"

namespace larder::kernels::inline formats {
namespace {

// What is assumed of a CPU that does not say.
constexpr size_t kL1Bytes = 32 * 1024, kL2Bytes = 512 * 1024;
constexpr size_t kPrefetchBytes = 1024;

// Rows of activations that fill half of L2.
size_t RowsInL2(const CoreShape& core) {
  return (core.l2_bytes ? core.l2_bytes : kL2Bytes) / 2 / ActRowBytes(kSumBlocks);
}

// A slice for a product of several tiles. The weights of one tile's panels and one tile's
// activations fill three quarters of L1, so that the weights are there for the next tile; the
// slice's activations fill half of L2.
SliceSpec SliceFor(const TileSpec& tile, const CoreShape& core) {
  const size_t l1 = core.l1_bytes ? core.l1_bytes : kL1Bytes;
  const size_t block_bytes =
      tile.panels * kQ8Panel.group_bytes() / kQ8Panel.group_blocks + tile.rows * sizeof(ActBlock);
  const size_t fit = std::max<size_t>(l1 * 3 / 4 / block_bytes, 2);
  // Slices of equal length: as few as fit, an even number of blocks each.
  const size_t slices = CeilDiv(kSumBlocks, std::min(fit, kSumBlocks));
  SliceSpec slice{.blocks = RoundUp(CeilDiv(kSumBlocks, slices), 2), .panels = tile.panels};
  size_t rows = RowsInL2(core);
  if (slice.blocks < kSumBlocks)
    rows = std::min(rows, SliceSpec::kMaxSumsBytes / (tile.panels * kPanelRows * sizeof(float)));
  slice.rows = std::max(rows / tile.rows, size_t{1}) * tile.rows;
  return slice;
}

// Weights are unpacked once for a slice of so many rows that it takes at least this many tiles.
constexpr size_t kUnpackedTiles = 4;
void UnpackForManyRows(ScheduleTable& table) {
  for (size_t of = 0; of < ScheduleTable::kRowClasses; ++of) {
    auto& [tile, slice] = table.of[of];
    slice.unpacked = std::min(ScheduleTable::Rows(of), slice.rows) >= kUnpackedTiles * tile.rows;
  }
}

// 32 registers: a tile of rows x panels needs 2 * rows * panels + 2 * panels + 1 of them. 6 x 2 is
// the best for data in L1; but where all rows fit one tile, its panels are read once from the
// last-level cache and never again, and one pass of a tile of one panel is faster than two of
// better ones.
ScheduleTable Avx512(const CoreShape& core) {
  ScheduleTable table;
  const auto tile = [&](size_t rows, size_t panels) {
    return TileSpec{.rows = rows,
                    .panels = panels,
                    .load = panels == 1 ? ActLoad::kEmbedded : ActLoad::kBroadcast,
                    .prefetch = Prefetch::kT0,
                    .prefetch_bytes = kPrefetchBytes};
  };
  const TileSpec many = tile(6, 2);
  table.Fill({many, SliceFor(many, core)});
  table[1] = {tile(1, 4), {}};
  table[2] = {tile(2, 4), {}};
  table[3] = {tile(3, 3), {}};
  table[4] = {tile(4, 3), {}};
  table[5] = {tile(5, 2), {}};
  table[6] = {tile(6, 2), {}};
  for (size_t rows = 7; rows <= 14; ++rows) table[rows] = {tile(rows, 1), {}};
  UnpackForManyRows(table);
  return table;
}

// Where each instruction takes two turns on the ports (Zen 4), loads are no limit: all tiles of 3
// rows or more run at the same 76 to 79 % of the peak in L1. Then one panel is best: its weights
// are one stream, which the CPU's own prefetchers follow. For one or two rows these do better
// alone; with more there is time between two lines, and it pays to fetch far ahead, into L2.
ScheduleTable Avx512InHalves(const CoreShape& core) {
  ScheduleTable table;
  const auto tile = [](size_t rows) {
    const TileSpec of{.rows = rows, .panels = 1, .load = ActLoad::kEmbedded};
    return rows <= 2 ? of : of.Fetching(Prefetch::kT1, TileSpec::kMaxPrefetchBytes);
  };
  constexpr size_t kRows = 8;
  const SliceSpec slice{.panels = 1, .rows = std::max(RowsInL2(core) / kRows, size_t{1}) * kRows};
  table.Fill({tile(kRows), slice});
  for (size_t rows = 1; rows <= 14; ++rows) table[rows] = {tile(rows), {}};
  UnpackForManyRows(table);
  return table;
}

// Where an instruction of 64 bytes takes one turn on a port, and one core reads 100 GB/s of its L3
// (Zen 5): two loads a cycle hold a tile of one panel, whose activations are memory operands, at
// two thirds of the peak, and a second pass over panels that the first one left near costs less
// (docs/tune.md). So all rows pass over a few panels, also of weights in memory. Fetching far ahead
// costs a little where L3 is quiet, and gains a third where neighbours use it.
ScheduleTable Avx512OfFastL3(const CoreShape& core) {
  ScheduleTable table = Avx512(core);
  const TileSpec six{.rows = 6, .panels = 2};
  const TileSpec far = six.Fetching(Prefetch::kT0, TileSpec::kMaxPrefetchBytes);
  table[7] = table[8] = {six.Fetching(Prefetch::kT0, kPrefetchBytes), {.panels = 4, .rows = 8}};
  for (size_t rows = 9; rows <= 16; ++rows) table[rows] = {far, {.panels = 4, .rows = six.rows}};
  const size_t most_rows = std::max(RowsInL2(core) / six.rows, size_t{1}) * six.rows;
  for (const size_t rows : {32, 64, 128, 256})
    table[rows] = {far, {.panels = 4, .rows = most_rows}};
  UnpackForManyRows(table);
  return table;
}

// 16 registers, and a panel's 16 outputs take two of them.
ScheduleTable Avx2(const TileSpec& tile, const CoreShape& core) {
  ScheduleTable table;
  SliceSpec slice = SliceFor(tile, core);
  slice.blocks = kSumBlocks;  // the weights of one panel fit any L1
  table.Fill({tile, slice});
  for (size_t rows = 1; rows <= tile.rows; ++rows) table[rows].slice = {};
  UnpackForManyRows(table);
  return table;
}

}  // namespace

bool TileFits(Isa isa, const TileSpec& tile) {
  if (tile.rows < 1 || tile.rows > TileSpec::kMaxRows || tile.panels < 1 ||
      tile.panels > TileSpec::kMaxPanels || tile.prefetch_bytes > TileSpec::kMaxPrefetchBytes) {
    return false;
  }
  if (tile.load > ActLoad::kEmbedded || (tile.load == ActLoad::kEmbedded && tile.panels > 1))
    return false;
  if (tile.prefetch > Prefetch::kNta ||
      (tile.prefetch == Prefetch::kNone) != (tile.prefetch_bytes == 0))
    return false;
  switch (isa) {
    case Isa::kAvx512Vnni:
      return 2 * tile.rows * tile.panels + 2 * tile.panels + 1 <= 32;
    case Isa::kAvxVnni:
      return tile.load == ActLoad::kBroadcast && tile.panels == 1 && 4 * tile.rows + 3 <= 16;
    case Isa::kAvx2:
      return tile.load == ActLoad::kBroadcast && tile.panels == 1 && 4 * tile.rows + 5 <= 16;
    case Isa::kScalar:
      break;
  }
  return true;
}

bool ScheduleFits(Isa isa, const Schedule& schedule) {
  const auto& [tile, slice] = schedule;
  if (!TileFits(isa, tile)) return false;
  if (slice.blocks < 2 || slice.blocks % 2 || slice.blocks > kSumBlocks ||
      slice.panels % tile.panels || slice.rows < tile.rows ||
      (slice.unpacked && tile.panels > SliceSpec::kMaxUnpackedPanels)) {
    return false;
  }
  if (slice.blocks == kSumBlocks) return true;
  const size_t panels = std::max(slice.panels, tile.panels);
  return panels <= SliceSpec::kMaxSumsBytes && slice.rows <= SliceSpec::kMaxSumsBytes &&
         slice.rows * panels * kPanelRows * sizeof(float) <= SliceSpec::kMaxSumsBytes;
}

CoreShape HostCore() { return ThisCpu().core; }

ScheduleTable AnalyticSchedules(Isa isa, const CoreShape& core) {
  switch (isa) {
    case Isa::kAvx512Vnni:
      if (core.vector_bytes == 32) return Avx512InHalves(core);
      return core.vector_bytes == 64 ? Avx512OfFastL3(core) : Avx512(core);
    case Isa::kAvxVnni:
      return Avx2({.rows = 3}, core);
    case Isa::kAvx2:
      // The arithmetic of a line takes so long that the CPU's own prefetchers fall behind: fetched
      // far ahead, into L2, weights from L3 are read 1.4 to 1.7 times as fast for one row on Zen 3,
      // and 1.2 times for eight.
      return Avx2(TileSpec{.rows = 2}.Fetching(Prefetch::kT1, TileSpec::kMaxPrefetchBytes), core);
    case Isa::kScalar:
      break;  // the reference has no tiles
  }
  return {};
}

}  // namespace larder::kernels::formats
