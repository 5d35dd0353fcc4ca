// The gated delta rule and Mamba-2: microseconds of one core a token and value head, by the tokens
// of a micro-batch, against the multiply-adds that a token needs (three for each element of the
// state; of Mamba-2 one is a multiplication) at the speed of the same core in the same rounds.
//   bench_recurrent [--rounds N] [--size N] [--isa NAME] [--cpu N]
// --size: elements of a key, or of Mamba-2's state, and of a value.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "base/clock.h"
#include "bench/ratio.h"
#include "bench/table_main.h"
#include "kernels/recurrent/recurrent.h"
#include "topology/host.h"

namespace larder::bench {
namespace {

using kernels::DeltaRun;
using kernels::kMambaColumns;
using kernels::kStateColumns;
using kernels::MambaRun;

constexpr size_t kTokens = 256;
constexpr size_t kAtOnce[] = {1, 8, 32, 256};

// Multiply-adds of floats in a nanosecond, from independent chains of the widest vectors.
__attribute__((target("avx512f"))) double Avx512Peak(size_t loops) {
  const int64_t begin = NowNs();
  for (size_t i = 0; i < loops; ++i) {
    __asm__ volatile(
        "vfmadd231ps %%zmm0, %%zmm0, %%zmm1\n vfmadd231ps %%zmm0, %%zmm0, %%zmm2\n"
        "vfmadd231ps %%zmm0, %%zmm0, %%zmm3\n vfmadd231ps %%zmm0, %%zmm0, %%zmm4\n"
        "vfmadd231ps %%zmm0, %%zmm0, %%zmm5\n vfmadd231ps %%zmm0, %%zmm0, %%zmm6\n"
        "vfmadd231ps %%zmm0, %%zmm0, %%zmm7\n vfmadd231ps %%zmm0, %%zmm0, %%zmm8\n"
        "vfmadd231ps %%zmm0, %%zmm0, %%zmm9\n vfmadd231ps %%zmm0, %%zmm0, %%zmm10\n" ::
            : "zmm1", "zmm2", "zmm3", "zmm4", "zmm5", "zmm6", "zmm7", "zmm8", "zmm9", "zmm10");
  }
  return 160.0 * static_cast<double>(loops) / static_cast<double>(NowNs() - begin);
}
__attribute__((target("avx2,fma"))) double Avx2Peak(size_t loops) {
  const int64_t begin = NowNs();
  for (size_t i = 0; i < loops; ++i) {
    __asm__ volatile(
        "vfmadd231ps %%ymm0, %%ymm0, %%ymm1\n vfmadd231ps %%ymm0, %%ymm0, %%ymm2\n"
        "vfmadd231ps %%ymm0, %%ymm0, %%ymm3\n vfmadd231ps %%ymm0, %%ymm0, %%ymm4\n"
        "vfmadd231ps %%ymm0, %%ymm0, %%ymm5\n vfmadd231ps %%ymm0, %%ymm0, %%ymm6\n"
        "vfmadd231ps %%ymm0, %%ymm0, %%ymm7\n vfmadd231ps %%ymm0, %%ymm0, %%ymm8\n"
        "vfmadd231ps %%ymm0, %%ymm0, %%ymm9\n vfmadd231ps %%ymm0, %%ymm0, %%ymm10\n" ::
            : "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10");
  }
  return 80.0 * static_cast<double>(loops) / static_cast<double>(NowNs() - begin);
}

class Head {
 public:
  explicit Head(size_t size)
      : size_(size),
        state_(size * size, 0.0f),
        keys_(kTokens * size, 0.05f),
        values_(kTokens * size, 0.5f),
        out_(kTokens * size),
        scales_(kTokens, 0.5f),
        rates_(kTokens, 0.25f) {}

  // Microseconds a token.
  double RunMamba2(const kernels::Recurrent& set, size_t at_once) {
    const int64_t begin = NowNs();
    for (size_t t = 0; t < kTokens; t += at_once) {
      for (size_t column = 0; column < size_; column += kMambaColumns) {
        const MambaRun run{.state = state_.data() + column * size_,
                           .inputs = keys_.data() + t * size_,
                           .outputs = keys_.data() + t * size_,
                           .values = values_.data() + t * size_ + column,
                           .out = out_.data() + t * size_ + column,
                           .decays = scales_.data() + t,
                           .steps = rates_.data() + t,
                           .state_size = size_,
                           .tokens = at_once,
                           .stride = size_,
                           .value_stride = size_,
                           .out_stride = size_,
                           .skip = 1.0f};
        set.mamba2(&run);
      }
    }
    return static_cast<double>(NowNs() - begin) * 1e-3 / kTokens;
  }
  double RunDeltaRule(const kernels::Recurrent& set, size_t at_once) {
    const int64_t begin = NowNs();
    for (size_t t = 0; t < kTokens; t += at_once) {
      for (size_t column = 0; column < size_; column += kStateColumns) {
        const DeltaRun run{.state = state_.data() + column * size_,
                           .keys = keys_.data() + t * size_,
                           .queries = keys_.data() + t * size_,
                           .values = values_.data() + t * size_ + column,
                           .out = out_.data() + t * size_ + column,
                           .scales = scales_.data() + t,
                           .rates = rates_.data() + t,
                           .key_size = size_,
                           .tokens = at_once,
                           .key_stride = size_,
                           .value_stride = size_,
                           .out_stride = size_,
                           .first = 1.0f};
        set.delta_rule(&run);
      }
    }
    return static_cast<double>(NowNs() - begin) * 1e-3 / kTokens;
  }

 private:
  const size_t size_;
  std::vector<float> state_, keys_, values_, out_, scales_, rates_;
};

void Measure(kernels::Isa isa, size_t rounds, size_t size) {
  const kernels::Recurrent& set = kernels::GetRecurrent(isa);
  Head head(size);
  double peak = 0;
  std::vector<double> delta(std::size(kAtOnce), 1e9), mamba(std::size(kAtOnce), 1e9);
  for (size_t round = 0; round < rounds; ++round) {
    for (size_t i = 0; i < delta.size(); ++i) {
      delta[i] = std::min(delta[i], head.RunDeltaRule(set, kAtOnce[i]));
      mamba[i] = std::min(mamba[i], head.RunMamba2(set, kAtOnce[i]));
    }
    if (isa == kernels::Isa::kScalar) continue;
    peak = std::max(peak, isa == kernels::Isa::kAvx512Vnni ? Avx512Peak(10'000) : Avx2Peak(10'000));
  }
  const double needed_us = 3.0 * static_cast<double>(size * size) / peak * 1e-3;
  fmt::print(
      "{}, {}: a state of {} x {}, best of {} alternating rounds; {:.1f} multiply-adds a ns\n",
      topology::CpuName(), kernels::IsaName(isa), size, size, rounds, peak);
  fmt::print(
      "| tokens at once | delta rule, us a token | of the multiply-adds' speed | Mamba-2, us "
      "| of it |\n|--:|--:|--:|--:|--:|\n");
  const auto share = [&](double us) { return peak > 0 ? 100 * needed_us / us : 0.0; };
  for (size_t i = 0; i < delta.size(); ++i)
    fmt::print("| {} | {:.3f} | {:.0f} % | {:.3f} | {:.0f} % |\n", kAtOnce[i], delta[i],
               share(delta[i]), mamba[i], share(mamba[i]));
}

}  // namespace
}  // namespace larder::bench

int main(int argc, char** argv) {
  size_t rounds = 200, size = 128;
  return larder::bench::RunTable(
      argc, argv, {{"--rounds", &rounds, 1, 1'000'000}, {"--size", &size, 32, 512}},
      [&](larder::kernels::Isa isa) { larder::bench::Measure(isa, rounds, size / 32 * 32); });
}
