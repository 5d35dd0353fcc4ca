// Activations: the buffers of one socket that its threads share while a frame runs, and those that each
// thread has for itself. Allocated once; every row count is at most what the constructor was told. Who writes
// what, and when, is ordered by the steps' flags and barriers (weight_steps.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "model/config/config.h"
#include "topology/arena.h"
#include "weight_node/shard_plan.h"

namespace larder::weight_node {

// Floats, [rows][stride]. Strides are an odd number of cache lines (rows must not share an L1 set).
struct FloatRows {
  float* data = nullptr;
  size_t stride = 0;
  float* row(size_t m) const { return data + m * stride; }
  size_t stride_bytes() const { return stride * sizeof(float); }
};

// kernels::ActBlock rows.
struct ActRows {
  uint8_t* data = nullptr;
  size_t stride_bytes = 0;
  uint8_t* row(size_t m) const { return data + m * stride_bytes; }
};

struct ThreadActivations {
  ActRows dim;         // normalised and quantised residual: input of QKV, gate/up and the head
  ActRows q;           // quantised attention output: input of O
  FloatRows ffn_tile;  // one FFN unit: 32 gate, 32 up
  float* scratch;      // [dim], padded to blocks
};

// The rows that weights and attention exchange. Colocated, Activations allocates them; separated, they lie in
// memory that both sockets map (pipeline/stage/exchange.h), with the same strides.
struct AttentionIoRows {
  FloatRows qkv;   // [kv_heads][group_panels * 16]: LayerShape's order
  FloatRows attn;  // attention output, [heads * head_size]
};
size_t QkvStride(const LayerShape&);           // floats
size_t AttnStride(const model::ModelConfig&);  // floats

class Activations {
 public:
  // decode_rows: rows up to which every thread quantises for itself; prefill_rows: the most rows of a frame;
  // logit_rows: the most logits; shared: qkv and attn if they lie elsewhere, else null.
  Activations(const model::ModelConfig&, const LayerShape&, size_t threads, size_t decode_rows,
              size_t prefill_rows, size_t logit_rows, NumaNodeId node, const AttentionIoRows* shared);

  FloatRows x;                   // residual, [dim]
  FloatRows qkv;                 // [kv_heads][group_panels * 16]: LayerShape's order
  FloatRows attn;                // attention output, [heads * head_size]
  ActRows ffn;                   // gated and quantised, [ffn]
  FloatRows logits;              // [vocab padded to 16]
  ActRows shared_dim, shared_q;  // as ThreadActivations', for frames of more than decode_rows rows
  std::vector<ThreadActivations> threads;
  size_t decode_rows, prefill_rows, logit_rows;
  size_t bytes() const { return arena_.bytes(); }

 private:
  topology::Arena arena_;
};

}  // namespace larder::weight_node
