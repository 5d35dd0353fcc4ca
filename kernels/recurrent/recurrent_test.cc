#include "kernels/recurrent/recurrent.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <vector>

#include "base/error.h"
#include "kernels/recurrent/recurrent_sets.h"

namespace larder::kernels::inline recurrent {
namespace {

constexpr Isa kIsas[] = {Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni};

TEST(Recurrent, EverySetHasTheBitsOfTheScalarOne) {
  size_t sets = 0;
  for (const Isa isa : kIsas) {
    if (!HostHas(isa)) continue;
    ++sets;
    for (const Pattern pattern : kPatterns) {
      for (size_t n = 1; n <= 70; ++n)
        CheckRecurrent(GetRecurrent(isa), GetRecurrent(Isa::kScalar), pattern, n);
    }
  }
  if (sets == 0) GTEST_SKIP() << "this host has no instruction set but the scalar one";
}

TEST(Recurrent, ADifferenceIsSaid) {
  for (const auto break_it :
       {+[](Recurrent& set) { set.silu_gate = +[](float*, const float*, size_t) {}; },
        +[](Recurrent& set) {
          set.delta_rule = +[](const DeltaRun* run) {
            DeltaRun other = *run;
            other.first = run->first * 1.0000001f;
            GetRecurrent(Isa::kScalar).delta_rule(&other);
          };
        }}) {
    Recurrent broken = GetRecurrent(Isa::kScalar);
    break_it(broken);
    EXPECT_THROW(CheckRecurrent(broken, GetRecurrent(Isa::kScalar), Pattern::kGaussian, 9), Error);
  }
}

// One value head's inputs, of a few columns, over many tokens.
struct Head {
  static constexpr size_t kKey = 32;
  explicit Head(size_t count) : tokens(count) {
    keys = MakeInput(Pattern::kGaussian, tokens * kKey, 1);
    queries = MakeInput(Pattern::kGaussian, tokens * kKey, 2);
    values = MakeInput(Pattern::kGaussian, tokens * kStateColumns, 3);
    rates = MakeInput(Pattern::kGaussian, tokens, 4);
    decays = MakeInput(Pattern::kGaussian, tokens, 5);
    for (float& rate : rates) rate = 1.0f / (1.0f + std::exp(-rate));
    for (float& decay : decays) decay = std::exp(-0.2f * std::fabs(decay));
    for (size_t t = 0; t < tokens; ++t) {
      double squares = 0;
      for (size_t i = 0; i < kKey; ++i) squares += std::pow(keys[t * kKey + i], 2.0);
      for (size_t i = 0; i < kKey; ++i)
        keys[t * kKey + i] = static_cast<float>(keys[t * kKey + i] / std::sqrt(squares));
    }
  }
  size_t tokens;
  std::vector<float> keys, queries, values, rates, decays;
};

// Runs the tokens in pieces of `cut`, with a state that is scaled anew as recurrent.h says.
std::vector<float> OutputOf(const Recurrent& set, const Head& head, size_t cut) {
  std::vector<float> state(Head::kKey * kStateColumns), out(head.tokens * kStateColumns);
  float scale = 1.0f;
  for (size_t begin = 0; begin < head.tokens;) {
    std::vector<float> scales, rates;
    float first = 1.0f;
    size_t end = begin;
    for (; end < head.tokens && (end == begin || end % cut != 0); ++end) {
      const float next = scale * head.decays[end];
      if (next < kLeastScale) {
        if (end > begin) break;
        first = next;
      }
      scale = next < kLeastScale ? 1.0f : next;
      scales.push_back(scale);
      rates.push_back(head.rates[end] / scale);
    }
    const DeltaRun run{.state = state.data(),
                       .keys = head.keys.data() + begin * Head::kKey,
                       .queries = head.queries.data() + begin * Head::kKey,
                       .values = head.values.data() + begin * kStateColumns,
                       .out = out.data() + begin * kStateColumns,
                       .scales = scales.data(),
                       .rates = rates.data(),
                       .key_size = Head::kKey,
                       .tokens = end - begin,
                       .key_stride = Head::kKey,
                       .value_stride = kStateColumns,
                       .out_stride = kStateColumns,
                       .first = first};
    set.delta_rule(&run);
    begin = end;
  }
  return out;
}

TEST(Recurrent, ACutMovesNoBit) {
  const Head head(700);
  const std::vector<float> whole = OutputOf(GetRecurrent(BestIsa()), head, head.tokens);
  for (const size_t cut : {1, 7, 64, 100, 256}) {
    EXPECT_EQ(FirstDifference(OutputOf(GetRecurrent(BestIsa()), head, cut).data(), whole.data(),
                              whole.size()),
              whole.size())
        << cut;
  }
}

TEST(Recurrent, TheDeltaRuleIsThatOfTheDefinition) {
  const Head head(700);
  std::vector<double> state(Head::kKey * kStateColumns);
  double worst = 0, largest = 0;
  const std::vector<float> out = OutputOf(GetRecurrent(BestIsa()), head, 64);
  for (size_t t = 0; t < head.tokens; ++t) {
    const float *key = &head.keys[t * Head::kKey], *query = &head.queries[t * Head::kKey];
    for (double& s : state) s *= static_cast<double>(head.decays[t]);
    for (size_t c = 0; c < kStateColumns; ++c) {
      double p = 0, o = 0;
      for (size_t i = 0; i < Head::kKey; ++i)
        p += state[i * kStateColumns + c] * static_cast<double>(key[i]);
      const double d = static_cast<double>(head.rates[t]) *
                       (static_cast<double>(head.values[t * kStateColumns + c]) - p);
      for (size_t i = 0; i < Head::kKey; ++i) {
        state[i * kStateColumns + c] += static_cast<double>(key[i]) * d;
        o += state[i * kStateColumns + c] * static_cast<double>(query[i]);
      }
      worst = std::max(worst, std::fabs(o - static_cast<double>(out[t * kStateColumns + c])));
      largest = std::max(largest, std::fabs(o));
    }
  }
  EXPECT_GT(largest, 1.0);
  // Some 100 tokens' roundings of 2^-24 each are still in the state.
  EXPECT_LT(worst, 1e-5 * largest);
}

// The same for Mamba-2: the head's keys and queries are B and C, its rates the steps.
std::vector<float> MambaOutputOf(const Recurrent& set, const Head& head, size_t cut) {
  std::vector<float> state(Head::kKey * kMambaColumns), out(head.tokens * kMambaColumns);
  for (size_t begin = 0; begin < head.tokens; begin += cut) {
    const MambaRun run{.state = state.data(),
                       .inputs = head.keys.data() + begin * Head::kKey,
                       .outputs = head.queries.data() + begin * Head::kKey,
                       .values = head.values.data() + begin * kStateColumns,
                       .out = out.data() + begin * kMambaColumns,
                       .decays = head.decays.data() + begin,
                       .steps = head.rates.data() + begin,
                       .state_size = Head::kKey,
                       .tokens = std::min(cut, head.tokens - begin),
                       .stride = Head::kKey,
                       .value_stride = kStateColumns,
                       .out_stride = kMambaColumns,
                       .skip = 0.75f};
    set.mamba2(&run);
  }
  return out;
}

TEST(Recurrent, ACutMovesNoBitOfMamba2) {
  const Head head(700);
  const std::vector<float> whole = MambaOutputOf(GetRecurrent(BestIsa()), head, head.tokens);
  for (const size_t cut : {1, 3, 7, 64, 100, 256}) {
    EXPECT_EQ(FirstDifference(MambaOutputOf(GetRecurrent(BestIsa()), head, cut).data(),
                              whole.data(), whole.size()),
              whole.size())
        << cut;
  }
}

TEST(Recurrent, Mamba2IsThatOfTheDefinition) {
  const Head head(700);
  const std::vector<float> out = MambaOutputOf(GetRecurrent(BestIsa()), head, 64);
  std::vector<double> state(Head::kKey * kMambaColumns);
  double worst = 0, largest = 0;
  for (size_t t = 0; t < head.tokens; ++t) {
    for (size_t c = 0; c < kMambaColumns; ++c) {
      const auto x = static_cast<double>(head.values[t * kStateColumns + c]);
      double y = 0.75 * x;
      for (size_t i = 0; i < Head::kKey; ++i) {
        double& s = state[i * kMambaColumns + c];
        s = static_cast<double>(head.decays[t]) * s +
            static_cast<double>(head.rates[t]) * x *
                static_cast<double>(head.keys[t * Head::kKey + i]);
        y += s * static_cast<double>(head.queries[t * Head::kKey + i]);
      }
      worst = std::max(worst, std::fabs(y - static_cast<double>(out[t * kMambaColumns + c])));
      largest = std::max(largest, std::fabs(y));
    }
  }
  EXPECT_GT(largest, 1.0);
  EXPECT_LT(worst, 1e-5 * largest);
}

TEST(Recurrent, GatesAreThoseOfTheDefinition) {
  std::vector<float> alpha, beta;
  for (float x = -120.0f; x <= 120.0f; x += 0.37f) alpha.push_back(x);
  beta.assign(alpha.rbegin(), alpha.rend());
  std::vector<float> decays(alpha.size()), rates(alpha.size());
  GetRecurrent(BestIsa()).delta_gates(alpha.data(), beta.data(), -0.5f, 0.25f, decays.data(),
                                      rates.data(), alpha.size());
  std::vector<float> mamba_decays(alpha.size()), steps(alpha.size());
  GetRecurrent(BestIsa()).mamba_gates(alpha.data(), -0.5f, 0.25f, mamba_decays.data(), steps.data(),
                                      alpha.size());
  for (size_t i = 0; i < alpha.size(); ++i) {
    const double x = alpha[i] + 0.25;
    const double softplus = std::max(x, 0.0) + std::log1p(std::exp(-std::fabs(x)));
    const double decay = std::exp(-0.5 * softplus);
    EXPECT_NEAR(decays[i], decay, 2e-6 * decay + 1e-37) << alpha[i];
    EXPECT_NEAR(steps[i], softplus, 1e-6 * softplus + 1e-37) << alpha[i];
    EXPECT_EQ(std::bit_cast<uint32_t>(mamba_decays[i]), std::bit_cast<uint32_t>(decays[i]));
    EXPECT_NEAR(rates[i], 1.0 / (1.0 + std::exp(-static_cast<double>(beta[i]))), 3e-7) << beta[i];
  }
}

TEST(Recurrent, AMissingInstructionSetIsAnError) {
  for (const Isa isa : kIsas) {
    if (!HostHas(isa)) {
      EXPECT_THROW(GetRecurrent(isa), Error);
    }
  }
}

}  // namespace
}  // namespace larder::kernels::recurrent
