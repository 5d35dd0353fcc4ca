// AttentionNode: one socket's KV cache, and the states of recurrent layers, and the steps that use
// them. Built once. Per layer and KV head, one thread appends keys and values, and the threads that
// share the head's work (attention_share.h) attend; each waits only for the flags of the rows that
// it needs. In a recurrent layer each value head's thread updates its state (state_layers.h).
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "attention_node/attention_share.h"
#include "attention_node/attention_steps.h"
#include "attention_node/key_bias_table.h"
#include "attention_node/kv_homes.h"
#include "attention_node/kv_region.h"
#include "attention_node/state_layers.h"
#include "base/range.h"
#include "kernels/gemm/gemm.h"
#include "model/config/config.h"
#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "sync/epoch_flag.h"
#include "threadpool/program_builder.h"

namespace larder::attention_node {

struct AttentionNodeOptions {
  kernels::Isa isa;
  kernels::KernelTuning tuning = kernels::DefaultTuning(isa);
  size_t threads = 1;
  size_t slots = 1;
  size_t context = 4096;              // positions per slot
  std::vector<size_t> kv_pools = {};  // as KvShape's, of kv_classes
  std::vector<model::KvClass> kv_classes = {model::KvClass{}};
  // Each thread's scratch memory lies on its node, and so do the keys, values and states that it
  // writes; tables of rotations lie on each node, others on the first thread's. Empty: anywhere.
  std::vector<NumaNodeId> node_of_thread = {};
  NumaNodeId node(size_t thread = 0) const { return NodeOf(node_of_thread, thread); }
  size_t halves = 1;  // parts of a micro-batch that are worked on at once, each with flags of its
                      // own
  // How the waiters of the steps' signals wait, this socket's own threads.
  sync::WaitPolicy::Mode own_waiters = sync::WaitPolicy::Mode::kAdaptive;
};

// The qkv and attention-output rows that steps read and write, in the layout of the weight socket
// (or a link).
struct AttentionIo {
  float* qkv;
  size_t qkv_stride;                 // floats
  std::vector<size_t> group_stride;  // [kind of layer]: floats between KV heads in a row
  // [kind of layer]: floats between the groups of a state beside attention, which follow
  std::vector<size_t> state_stride = {};
  float* out;
  size_t out_stride;
};

class AttentionNode {
 public:
  // Throws Error if the head is too large, its tuning does not fit, or the KV region does not.
  AttentionNode(const model::ModelConfig&, const model::GgufFile&, const AttentionNodeOptions&,
                const AttentionIo&);

  Range<size_t> OwnersOf(size_t layer, size_t group) const {
    return OwnersOfGroup(config_.layer(layer), group, options_.threads);
  }

  // Adds the steps of `thread` for one layer and half. projected(kv_head): the other threads' flags
  // that announce the head's q, k and v rows; the span must live as long as the steps.
  // No step announces what this thread has attended to: a barrier or a flag must follow.
  template <typename Projected>
  void AddLayer(size_t thread, size_t layer, size_t half, threadpool::ProgramBuilder& steps,
                Projected projected) {
    const model::LayerSpec& spec = config_.layer(layer);
    for (size_t group = 0; group < spec.groups(); ++group) {
      if (!OwnersOf(layer, group).contains(thread)) continue;
      if (spec.attends() && group < spec.sizes.kv_heads) {
        AddHead(thread, layer, group, half, steps, projected(group));
      } else {
        AddState(thread, layer, group, steps, projected(group));
      }
    }
  }

  const KvRegion& kv() const { return kv_; }
  const topology::NodeArenas& scratch() const { return scratch_arenas_; }
  const topology::NodeArenas& rotations() const { return rotations_; }
  // Makes the micro-batch's changes to the KV table; call it before the steps. Each change must
  // have passed KvRegion::Check.
  void Map(const model::BatchRows& batch);

 private:
  // What the layers of one kind share.
  struct Kind {
    kernels::AttentionTuning tuning;
    kernels::Gemm scores;
    std::vector<kernels::ValuesFn> values;
    std::vector<AttentionShape> shapes;     // [node of nodes_]: of equal shape, with tables there
    std::vector<AttentionScratch> scratch;  // [threads]
    const AttentionShape& shape() const { return shapes[0]; }
  };
  // The first shape, without tables of rotations.
  std::unique_ptr<Kind> MakeKind(const model::LayerSpec&) const;
  void AddRotations();
  // What a half's threads share.
  struct Half {
    std::unique_ptr<sync::EpochFlag[]> appended;  // [kv_head]: its keys and values are in the KV
                                                  // region
    std::unique_ptr<sync::EpochFlag[]> attended;  // [thread]: its parts of split rows are written
    std::vector<float*> parts;                    // AttentionOperand::parts
  };
  void AddHead(size_t thread, size_t layer, size_t kv_head, size_t half,
               threadpool::ProgramBuilder&, std::span<sync::EpochFlag* const> projected);
  // The same for a recurrent layer.
  void AddState(size_t thread, size_t layer, size_t group, threadpool::ProgramBuilder&,
                std::span<sync::EpochFlag* const> projected);

  const model::ModelConfig config_;
  const AttentionNodeOptions options_;
  const AttentionIo io_;
  const std::vector<NumaNodeId> nodes_;  // that the threads have, ascending
  KvRegion kv_;
  const KeyBiasTable biases_;
  StateLayers state_layers_;
  topology::Arena tables_;
  topology::NodeArenas rotations_, scratch_arenas_;
  std::vector<std::unique_ptr<Kind>> kinds_;  // like the config's kinds; null: no layer here is of
                                              // that kind
  std::vector<Half> halves_;
  std::vector<const float*> q_norm_, k_norm_;  // per layer; null in models without norms of heads
  std::vector<const float*> sinks_;            // [layer]: [heads], or null
  std::deque<AppendOperand> appends_;
  std::deque<AttentionOperand> attentions_;
  std::deque<std::vector<sync::EpochFlag*>> waits_;
};

}  // namespace larder::attention_node
