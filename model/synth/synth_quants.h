// Random blocks of the types of model/gguf/quants.h for synth.cc. They are drawn as blocks:
// integers from a table, scales and minima around those that give the wanted deviation, so that no
// Gaussian has to be quantised. Like synth_random.h's they are counter-based. Private to model/.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "model/gguf/formats.h"

namespace larder::model::inline synth {

struct QuantForm;  // synth_quants.cc: how the type's blocks are drawn and packed

// Blocks of one type. Constant after construction.
class QuantBlocks {
 public:
  // `type` is one of those that DequantizeQuants reads.
  explicit QuantBlocks(TensorType type);

  // Writes `blocks` blocks of the tensor with key `key`, from block `first_block` on. The weights'
  // mean is 0 and their standard deviation `deviation` (> 0), both in expectation: scales and
  // minima are drawn too. Scales that an f16 can't hold (a deviation below about 1e-5) become
  // coarse, then 0.
  void Fill(uint64_t key, uint64_t first_block, size_t blocks, float deviation, char* out) const;

 private:
  // Eight random bits look a code up, that is, an integer as its bits are stored. 256 slots are
  // enough for each of 64 codes to have one.
  static constexpr size_t kSlots = 256;

  void FillTable();

  const QuantForm& form_;
  size_t elements_, bytes_;
  std::array<uint8_t, kSlots> codes_;
  double mean_ = 0.0, square_ = 0.0;  // exact mean and mean square of the codes' values over the
                                      // slots
  double deviation_ = 1.0;            // deviation of a block's weights if scales are 1 on average
};

}  // namespace larder::model::synth
