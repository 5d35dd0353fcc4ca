// Random weights and activations, as matrix products read them. Scales are ordinary numbers, since a product
// with a subnormal one would be slow.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "base/ids.h"
#include "base/memory.h"
#include "bench/ratio.h"
#include "kernels/formats/act_block.h"
#include "kernels/formats/isa.h"
#include "kernels/formats/panel_format.h"
#include "kernels/rows/elementwise.h"
#include "topology/arena.h"

namespace larder::bench {

inline NumaNodeId Node() { return Machine().core(Machine().PickCores(1)[0]).numa_node; }

// `shards` shards of n_panels panels of random weights, one after the other.
class Panels {
 public:
  Panels(size_t k, size_t n_panels, size_t shards)
      : panel_{k / kernels::kBlock},
        n_panels_(n_panels),
        shards_(shards),
        arena_(shards * shard_bytes(), Node()) {
    std::mt19937 random(1);
    std::uniform_int_distribution<int> weight(-127, 127);
    constexpr size_t kDistinct = 4;  // the kernels' time does not depend on the values
    std::vector<model::Q8Block> rows(kernels::kPanelRows * blocks());
    const model::Q8Block* row[kernels::kPanelRows];
    for (size_t r = 0; r < kernels::kPanelRows; ++r) row[r] = &rows[r * blocks()];
    for (size_t p = 0; p < shards_ * n_panels_; ++p) {
      if (p >= kDistinct) {
        std::memcpy(panel(p), panel(p % kDistinct), panel_.bytes());
        continue;
      }
      for (model::Q8Block& block : rows) {
        block.d = model::F32ToF16(0.01f);
        for (int8_t& q : block.q) q = static_cast<int8_t>(weight(random));
      }
      panel_.format.pack(row, blocks(), panel(p));
    }
  }

  const kernels::PanelShape& shape() const { return panel_; }
  size_t blocks() const { return panel_.blocks; }
  size_t n_panels() const { return n_panels_; }
  size_t shards() const { return shards_; }
  size_t shard_bytes() const { return n_panels_ * panel_.bytes(); }
  const uint8_t* shard(size_t i) const {
    return reinterpret_cast<const uint8_t*>(arena_.data()) + i * shard_bytes();
  }
  std::span<const std::byte> bytes() const { return {arena_.data(), shards_ * shard_bytes()}; }

 private:
  uint8_t* panel(size_t p) { return reinterpret_cast<uint8_t*>(arena_.data()) + p * panel_.bytes(); }
  kernels::PanelShape panel_;
  size_t n_panels_, shards_;
  topology::Arena arena_;
};

// m quantised rows and space for the results.
class Rows {
 public:
  Rows(size_t m, size_t blocks, size_t outputs)
      : stride_(kernels::ActRowBytes(blocks)),
        arena_(m * stride_ + RoundUp(m * outputs * sizeof(float), kPageBytes), Node()) {
    std::mt19937 random(2);
    std::normal_distribution<float> normal;
    std::vector<float> row(blocks * kernels::kBlock);
    std::byte* x = arena_.Allocate(m * stride_);
    for (size_t i = 0; i < m; ++i) {
      for (float& value : row) value = normal(random);
      kernels::GetElementwise(kernels::Isa::kScalar)
          .quantize(row.data(), reinterpret_cast<kernels::ActBlock*>(x + i * stride_), row.size());
    }
    x_ = reinterpret_cast<kernels::ActBlock*>(x);
    y_ = arena_.AllocateArray<float>(m * outputs).data();
  }
  const kernels::ActBlock* x() const { return x_; }
  float* y() const { return y_; }

 private:
  size_t stride_;
  topology::Arena arena_;
  const kernels::ActBlock* x_;
  float* y_;
};

}  // namespace larder::bench
