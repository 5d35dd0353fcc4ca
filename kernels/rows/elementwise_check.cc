#include <bit>
#include <cmath>
#include <cstring>
#include <random>

#include "base/error.h"
#include "kernels/rows/elementwise_sets.h"

namespace larder::kernels::inline rows {
namespace {

constexpr size_t kGuard = 16;  // floats after each output, which must not change
constexpr float kGuardValue = -12345.0f;

// An output of n floats with guard values after it.
std::vector<float> Output(size_t n) { return std::vector<float>(n + kGuard, kGuardValue); }
std::vector<float> Guarded(std::vector<float> v) {
  v.resize(v.size() + kGuard, kGuardValue);
  return v;
}

class Comparison {
 public:
  Comparison(const Elementwise& candidate, const Elementwise& reference, Pattern pattern, size_t n)
      : candidate_(candidate), reference_(reference), pattern_(pattern), n_(n) {
    x_ = MakeInput(pattern, n, 1);
    y_ = MakeInput(pattern, n, 2);
    w_ = MakeInput(Pattern::kGaussian, 2 * n, 3);
  }

  void Run() const {
    Norms("rms_norms", &Elementwise::rms_norms);
    Norms("layer_norms", &Elementwise::layer_norms);
    Quantize();
    QuantizeRow();
    GateQuantize("swiglu_quantize", Gate::kSilu);
    GateQuantize("geglu_quantize", Gate::kGeluTanh);
    GateQuantize("clamped_gate_quantize", Gate::kClamped);
    GateQuantize("reglu_quantize", Gate::kRelu);
    Rope();
    AddFinish();
    ScaledDotsSigmoid();
    AddWaves();
    Cap();
    SoftmaxChunk();
    QuantizeWeights();
    Merge();
    AddSinks();
    LargestOf16();
  }

 private:
  // Compares everything that a kernel writes; run(set) runs it and returns that.
  template <typename Run>
  void Compare(const char* kernel, Run run) const {
    const auto got = run(candidate_), want = run(reference_);
    RequireSameBits(candidate_.isa, kernel, PatternName(pattern_), n_, got.data(), want.data(),
                    want.size() * sizeof(want[0]) / 4);
  }

  void Norms(const char* name, NormsFn Elementwise::*norms) const {
    const auto of_one = [&](const Elementwise& set, const float* x, float* y, float epsilon) {
      (set.*norms)(&x, w_.data(), &y, 1, n_, epsilon);
    };
    Compare(name, [&](const Elementwise& set) {
      auto out = Output(n_);
      of_one(set, x_.data(), out.data(), 1e-5f);
      return out;
    });
    Compare(name, [&](const Elementwise& set) {  // in place
      auto x = Guarded(x_);
      of_one(set, x.data(), x.data(), 1e-6f);
      return x;
    });
    // As many rows as are taken at once, and some more; each has the bits that it has alone.
    Compare(name, [&](const Elementwise& set) {
      const std::vector<float>* const inputs[] = {&x_, &y_, &w_};
      const size_t rows = kNormRows + n_ % kNormRows;
      std::vector<std::vector<float>> outs(rows, Output(n_));
      std::vector<const float*> x(rows);
      std::vector<float*> y(rows);
      for (size_t m = 0; m < rows; ++m) {
        x[m] = inputs[m % std::size(inputs)]->data();
        y[m] = outs[m].data();
      }
      (set.*norms)(x.data(), w_.data(), y.data(), rows, n_, 1e-5f);
      std::vector<float> all;
      for (const auto& out : outs) all.insert(all.end(), out.begin(), out.end());
      return all;
    });
  }

  void Quantize() const {
    Compare("quantize", [&](const Elementwise& set) {
      std::vector<ActBlock> out(CeilDiv(n_, kBlock) + 1, ActBlock{});
      set.quantize(x_.data(), out.data(), n_);
      return out;
    });
    for (const float* factors : {static_cast<const float*>(nullptr), w_.data()}) {
      Compare("quantize_hadamard", [&](const Elementwise& set) {
        std::vector<ActBlock> out(CeilDiv(n_, kBlock) + 1, ActBlock{});
        set.quantize_hadamard(x_.data(), factors, out.data(), n_, 0.375f);
        return out;
      });
    }
  }

  void GateQuantize(const char* name, Gate gate) const {
    const size_t rows = n_ / kBlock;
    for (const size_t apart : {1, 3}) {           // blocks between rows of the output
      for (const bool swapped : {false, true}) {  // both meet what is large
        Compare(name, [&](const Elementwise& set) {
          std::vector<ActBlock> out(apart * rows + 1, ActBlock{});
          set.of(gate)(swapped ? w_.data() : x_.data(), swapped ? x_.data() : w_.data(), kBlock,
                       out.data(), apart * sizeof(ActBlock), rows);
          return out;
        });
      }
    }
  }

  void Rope() const {
    auto x = Guarded(x_);
    x.insert(x.begin(), y_.begin(), y_.end());
    Compare("rope", [&](const Elementwise& set) {
      auto rotated = x;
      set.rope(rotated.data(), w_.data(), n_);
      return rotated;
    });
  }

  void AddFinish() const {
    Compare("add", [&](const Elementwise& set) {
      auto y = Guarded(y_);
      set.add(y.data(), x_.data(), n_);
      return y;
    });
    Compare("finish", [&](const Elementwise& set) {
      auto out = Output(n_);
      set.finish(x_.data(), 3.7f, out.data(), n_);
      return out;
    });
  }

  void ScaledDotsSigmoid() const {
    Compare("add_scaled", [&](const Elementwise& set) {
      auto y = Guarded(y_);
      set.add_scaled(y.data(), x_.data(), w_[0], n_);
      return y;
    });
    // As many rows as are taken at once, and some more.
    const size_t rows = 4 + n_ % 4;
    const auto w = MakeInput(pattern_, rows * n_, 13);
    Compare("dots", [&](const Elementwise& set) {
      auto y = Output(rows);
      set.dots(x_.data(), w.data(), y.data(), rows, n_);
      return y;
    });
    Compare("sigmoid", [&](const Elementwise& set) {
      auto x = Guarded(x_);
      set.sigmoid(x.data(), n_);
      return x;
    });
  }

  void AddWaves() const {
    const size_t n = RoundUp(n_ % kChunkPositions, kPagePositions), queries = n_ % 6 + 1;
    const size_t pairs = n_ % 4, stride = n + 16, terms_stride = 2 * pairs + 1;
    const auto terms = MakeInput(pattern_, queries * terms_stride, 9);
    const auto tables = MakeInput(Pattern::kGaussian, (pairs + 1) * 2 * kChunkPositions, 10);
    std::vector<const float*> waves;  // in another order than they lie
    for (size_t i = pairs; i-- > 0;) waves.push_back(tables.data() + i * 2 * kChunkPositions);
    const auto scores = MakeInput(pattern_, queries * stride, 11);
    Compare("add_waves", [&](const Elementwise& set) {
      auto out = Guarded(scores);
      set.add_waves(out.data(), stride, n, queries, terms.data(), terms_stride, waves.data(),
                    pairs);
      return out;
    });
  }

  void Cap() const {
    Compare("cap", [&](const Elementwise& set) {
      auto x = Guarded(x_);
      set.cap(x.data(), n_, 2.5f);
      return x;
    });
  }

  void SoftmaxChunk() const {
    // As many queries as are taken at once, and some more.
    const size_t queries = n_ % 8 + 1, padded = RoundUp(n_, kPagePositions) + kPagePositions;
    const size_t stride = padded + 16;
    auto scores = MakeInput(pattern_, queries * stride, 4);
    for (size_t q = 0; q < queries; ++q) {
      scores[q * stride + n_] = std::nanf("");  // must be ignored
      scores[q * stride + padded - 1] = 1e38f;
    }
    for (const size_t first : {size_t{0}, n_ / 3, n_ - 1}) {
      for (size_t q = 0; first > 0 && q < queries; ++q) {
        scores[q * stride] = std::nanf("");  // must be ignored, too
        scores[q * stride + first - 1] = 1e38f;
      }
      Compare("softmax_chunk", [&](const Elementwise& set) {
        auto out = Guarded(scores);
        auto max_and_sum = Output(2 * queries);
        set.softmax_chunk(out.data(), stride, queries, first, n_, padded, max_and_sum.data(),
                          max_and_sum.data() + queries);
        out.insert(out.end(), max_and_sum.begin(), max_and_sum.end());
        return out;
      });
    }
  }

  void QuantizeWeights() const {
    const size_t pages = n_ % (ChunkWeights::kPages + 1), queries = n_ % 7 + 1;
    const size_t stride = pages * kValuePagePositions + 16;
    const size_t page_bytes = ValuePage{n_ % 3}.bytes();
    auto p = MakeInput(pattern_, queries * stride, 5);
    for (float& v : p) v = std::fabs(v);
    std::vector<uint8_t> values(pages * page_bytes);
    std::mt19937 random(6);
    for (auto& byte : values) byte = static_cast<uint8_t>(random());
    // Scales have no sign. Some are infinities and NaNs, of positions that have no value yet.
    for (size_t page = 0; page < pages; ++page) {
      for (size_t i = 0; i < kValuePagePositions; ++i) {
        uint8_t& high = values[page * page_bytes + ValuePage::scale_offset(i) + 1];
        high &= i % 5 == 0 ? 0xFF : 0x3F;
        for (size_t q = 0; i % 5 == 0 && q < queries; ++q)
          p[q * stride + page * kValuePagePositions + i] = 0;
      }
    }
    Compare("quantize_weights", [&](const Elementwise& set) {
      ChunkWeights untouched;
      std::memset(&untouched, 0x55, sizeof(untouched));
      std::vector<ChunkWeights> out(queries + 1, untouched);
      set.quantize_weights(p.data(), stride, values.data(), page_bytes, out.data(), pages, queries);
      return out;
    });
  }

  void QuantizeRow() const {
    Compare("quantize_row", [&](const Elementwise& set) {
      std::vector<int8_t> out(RoundUp(n_, kGuard) + kGuard, 99);
      float d = 0;
      set.quantize_row(x_.data(), out.data(), &d, n_);
      out.insert(out.end(), reinterpret_cast<int8_t*>(&d), reinterpret_cast<int8_t*>(&d + 1));
      return out;
    });
  }

  void AddSinks() const {
    Compare("add_sinks", [&](const Elementwise& set) {
      auto sums = Guarded(y_);
      set.add_sinks(sums.data(), x_.data(), w_.data(), n_);
      return sums;
    });
  }

  void Merge() const {
    for (const float m : {-INFINITY, x_[0], -0.0f, w_[0]}) {
      Compare("merge", [&](const Elementwise& set) {
        auto o = Guarded(x_);
        float max = m, sum = 2.5f;
        set.merge(o.data(), &max, &sum, y_.data(), y_[0], 0.75f, n_);
        o.push_back(max);
        o.push_back(sum);
        return o;
      });
    }
  }

  void LargestOf16() const {
    const size_t panels = n_ % 9;
    auto x = MakeInput(pattern_, panels * kPagePositions, 12);
    for (size_t i = 0; i < x.size(); i += 11) x[i] = std::nanf("");
    Compare("largest_of_16", [&](const Elementwise& set) {
      auto out = Output(panels);
      set.largest_of_16(x.data(), out.data(), panels);
      return out;
    });
  }

  const Elementwise& candidate_;
  const Elementwise& reference_;
  const Pattern pattern_;
  const size_t n_;
  std::vector<float> x_, y_, w_;
};

}  // namespace

const char* PatternName(Pattern pattern) {
  constexpr const char* kNames[] = {"gaussian", "wide", "tiny", "huge", "equal", "zero"};
  return kNames[static_cast<int>(pattern)];
}

std::vector<float> MakeInput(Pattern pattern, size_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> gaussian;
  std::vector<float> out(n);
  for (float& v : out) {
    v = gaussian(random);
    const uint32_t choice = random() % 91;
    switch (pattern) {
      case Pattern::kGaussian:
        break;
      case Pattern::kWide:
        v = std::ldexp(v, static_cast<int>(choice) - 60);
        break;
      case Pattern::kTiny:
        v = choice < 20 ? std::copysign(0.0f, v)
                        : std::ldexp(v, -120 - static_cast<int>(choice % 30));
        break;
      case Pattern::kHuge:
        if (choice < 9) v = std::copysign(1e30f, v);
        break;
      case Pattern::kEqual:
        v = -1.375f;
        break;
      case Pattern::kZero:
        v = std::copysign(0.0f, v);
        break;
    }
  }
  return out;
}

size_t FirstDifference(const void* a, const void* b, size_t words) {
  for (size_t i = 0; i < words; ++i) {
    if (std::memcmp(static_cast<const char*>(a) + 4 * i, static_cast<const char*>(b) + 4 * i, 4) !=
        0)
      return i;
  }
  return words;
}

void RequireSameBits(Isa isa, const char* kernel, const char* pattern, size_t n, const void* got,
                     const void* want, size_t words) {
  const size_t at = FirstDifference(got, want, words);
  if (at == words) return;
  uint32_t g, w;
  std::memcpy(&g, static_cast<const char*>(got) + 4 * at, 4);
  std::memcpy(&w, static_cast<const char*>(want) + 4 * at, 4);
  throw Error(
      "kernels: {} for {} differs from the scalar reference: {} input of {}, word {} is {:#010x} "
      "({}), not {:#010x} ({}); please report it with your CPU model",
      kernel, IsaName(isa), pattern, n, at, g, std::bit_cast<float>(g), w, std::bit_cast<float>(w));
}

void CheckElementwise(const Elementwise& candidate, const Elementwise& reference, Pattern pattern,
                      size_t n) {
  Comparison(candidate, reference, pattern, n).Run();
}

}  // namespace larder::kernels::rows
