// Kernels of layers that have a state instead of keys and values: short convolutions, the gated
// delta rule, and the state space of Mamba-2. There is one struct of function pointers per
// instruction set; all sets give the same bits, and the scalar set (reference.cc) defines them, as
// in kernels/rows/elementwise.h, whose Exp is used here, too. Tokens are computed one after the
// other, each from the state that the one before has left: a cut of a prompt moves no bit.
//
// The gated delta rule (Yang, Kautz and Hatamizadeh 2024, arXiv 2412.06464, eq. 10) for one value
// head with a state S [key size][value size], per token with decay g, rate beta, unit key k:
//   S' = g S,  d = beta (v - S'^T k),  S = S' + k d^T,  out = S^T q.
// The state is kept as T and a number G, S = G T, so that a decay is one multiplication of G. Where
// G would fall below kLeastScale, T is multiplied by it, and G becomes 1: which tokens these are
// depends only on the decays.
//
// Mamba-2 (Dao and Gu 2024, arXiv 2405.21060) for one head with a state S [state size][head size],
// per token with decay g and step r: S' = g S + B (r x)^T, out = S'^T C + skip * x.
#pragma once

#include <cstddef>

#include "kernels/formats/isa.h"

namespace larder::kernels::inline recurrent {

// Columns of a state that lie together, and that one call of delta_rule computes.
inline constexpr size_t kStateColumns = 32;
// A state's key size is a multiple of this.
inline constexpr size_t kStateRows = 4;
inline constexpr float kLeastScale = 0x1p-32f;

// Consecutive tokens of one sequence, and kStateColumns columns of one value head. Strides are in
// floats.
struct DeltaRun {
  float* state;          // T: [key_size][kStateColumns]
  const float* keys;     // [tokens][key_stride]
  const float* queries;  // [tokens][key_stride]
  const float* values;   // [tokens][value_stride]
  float* out;            // [tokens][out_stride]
  const float* scales;   // [tokens]: G of each token, after its decay
  const float* rates;    // [tokens]: beta / G
  size_t key_size, tokens;
  size_t key_stride, value_stride, out_stride;
  float first;  // multiplies T before the first token: 1, or the G that it takes up
};

// Columns of a Mamba-2 state that lie together, and that one call of mamba2 computes.
inline constexpr size_t kMambaColumns = 16;

// Consecutive tokens of one sequence, and kMambaColumns columns of one head. Strides are in floats.
struct MambaRun {
  float* state;          // S: [state_size][kMambaColumns]
  const float* inputs;   // B: [tokens][stride]
  const float* outputs;  // C: [tokens][stride]
  const float* values;   // x: [tokens][value_stride]
  float* out;            // [tokens][out_stride]
  const float* decays;   // [tokens]
  const float* steps;    // [tokens]
  size_t state_size, tokens;
  size_t stride, value_stride, out_stride;
  float skip;
};

struct Recurrent {
  Isa isa;

  // y[t][c] = s / (1 + Exp(-s)), s = w[0][c] * x[0][c], then fma(w[j][c], x[j][c], s) for j
  // ascending, x[j] being inputs[t + j]: for each of `tokens` tokens, and n channels. inputs: the
  // rows of the taps - 1 tokens before the first, then those of the tokens; y_stride: floats
  // between rows of y. w: [taps][n].
  void (*convolve)(const float* const* inputs, const float* w, size_t taps, float* y,
                   size_t y_stride, size_t tokens, size_t n);
  // The same with s + w[taps][c] in the place of s: w is [taps + 1][n].
  void (*convolve_biased)(const float* const* inputs, const float* w, size_t taps, float* y,
                          size_t y_stride, size_t tokens, size_t n);
  // The same as convolve with y[t][c] = s.
  void (*convolve_alone)(const float* const* inputs, const float* w, size_t taps, float* y,
                         size_t y_stride, size_t tokens, size_t n);

  // decays[t] = Exp(a * softplus(alpha[t] + bias)), rates[t] = 1 / (1 + Exp(-beta[t])); softplus(x)
  // = (x > 0 ? x : +0) + log(1 + e), e = Exp(-|x|), log(1 + e) = 2 z P(z^2), z = e / (2 + e), P the
  // series of the hyperbolic area tangent up to its ninth term, in Horner's scheme with fma.
  void (*delta_gates)(const float* alpha, const float* beta, float a, float bias, float* decays,
                      float* rates, size_t n);

  // T[i][c] = T[i][c] * first, for all i. Then for each token t and column c:
  //   p = p0 + p1, pj the fma chain over the rows i = j mod 2 of T[i][c] * key[i], from +0;
  //   u = fma(-scales[t], p, value[c]) * rates[t];
  //   T[i][c] = fma(key[i], u, T[i][c]); o = o0 + o1, summed like p, of T[i][c] * query[i];
  //   out[c] = o * scales[t].
  // tokens >= 1.
  void (*delta_rule)(const DeltaRun*);

  // steps[t] = softplus(alpha[t] + bias), decays[t] = Exp(a * steps[t]).
  void (*mamba_gates)(const float* alpha, float a, float bias, float* decays, float* steps,
                      size_t n);

  // For each token t and column c, with u = values[t][c] * steps[t]:
  //   S[i][c] = fma(inputs[t][i], u, S[i][c] * decays[t]);
  //   y = y0 + y1, yj the fma chain over the rows i = j mod 2 of S[i][c] * outputs[t][i], from +0;
  //   out[c] = fma(skip, values[t][c], y).
  // tokens >= 1, state_size a multiple of kStateRows.
  void (*mamba2)(const MambaRun*);

  // y[i] = y[i] * (gate[i] / (1 + Exp(-gate[i]))).
  void (*silu_gate)(float* y, const float* gate, size_t n);
  // y[i] = y[i] / (1 + Exp(-gate[i])).
  void (*sigmoid_gate)(float* y, const float* gate, size_t n);
  // y[i] = a[i] * b[i]. y may be a or b.
  void (*multiply)(const float* a, const float* b, float* y, size_t n);
};

// The set for `isa`, generated once per process and checked against the scalar set. Throws Error as
// GetElementwise does.
const Recurrent& GetRecurrent(Isa);

}  // namespace larder::kernels::recurrent
