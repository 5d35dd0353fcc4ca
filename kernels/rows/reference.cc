// The scalar set, whose bits every other set must reproduce. Written for clarity, not for speed.
#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/formats/numerics.h"
#include "kernels/rows/elementwise.h"
#include "kernels/rows/elementwise_sets.h"

namespace larder::kernels::inline rows {
namespace {

constexpr size_t kLanes = 16;

void RmsNorms(const float* const* x, const float* w, float* const* y, size_t rows, size_t n,
              float epsilon) {
  for (size_t m = 0; m < rows; ++m) {
    float s[kLanes] = {};
    for (size_t i = 0; i < n; ++i) s[i % kLanes] = std::fma(x[m][i], x[m][i], s[i % kLanes]);
    const float r = 1.0f / std::sqrt(Sum16(s) / static_cast<float>(n) + epsilon);
    for (size_t i = 0; i < n; ++i) y[m][i] = (x[m][i] * r) * w[i];
  }
}

void LayerNorms(const float* const* x, const float* w, float* const* y, size_t rows, size_t n,
                float epsilon) {
  for (size_t m = 0; m < rows; ++m) {
    float sums[kLanes] = {}, s[kLanes] = {};
    for (size_t i = 0; i < n; ++i) sums[i % kLanes] = sums[i % kLanes] + x[m][i];
    const float mean = Sum16(sums) / static_cast<float>(n);
    for (size_t i = 0; i < n; ++i) {
      const float centred = x[m][i] - mean;
      s[i % kLanes] = std::fma(centred, centred, s[i % kLanes]);
    }
    const float r = 1.0f / std::sqrt(Sum16(s) / static_cast<float>(n) + epsilon);
    for (size_t i = 0; i < n; ++i) y[m][i] = ((x[m][i] - mean) * r) * w[i];
  }
}

ActBlock QuantizeBlock(const float (&x)[kBlock]) {
  ActBlock block = {};
  float amax = 0;
  int32_t sums[2] = {};
  for (const float v : x) amax = std::max(amax, std::fabs(v));
  if (amax >= numerics::kQuantZero) {
    block.d = std::bit_cast<float>(std::bit_cast<uint32_t>(amax / numerics::kQuantMax) &
                                   numerics::kScaleMask);
    const float inverse = 1.0f / block.d;
    for (size_t i = 0; i < kBlock; ++i) {
      // This order turns NaN into a number, so that the conversion is always defined.
      const float q =
          std::max(-numerics::kQuantMax, std::min(numerics::kQuantMax, std::rint(x[i] * inverse)));
      block.q[i] = static_cast<int8_t>(q);
      sums[i / (kBlock / 2)] += block.q[i];
    }
  }
  block.minus_md = -kMagic * block.d;
  block.start = kMagicBits - 128 * (sums[0] + sums[1]);
  block.d_sum = block.d * static_cast<float>(sums[0] + sums[1]);
  for (size_t half = 0; half < 2; ++half) block.half_starts[half] = kMagicBits - 128 * sums[half];
  return block;
}

void Quantize(const float* x, ActBlock* out, size_t n) {
  for (size_t begin = 0; begin < n; begin += kBlock) {
    float block[kBlock] = {};
    std::copy(x + begin, x + std::min(n, begin + kBlock), block);
    *out++ = QuantizeBlock(block);
  }
}

void QuantizeHadamard(const float* x, const float* factors, ActBlock* out, size_t n, float factor) {
  for (size_t begin = 0; begin < n; begin += kBlock) {
    float h[kBlock] = {};
    for (size_t i = 0; i < std::min(kBlock, n - begin); ++i) {
      h[i] = x[begin + i] * factor;
      if (factors != nullptr) h[i] *= factors[begin + i];
    }
    for (size_t step = 1; step < kBlock; step *= 2) {
      for (size_t i = 0; i < kBlock; ++i) {
        if ((i & step) != 0) continue;
        const float a = h[i], b = h[i + step];
        h[i] = a + b;
        h[i + step] = a - b;
      }
    }
    *out++ = QuantizeBlock(h);
  }
}

void QuantizeRow(const float* x, int8_t* q, float* d, size_t n) {
  float amax = 0;
  for (size_t i = 0; i < n; ++i) amax = std::max(amax, std::fabs(x[i]));
  const bool some = amax >= numerics::kQuantZero;
  *d = some ? amax / numerics::kQuantMax : 0.0f;
  const float inverse = some ? 1.0f / *d : 0.0f;
  for (size_t i = 0; i < RoundUp(n, kLanes); ++i)
    q[i] = i < n ? static_cast<int8_t>(std::rint(x[i] * inverse)) : int8_t{0};
}

template <Gate kGate>
float GateArgument(float g) {  // of Exp
  if (kGate == Gate::kSilu) return -g;
  if (kGate == Gate::kClamped) return g * numerics::kClampedSlope;
  return g * std::fma(g * g, numerics::kGeluCube, numerics::kGeluSlope);
}

// This order makes kGateLimit of NaN.
float AtMostLimit(float x) { return x < numerics::kGateLimit ? x : numerics::kGateLimit; }

float UpFactor(float up) {  // of Gate::kClamped
  up = AtMostLimit(up);
  return (up > -numerics::kGateLimit ? up : -numerics::kGateLimit) + 1.0f;
}

template <Gate kGate>
void GateQuantize(const float* gate, const float* up, size_t stride, ActBlock* out,
                  size_t out_stride, size_t rows) {
  for (size_t m = 0; m < rows; ++m) {
    float h[kBlock];
    for (size_t i = 0; i < kBlock; ++i) {
      const float of_gate = gate[m * stride + i], of_up = up[m * stride + i];
      const float g = kGate == Gate::kClamped ? AtMostLimit(of_gate) : of_gate;
      const float u = kGate == Gate::kClamped ? UpFactor(of_up) : of_up;
      const float factor =
          kGate == Gate::kRelu ? (g > 0.0f ? g : 0.0f) : g / (1.0f + Exp(GateArgument<kGate>(g)));
      h[i] = factor * u;
    }
    *reinterpret_cast<ActBlock*>(reinterpret_cast<uint8_t*>(out) + m * out_stride) =
        QuantizeBlock(h);
  }
}

void Rope(float* x, const float* cos_sin, size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const float x0 = x[i], x1 = x[i + half], c = cos_sin[i], s = cos_sin[half + i];
    x[i] = std::fma(-x1, s, x0 * c);
    x[i + half] = std::fma(x0, s, x1 * c);
  }
}

void Add(float* y, const float* b, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = y[i] + b[i];
}

void AddScaled(float* y, const float* x, float a, size_t n) {
  for (size_t i = 0; i < n; ++i) y[i] = std::fma(a, x[i], y[i]);
}

void Dots(const float* x, const float* w, float* y, size_t rows, size_t n) {
  for (size_t row = 0; row < rows; ++row, w += n) {
    float s[kLanes] = {};
    for (size_t i = 0; i < n; ++i) s[i % kLanes] = std::fma(x[i], w[i], s[i % kLanes]);
    y[row] = Sum16(s);
  }
}

void Sigmoid(float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) x[i] = 1.0f / (1.0f + Exp(-x[i]));
}

void AddWaves(float* scores, size_t stride, size_t n, size_t queries, const float* terms,
              size_t terms_stride, const float* const* waves, size_t pairs) {
  for (size_t q = 0; q < queries; ++q, scores += stride, terms += terms_stride) {
    for (size_t i = 0; i < pairs; ++i) {
      for (size_t j = 0; j < n; ++j) {
        scores[j] = std::fma(terms[2 * i], waves[i][j], scores[j]);
        scores[j] = std::fma(terms[2 * i + 1], waves[i][kChunkPositions + j], scores[j]);
      }
    }
  }
}

void Cap(float* x, size_t n, float c) {
  const float scale = 2.0f / c, range = c + c;
  for (size_t i = 0; i < n; ++i) x[i] = c - range / (Exp(x[i] * scale) + 1.0f);
}

void SoftmaxChunk(float* scores, size_t stride, size_t queries, size_t first, size_t valid,
                  size_t padded, float* max, float* sum) {
  for (size_t q = 0; q < queries; ++q, scores += stride) {
    const float m = *std::max_element(scores + first, scores + valid) + 0.0f;
    float s[kLanes] = {};
    for (size_t i = first; i < valid; ++i) {
      scores[i] = Exp(scores[i] - m);
      s[i % kLanes] += scores[i];
    }
    std::fill(scores, scores + first, 0.0f);
    std::fill(scores + valid, scores + padded, 0.0f);
    max[q] = m;
    sum[q] = Sum16(s);
  }
}

void QuantizeWeights(const float* p, size_t stride, const uint8_t* pages, size_t page_bytes,
                     ChunkWeights* out, size_t n_pages, size_t queries) {
  for (size_t q = 0; q < queries; ++q) {
    for (size_t page = 0; page < n_pages; ++page) {
      float w[kValuePagePositions], amax = 0;
      for (size_t i = 0; i < kValuePagePositions; ++i) {
        uint16_t scale;
        std::memcpy(&scale, pages + page * page_bytes + ValuePage::scale_offset(i), sizeof(scale));
        // This order turns NaN into 0.
        w[i] =
            std::max(0.0f, p[q * stride + page * kValuePagePositions + i] * model::F16ToF32(scale));
        amax = std::max(amax, w[i]);
      }
      const bool some = amax >= numerics::kQuantZero;
      const float inverse = some ? numerics::kWeightMax / amax : 0.0f;
      out[q].d[page] = some ? amax * numerics::kInverseWeightMax : 0.0f;
      for (size_t i = 0; i < kValuePagePositions; ++i) {
        const float code = std::rint(std::min(numerics::kWeightMax, w[i] * inverse));
        out[q].q[page * kValuePagePositions + i] = static_cast<uint8_t>(code);
      }
    }
  }
}

void Merge(float* o, float* m, float* l, const float* oc, float mc, float lc, size_t n) {
  const float mn = std::max(*m, mc) + 0.0f;
  const float a = Exp(*m - mn), b = Exp(mc - mn);
  for (size_t i = 0; i < n; ++i) o[i] = std::fma(o[i], a, oc[i] * b);
  *l = std::fma(*l, a, lc * b);
  *m = mn;
}

void AddSinks(float* l, const float* m, const float* sink, size_t n) {
  for (size_t i = 0; i < n; ++i) l[i] = l[i] + Exp(sink[i] - m[i]);
}

void LargestOf16(const float* x, float* out, size_t panels) {
  const auto larger = [](float a, float b) { return a > b ? a : b; };
  for (size_t p = 0; p < panels; ++p, x += kLanes) {
    float t[8], u[4];
    for (size_t j = 0; j < 8; ++j) t[j] = larger(x[j], x[j + 8]);
    for (size_t j = 0; j < 4; ++j) u[j] = larger(t[j], t[j + 4]);
    out[p] = larger(larger(u[0], u[2]), larger(u[1], u[3]));
  }
}

void Finish(const float* o, float l, float* out, size_t n) {
  const float r = 1.0f / l;
  for (size_t i = 0; i < n; ++i) out[i] = o[i] * r;
}

}  // namespace

Elementwise ScalarElementwise() {
  return {.isa = Isa::kScalar,
          .rms_norms = RmsNorms,
          .layer_norms = LayerNorms,
          .quantize = Quantize,
          .quantize_hadamard = QuantizeHadamard,
          .quantize_row = QuantizeRow,
          .gate_quantize = {GateQuantize<Gate::kSilu>, GateQuantize<Gate::kGeluTanh>,
                            GateQuantize<Gate::kClamped>, GateQuantize<Gate::kRelu>},
          .rope = Rope,
          .add = Add,
          .add_scaled = AddScaled,
          .dots = Dots,
          .sigmoid = Sigmoid,
          .add_waves = AddWaves,
          .cap = Cap,
          .softmax_chunk = SoftmaxChunk,
          .quantize_weights = QuantizeWeights,
          .merge = Merge,
          .add_sinks = AddSinks,
          .largest_of_16 = LargestOf16,
          .finish = Finish};
}

void ValuesReference(const ValuesShape& shape, const uint8_t* pages, const ChunkWeights* w,
                     float* o, size_t n_pages) {
  const ValuePage layout{shape.blocks};
  for (size_t m = 0; m < shape.queries; ++m) {
    float* om = o + m * shape.o_stride;
    std::fill(om, om + layout.elements(), 0.0f);
    for (size_t page = 0; page < n_pages; ++page) {
      for (size_t i = 0; i < layout.elements(); ++i) {
        int32_t sum = 0;
        for (size_t t = 0; t < kValuePagePositions; ++t) {
          const uint8_t value = pages[page * layout.bytes() + layout.value_offset(i, t)];
          sum += int32_t{w[m].q[page * kValuePagePositions + t]} * static_cast<int8_t>(value);
        }
        om[i] = std::fma(static_cast<float>(sum), w[m].d[page], om[i]);
      }
    }
  }
}

}  // namespace larder::kernels::rows
