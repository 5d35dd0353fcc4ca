// Random weights and activations in arenas, as matrix products read them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/memory.h"
#include "bench/ratio.h"
#include "kernels/formats/act_block.h"
#include "kernels/formats/panel_format.h"
#include "kernels/tune/random_product.h"
#include "topology/arena.h"

namespace larder::bench {

inline NumaNodeId Node() { return Machine().core(Machine().PickCores(1)[0]).numa_node; }

// `shards` shards of n_panels panels of random weights, one after the other.
class Panels {
 public:
  Panels(size_t k, size_t n_panels, size_t shards)
      : Panels(kernels::PanelShape{k / kernels::kBlock}, n_panels, shards) {}
  Panels(const kernels::PanelShape& panel, size_t n_panels, size_t shards)
      : panel_(panel),
        n_panels_(n_panels),
        shards_(shards),
        arena_(shards * shard_bytes(), Node()) {
    kernels::FillPanels(panel_, shards_ * n_panels_, reinterpret_cast<uint8_t*>(arena_.data()));
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
    x_ = reinterpret_cast<kernels::ActBlock*>(arena_.Allocate(m * stride_));
    kernels::FillRows(m, blocks, x_);
    y_ = arena_.AllocateArray<float>(m * outputs).data();
  }
  const kernels::ActBlock* x() const { return x_; }
  float* y() const { return y_; }

 private:
  size_t stride_;
  topology::Arena arena_;
  kernels::ActBlock* x_;
  float* y_;
};

}  // namespace larder::bench
