// Matrix products over panels of weights (PanelFormat): y[m][row] = sum over blocks of (float(isum) *
// d_activation) * d_weight, where isum is the exact integer dot product of 32 weights and 32 activations. The
// order, for every instruction set, batch and split:
//   acc = +0; for each block b ascending: acc = fma(float(isum_b) * x[m][b].d, F16ToF32(scale_b,row), acc).
// With `accumulate`, y += acc at the end (one addition); otherwise y = acc.
#pragma once

#include <cstddef>
#include <cstdint>

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

// m rows (1 .. tile_rows) times n_panels consecutive panels; y[m] gets 16 * n_panels floats.
using GemmFn = void (*)(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels);

// All tiles of one shape. Made at set-up, then immutable; Run is on the data path.
class Gemm {
 public:
  // Generates the tiles and checks each against the scalar reference on random data. Throws Error if one
  // differs, if the host lacks `isa`, or if a tile of `tuning` does not fit the registers.
  static Gemm Make(Isa, const GemmShape&, const KernelTuning&);

  // Any m >= 1. If m exceeds the largest tile, all tiles pass over one group of panels before the next, so
  // that each panel is read from the last-level cache once.
  void Run(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels, size_t m) const;

  const GemmShape& shape() const { return shape_; }

 private:
  struct Tile {
    GemmFn wide = nullptr;    // takes multiples of `panels` panels
    GemmFn narrow = nullptr;  // takes any number of panels; null when panels == 1
    size_t panels = 1;
  };
  void RunTile(const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels, size_t rows) const;

  GemmShape shape_;
  size_t panel_bytes_ = 0;   // per panel
  size_t max_tile_ = 0;      // rows of the largest tile
  size_t group_panels_ = 0;  // panels of a group, which stays in L1 while all tiles of a large m pass over it
  Tile tiles_[KernelTuning::kMaxTileRows + 1];
};

// The scalar reference.
void GemmReference(const GemmShape&, const uint8_t* panels, const ActBlock* x, float* y, size_t n_panels,
                   size_t m);

}  // namespace larder::kernels::gemm
