// Matrix products over panels of weights (PanelFormat): y[m][row] = sum over blocks of (float(isum)
// * d_activation) * d_weight, where isum is the exact integer dot product of 32 weights and 32
// activations. The order, for every instruction set, batch and split: for each chunk of kSumBlocks
// blocks, ascending,
//   acc = +0; for each block b ascending: acc = fma(float(isum_b) * x[m][b].d, scale_b,row, acc);
//     if the format has a scale for each half of a block, isum is of a half, and this is done for
//     both, the first one first;
//     and if the format has minimums: acc = fma(-minimum_b,row, x[m][b].d_sum, acc);
//   y = y + acc, but y = acc for the first chunk unless `accumulate`.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/formats/act_block.h"
#include "kernels/formats/isa.h"
#include "kernels/formats/panel_format.h"
#include "kernels/formats/tuning.h"

namespace larder::kernels::inline gemm {

struct GemmShape {
  PanelShape panel;           // layout of the weights
  size_t x_stride_bytes = 0;  // between rows of activations; usually ActRowBytes(blocks)
  size_t y_stride_bytes = 0;  // between rows of y
  bool accumulate = false;
  bool listed = false;      // the rows of x are given by a list (RunListed), not adjacent
  size_t weight_bytes = 0;  // all weights that a thread reads in turn, these panels included
                            // (KernelTuning::For)
};

// A slice of the inputs, as the function of a tile reads it.
struct InputSlice {
  enum class End : uint64_t { kStore, kAdd, kKeep };  // y = sums; y = y + sums; the sums are kept

  uint64_t blocks;
  uint64_t resumes;  // 0: sums begin at +0; 1: with those that were kept
  End end;
  // Where a chunk's sums are kept between its slices: [row][panel][16] for each group of a tile's
  // panels. Unused if the slice is a whole chunk.
  float* sums;
  const uint32_t* rows = nullptr;  // of a listed shape: which rows of x are the tile's

  bool keeps_sums() const { return resumes != 0 || end == End::kKeep; }
};

// rows of a tile times n_panels consecutive panels, a multiple of the tile's; y[m] gets 16 *
// n_panels floats.
using GemmFn = void (*)(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels,
                        const InputSlice* slice);

// All tiles of one shape. Made at set-up, then immutable; Run is on the data path.
class Gemm {
 public:
  // Generates the tiles of the schedules for this shape and checks each against the scalar
  // reference on random data. Throws Error if one differs, if the host lacks `isa`, or if a
  // schedule does not fit (ScheduleFits).
  static Gemm Make(Isa, const GemmShape&, const KernelTuning&);

  // Any m >= 1. The schedule of m rows cuts the product into slices: for each slice of the panels,
  // for each of the rows, for each of the inputs, all tiles pass over it before the next one. So
  // each panel is read from the last-level cache once.
  void Run(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels, size_t m) const {
    RunRows(panels, x, nullptr, y, n_panels, m);
  }
  // The same for a listed shape: row i of y is of row rows[i] of x. Nothing is copied.
  void RunListed(const uint8_t* panels, const ActBlock* x, const uint32_t* rows, float* y,
                 size_t n_panels, size_t m) const {
    RunRows(panels, x, rows, y, n_panels, m);
  }
  // The most rows of a listed shape's tile: each has a register.
  static constexpr size_t kMostListedRows = 8;

  // For measurements: gives all products the same slices from now on. The tiles stay as they are.
  // Requires that the schedules with these slices fit, and are unpacked if they were before. Set-up
  // only.
  void Reslice(const SliceSpec& slice);

  const GemmShape& shape() const { return shape_; }

  // Unpacks `blocks` blocks of consecutive panels into a slice of the UnpackedFormat.
  // A slice has at most kMaxUnpackedBytes.
  static constexpr size_t kMaxUnpackedBytes =
      SliceSpec::kMaxUnpackedPanels * (kSumBlocks + 2) * UnpackedFormat(kQ4KPanel).bytes(2) / 2;
  using UnpackFn = void (*)(const uint8_t* panels, uint8_t* unpacked, size_t n_panels,
                            size_t blocks);

 private:
  using TilesOfRows = std::array<GemmFn, TileSpec::kMaxPanels + 1>;  // [panels]
  using Tiles = std::array<TilesOfRows, TileSpec::kMaxRows + 1>;

  struct Step {
    size_t panel_offset, x_offset;  // bytes
    InputSlice slice;               // without sums
  };
  struct Walk {
    Schedule schedule;
    std::vector<Step> steps;
    size_t panels = 0;          // panels of a slice: see SetSlice
    UnpackFn unpack = nullptr;  // null: the tiles read the panels as they are
    Tiles first{}, next{};      // [rows][panels]: tiles for a slice's first panels, and for the
                                // others
  };
  // All that is needed for a product whose rows fit one tile, which passes over the panels once.
  // Kept together with the object's other members: weights that stream through L2 push everything
  // else out of it, and a product of one row must not wait for more than three misses in turn.
  struct alignas(2 * kCacheLineBytes) OnePass {
    uint32_t tile_panels = 0;  // 0: it takes more than one pass
    InputSlice slice{};
    TilesOfRows tiles{};
  };
  std::vector<Step> Steps(const SliceSpec&) const;
  void SetSlice(Walk&, const SliceSpec&) const;
  void Generate(Isa, const ScheduleTable&);
  void FindOnePasses();
  void CheckAgainstReference(Isa) const;
  static void RunTile(const TilesOfRows&, const uint8_t* panels, size_t panel_bytes,
                      const ActBlock* x, float* y, size_t n_panels, size_t rows, size_t tile_panels,
                      const InputSlice&);
  // rows: null, unless the shape is a listed one.
  void RunRows(const uint8_t* panels, const ActBlock* x, const uint32_t* rows, float* y,
               size_t n_panels, size_t m) const;
  void RunSlices(const Walk&, const uint8_t* panels, const ActBlock* x, const uint32_t* rows,
                 float* y, size_t n_panels, size_t m) const;

  GemmShape shape_, unpacked_;                   // unpacked_: the shape of a slice that is unpacked
  size_t panel_bytes_ = 0, unpacked_bytes_ = 0;  // per panel
  std::vector<Walk> walks_;                      // empty: the scalar set
  std::array<uint8_t, ScheduleTable::kRowClasses> walk_of_{};
  std::array<OnePass, TileSpec::kMaxRows + 1> one_pass_{};  // [rows]
};

// The scalar reference. rows: of a listed shape, [m].
void GemmReference(const GemmShape&, const uint8_t* panels, const ActBlock* x, float* y,
                   size_t n_panels, size_t m, const uint32_t* rows = nullptr);

}  // namespace larder::kernels::gemm
