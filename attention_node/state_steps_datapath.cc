#include <algorithm>
#include <array>

#include "attention_node/state_steps.h"
#include "model/step/batch_rows.h"
#include "model/step/step_kind.h"
#include "threadpool/timeline.h"

namespace larder::attention_node {
namespace {

using kernels::DeltaRun;
using kernels::kMambaColumns;
using kernels::kStateColumns;
using kernels::MambaRun;
using model::BatchRows;

// Consecutive rows of one slot, at most kStateTokens.
struct Tokens {
  SlotId slot;
  size_t row, count;  // in the shared buffers
};

void Clear(const StateShape::Layer& of, const HeadState& state) {
  std::fill_n(state.matrix, of.matrix_floats, 0.0f);
  *state.scale = 1.0f;
  std::fill_n(state.tail, of.tail_rows * of.tail_row, 0.0f);
}

// The rows that the convolution of a part sees: those before the tokens, which the state has, then
// theirs. Columns of the part begin at `in_tail` and, of the products, at `in_row`.
class Inputs {
 public:
  Inputs(const StateShape::Layer& of, const HeadState& state, size_t in_tail, const float* row,
         size_t stride, size_t tokens) {
    const float** next = rows_.data();
    for (size_t t = 0; t < of.tail_rows; ++t) *next++ = state.tail + t * of.tail_row + in_tail;
    for (size_t t = 0; t < tokens; ++t) *next++ = row + t * stride;
  }
  Inputs(const StateOperand& op, const Tokens& tokens, const HeadState& state, size_t in_tail,
         size_t in_row)
      : Inputs(op.shape->states->shape().layers[op.layer], state, in_tail,
               op.qkv + tokens.row * op.qkv_stride + in_row, op.qkv_stride, tokens.count) {}
  const float* const* rows() const { return rows_.data(); }

  // The last rows become those before the next token.
  void Keep(float* tail, size_t tail_row, size_t tail_rows, size_t tokens, size_t n) const {
    for (size_t t = 0; t < tail_rows; ++t) std::copy_n(rows_[tokens + t], n, tail + t * tail_row);
  }

 private:
  std::array<const float*, kMaxTaps - 1 + kStateTokens> rows_;
};

// Queries and keys: convolved, and with the delta rule each as long as it must be.
void MakeKeys(const StateOperand& op, const Tokens& tokens, const HeadState& state) {
  const RecurrentShape& shape = *op.shape;
  const size_t row = 2 * shape.key_size;
  shape.convolve(Inputs(op, tokens, state, 0, 0).rows(), op.convolution, shape.taps,
                 op.scratch.keys, row, tokens.count, row);
  if (shape.kind != model::StateKind::kDeltaRule) return;
  float* x[kernels::kNormRows];
  for (const float* weight : {shape.query_weight, shape.key_weight}) {
    const size_t first = weight == shape.query_weight ? 0 : shape.key_size;
    for (size_t t = 0; t < tokens.count;) {
      const size_t count = std::min(tokens.count - t, kernels::kNormRows);
      for (size_t i = 0; i < count; ++i) x[i] = op.scratch.keys + (t + i) * row + first;
      shape.elementwise->rms_norms(x, weight, x, count, shape.key_size, shape.unit_epsilon);
      t += count;
    }
  }
}

// G of each token and beta / G. A run of tokens ends before one whose G would be too small: there T
// takes up what G was.
struct Scales {
  float scale[kStateTokens], rate[kStateTokens];
  float first[kStateTokens];  // DeltaRun::first of a run that begins there
  bool begins[kStateTokens];

  void Make(const StateOperand& op, const StateHead& head, const Tokens& tokens, float* g) {
    const RecurrentShape& shape = *op.shape;
    float alpha[kStateTokens], beta[kStateTokens];
    for (size_t t = 0; t < tokens.count; ++t) {
      const float* const row = op.qkv + (tokens.row + t) * op.qkv_stride;
      alpha[t] = row[shape.alpha(head.index)];
      beta[t] = row[shape.beta(head.index)];
    }
    shape.recurrent->delta_gates(alpha, beta, head.decay, head.bias, scale, rate, tokens.count);
    for (size_t t = 0; t < tokens.count; ++t) {
      const float next = *g * scale[t];
      const bool stays = next >= kernels::kLeastScale;  // NaN does not
      begins[t] = t == 0 || !stays;
      first[t] = stays ? 1.0f : next;
      *g = stays ? next : 1.0f;
      scale[t] = *g;
      rate[t] = rate[t] / *g;
    }
  }
};

void MakeValues(const StateOperand& op, const StateHead& head, const Tokens& tokens,
                const HeadState& state) {
  const RecurrentShape& shape = *op.shape;
  shape.convolve(Inputs(op, tokens, state, 2 * shape.key_size, shape.value(head.index)).rows(),
                 head.convolution, shape.taps, op.scratch.values, shape.size, tokens.count,
                 shape.size);
}

// A head's output of a token, times SiLU of its gate.
void Gate(const StateOperand& op, const StateHead& head, size_t row) {
  const RecurrentShape& shape = *op.shape;
  shape.recurrent->silu_gate(head.out + row * op.out_stride,
                             op.qkv + row * op.qkv_stride + shape.gate(head.index), shape.size);
}

void RunDeltaHead(const StateOperand& op, const StateHead& head, const Tokens& tokens,
                  const HeadState& state) {
  const RecurrentShape& shape = *op.shape;
  Scales scales;
  scales.Make(op, head, tokens, state.scale);
  for (size_t column = 0; column < shape.size; column += kStateColumns) {
    for (size_t begin = 0, end = 0; begin < tokens.count; begin = end) {
      for (end = begin + 1; end < tokens.count && !scales.begins[end];) ++end;
      const DeltaRun run{.state = state.matrix + column * shape.key_size,
                         .keys = op.scratch.keys + begin * 2 * shape.key_size + shape.key_size,
                         .queries = op.scratch.keys + begin * 2 * shape.key_size,
                         .values = op.scratch.values + begin * shape.size + column,
                         .out = head.out + (tokens.row + begin) * op.out_stride + column,
                         .scales = scales.scale + begin,
                         .rates = scales.rate + begin,
                         .key_size = shape.key_size,
                         .tokens = end - begin,
                         .key_stride = 2 * shape.key_size,
                         .value_stride = shape.size,
                         .out_stride = op.out_stride,
                         .first = scales.first[begin]};
      shape.recurrent->delta_rule(&run);
    }
  }
  float* out[kernels::kNormRows];
  for (size_t t = 0; t < tokens.count;) {
    const size_t count = std::min(tokens.count - t, kernels::kNormRows);
    for (size_t i = 0; i < count; ++i) out[i] = head.out + (tokens.row + t + i) * op.out_stride;
    shape.elementwise->rms_norms(out, op.norm, out, count, shape.size, shape.epsilon);
    for (size_t i = 0; i < count; ++i) Gate(op, head, tokens.row + t + i);
    t += count;
  }
}

void RunMambaHead(const StateOperand& op, const StateHead& head, const Tokens& tokens,
                  const HeadState& state) {
  const RecurrentShape& shape = *op.shape;
  float alpha[kStateTokens], decays[kStateTokens], steps[kStateTokens];
  for (size_t t = 0; t < tokens.count; ++t)
    alpha[t] = std::max(op.qkv[(tokens.row + t) * op.qkv_stride + shape.step(head.index)],
                        shape.least_input - head.bias);
  shape.recurrent->mamba_gates(alpha, head.decay, head.bias, decays, steps, tokens.count);
  for (size_t column = 0; column < shape.size; column += kMambaColumns) {
    const MambaRun run{.state = state.matrix + column * shape.key_size,
                       .inputs = op.scratch.keys + shape.key_size,
                       .outputs = op.scratch.keys,
                       .values = op.scratch.values + column,
                       .out = head.out + tokens.row * op.out_stride + column,
                       .decays = decays,
                       .steps = steps,
                       .state_size = shape.key_size,
                       .tokens = tokens.count,
                       .stride = 2 * shape.key_size,
                       .value_stride = shape.size,
                       .out_stride = op.out_stride,
                       .skip = head.skip};
    shape.recurrent->mamba2(&run);
  }
  for (size_t t = 0; t < tokens.count; ++t) Gate(op, head, tokens.row + t);
}

// States that are matrices: the delta rule's and Mamba-2's.
void Matrices(const StateOperand& op, const Tokens& tokens) {
  const RecurrentShape& shape = *op.shape;
  const StateShape::Layer& of = shape.states->shape().layers[op.layer];
  MakeKeys(op, tokens, shape.states->head(tokens.slot, op.layer, op.heads[0].head));
  for (size_t i = 0; i < op.n_heads; ++i) {
    const StateHead& head = op.heads[i];
    const HeadState state = shape.states->head(tokens.slot, op.layer, head.head);
    MakeValues(op, head, tokens, state);
    shape.kind == model::StateKind::kMamba2 ? RunMambaHead(op, head, tokens, state)
                                            : RunDeltaHead(op, head, tokens, state);
    const size_t keys = 2 * shape.key_size;
    Inputs(op, tokens, state, 0, 0).Keep(state.tail, of.tail_row, of.tail_rows, tokens.count, keys);
    Inputs(op, tokens, state, keys, shape.value(head.index))
        .Keep(state.tail + keys, of.tail_row, of.tail_rows, tokens.count, shape.size);
  }
}

// C * c(B * x), of the channels of each head.
void Convolution(const StateOperand& op, const Tokens& tokens) {
  const RecurrentShape& shape = *op.shape;
  const StateShape::Layer& of = shape.states->shape().layers[op.layer];
  const size_t size = shape.size;
  for (size_t i = 0; i < op.n_heads; ++i) {
    const StateHead& head = op.heads[i];
    const HeadState state = shape.states->head(tokens.slot, op.layer, head.head);
    const float* const qkv = op.qkv + tokens.row * op.qkv_stride;
    float* const out = head.out + tokens.row * op.out_stride;
    for (size_t t = 0; t < tokens.count; ++t) {
      const float* const row = qkv + t * op.qkv_stride;
      shape.recurrent->multiply(row + shape.part(0), row + shape.part(2),
                                op.scratch.values + t * size, size);
    }
    const Inputs inputs(of, state, 0, op.scratch.values, size, tokens.count);
    shape.recurrent->convolve_alone(inputs.rows(), head.convolution, shape.taps, out, op.out_stride,
                                    tokens.count, size);
    for (size_t t = 0; t < tokens.count; ++t) {
      float* const y = out + t * op.out_stride;
      shape.recurrent->multiply(qkv + t * op.qkv_stride + shape.part(1), y, y, size);
    }
    inputs.Keep(state.tail, of.tail_row, of.tail_rows, tokens.count, size);
  }
}

void RunTokens(const StateOperand& op, const Tokens& tokens, bool begins) {
  const RecurrentShape& shape = *op.shape;
  const StateShape::Layer& of = shape.states->shape().layers[op.layer];
  for (size_t i = 0; i < op.n_heads && begins; ++i)
    Clear(of, shape.states->head(tokens.slot, op.layer, op.heads[i].head));
  switch (shape.kind) {
    case model::StateKind::kNone:
      return;
    case model::StateKind::kDeltaRule:
    case model::StateKind::kMamba2:
      return Matrices(op, tokens);
    case model::StateKind::kConvolution:
      return Convolution(op, tokens);
  }
}

}  // namespace

void StateStep(const void* operand, void* batch) {
  const auto& op = *static_cast<const StateOperand*>(operand);
  const auto& rows = *static_cast<const BatchRows*>(batch);
  for (uint32_t i = 0; i < rows.kv_updates; ++i) {
    for (size_t k = 0; k < op.n_heads; ++k)
      op.shape->states->Copy(rows.kv_update[i], op.layer, op.heads[k].head);
  }
  for (uint32_t m = 0; m < rows.rows;) {
    uint32_t end = m + 1;
    while (end < rows.rows && end - m < kStateTokens && rows.slot[end] == rows.slot[m]) ++end;
    RunTokens(op, {rows.slot[m], rows.first_row + m, end - m}, rows.position[m] == 0);
    m = end;
  }
  threadpool::EndLap(model::StepKind::kState);
}

}  // namespace larder::attention_node
