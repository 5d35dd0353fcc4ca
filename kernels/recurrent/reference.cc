// The scalar set, whose bits every other set must reproduce. Written for clarity, not for speed.
#include <cmath>

#include "kernels/formats/numerics.h"
#include "kernels/recurrent/recurrent_sets.h"

namespace larder::kernels::inline recurrent {
namespace {

float Sigmoid(float x) { return 1.0f / (1.0f + Exp(-x)); }

float Softplus(float x) {
  const float e = Exp(-std::fabs(x));
  const float z = e / (2.0f + e), square = z * z;
  float series = kAreaTangent[0];
  for (size_t i = 1; i < std::size(kAreaTangent); ++i)
    series = std::fma(series, square, kAreaTangent[i]);
  return (x > 0.0f ? x : 0.0f) + (z + z) * series;
}

template <bool kBiased, bool kSilu>
void Convolve(const float* const* inputs, const float* w, size_t taps, float* y, size_t y_stride,
              size_t tokens, size_t n) {
  for (size_t t = 0; t < tokens; ++t) {
    for (size_t c = 0; c < n; ++c) {
      float s = w[c] * inputs[t][c];
      for (size_t j = 1; j < taps; ++j) s = std::fma(w[j * n + c], inputs[t + j][c], s);
      if (kBiased) s += w[taps * n + c];
      y[t * y_stride + c] = kSilu ? s / (1.0f + Exp(-s)) : s;
    }
  }
}

void DeltaGates(const float* alpha, const float* beta, float a, float bias, float* decays,
                float* rates, size_t n) {
  for (size_t t = 0; t < n; ++t) {
    decays[t] = Exp(a * Softplus(alpha[t] + bias));
    rates[t] = Sigmoid(beta[t]);
  }
}

// The sum over all rows of the products of the state's column and x.
float Product(const float* column, const float* x, size_t rows) {
  float sums[2] = {};
  for (size_t i = 0; i < rows; ++i)
    sums[i % 2] = std::fma(column[i * kStateColumns], x[i], sums[i % 2]);
  return sums[0] + sums[1];
}

void DeltaRule(const DeltaRun* run) {
  for (size_t c = 0; c < kStateColumns; ++c) {
    float* const column = run->state + c;
    for (size_t i = 0; i < run->key_size; ++i) column[i * kStateColumns] *= run->first;
    for (size_t t = 0; t < run->tokens; ++t) {
      const float* const key = run->keys + t * run->key_stride;
      const float p = Product(column, key, run->key_size);
      const float u =
          std::fma(-run->scales[t], p, run->values[t * run->value_stride + c]) * run->rates[t];
      for (size_t i = 0; i < run->key_size; ++i)
        column[i * kStateColumns] = std::fma(key[i], u, column[i * kStateColumns]);
      run->out[t * run->out_stride + c] =
          Product(column, run->queries + t * run->key_stride, run->key_size) * run->scales[t];
    }
  }
}

void MambaGates(const float* alpha, float a, float bias, float* decays, float* steps, size_t n) {
  for (size_t t = 0; t < n; ++t) {
    steps[t] = Softplus(alpha[t] + bias);
    decays[t] = Exp(a * steps[t]);
  }
}

void Mamba2(const MambaRun* run) {
  for (size_t t = 0; t < run->tokens; ++t) {
    const float* const b = run->inputs + t * run->stride;
    const float* const c = run->outputs + t * run->stride;
    for (size_t column = 0; column < kMambaColumns; ++column) {
      const float x = run->values[t * run->value_stride + column], u = x * run->steps[t];
      float sums[2] = {};
      for (size_t i = 0; i < run->state_size; ++i) {
        float& s = run->state[i * kMambaColumns + column];
        const float decayed = s * run->decays[t];
        s = std::fma(b[i], u, decayed);
        sums[i % 2] = std::fma(s, c[i], sums[i % 2]);
      }
      run->out[t * run->out_stride + column] = std::fma(run->skip, x, sums[0] + sums[1]);
    }
  }
}

void SiluGate(float* y, const float* gate, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = y[i] * (gate[i] / (1.0f + Exp(-gate[i])));
}

void SigmoidGate(float* y, const float* gate, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = y[i] / (1.0f + Exp(-gate[i]));
}

void Multiply(const float* a, const float* b, float* y, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = a[i] * b[i];
}

}  // namespace

Recurrent ScalarRecurrent() {
  return {.isa = Isa::kScalar,
          .convolve = Convolve<false, true>,
          .convolve_biased = Convolve<true, true>,
          .convolve_alone = Convolve<false, false>,
          .delta_gates = DeltaGates,
          .delta_rule = DeltaRule,
          .mamba_gates = MambaGates,
          .mamba2 = Mamba2,
          .silu_gate = SiluGate,
          .sigmoid_gate = SigmoidGate,
          .multiply = Multiply};
}

}  // namespace larder::kernels::recurrent
