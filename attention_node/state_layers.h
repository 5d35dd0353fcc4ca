// StateLayers: a socket's recurrent layers (model::Recurrence): the steps that update their states.
// Built once. A value head belongs to one thread; those of a KV head may belong to several.
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "attention_node/kv_homes.h"
#include "attention_node/state_region.h"
#include "attention_node/state_steps.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "topology/arena.h"

namespace larder::attention_node {

struct StateLayersOptions {
  kernels::Isa isa;
  size_t threads = 1;
  std::vector<NumaNodeId> node_of_thread = {};  // as AttentionNodeOptions'
};

class StateLayers {
 public:
  // The states are in `region`, which must outlive it.
  StateLayers(const model::ModelConfig&, const model::GgufFile&, const KvRegion& region,
              const StateLayersOptions&);

  // The operand of a thread's StateStep for a KV head's rows, which begin at qkv; null if it has no
  // value head of these. out: the first column of all heads.
  const StateOperand* Operand(size_t thread, size_t layer, size_t kv_head, const float* qkv,
                              size_t qkv_stride, float* out, size_t out_stride);

 private:
  // The tables of one layer.
  struct Layer {
    std::vector<float*> keys;                  // [key head]: StateOperand::convolution
    std::vector<float*> values;                // [value head]: StateHead::convolution
    std::vector<float> decays, biases, skips;  // [value head]
    const float* norm = nullptr;
  };
  void ReadLayer(const model::GgufFile&, size_t layer);
  std::unique_ptr<RecurrentShape> MakeShape(const model::LayerSpec&);

  const model::ModelConfig config_;
  const StateLayersOptions options_;
  StateRegion states_;
  topology::Arena arena_;              // of norms, on the first thread's node
  topology::NodeArenas convolutions_;  // each head's, on the node of a thread that has it
  topology::NodeArenas scratch_arenas_;
  std::vector<std::unique_ptr<RecurrentShape>> shapes_;  // [kind]; null: it has no state
  std::vector<Layer> layers_;
  std::vector<StateScratch> scratch_;  // [thread]
  std::deque<std::vector<StateHead>> heads_;
  std::deque<StateOperand> operands_;
};

}  // namespace larder::attention_node
