#include "kernels/rows/elementwise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numbers>
#include <string>

#include "base/error.h"
#include "kernels/formats/numerics.h"
#include "kernels/rows/elementwise_sets.h"

namespace larder::kernels::inline rows {
namespace {

const float kNan = std::numeric_limits<float>::quiet_NaN();

std::string CheckText(const Elementwise& candidate, Pattern pattern, size_t n) {
  try {
    CheckElementwise(candidate, GetElementwise(Isa::kScalar), pattern, n);
  } catch (const Error& e) {
    return e.what();
  }
  return "";
}

TEST(Isa, NamesRoundTrip) {
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    EXPECT_EQ(IsaByName(IsaName(isa)), isa);
  }
  EXPECT_EQ(IsaByName("avx9"), std::nullopt);
  EXPECT_EQ(IsaByName(""), std::nullopt);
}

TEST(Isa, BestIsOneThatTheHostHas) {
  EXPECT_TRUE(HostHas(Isa::kScalar));
  EXPECT_TRUE(HostHas(BestIsa()));
  if (HostHas(Isa::kAvx512Vnni)) {
    EXPECT_EQ(BestIsa(), Isa::kAvx512Vnni);
  }
  if (HostHas(Isa::kAvxVnni)) {
    EXPECT_TRUE(HostHas(Isa::kAvx2));
  }
}

TEST(Isa, MissingInstructionSetIsAnError) {
  bool any = false;
  for (const Isa isa : {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (HostHas(isa)) continue;
    any = true;
    EXPECT_THROW(GetElementwise(isa), Error);
    EXPECT_THROW(
        MakeValues(isa, {.blocks = 1, .queries = 1, .o_stride = 32}, DefaultTuning(isa).attention),
        Error);
  }
  if (!any) GTEST_SKIP() << "this host has every instruction set";
}

// The comparison must detect differences of either sign, of one bit, of NaN and of the sign of
// zero.
TEST(Comparator, SeesPlantedDifferences) {
  for (const float value : {1.5f, -1.5f, 0.0f, 1e-42f, -1e30f}) {
    const std::vector<float> want(20, value);
    EXPECT_EQ(FirstDifference(want.data(), want.data(), 20), 20u);
    for (const size_t at : {size_t{0}, size_t{7}, size_t{19}}) {
      for (const float wrong :
           {std::nextafter(value, 1e38f), std::nextafter(value, -1e38f), -value, kNan}) {
        auto got = want;
        got[at] = wrong;
        EXPECT_EQ(FirstDifference(got.data(), want.data(), 20), at) << value << " " << wrong;
        EXPECT_EQ(FirstDifference(want.data(), got.data(), 20), at) << value << " " << wrong;
        EXPECT_THROW(RequireSameBits(Isa::kAvx2, "k", "p", 20, got.data(), want.data(), 20), Error);
      }
    }
    EXPECT_NO_THROW(RequireSameBits(Isa::kAvx2, "k", "p", 20, want.data(), want.data(), 20));
  }
}

// The product of two vectors that are quantised, as Gemm has it.
double QuantisedProduct(const std::vector<ActBlock>& a, const std::vector<ActBlock>& b) {
  double sum = 0;
  for (size_t block = 0; block < a.size(); ++block) {
    int32_t products = 0;
    for (size_t i = 0; i < kBlock; ++i) products += a[block].q[i] * b[block].q[i];
    sum += static_cast<double>(a[block].d) * b[block].d * products;
  }
  return sum;
}

// One large element takes the bits of the 31 others; transformed they have them again.
TEST(QuantizeHadamard, ProductsAreThoseOfTheVectorsAlsoBesideAnOutlier) {
  constexpr size_t kSize = 72;  // two whole blocks and a partial one
  constexpr uint32_t kVectors = 200;
  const Elementwise set = ScalarElementwise();
  double plain = 0, transformed = 0;  // squares of errors
  for (uint32_t seed = 0; seed < kVectors; ++seed) {
    std::vector<float> a = MakeInput(Pattern::kGaussian, kSize, 2 * seed);
    const std::vector<float> b = MakeInput(Pattern::kGaussian, kSize, 2 * seed + 1);
    a[seed % kSize] = 40;
    double exact = 0;
    for (size_t i = 0; i < kSize; ++i) exact += static_cast<double>(a[i]) * b[i];
    std::vector<ActBlock> of_a(3), of_b(3);
    set.quantize(a.data(), of_a.data(), kSize);
    set.quantize(b.data(), of_b.data(), kSize);
    plain += std::pow(QuantisedProduct(of_a, of_b) - exact, 2);
    set.quantize_hadamard(a.data(), nullptr, of_a.data(), kSize, 1);
    set.quantize_hadamard(b.data(), nullptr, of_b.data(), kSize, 1.0f / kBlock);
    transformed += std::pow(QuantisedProduct(of_a, of_b) - exact, 2);
  }
  EXPECT_LT(std::sqrt(transformed / kVectors), 0.3);
  EXPECT_GT(plain, 4 * transformed);
}

// Each kernel in turn is replaced by one whose last element is off by one unit in the last place;
// the error must name it.
template <typename Plant>
void ExpectNamed(const char* kernel, Plant plant) {
  Elementwise broken = ScalarElementwise();
  plant(broken);
  EXPECT_NE(CheckText(broken, Pattern::kGaussian, 33).find(kernel), std::string::npos) << kernel;
}

void Nudge(float& v) { v = std::nextafter(v, 1e38f); }

TEST(CheckElementwise, NamesABrokenKernel) {
  EXPECT_EQ(CheckText(ScalarElementwise(), Pattern::kGaussian, 33), "");
  static const Elementwise good = ScalarElementwise();
  ExpectNamed("rms_norms", [](Elementwise& e) {
    e.rms_norms = [](const float* const* x, const float* w, float* const* y, size_t rows, size_t n,
                     float epsilon) {
      good.rms_norms(x, w, y, rows, n, epsilon);
      Nudge(y[0][n - 1]);
    };
  });
  ExpectNamed("layer_norms", [](Elementwise& e) {
    e.layer_norms = [](const float* const* x, const float* w, float* const* y, size_t rows,
                       size_t n, float epsilon) {
      good.layer_norms(x, w, y, rows, n, epsilon);
      if (rows > 1) Nudge(y[rows - 1][n - 1]);
    };
  });
  ExpectNamed("quantize", [](Elementwise& e) {
    e.quantize = [](const float* x, ActBlock* out, size_t n) {
      good.quantize(x, out, n);
      ++out->start;
    };
  });
  ExpectNamed("quantize_hadamard", [](Elementwise& e) {
    e.quantize_hadamard = [](const float* x, const float* factors, ActBlock* out, size_t n,
                             float factor) {
      good.quantize_hadamard(x, factors, out, n, factor);
      ++out[1].q[kBlock - 1];
    };
  });
  ExpectNamed("quantize_row", [](Elementwise& e) {
    e.quantize_row = [](const float* x, int8_t* q, float* d, size_t n) {
      good.quantize_row(x, q, d, n);
      q[n] = 1;
    };
  });
  ExpectNamed("swiglu_quantize", [](Elementwise& e) {
    e.gate_quantize[0] = [](const float* gate, const float* up, size_t stride, ActBlock* out,
                            size_t out_stride, size_t rows) {
      good.of(Gate::kSilu)(gate, up, stride, out, out_stride, rows);
      out->q[31] = static_cast<int8_t>(out->q[31] ^ 1);
    };
  });
  ExpectNamed("geglu_quantize", [](Elementwise& e) { e.gate_quantize[1] = e.gate_quantize[0]; });
  ExpectNamed("clamped_gate_quantize",
              [](Elementwise& e) { e.gate_quantize[2] = e.gate_quantize[0]; });
  ExpectNamed("add_sinks", [](Elementwise& e) {
    e.add_sinks = [](float* l, const float* m, const float* sink, size_t n) {
      good.add_sinks(l, m, sink, n);
      Nudge(l[n - 1]);
    };
  });
  ExpectNamed("cap", [](Elementwise& e) {
    e.cap = [](float* x, size_t n, float c) {
      good.cap(x, n, c);
      Nudge(x[n - 1]);
    };
  });
  ExpectNamed("rope", [](Elementwise& e) {
    e.rope = [](float* x, const float* cos_sin, size_t half) {
      good.rope(x, cos_sin, half);
      Nudge(x[half]);
    };
  });
  ExpectNamed("add", [](Elementwise& e) {
    e.add = [](float* y, const float* b, size_t n) {
      good.add(y, b, n);
      y[n] = 0;  // past the end
    };
  });
  ExpectNamed("add_waves", [](Elementwise& e) {
    e.add_waves = [](float* scores, size_t stride, size_t n, size_t queries, const float* terms,
                     size_t terms_stride, const float* const* waves, size_t pairs) {
      good.add_waves(scores, stride, n, queries, terms, terms_stride, waves, pairs);
      Nudge(scores[(queries - 1) * stride + n - 1]);
    };
  });
  ExpectNamed("softmax_chunk", [](Elementwise& e) {
    e.softmax_chunk = [](float* scores, size_t stride, size_t queries, size_t first, size_t valid,
                         size_t padded, float* max, float* sum) {
      good.softmax_chunk(scores, stride, queries, first, valid, padded, max, sum);
      Nudge(sum[queries - 1]);
    };
  });
  ExpectNamed("quantize_weights", [](Elementwise& e) {
    e.quantize_weights = [](const float* p, size_t stride, const uint8_t* pages, size_t page_bytes,
                            ChunkWeights* out, size_t n_pages, size_t queries) {
      good.quantize_weights(p, stride, pages, page_bytes, out, n_pages, queries);
      ++out[queries - 1].q[n_pages * kValuePagePositions - 1];
    };
  });
  ExpectNamed("merge", [](Elementwise& e) {
    e.merge = [](float* o, float* m, float* l, const float* oc, float mc, float lc, size_t n) {
      good.merge(o, m, l, oc, mc, lc, n);
      Nudge(*l);
    };
  });
  ExpectNamed("largest_of_16", [](Elementwise& e) {
    e.largest_of_16 = [](const float* x, float* out, size_t panels) {
      good.largest_of_16(x, out, panels);
      Nudge(out[panels - 1]);
    };
  });
  ExpectNamed("finish", [](Elementwise& e) {
    e.finish = [](const float* o, float l, float* out, size_t n) {
      good.finish(o, l, out, n);
      out[n - 1] = kNan;
    };
  });
}

class ElementwiseOf : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (!HostHas(GetParam())) GTEST_SKIP() << "this host lacks " << IsaName(GetParam());
  }
};
INSTANTIATE_TEST_SUITE_P(Isas, ElementwiseOf,
                         testing::Values(Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni),
                         [](const auto& param) {
                           std::string name(IsaName(param.param));
                           std::erase(name, '-');
                           return name;
                         });

TEST_P(ElementwiseOf, SameBitsAsScalar) {
  const Elementwise& set = GetElementwise(GetParam());
  EXPECT_EQ(set.isa, GetParam());
  EXPECT_EQ(&set, &GetElementwise(GetParam()));
  std::vector<size_t> sizes;
  for (size_t n = 1; n <= 70; ++n) sizes.push_back(n);
  for (const size_t n : {127, 172, 256, 333, 1024, 2816, 4097}) sizes.push_back(n);
  for (const Pattern pattern : kPatterns) {
    for (const size_t n : sizes) ASSERT_EQ(CheckText(set, pattern, n), "");
  }
}

// Exp over its range and beyond, in steps of float bits, through softmax_chunk, whose maximum is
// the leading 0.
TEST_P(ElementwiseOf, ExpHasTheBitsOfNumericsH) {
  const Elementwise& set = GetElementwise(GetParam());
  for (uint32_t bits = 0; bits < 0x7F800000; bits += 16 * 997) {
    float x[32] = {};
    for (uint32_t i = 1; i < 32; ++i) {
      x[i] = -std::bit_cast<float>(std::min(bits + i * 499, 0x7F7FFFFFu));
    }
    float got[32], max, sum;
    std::memcpy(got, x, sizeof(x));
    set.softmax_chunk(got, 32, 1, 0, 32, 32, &max, &sum);
    for (size_t i = 0; i < 32; ++i) {
      ASSERT_EQ(std::bit_cast<uint32_t>(got[i]), std::bit_cast<uint32_t>(Exp(x[i]))) << x[i];
    }
  }
}

TEST_P(ElementwiseOf, NanDoesNotCrash) {
  const Elementwise& set = GetElementwise(GetParam());
  std::vector<float> x(64, kNan), y(64);
  std::vector<ActBlock> blocks(2);
  float m = kNan, l = 0;
  set.rms_norm(x.data(), x.data(), y.data(), 64, 0);
  set.quantize(x.data(), blocks.data(), 64);
  for (const Gate gate : {Gate::kSilu, Gate::kGeluTanh, Gate::kClamped, Gate::kRelu})
    set.of(gate)(x.data(), x.data(), kBlock, blocks.data(), sizeof(ActBlock), 2);
  set.softmax_chunk(x.data(), 64, 1, 0, 50, 64, &m, &l);
  set.merge(y.data(), &m, &l, x.data(), kNan, kNan, 64);
  set.add_sinks(y.data(), x.data(), x.data(), 64);
  for (size_t i = 50; i < 64; ++i) EXPECT_EQ(x[i], 0.0f);  // padding is 0 anyway
}

TEST(Exp, AccurateTo2e7) {
  double worst = 0;
  float worst_at = 0;
  for (float x = numerics::kExpLow; x <= 88.0f; x += 1e-4f) {
    const double exact = std::exp(static_cast<double>(x));
    const double error = std::fabs(Exp(x) - exact) / exact;
    if (error > worst) worst = error, worst_at = x;
  }
  RecordProperty("worst_relative_error", std::to_string(worst));
  std::printf("Exp: largest relative error %.3g at %.6g\n", worst, static_cast<double>(worst_at));
  EXPECT_LT(worst, 2e-7);
}

TEST(Exp, Edges) {
  EXPECT_EQ(Exp(0.0f), 1.0f);
  EXPECT_EQ(Exp(-0.0f), 1.0f);
  EXPECT_EQ(Exp(1e-42f), 1.0f);
  EXPECT_EQ(Exp(-87.5f), 0.0f);
  EXPECT_EQ(Exp(-INFINITY), 0.0f);
  EXPECT_GT(Exp(numerics::kExpLow), 0x1p-127f);
  EXPECT_EQ(Exp(100.0f), Exp(88.0f));
  EXPECT_EQ(Exp(INFINITY), Exp(88.0f));
  EXPECT_FALSE(std::isinf(Exp(88.0f)));
}

TEST(Scalar, RmsNormAgainstDouble) {
  const size_t n = 2816;
  const auto x = MakeInput(Pattern::kGaussian, n, 1), w = MakeInput(Pattern::kGaussian, n, 2);
  std::vector<float> y(n);
  GetElementwise(Isa::kScalar).rms_norm(x.data(), w.data(), y.data(), n, 1e-5f);
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  const double r = 1 / std::sqrt(squares / n + 1e-5);
  for (size_t i = 0; i < n; ++i) {
    const double exact = x[i] * r * w[i];
    // 176 additions per lane, each within 2^-24, halved by the root; then five roundings.
    ASSERT_NEAR(y[i], exact, (176 * 0.5 + 5) * 0x1p-24 * std::fabs(exact) + 1e-37) << i;
  }
}

float ValueOf(const ActBlock& block, size_t i) { return block.d * static_cast<float>(block.q[i]); }

TEST(Scalar, QuantizeKeepsItsContract) {
  const size_t n = 172;
  for (const Pattern pattern : kPatterns) {
    const auto x = MakeInput(pattern, n, 3);
    std::vector<ActBlock> blocks(CeilDiv(n, kBlock));
    GetElementwise(Isa::kScalar).quantize(x.data(), blocks.data(), n);
    for (size_t b = 0; b < blocks.size(); ++b) {
      const ActBlock& block = blocks[b];
      float amax = 0;
      int sums[2] = {}, largest = 0;
      for (size_t i = 0; i < kBlock; ++i) {
        const float v = b * kBlock + i < n ? x[b * kBlock + i] : 0.0f;
        amax = std::max(amax, std::fabs(v));
        sums[i / 16] += block.q[i];
        largest = std::max(largest, std::abs(block.q[i]));
        if (amax >= 0x1p-100f) {
          ASSERT_NEAR(ValueOf(block, i), v, 0.50002 * block.d) << b << " " << i;
        }
      }
      EXPECT_EQ(largest, amax < 0x1p-100f ? 0 : 127);
      EXPECT_EQ(block.d_sum, block.d * static_cast<float>(sums[0] + sums[1]));
      EXPECT_EQ(block.start, kMagicBits - 128 * (sums[0] + sums[1]));
      for (size_t half = 0; half < 2; ++half)
        EXPECT_EQ(block.half_starts[half], kMagicBits - 128 * sums[half]);
      EXPECT_EQ(block.minus_md, -12582912.0 * block.d);  // exact in double: exact in float
      EXPECT_EQ(std::bit_cast<uint32_t>(block.d) & 3, 0u);
    }
  }
}

TEST(Scalar, LayerNormAgainstDouble) {
  const size_t n = 2816;
  auto x = MakeInput(Pattern::kGaussian, n, 1);
  const auto w = MakeInput(Pattern::kGaussian, n, 2);
  for (float& v : x) v += 3.0f;
  std::vector<float> y(n);
  const float* const from = x.data();
  float* const to = y.data();
  GetElementwise(Isa::kScalar).layer_norms(&from, w.data(), &to, 1, n, 1e-5f);
  double mean = 0, squares = 0;
  for (const float v : x) mean += static_cast<double>(v) / n;
  for (const float v : x) squares += (v - mean) * (v - mean);
  const double r = 1 / std::sqrt(squares / n + 1e-5);
  for (size_t i = 0; i < n; ++i)
    ASSERT_NEAR(y[i], (x[i] - mean) * r * w[i], 4e-6 * (1 + std::fabs(w[i]))) << i;
}

TEST(Scalar, GatesAgainstDouble) {
  const size_t n = 2816;
  auto gate = MakeInput(Pattern::kGaussian, n, 4), up = MakeInput(Pattern::kGaussian, n, 5);
  for (float& g : gate) g *= 4.0f;  // beyond both limits of the clamped gate
  for (float& u : up) u *= 4.0f;
  const auto silu = [](double g) { return g / (1 + std::exp(-g)); };
  const auto gelu_tanh = [](double g) {  // Hendrycks and Gimpel 2016 (arXiv 1606.08415)
    return 0.5 * g * (1 + std::tanh(std::sqrt(2 / std::numbers::pi) * (g + 0.044715 * g * g * g)));
  };
  const auto clamped = [](double g, double u) {  // transformers' GptOssExperts
    g = std::min(g, 7.0);
    return (std::clamp(u, -7.0, 7.0) + 1) * g / (1 + std::exp(-1.702 * g));
  };
  for (const Gate kind : {Gate::kSilu, Gate::kGeluTanh, Gate::kClamped, Gate::kRelu}) {
    std::vector<ActBlock> blocks(n / kBlock);
    GetElementwise(Isa::kScalar)
        .of(kind)(gate.data(), up.data(), kBlock, blocks.data(), sizeof(ActBlock), n / kBlock);
    for (size_t i = 0; i < n; ++i) {
      const double h = kind == Gate::kSilu       ? silu(gate[i]) * up[i]
                       : kind == Gate::kGeluTanh ? gelu_tanh(gate[i]) * up[i]
                       : kind == Gate::kRelu     ? std::max(0.0f, gate[i]) * up[i]
                                                 : clamped(gate[i], up[i]);
      const ActBlock& block = blocks[i / kBlock];
      // Half a quantisation step, plus the effect of the roundings before it.
      ASSERT_NEAR(ValueOf(block, i % kBlock), h, 0.5001 * block.d) << i;
    }
  }
}

// A sink is a score of which no value comes.
TEST(Scalar, SinksTakePartInTheSum) {
  const Elementwise& set = GetElementwise(Isa::kScalar);
  for (const float sink : {-200.0f, -3.0f, 0.5f, 4.0f, 80.0f, 300.0f}) {
    std::vector<float> scores = MakeInput(Pattern::kGaussian, 48, 6);
    double exact = 0;
    for (size_t i = 0; i < 40; ++i) exact += std::exp(static_cast<double>(scores[i]) - sink);
    float m, l;
    set.softmax_chunk(scores.data(), 48, 1, 0, 40, 48, &m, &l);
    float o = l, share;  // the value of every position is 1
    set.add_sinks(&l, &m, &sink, 1);
    set.finish(&o, l, &share, 1);
    EXPECT_NEAR(share, exact / (exact + 1), 1e-6) << sink;
  }
}

TEST(Scalar, CapAgainstDouble) {
  for (const float c : {2.5f, 30.0f, 50.0f}) {
    for (float x = -400; x <= 400; x += 0.37f) {
      float capped = x;
      GetElementwise(Isa::kScalar).cap(&capped, 1, c);
      ASSERT_NEAR(capped, c * std::tanh(static_cast<double>(x) / c), 3e-7 * c) << c << " " << x;
    }
    for (const float end : {-INFINITY, INFINITY, -1e38f, 1e38f}) {
      float capped = end;
      GetElementwise(Isa::kScalar).cap(&capped, 1, c);
      EXPECT_EQ(capped, std::copysign(c, end));
    }
  }
}

TEST(Scalar, SoftmaxChunksMergeToASoftmax) {
  const Elementwise& set = GetElementwise(Isa::kScalar);
  const auto scores = MakeInput(Pattern::kGaussian, 100, 6);
  double exact = 0;
  for (const float s : scores) exact += std::exp(static_cast<double>(s));
  float m = -INFINITY, l = 0, o = 0;  // o: the "value" of every position is 1
  for (size_t begin = 0; begin < 100; begin += 48) {
    const size_t n = std::min<size_t>(48, 100 - begin);
    std::vector<float> chunk(scores.begin() + static_cast<long>(begin),
                             scores.begin() + static_cast<long>(begin + n));
    chunk.resize(48);
    float mc, lc;
    set.softmax_chunk(chunk.data(), 48, 1, 0, n, 48, &mc, &lc);
    float oc = 0;
    for (const float p : chunk) oc += p;
    set.merge(&o, &m, &l, &oc, mc, lc, 1);
  }
  EXPECT_EQ(m, *std::max_element(scores.begin(), scores.end()));
  EXPECT_NEAR(l * std::exp(static_cast<double>(m)) / exact, 1, 1e-6);
  float mean;
  set.finish(&o, l, &mean, 1);
  EXPECT_NEAR(mean, 1, 1e-6);
}

// What lies before `first` is as if it were not there, and each score stays in its lane.
TEST_P(ElementwiseOf, SoftmaxSeesNothingBeforeTheFirst) {
  const Elementwise& set = GetElementwise(GetParam());
  constexpr size_t kPadded = 64, kValid = 61;
  const auto scores = MakeInput(Pattern::kGaussian, kPadded, 8);
  for (size_t first = 0; first < kValid; ++first) {
    std::vector<float> masked = scores, rest(kPadded, -INFINITY);
    std::fill_n(masked.begin(), first, 1e30f);
    std::copy(scores.begin() + static_cast<ptrdiff_t>(first), scores.end(),
              rest.begin() + static_cast<ptrdiff_t>(first));
    float m[2], l[2];
    set.softmax_chunk(masked.data(), kPadded, 1, first, kValid, kPadded, &m[0], &l[0]);
    set.softmax_chunk(rest.data(), kPadded, 1, 0, kValid, kPadded, &m[1], &l[1]);
    EXPECT_EQ(FirstDifference(masked.data(), rest.data(), kPadded), kPadded) << first;
    EXPECT_EQ(m[0], m[1]);
    EXPECT_EQ(l[0], l[1]);
    EXPECT_EQ(std::signbit(masked[0]), false);
    EXPECT_EQ(m[0], *std::max_element(scores.begin() + static_cast<ptrdiff_t>(first),
                                      scores.begin() + kValid));
  }
}

TEST(Scalar, RopeTurnsByTheAngle) {
  const float angle = 0.7f;
  float x[4] = {1, 0, 0, 2};
  const float cos_sin[4] = {std::cos(angle), 1, std::sin(angle), 0};
  GetElementwise(Isa::kScalar).rope(x, cos_sin, 2);
  EXPECT_FLOAT_EQ(x[0], std::cos(angle));
  EXPECT_FLOAT_EQ(x[2], std::sin(angle));
  EXPECT_EQ(x[1], 0.0f);
  EXPECT_EQ(x[3], 2.0f);
}

}  // namespace
}  // namespace larder::kernels::rows
