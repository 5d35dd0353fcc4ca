// Matrix products over panels of weights (PanelFormat): y[m][row] = sum over blocks of (float(isum) *
// d_activation) * d_weight, where isum is the exact integer dot product of 32 weights and 32 activations. The
// order, for every instruction set, batch and split: for each chunk of kSumBlocks blocks, ascending,
//   acc = +0; for each block b ascending: acc = fma(float(isum_b) * x[m][b].d, F16ToF32(scale_b,row), acc);
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
};

// Whether the sums of a tile, and what it multiplies, fit the registers. The scalar set, which makes
// no tiles, takes any within the limits of KernelTuning.
bool TileFits(Isa, const TileSpec&);

// rows of a tile times n_panels consecutive panels, a multiple of the tile's; y[m] gets 16 * n_panels floats.
using GemmFn = void (*)(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels);

// All tiles of one shape. Made at set-up, then immutable; Run is on the data path.
class Gemm {
 public:
  // Generates the tiles and checks each against the scalar reference on random data. Throws Error if one
  // differs, if the host lacks `isa`, or if a tile of `tuning` does not fit the registers.
  static Gemm Make(Isa, const GemmShape&, const KernelTuning&);

  // Any m >= 1. A product of several tiles is cut into slices, a group of panels x a chunk of inputs; all
  // tiles pass over one slice before the next, so that each panel is read from the last-level cache once.
  void Run(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels, size_t m) const;

  const GemmShape& shape() const { return shape_; }

 private:
  static constexpr size_t kMaxRows = KernelTuning::kMaxTileRows, kMaxPanels = KernelTuning::kMaxTilePanels;
  using Tiles = std::array<std::array<GemmFn, kMaxPanels + 1>, kMaxRows + 1>;  // [rows][panels]

  struct Chunk {                    // of the inputs
    size_t panel_offset, x_offset;  // bytes
    size_t tiles;                   // index in tiles_
  };
  void Generate(Isa);
  void CheckAgainstReference(Isa) const;
  void RunTile(const Tiles&, const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels,
               const TileSpec&) const;

  GemmShape shape_;
  size_t panel_bytes_ = 0;  // per panel
  size_t chunk_bytes_ = 0;  // of a panel's largest chunk
  KernelTuning tuning_;
  std::vector<Chunk> chunks_;
  std::vector<Tiles> tiles_;  // for the first chunk, the others, and a shorter last one
};

// The scalar reference.
void GemmReference(const GemmShape&, const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels,
                   size_t m);

}  // namespace larder::kernels::gemm
