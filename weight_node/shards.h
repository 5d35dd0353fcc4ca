// Shards: one thread's packed weights, in an arena on its NUMA node. The thread packs them itself,
// so that it touches their pages first. Read-only afterwards.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "base/ids.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "topology/arena.h"
#include "weight_node/shard_plan.h"

namespace larder::weight_node {

// Called with the bytes packed so far, and the bytes in all.
using LoadProgress = std::function<void(uint64_t packed_bytes, uint64_t all_bytes)>;

// Counts the bytes packed so far by all threads; thread 0 reports them while it packs.
struct PackedByteCounter {
  std::atomic<uint64_t> packed_bytes{0};
  uint64_t all_bytes = 0;
  LoadProgress report;  // may be empty
  void Add(size_t thread, uint64_t bytes) {
    // relaxed: only displayed
    const uint64_t now = packed_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (thread == 0 && report) report(now, all_bytes);
  }
};

struct LayerShard {
  std::array<const uint8_t*, kLayerMatrices.size()> panels{};  // the first whole panel, by matrix
  const float* qkv_bias = nullptr;    // 16 floats per panel of qkv, or null
  std::vector<const uint8_t*> parts;  // addresses of parts of cut panels, as in
                                      // ThreadShard::parts
  // Norms and biases of [dim], by role, padded to whole panels; each thread has its own copy. Of
  // QkNorm::kRow, norms of q and k in the order of their packed rows.
  std::array<const float*, model::kTensorRoles> vectors{};
  // Of a router's rows (kRouter, and behind them kSharedRouter), the thread's share: [rows][dim].
  const float* router = nullptr;
  // Of the router's rows of that share: what is added to their products; or null.
  const float* router_bias = nullptr;
  // [units of the whole layer][32 gate, 32 up], or null; of experts the thread's own units.
  const float* gate_up_bias = nullptr;
  // [experts][16 floats per own panel of down], or null.
  const float* expert_down_bias = nullptr;
  const float* of(model::TensorRole role) const { return vectors[static_cast<size_t>(role)]; }
};

// A thread's share of the rows of a layer's router.
Range<uint32_t> RouterShare(const model::LayerSpec&, size_t thread, size_t threads);

class Shards {
 public:
  // Reserves the arena on `node` without touching it.
  Shards(const model::ModelConfig&, const ShardPlan&, size_t thread, NumaNodeId node);

  // Reads and packs this thread's rows. Call it on that thread. Throws Error (file, tensor).
  void Pack(const model::GgufFile&, PackedByteCounter&);

  std::span<const LayerShard> layers() const { return layers_; }
  // The address of a panel (kFfn: unit) of the matrix, which must be one of this thread's. kLmHead
  // and kInputs ignore layer.
  const uint8_t* Panel(PanelMatrix, size_t layer, uint32_t panel) const;
  // The address of a panel of an expert's down, and the bytes between two experts'.
  const uint8_t* ExpertDown(size_t layer, uint32_t panel) const;
  size_t ExpertDownStride(size_t layer) const;
  const float* QkvBias(size_t layer, uint32_t panel) const;  // the panel's 16 biases, or null
  // The biases of a unit of experts, and of a panel of expert 0's down; null if there are none. Two
  // experts' biases of down are ExpertDownBiasStride() floats apart.
  const float* ExpertUnitBias(size_t layer, uint32_t unit) const;
  const float* ExpertDownBias(size_t layer, uint32_t panel) const;
  size_t ExpertDownBiasStride(size_t layer) const;
  const uint8_t* head() const { return head_; }
  const float* input_norm() const { return input_norm_; }  // of layer inputs
  const float* output_norm() const { return output_norm_; }
  const float* head_norm() const { return head_norm_; }  // output_norm, times the scale of logits
  uint64_t weight_bytes() const {
    return weight_bytes_;
  }  // only packed panels, which are read for every token
  std::span<const std::byte> weights() const { return {arena_.data(), weight_bytes_}; }
  // The parts of weights() that a layer reads, and that embedding and lm_head do.
  std::span<const std::byte> LayerWeights(size_t layer) const;
  std::span<const std::byte> EndsWeights() const;
  const topology::Arena& arena() const { return arena_; }

 private:
  void PlaceExpertVectors(const model::GgufFile&, size_t layer, LayerShard& to);
  const model::ModelConfig& config_;
  const ShardPlan& plan_;
  size_t thread_;
  std::vector<LayerPanels> layer_panels_;
  topology::Arena arena_;
  uint64_t weight_bytes_ = 0;
  std::vector<LayerShard> layers_;
  const uint8_t *head_ = nullptr, *inputs_ = nullptr;
  const float* input_norm_ = nullptr;
  const float* output_norm_ = nullptr;
  const float* head_norm_ = nullptr;
};

}  // namespace larder::weight_node
