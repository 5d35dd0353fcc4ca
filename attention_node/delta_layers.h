// DeltaLayers: a socket's recurrent layers (model::DeltaRule): the steps that update their states.
// Built once. A value head belongs to one thread; those of a KV head may belong to several.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "attention_node/delta_steps.h"
#include "attention_node/state_region.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "topology/arena.h"

namespace larder::attention_node {

struct DeltaLayersOptions {
  kernels::Isa isa;
  size_t threads = 1;
  NumaNodeId node;
};

class DeltaLayers {
 public:
  // The states are in `region`, which must outlive it.
  DeltaLayers(const model::ModelConfig&, const model::GgufFile&, const KvRegion& region,
              const DeltaLayersOptions&);

  // The operand of a thread's DeltaStep for a KV head's rows, which begin at qkv; null if it has no
  // value head of these. out: the first column of all heads.
  const DeltaOperand* Operand(size_t thread, size_t layer, size_t kv_head, const float* qkv,
                              size_t qkv_stride, float* out, size_t out_stride);

 private:
  // The tables of one layer.
  struct Layer {
    std::vector<const float*> keys;    // [key head]: DeltaOperand::convolution
    std::vector<const float*> values;  // [value head]: DeltaHead::convolution
    std::vector<float> decays, biases;
    const float* norm = nullptr;
  };
  void ReadLayer(const model::GgufFile&, size_t layer);
  std::unique_ptr<DeltaShape> MakeShape(const model::LayerSpec&);

  const model::ModelConfig config_;
  const DeltaLayersOptions options_;
  StateRegion states_;
  topology::Arena arena_;
  std::vector<std::unique_ptr<DeltaShape>> shapes_;  // [kind]; null: it has no state
  std::vector<Layer> layers_;
  std::vector<DeltaScratch> scratch_;  // [thread]
  std::deque<std::vector<DeltaHead>> heads_;
  std::deque<DeltaOperand> operands_;
};

}  // namespace larder::attention_node
