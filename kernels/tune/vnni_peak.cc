// Inline assembly, as no file is compiled for a newer CPU. Each loop iteration issues
// 12 (AVX-512: 14) independent accumulations, enough for a latency of 5 cycles at two per cycle.
#include "kernels/tune/vnni_peak.h"

#include <algorithm>
#include <cstdint>

#include "base/clock.h"

namespace larder::kernels::inline tune {
namespace {

// About half a millisecond: longer than a clock reading, shorter than a time slice.
constexpr uint64_t kTurns = 200'000;

#if defined(__x86_64__)

// Only zmm16 and above are used: the compiler, which generates code for baseline x86-64, does not
// know them, and they leave no dirty upper halves that would slow SSE code.
void TurnsAvx512(uint64_t turns) {
  __asm__ volatile(
      "vpxord %%zmm16, %%zmm16, %%zmm16\n"
      "vpxord %%zmm17, %%zmm17, %%zmm17\n"
      ".p2align 5\n"
      "1:\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm18\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm19\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm20\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm21\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm22\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm23\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm24\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm25\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm26\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm27\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm28\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm29\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm30\n"
      "vpdpbusd %%zmm16, %%zmm17, %%zmm31\n"
      "dec %0\n"
      "jnz 1b\n"
      : "+r"(turns)
      :
      : "cc");
}

#define LARDER_YMM_CLOBBERS                                                                      \
  "cc", "xmm0", "xmm1", "xmm2", "xmm3", "xmm4", "xmm5", "xmm6", "xmm7", "xmm8", "xmm9", "xmm10", \
      "xmm11", "xmm12", "xmm13", "xmm14", "xmm15"

void TurnsAvxVnni(uint64_t turns) {
  __asm__ volatile(
      "vpxor %%xmm14, %%xmm14, %%xmm14\n"
      "vpxor %%xmm15, %%xmm15, %%xmm15\n"
      ".p2align 5\n"
      "1:\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm0\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm1\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm2\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm3\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm4\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm5\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm6\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm7\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm8\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm9\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm10\n"
      "%{vex%} vpdpbusd %%ymm14, %%ymm15, %%ymm11\n"
      "dec %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(turns)
      :
      : LARDER_YMM_CLOBBERS);
}

// bytes x bytes -> 16 bits, pairs -> 32 bits, added: six chains, each with its own temporary.
void TurnsAvx2(uint64_t turns) {
  __asm__ volatile(
      "vpxor %%xmm12, %%xmm12, %%xmm12\n"
      "vpxor %%xmm13, %%xmm13, %%xmm13\n"
      "vpxor %%xmm14, %%xmm14, %%xmm14\n"
      ".p2align 5\n"
      "1:\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm6\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm7\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm8\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm9\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm10\n"
      "vpmaddubsw %%ymm12, %%ymm13, %%ymm11\n"
      "vpmaddwd %%ymm14, %%ymm6, %%ymm6\n"
      "vpmaddwd %%ymm14, %%ymm7, %%ymm7\n"
      "vpmaddwd %%ymm14, %%ymm8, %%ymm8\n"
      "vpmaddwd %%ymm14, %%ymm9, %%ymm9\n"
      "vpmaddwd %%ymm14, %%ymm10, %%ymm10\n"
      "vpmaddwd %%ymm14, %%ymm11, %%ymm11\n"
      "vpaddd %%ymm6, %%ymm0, %%ymm0\n"
      "vpaddd %%ymm7, %%ymm1, %%ymm1\n"
      "vpaddd %%ymm8, %%ymm2, %%ymm2\n"
      "vpaddd %%ymm9, %%ymm3, %%ymm3\n"
      "vpaddd %%ymm10, %%ymm4, %%ymm4\n"
      "vpaddd %%ymm11, %%ymm5, %%ymm5\n"
      "dec %0\n"
      "jnz 1b\n"
      "vzeroupper\n"
      : "+r"(turns)
      :
      : LARDER_YMM_CLOBBERS);
}

#endif

struct Loop {
  void (*run)(uint64_t turns) = nullptr;
  double ops_per_turn = 0;  // accumulations x bytes x 2
};

Loop LoopFor(Isa isa) {
#if defined(__x86_64__)
  switch (isa) {
    case Isa::kAvx512Vnni:
      return {TurnsAvx512, 14 * 64 * 2};
    case Isa::kAvxVnni:
      return {TurnsAvxVnni, 12 * 32 * 2};
    case Isa::kAvx2:
      return {TurnsAvx2, 6 * 32 * 2};
    case Isa::kScalar:
      break;
  }
#else
  (void)isa;
#endif
  return {};
}

}  // namespace

double PeakGops(Isa isa, double seconds) {
  const Loop loop = LoopFor(isa);
  if (loop.run == nullptr || !HostHas(isa)) return 0;
  const int64_t begin = NowNs();
  double best = 0;
  do {
    const int64_t start = NowNs();
    loop.run(kTurns);
    best = std::max(best,
                    static_cast<double>(kTurns) * loop.ops_per_turn / SecondsSince(start) * 1e-9);
  } while (SecondsSince(begin) < seconds);
  return best;
}

}  // namespace larder::kernels::tune
