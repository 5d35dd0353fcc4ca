// Activations: the buffers of one socket, both those that its threads share while a micro-batch
// runs and those of each thread. Allocated once; no micro-batch may have more rows than the
// constructor was given. The steps' flags and barriers order all accesses (weight_steps.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/config/config.h"
#include "topology/arena.h"
#include "weight_node/routing/routing.h"
#include "weight_node/shard_plan.h"

namespace larder::weight_node {

// Where up begins in the tile of a unit (LayerShape): at its beginning where there is no gate, in
// whose place it is.
constexpr size_t UpInTile(uint32_t unit_panels) { return (unit_panels - 2) * kernels::kPanelRows; }

// Floats, [rows][stride]. Strides are an odd number of cache lines, so that rows do not share an L1
// set.
struct FloatRows {
  float* data = nullptr;
  size_t stride = 0;
  float* row(size_t m) const { return data + m * stride; }
  size_t stride_bytes() const { return stride * sizeof(float); }
};

// Rows of kernels::ActBlock.
struct ActRows {
  uint8_t* data = nullptr;
  size_t stride_bytes = 0;
  uint8_t* row(size_t m) const { return data + m * stride_bytes; }
};

// A row x of lm_head's input in two planes: P0 = quantise(x), and P1 = quantise(x - d * q of P0),
// the rounding error of P0, element by element.
struct HeadPlanes {
  ActRows plane[2];
};

// Rows of a head that are multiplied at a time (HeadProductOperand).
inline constexpr size_t kHeadRows = 64;

struct ThreadActivations {
  ActRows dim;          // normalised and quantised residual: input of QKV and gate/up
  ActRows expert_dim;   // the same of experts beside an FFN
  HeadPlanes head;      // the same for lm_head
  ActRows q;            // quantised attention output: input of O
  ActRows latent;       // of latent attention: input of query up
  ActRows of_head;      // of latent attention: a head's input of key up or value up, [kHeadRows]
  FloatRows head_tile;  // what the latter gives, if that is no multiple of 16, [kHeadRows]
  FloatRows ffn_tile;   // one FFN unit: 32 gate, 32 up
  float* scratch;       // [kNormRows][dim], each padded to blocks; or a row's queries, or rows of
                        // attention's output, if their norms need that, or all layers' inputs
};

// The rows that weights and attention exchange. Colocated, Activations allocates them; separated,
// they lie in memory that both sockets map (pipeline/stage/exchange.h), with the same strides.
struct AttentionIoRows {
  FloatRows qkv;   // [kv_heads][group_panels * 16], in LayerShape's order
                   // of latent attention [heads + 1][head size]: queries, and the key
  FloatRows attn;  // attention output, [model::LayerSpec::attended_size]
};
size_t OddStride(size_t floats);  // the stride of rows of that many floats
// Strides in floats, for the layer with the longest rows.
size_t QkvStride(const model::ModelConfig&);
size_t AttnStride(const model::ModelConfig&);

// Up to this many rows it pays that each of n threads normalises and quantises all rows for itself.
// With more, sharing the rows is faster in spite of the barrier that is then needed after each
// norm. A model of the costs, and a pure function, because all processes of a stage must agree; see
// activations.cc.
size_t OwnNormRows(const model::ModelConfig&, size_t n_threads);

class Activations {
 public:
  // few_rows: up to this number of rows every thread quantises for itself; max_batch_tokens: the
  // most rows of a micro-batch; logit_rows: the most rows with logits; shared: qkv and attn if they
  // lie elsewhere, else null.
  // What a thread has alone lies on its node, the rest on the first thread's.
  Activations(const model::ModelConfig&, std::span<const NumaNodeId> node_of_thread,
              size_t few_rows, size_t max_batch_tokens, size_t logit_rows,
              const AttentionIoRows* shared);

  FloatRows x;  // residual, [dim]
  // Where a norm follows O and down: their output, [dim]; and the residual between the two, and
  // before what a layer input adds, of micro-batches of up to few_rows rows.
  FloatRows attention_branch, ffn_branch, between[2];
  FloatRows expert_branch;  // the sum of experts beside an FFN
  FloatRows inputs;         // all layers' inputs (model::LayerSpec::input_size)
  FloatRows projected;      // q, k and v before norms of whole rows, in LayerShape's order; or
                            // of latent attention
  FloatRows queries;        // of latent attention with a query_rank: what query up gives
  FloatRows valued;         // of latent attention: what value up gives
  FloatRows qkv, attn;      // AttentionIoRows
  ActRows ffn;              // gated and quantised, [ffn] of layers without experts, or of a
                            // layer input
  FloatRows logits;         // [vocab padded to 16]
  FloatRows largest;        // the largest logit of each of lm_head's panels
  // like ThreadActivations', for more than few_rows rows
  ActRows shared_dim, shared_q, shared_latent;
  ActRows shared_expert_dim;
  HeadPlanes shared_head;
  std::vector<ThreadActivations> threads;
  size_t few_rows, max_batch_tokens, logit_rows;
  size_t bytes() const { return arenas_.bytes(); }
  const topology::NodeArenas& arenas() const { return arenas_; }

 private:
  topology::NodeArenas arenas_;
};

// The buffers of experts' steps. Empty in models without them.
class ExpertBuffers {
 public:
  // most_columns: the most columns of down that a thread computes in a step.
  // Nodes as of Activations.
  ExpertBuffers(const model::ModelConfig&, std::span<const NumaNodeId> node_of_thread,
                size_t few_rows, size_t max_batch_tokens, size_t most_columns);

  struct OfThread {
    ChosenRows chosen;  // of up to few_rows rows
    float *scratch = nullptr, *by = nullptr;
    RoutingTable table;
    FloatRows y, sums;
  };
  FloatRows logits;   // [RouterFloats]
  ChosenRows chosen;  // of all rows
  ActRows z, shared_z;
  std::vector<OfThread> threads;
  size_t bytes() const { return arenas_.bytes(); }
  const topology::NodeArenas& arenas() const { return arenas_; }

 private:
  topology::NodeArenas arenas_;
};

}  // namespace larder::weight_node
