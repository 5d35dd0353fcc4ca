// Schedules: how a matrix product is divided into slices and tiles. A Schedule is data: a generator
// makes a tile's code from a TileSpec (kernels/gemm/), a tuner searches among those that
// ScheduleFits allows, and a file keeps what it found. No schedule changes a bit of any result. The
// terms are those of sandwich-kernel (Sandwich: Separating Prefill-Decode Compilation for Efficient
// CPU LLM Serving, section 6): a micro-kernel is a tile here.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "kernels/formats/isa.h"
#include "kernels/formats/panel_format.h"

namespace larder::kernels::inline formats {

// The version of the code of tiles. Raised when it changes so much that schedules have to be tuned
// again.
inline constexpr uint32_t kGeneratorVersion = 3;

// How a tile gets the activations of a row, 4 inputs in every lane of a vector.
enum class ActLoad : uint8_t {
  kBroadcast,  // one broadcast load, which serves the products of all panels
  kEmbedded,   // as a memory operand of each product; for tiles of one panel
};
inline constexpr std::array<std::string_view, 2> kActLoadNames = {"broadcast", "embedded"};
constexpr std::string_view Name(ActLoad load) { return kActLoadNames[static_cast<size_t>(load)]; }

// The instruction by which the first tile of a slice fetches weights ahead; the others find them in
// the cache. kNone leaves it to the CPU, whose prefetchers lose a panel's stream where the next
// panel begins.
enum class Prefetch : uint8_t { kNone, kT0, kT1, kNta };
inline constexpr std::array<std::string_view, 4> kPrefetchNames = {"none", "t0", "t1", "nta"};
constexpr std::string_view Name(Prefetch prefetch) {
  return kPrefetchNames[static_cast<size_t>(prefetch)];
}

// A micro-kernel: rows of activations times panels of weights, whose sums all stay in registers.
struct TileSpec {
  static constexpr size_t kMaxRows = 16, kMaxPanels = 8, kMaxPrefetchBytes = 4096;

  size_t rows = 1;
  size_t panels = 1;
  ActLoad load = ActLoad::kBroadcast;
  Prefetch prefetch = Prefetch::kNone;
  size_t prefetch_bytes = 0;  // how far ahead; 0 if kNone
  bool operator==(const TileSpec&) const = default;
  TileSpec Fetching(Prefetch kind, size_t bytes) const {
    TileSpec tile = *this;
    tile.prefetch = kind;
    tile.prefetch_bytes = bytes;
    return tile;
  }
  TileSpec WithoutPrefetch() const { return Fetching(Prefetch::kNone, 0); }
};

// A part of a product that all tiles pass over before they go on to the next: some of the panels,
// some of the rows, some of the inputs. If a chunk of kSumBlocks blocks is cut, its sums are kept
// in memory between the slices, as float32, so that no bit changes.
struct SliceSpec {
  // Bytes of sums that Gemm::Run keeps on its stack.
  static constexpr size_t kMaxSumsBytes = 32 * 1024;

  size_t blocks = kSumBlocks;  // blocks of 32 inputs; even, at most kSumBlocks
  // A multiple of the tile's panels. If panels are shorter than `blocks`, as many more are taken as
  // fit instead. 0: all panels if the inputs are not cut, else the tile's.
  size_t panels = 0;
  size_t rows = SIZE_MAX;  // at least the tile's
  // Weights that tiles cannot multiply as stored (TakesUnpacking) are unpacked once for all rows of
  // the slice, not by each tile. The slice then has at most kMaxUnpackedPanels panels, whatever
  // `panels` says.
  bool unpacked = false;
  static constexpr size_t kMaxUnpackedPanels = 2;
  bool operator==(const SliceSpec&) const = default;
};

// Whether panels of the format hold other bytes than those that tiles multiply. (Without VNNI tiles
// multiply signed bytes. That does not count: making bytes signed costs one instruction per tile,
// from a slice as well.)
constexpr bool TakesUnpacking(const PanelFormat& format) {
  return format.codes != PanelCodes::kBytes;
}

struct Schedule {
  TileSpec tile;
  SliceSpec slice;
  bool operator==(const Schedule&) const = default;
};

// Whether a tile's sums and operands fit the registers. The scalar set generates no tiles and takes
// any within the limits of TileSpec.
bool TileFits(Isa, const TileSpec&);
// TileFits, and the slice keeps its own rules.
bool ScheduleFits(Isa, const Schedule&);

// A schedule for each class of row counts: 1 to 16 by themselves, then up to 32, 64, 128, and more.
struct ScheduleTable {
  static constexpr size_t kRowClasses = 20;
  static constexpr size_t Class(size_t rows) {
    if (rows <= 16) return rows - 1;
    return rows <= 32 ? 16 : rows <= 64 ? 17 : rows <= 128 ? 18 : 19;
  }
  // The most rows of a class; for the last class, the number of rows that it is tuned for.
  static constexpr size_t Rows(size_t row_class) {
    return row_class < 16 ? row_class + 1 : size_t{32} << (row_class - 16);
  }

  std::array<Schedule, kRowClasses> of{};
  Schedule& operator[](size_t rows) { return of[Class(rows)]; }
  const Schedule& operator[](size_t rows) const { return of[Class(rows)]; }
  void Fill(const Schedule& schedule) { of.fill(schedule); }
  bool operator==(const ScheduleTable&) const = default;
};

// The core that schedules are made for. 0 means not known.
struct CoreShape {
  size_t l1_bytes = 0, l2_bytes = 0;
  size_t vector_bytes = 0;  // width of an AMD CPU's vector units: 32 where an instruction of 64
                            // bytes runs in two halves (Zen 4), 64 where it does not (Zen 5)
};
CoreShape HostCore();  // a core of the CPU that runs this process (host_cpu.h)

// Good schedules with no tuning: tiles by what the registers hold and the ports allow, slices by
// what fits the core's caches.
ScheduleTable AnalyticSchedules(Isa, const CoreShape&);

}  // namespace larder::kernels::formats
