// The steps of a weight socket: the operands of a Program's kernels, fixed at set-up. All addresses
// stay valid as long as the Program. The kernels are in weight_steps_datapath.cc. Their argument
// `batch` is a model::BatchRows, either a whole micro-batch (embedding, logits) or a part of one:
// row m of it is row first_row + m of every buffer.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/range.h"
#include "kernels/gemm/gemm.h"
#include "kernels/rows/elementwise.h"
#include "model/gguf/formats.h"
#include "weight_node/activations.h"

namespace larder::weight_node {

// The rows that a step handles: share `thread` of `threads` contiguous ones; {0, 1} is all rows.
struct RowShare {
  uint32_t thread = 0;
  uint32_t threads = 1;
};

// x[m] = the embedding of token[m]. Its rows are blocks as the file has them, or (tied embeddings)
// lie in lm_head's panels, which are spread over the threads' shards.
struct EmbedOperand {
  const char* table;                     // [vocab] rows of table_type, or null
  model::TensorType table_type;          // quantised
  const uint8_t* const* lm_head_panels;  // [threads]: first panel of each thread's part of lm_head
  const uint32_t* head_first_panel;      // [threads + 1]
  kernels::PanelShape head_panel;        // a row of the table has the same number of blocks
  size_t dim;
  FloatRows x;
  float* scratch;  // [dim], padded to blocks
  RowShare share;
  float scale;  // multiplies all elements
};
void EmbedStep(const void* operand, void* batch);

// A token's layer inputs (model::LayerSpec::input_size), of which x has the products: each layer's
// part of x[m] = (norm(x[m]) + row_scale * the token's row) * scale.
struct InputsOperand {
  const kernels::Elementwise* elementwise;
  const char* table;  // [vocab] rows of table_type
  model::TensorType table_type;
  const float* weight;  // [size]: of the norm
  float epsilon, row_scale, scale;
  size_t size, layers;
  FloatRows x;
  float* scratch;  // [layers * size], padded to blocks
  RowShare share;
};
void InputsStep(const void* operand, void* batch);

// Copies the residual, or layer inputs, from the previous stage or to the next one: columns [first,
// first + count) of all rows, whose columns begin at `at` in a row of the message, of `row_floats`.
// logit_rows: only the rows whose logits are wanted are sent, in their order.
struct TransferOperand {
  FloatRows x;
  size_t row_floats, at;
  size_t first, count;
  bool logit_rows;
};
void ReceiveStep(const void* operand, void* batch);
void SendStep(const void* operand, void* batch);

// Further norms of the same rows, where experts stand beside an FFN: their input, and the router's.
struct ExpertNorms {
  const float* weight;
  ActRows out;
  const float* router_weight;
  const struct RouterOperand* router;
};

// out[m] = quantise(norm(x[m])). If there are planes, which are lm_head's: only the rows whose
// logits are wanted.
struct NormOperand {
  const kernels::Elementwise* elementwise;
  kernels::NormsFn norms;
  FloatRows x;
  const float* weight;
  size_t n;
  float epsilon;
  float* scratch;  // [kNormRows][n]
  ActRows out;
  RowShare share;
  const HeadPlanes* planes;                      // written instead of out; or null
  const struct RouterOperand* router = nullptr;  // takes the norms, too
  const ExpertNorms* experts = nullptr;
};
void NormStep(const void* operand, void* batch);

// to[m] = (x[m] + norm(y[m])) * scale, and y is overwritten. to may be x.
struct AddNormOperand {
  const kernels::Elementwise* elementwise;
  kernels::NormsFn norms;
  FloatRows x, y, to;
  const float* weight;
  const float* scale;  // a number; null: 1
  size_t n;
  float epsilon;
  RowShare share;
};
void AddNormStep(const void* operand, void* batch);

// a[m] = norm(a[m]) + norm(b[m]), and b is overwritten.
struct AddNormsOperand {
  const kernels::Elementwise* elementwise;
  kernels::NormsFn norms;
  FloatRows a, b;
  const float *a_weight, *b_weight;
  size_t n;
  float epsilon;
  RowShare share;
};
void AddNormsStep(const void* operand, void* batch);

// As AddNormStep without a barrier behind it: each thread computes all rows for itself, writes its
// columns [first, first + count) of them to `to`, which is not x, and goes on: out[m] =
// quantise(norm((x[m] + norm(y[m])) * scale)), or without the outer norm.
struct AddNormInputOperand {
  const kernels::Elementwise* elementwise;
  kernels::NormsFn norms;
  FloatRows x, y, to;
  const float* weight;
  const float* scale;  // a number; null: 1
  float epsilon;
  size_t n, first, count;
  const float* next_weight;  // of the norm of the sum; or null
  kernels::NormsFn next_norms;
  float next_epsilon;
  float* scratch;  // [kNormRows][n]
  ActRows out;
};
void AddNormInputStep(const void* operand, void* batch);

// The norms of all query heads of a row together, and of all of its key heads; values stay as they
// are. A row of x and of to has groups of `queries` elements of query heads, then `keys` of a key
// head and of a value head.
struct RowNormOperand {
  const kernels::Elementwise* elementwise;
  FloatRows x, to;
  size_t groups, group_stride;
  size_t queries, keys;
  const float *q_weight, *k_weight;  // in the order of the groups
  float epsilon;
  float* scratch;  // [groups * queries]
  RowShare share;
  const uint32_t* written;  // [n_written]: the groups that this thread writes
  size_t n_written;
};
void RowNormStep(const void* operand, void* batch);

// y of each head = its panels * quantise(x of the head): products of one matrix whose heads have
// inputs of their own. logit_rows: x of the rows whose logits are wanted, y from the first row on.
struct HeadProductOperand {
  const kernels::Gemm* gemm;
  const kernels::Elementwise* elementwise;
  const uint8_t* panels;
  size_t first_panel, n_panels;
  FloatRows x, y;
  size_t x_stride, y_stride;  // floats between heads
  size_t inputs, outputs;     // of a head; if the latter are no whole panels, they come by `tile`
  FloatRows tile;             // [kHeadRows]
  ActRows act;                // [kHeadRows]
  bool logit_rows;
};
void HeadProductStep(const void* operand, void* batch);

// Of latent attention (model::LatentSpec), for each row: t of each head from `queries` to the
// beginning of the head in `to`; behind the heads r and norm(c) from x.
struct LatentOperand {
  const kernels::Elementwise* elementwise;
  FloatRows x, queries, to;
  size_t heads, query_stride, head_stride;  // floats between heads of queries, of `to`
  size_t first_rotated, rotated;            // t in a head of queries
  size_t key, rank;                         // where r and c begin in a row of x
  const float* weight;                      // [rank]
  float epsilon;
  RowShare share;
};
void LatentStep(const void* operand, void* batch);

// Moves the rows whose logits are wanted to the beginning: bytes [first, first + count) of each.
struct KeepOperand {
  std::byte* rows;
  size_t stride_bytes;
  size_t first, count;
};
void KeepStep(const void* operand, void* batch);

// out[m] = quantise(x[m]). logit_rows: as HeadProductOperand.
struct QuantizeOperand {
  const kernels::Elementwise* elementwise;
  FloatRows x;
  size_t n;
  ActRows out;
  RowShare share;
  bool logit_rows;
};
void QuantizeStep(const void* operand, void* batch);

// The same for columns [first, first + n), behind an RMS norm of each of `groups` equal parts of
// them. `first` is a multiple of kBlock.
struct GroupNormOperand {
  const kernels::Elementwise* elementwise;
  FloatRows x;
  const float* weight;  // [n]
  size_t first, groups, n;
  float epsilon;
  float* scratch;  // [kNormRows][n]
  ActRows out;
  RowShare share;
  bool logit_rows;
};
void GroupNormStep(const void* operand, void* batch);

// y[m][16 * panels] (+)= x[m] * panels (+ bias). y.data points at this thread's first column.
struct ProductOperand {
  const kernels::Gemm* gemm;
  const kernels::Elementwise* elementwise;
  const uint8_t* panels;
  size_t n_panels;
  const float* bias;  // or null
  ActRows x;
  FloatRows y;
};
void ProductStep(const void* operand, void* batch);

// logits[m][16 * panels] = P0(x[m]) * panels, for the rows whose logits are wanted, and the largest
// of each panel.
struct HeadOperand {
  const kernels::Gemm* gemm;
  const kernels::Elementwise* elementwise;
  const uint8_t* panels;
  size_t first_panel, n_panels;  // panels of lm_head
  size_t vocab;
  HeadPlanes x;
  FloatRows logits, largest;  // [vocab padded to 16], [panels]: for the whole lm_head
  float cap;                  // Scales::logit_cap
};
void HeadStep(const void* operand, void* batch);
// After all threads' HeadSteps: logits[m][16 * panel] += P1(x[m]) * panel for the likely panels
// among the operand's (likely_panels.h). Then all of the operand's logits get their cap.
void RefineStep(const void* operand, void* batch);

// y[m][n] += each part's rows in turn: the sums of the other chunks of a panel that is cut.
struct AddPartsOperand {
  const kernels::Elementwise* elementwise;
  FloatRows y;
  size_t n;
  const FloatRows* parts;  // [n_parts], ascending by chunk
  size_t n_parts;
};
void AddPartsStep(const void* operand, void* batch);

// out[m][0] = quantise(gate(gate) * up) of one unit, whose panel is cut.
struct GateOperand {
  kernels::GateFn gate;
  uint32_t unit_panels;
  FloatRows tile;  // 32 gate, 32 up
  ActRows out;
};
void GateStep(const void* operand, void* batch);

// out[m][block] = quantise(gate(gate) * up) for this thread's units. out.data points at its first
// block. logit_rows: of the logit rows alone.
struct FfnOperand {
  const kernels::Gemm* gemm;
  const kernels::Elementwise* elementwise;
  kernels::GateFn gate;
  const uint8_t* units;
  uint32_t unit_panels;
  size_t n_units;
  const float* biases;  // [n_units][unit_panels * 16], in the tile's order; or null
  ActRows x;
  FloatRows tile;
  ActRows out;
  bool logit_rows;
};
void FfnStep(const void* operand, void* batch);

// out[m][block] = quantise(gate(gate) * inputs) for this thread's units of a layer input's gate.
// inputs.data points at the layer's part of inputs.
struct InputGateOperand {
  const kernels::Gemm* gemm;
  kernels::GateFn gate;
  const uint8_t* units;  // of 2 panels
  Range<size_t> blocks;  // units, and blocks of the layer's inputs
  size_t size;           // of these
  ActRows x;
  FloatRows inputs;
  FloatRows tile;  // 32 gate, 32 inputs
  ActRows out;
};
void InputGateStep(const void* operand, void* batch);

}  // namespace larder::weight_node
