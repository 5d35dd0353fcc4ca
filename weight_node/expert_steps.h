// The steps of a mixture of experts (model::ExpertSpec): their operands, fixed at set-up. The
// kernels are in expert_steps_datapath.cc. After a norm's step has computed the router's logits
// (NormOperand::router) each thread sorts the rows by expert into a table of its own, so that no
// thread waits for another's; then it computes its units of gate and up of each expert that was
// chosen for some row, and behind a barrier its panels of down, whose products it adds up, experts
// ascending, before they are added to the residual.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/gemm/gemm.h"
#include "kernels/rows/elementwise.h"
#include "weight_node/activations.h"
#include "weight_node/routing/expert_counters.h"
#include "weight_node/routing/routing.h"
#include "weight_node/weight_steps.h"

namespace larder::weight_node {

// The logits of a norm's rows, for its step.
struct RouterOperand {
  const kernels::Elementwise* elementwise;
  RouterRule rule;
  struct Rows {
    const float* weights;  // [count][dim]
    const float* biases;   // [count], or null
    uint32_t first, count;
  };
  const Rows* rows;  // [n_rows]: all, or this thread's
  size_t n_rows;
  FloatRows logits;  // of all rows; unused if this thread chooses
  // For micro-batches whose rows threads share: the thread has all logits of its rows, and chooses.
  bool chooses;
  ChosenRows chosen;
  float *scratch, *by;  // [RouterFloats]
};
// Of row m, whose norm is x[n].
void RouteRow(const RouterOperand&, const float* x, size_t n, size_t m);

// Sorts the rows by expert; before that chooses for all rows, unless their norm's threads have.
struct RouteOperand {
  const kernels::Elementwise* elementwise;
  RouterRule rule;
  FloatRows logits;
  bool chooses;
  ChosenRows chosen;
  float *scratch, *by;  // [RouterFloats]
  RoutingTable table;
  ExpertCounters::Layer* counters;  // null: another thread counts
};
void RouteStep(const void* operand, void* batch);

// A unit of experts' gate and up.
struct ExpertUnit {
  const uint8_t* panels;
  const float* biases;  // [unit_panels * 16], in the tile's order; or null
};

// out[pair][block] = quantise(gate(gate) * up) for this thread's units of each expert's rows: those
// that it keeps, or its share of all units of the chosen experts.
struct ExpertFfnOperand {
  const kernels::Gemm* gemm;
  const kernels::Elementwise* elementwise;
  kernels::GateFn gate;
  const ExpertUnit* units;  // `first` to `end` in LayerShape's order
  uint32_t unit_panels;
  uint32_t first, end;
  RowShare share;  // 1 thread: all of `first` to `end`; else that part of the chosen ones' work
  size_t experts;
  const RoutingTable* table;
  ActRows x;
  FloatRows tile;
  ActRows out;
};
void ExpertFfnStep(const void* operand, void* batch);

// x[m][16 * panels] += sum over experts of weight * (z[pair] * panels + bias), experts ascending,
// from +0: sum = fma(weight, y, sum); then the shared expert's.
struct ExpertDownOperand {
  const kernels::Gemm* gemm;
  const kernels::Elementwise* elementwise;
  const uint8_t* panels;  // of expert 0
  size_t expert_bytes;    // between two experts' panels
  const float* biases;    // of expert 0, or null
  size_t bias_stride;     // floats between two experts' biases
  size_t n_panels;
  size_t experts;
  const RoutingTable* table;
  ActRows z;          // [pair]
  FloatRows y, sums;  // this thread's own
  FloatRows x;        // data points at this thread's first column
  bool adds = true;   // false: x becomes the sum
  struct Shared {
    const kernels::Gemm* gemm;  // null: no shared expert
    const uint8_t* panels;
    ActRows z;             // [row]
    const float* weights;  // [row]
  } shared;
};
void ExpertDownStep(const void* operand, void* batch);

}  // namespace larder::weight_node
