// Elementwise kernels and the parts of attention: all arithmetic except matrix products. There is
// one struct of function pointers per instruction set; all sets give the same bits. The scalar set
// (reference.cc) defines them: each formula below is IEEE binary32, evaluated as written, with
// fma() only where it says fma, and nothing contracted or reassociated.
//
// Exp(x), x <= 88: if x < -87.33654f the result is +0; else n = rint(x * 0x1.715476p+0f) (to
// nearest even),
//   r = fma(n, -0x1.62e400p-1f, x), r = fma(n, -0x1.7f7d1cp-20f, r),
//   p = a polynomial of degree 6 in r (Horner, fma; coefficients in kernels/formats/numerics.h),
//   result = p * 2^n by adding n << 23 to p's bits. x > 88 is clamped to 88.
//   Relative error below 2e-7 (7.4e-8 measured).
// Sum16(v): 16 lane sums reduced as t[j] = v[j] + v[j+8]; u[j] = t[j] + t[j+4]; w[j] = u[j] +
// u[j+2];
//   the result is w[0] + w[1].
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/formats/act_block.h"
#include "kernels/formats/isa.h"
#include "kernels/formats/kv_page.h"
#include "kernels/formats/tuning.h"

namespace larder::kernels::inline rows {

// The most rows that rms_norms takes at once: a norm's sum is one chain of fused multiply-adds,
// beside which others fit.
inline constexpr size_t kNormRows = 4;

// What an FFN makes of its gate g and of up u: Gate(g) * u, Gate being kSilu: g / (1 + Exp(-g)).
// kGeluTanh: 0.5 g (1 + tanh(sqrt(2 / pi) (g
// + 0.044715 g^3))) as g / (1 + Exp(g * fma(g * g, kGeluCube, kGeluSlope))), the constants being
// those of kernels/formats/numerics.h. kRelu: g > 0 ? g : +0; an FFN without a gate has up in its
// place, which gives the square. kClamped: with g' = g < kGateLimit ? g : kGateLimit,
// u' = u < kGateLimit ? u : kGateLimit, then u' > -kGateLimit ? u' : -kGateLimit,
// g' / (1 + Exp(g' * kClampedSlope)) * (u' + 1).
enum class Gate : uint8_t { kSilu, kGeluTanh, kClamped, kRelu };
inline constexpr size_t kGates = 4;

using NormsFn = void (*)(const float* const* x, const float* w, float* const* y, size_t rows,
                         size_t n, float epsilon);
using GateFn = void (*)(const float* gate, const float* up, size_t stride, ActBlock* out,
                        size_t out_stride, size_t rows);

struct Elementwise {
  Isa isa;

  // For each of `rows` rows: y[n] = (x[n] * r) * w[n], r = 1 / sqrt(Sum16(lane j: s_j = fma(x_i,
  // x_i, s_j) over i = j mod 16, ascending) / n + epsilon). Any n >= 1. y[m] may be x[m].
  NormsFn rms_norms;
  void rms_norm(const float* x, const float* w, float* y, size_t n, float epsilon) const {
    rms_norms(&x, w, &y, 1, n, epsilon);
  }
  // The same of what is left without the mean: mean = Sum16(lane j: s_j = s_j + x_i) / n; y[n] =
  // ((x[n] - mean) * r) * w[n], r as above of x[i] - mean.
  NormsFn layer_norms;

  // x[n] -> ceil(n/32) blocks; elements past n are 0. amax = max |x|; amax < 2^-100: all zero.
  // Otherwise d = amax / 127 with the two lowest mantissa bits cleared, q = rint(x * (1 / d)) to
  // nearest even, clamped to
  // [-127, 127] (since d was truncated, 127.00001 may occur).
  void (*quantize)(const float* x, ActBlock* out, size_t n);

  // quantize(h), where h is x * factor, times factors[n] unless that is null, elements past n are
  // 0, and each block of 32 is its Walsh-Hadamard transform: for step = 1, 2, 4, 8, 16, for each i
  // without the bit of `step`: h[i]' = h[i] + h[i + step], h[i + step]' = h[i] - h[i + step]. Two
  // transforms have 32 times the dot product of what they are made of.
  void (*quantize_hadamard)(const float* x, const float* factors, ActBlock* out, size_t n,
                            float factor);

  // One scale for all of x[n]: d = amax / 127, amax = max |x|, q = rint(x * (1 / d)); amax <
  // 2^-100: d and all q are 0. Writes RoundUp(n, 16) of q, those past n as 0.
  void (*quantize_row)(const float* x, int8_t* q, float* d, size_t n);

  // [Gate]. For each of `rows` rows one block: out = quantize(h), h[32] = Gate(gate) * up, or what
  // kClamped says. Rows of gate and up are `stride` floats apart, their blocks `out_stride` bytes.
  GateFn gate_quantize[kGates];
  GateFn of(Gate gate) const { return gate_quantize[static_cast<size_t>(gate)]; }

  // Rotates x[2 * half] in place: pairs (i, i + half): a = x0*c, x0' = fma(-x1, s, a); b = x1*c,
  // x1' = fma(x0, s, b). cos_sin: cos[half], then sin[half]. Any half >= 1.
  void (*rope)(float* x, const float* cos_sin, size_t half);

  // y[n] = y[n] + b[n].
  void (*add)(float* y, const float* b, size_t n);

  // y[n] = fma(a, x[n], y[n]).
  void (*add_scaled)(float* y, const float* x, float a, size_t n);

  // For each of `rows` rows of w[n]: y[row] = Sum16(lane j: s_j = fma(x_i, w_i, s_j) over i = j mod
  // 16, ascending). Any n >= 1.
  void (*dots)(const float* x, const float* w, float* y, size_t rows, size_t n);

  // x[n] = 1 / (1 + Exp(-x[n])).
  void (*sigmoid)(float* x, size_t n);

  // Adds waves over a chunk's positions [0, n), n a multiple of 16 up to kChunkPositions, to each
  // of `queries` rows of scores, `stride` floats apart. The terms of a row, `terms_stride` floats
  // apart, are two numbers for each of `pairs` waves: for i ascending,
  //   s[j] = fma(terms[2 * i], waves[i][j], s[j]),
  //   s[j] = fma(terms[2 * i + 1], waves[i][kChunkPositions + j], s[j]).
  // waves[i]: cosines of all positions of a chunk, then sines.
  void (*add_waves)(float* scores, size_t stride, size_t n, size_t queries, const float* terms,
                    size_t terms_stride, const float* const* waves, size_t pairs);

  // x[n] = c * tanh(x / c), as c - (c + c) / (Exp(x * (2 / c)) + 1).
  void (*cap)(float* x, size_t n, float c);

  // Softmax numerators of `queries` queries over one chunk, in place; the queries' scores are
  // `stride` floats apart. scores[first, valid) are scaled scores; the others below `padded` may
  // hold anything and become +0. m = max + 0 (so never -0); scores[i] = Exp(scores[i] - m); sum[q]
  // = Sum16(lane sums, ascending; i is in lane i % 16); max[q] = m. padded is a multiple of 16;
  // first < valid <= padded.
  void (*softmax_chunk)(float* scores, size_t stride, size_t queries, size_t first, size_t valid,
                        size_t padded, float* max, float* sum);

  // The weights of values of `queries` queries, whose softmax numerators p are `stride` floats
  // apart, for the first n_pages value pages of a chunk, page_bytes apart. For each page: w[i] =
  // p[i] * F16ToF32(scale of position i), or 0 if that is not above 0 (where p is 0, a scale may be
  // anything); amax = max w; d = amax * (1 / 255); q = min(255, rint(w * (255 / amax))); amax <
  // 2^-100: d and all q are 0. Each scale is converted once for all queries.
  void (*quantize_weights)(const float* p, size_t stride, const uint8_t* pages, size_t page_bytes,
                           ChunkWeights* out, size_t n_pages, size_t queries);

  // Merges a chunk into a running attention state of one query: (o, m, l) <- (o, m, l) + (oc, mc,
  // lc): mn = max(m, mc) + 0, a = Exp(m - mn), b = Exp(mc - mn), o[i] = fma(o[i], a, oc[i] * b),
  // l = fma(l, a, lc * b), m = mn. Any n.
  void (*merge)(float* o, float* m, float* l, const float* oc, float mc, float lc, size_t n);

  // What attention sinks add to the sums of softmaxes that are complete, for n queries: l[i] = l[i]
  // + Exp(sink[i] - m[i]), m and l being those of `merge` behind a query's last chunk. A sink is
  // one more score, without a value. It is the last one because chunks are merged in ascending
  // order whatever thread has them, so that m and l are the same bits in any division, and a first
  // chunk needs no merge. m need not be the larger of both: the sum stays below 2^128, as Exp does.
  void (*add_sinks)(float* l, const float* m, const float* sink, size_t n);

  // out[p] = the largest of x[16 * p, 16 * p + 16): reduced as Sum16, with a > b ? a : b for a + b.
  void (*largest_of_16)(const float* x, float* out, size_t panels);

  // out[n] = o[n] * (1 / l).
  void (*finish)(const float* o, float l, float* out, size_t n);
};

// The set for `isa`, generated once per process, with each kernel checked against the scalar set
// before it is returned. Throws Error if one differs (with the kernel, the input and both values),
// or if the host lacks the instruction set.
const Elementwise& GetElementwise(Isa);

// Weighted sum of values for `queries` query heads of one KV head over the first n_pages value
// pages of a chunk:
//   o[m][32 * blocks] (row stride o_stride floats) starts at 0; for each page, ascending: o[m][i] =
//   fma(float(sum over its positions t of w[m].q[t] * value[t][i], exact), w[m].d[page], o[m][i]).
//   Meanwhile the keys at next_keys and the values at next_values are fetched into L2, as many
//   pages of each as this chunk has: the sums keep the vector ports busy and leave the memory idle.
using ValuesFn = void (*)(const uint8_t* pages, const ChunkWeights* w, float* o, size_t n_pages,
                          const uint8_t* next_keys, const uint8_t* next_values);
struct ValuesShape {
  size_t blocks;    // per head: ceil(head_size / 32)
  size_t queries;   // 1 .. AttentionTuning::value_queries
  size_t o_stride;  // floats between queries of o
};
// The scalar reference.
void ValuesReference(const ValuesShape&, const uint8_t* pages, const ChunkWeights* w, float* o,
                     size_t n_pages);
// Generates a kernel (set-up only; its memory lives as long as the process) and checks it against
// the reference. Throws Error if the host lacks `isa` or the tuning has more queries than sums.
ValuesFn MakeValues(Isa, const ValuesShape&, const AttentionTuning&);

}  // namespace larder::kernels::rows
