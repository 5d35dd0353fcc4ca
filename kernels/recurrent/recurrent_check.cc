#include <cmath>
#include <utility>
#include <vector>

#include "kernels/recurrent/recurrent_sets.h"

namespace larder::kernels::inline recurrent {
namespace {

constexpr size_t kGuard = 16;  // floats after each output, which must not change

std::vector<float> Output(size_t n) { return std::vector<float>(n + kGuard, -12345.0f); }

}  // namespace

void CheckRecurrent(const Recurrent& candidate, const Recurrent& reference, Pattern pattern,
                    size_t n) {
  const auto compare = [&](const char* kernel, auto run) {
    const std::vector<float> got = run(candidate), want = run(reference);
    RequireSameBits(candidate.isa, kernel, PatternName(pattern), n, got.data(), want.data(),
                    want.size());
  };
  const auto input = [&](size_t count, uint32_t seed) { return MakeInput(pattern, count, seed); };
  // Numbers of ordinary size, such as scales and weights are.
  const auto plain = [](size_t count, uint32_t seed) {
    return MakeInput(Pattern::kGaussian, count, seed);
  };

  const size_t taps = 1 + n % 4, tokens = 1 + n % 5, channels = n;
  const auto x = input((taps - 1 + tokens) * channels, 1), w = plain((taps + 1) * channels, 2);
  using Convolve = decltype(Recurrent::convolve) Recurrent::*;
  constexpr std::pair<const char*, Convolve> kConvolves[] = {
      {"convolve", &Recurrent::convolve},
      {"convolve_biased", &Recurrent::convolve_biased},
      {"convolve_alone", &Recurrent::convolve_alone}};
  for (const auto& [name, convolve] : kConvolves) {
    compare(name, [&, convolve = convolve](const Recurrent& set) {
      std::vector<const float*> rows;
      for (size_t t = taps - 1 + tokens; t-- > 0;) rows.push_back(x.data() + t * channels);
      auto y = Output(tokens * (channels + 3));
      (set.*convolve)(rows.data(), w.data(), taps, y.data(), channels + 3, tokens, channels);
      return y;
    });
  }

  const auto alpha = input(n, 3), beta = input(n, 4);
  compare("delta_gates", [&](const Recurrent& set) {
    auto out = Output(n), rates = Output(n);
    set.delta_gates(alpha.data(), beta.data(), -0.75f, 0.25f, out.data(), rates.data(), n);
    out.insert(out.end(), rates.begin(), rates.end());
    return out;
  });

  const size_t key_size = kStateRows * (1 + n % 9), key_stride = key_size + n % 3;
  const size_t value_stride = kStateColumns + n % 5;
  const auto state = input(key_size * kStateColumns, 5), values = input(n * value_stride, 6);
  const auto keys = plain(n * key_stride, 7), queries = plain(n * key_stride, 8);
  auto scales = plain(n, 9), rates = plain(n, 10);
  for (float& scale : scales) scale = std::fabs(scale);
  for (const float first : {1.0f, 0.375f}) {
    compare("delta_rule", [&](const Recurrent& set) {
      auto end = state;
      end.resize(end.size() + kGuard, -12345.0f);
      auto out = Output(n * value_stride);
      const DeltaRun run{.state = end.data(),
                         .keys = keys.data(),
                         .queries = queries.data(),
                         .values = values.data(),
                         .out = out.data(),
                         .scales = scales.data(),
                         .rates = rates.data(),
                         .key_size = key_size,
                         .tokens = n,
                         .key_stride = key_stride,
                         .value_stride = value_stride,
                         .out_stride = value_stride,
                         .first = first};
      set.delta_rule(&run);
      end.insert(end.end(), out.begin(), out.end());
      return end;
    });
  }

  compare("mamba_gates", [&](const Recurrent& set) {
    auto out = Output(n), steps = Output(n);
    set.mamba_gates(alpha.data(), -0.75f, 0.25f, out.data(), steps.data(), n);
    out.insert(out.end(), steps.begin(), steps.end());
    return out;
  });

  compare("mamba2", [&](const Recurrent& set) {
    auto end = state;
    end.resize(key_size * kMambaColumns);
    end.resize(end.size() + kGuard, -12345.0f);
    auto out = Output(n * value_stride);
    const MambaRun run{.state = end.data(),
                       .inputs = keys.data(),
                       .outputs = queries.data(),
                       .values = values.data(),
                       .out = out.data(),
                       .decays = scales.data(),
                       .steps = rates.data(),
                       .state_size = key_size,
                       .tokens = n,
                       .stride = key_stride,
                       .value_stride = value_stride,
                       .out_stride = value_stride,
                       .skip = 0.625f};
    set.mamba2(&run);
    end.insert(end.end(), out.begin(), out.end());
    return end;
  });

  for (const auto gate : {&Recurrent::silu_gate, &Recurrent::sigmoid_gate}) {
    compare(gate == &Recurrent::silu_gate ? "silu_gate" : "sigmoid_gate",
            [&](const Recurrent& set) {
              auto y = beta;
              y.resize(n + kGuard, -12345.0f);
              (set.*gate)(y.data(), alpha.data(), n);
              return y;
            });
  }
  compare("multiply", [&](const Recurrent& set) {
    auto y = beta;
    y.resize(n + kGuard, -12345.0f);
    set.multiply(alpha.data(), y.data(), y.data(), n);
    return y;
  });
}

}  // namespace larder::kernels::recurrent
