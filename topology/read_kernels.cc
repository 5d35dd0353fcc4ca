#include "topology/read_kernels.h"

#include <string_view>

#include "base/memory.h"
#include "topology/probe.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace larder::topology {
namespace {

constexpr size_t kBlockLines = 4;  // lines of one stream before the next stream's turn
constexpr size_t kBlockBytes = kBlockLines * kCacheLineBytes;

// Loads one cache line. The empty asm takes each vector as an operand, so the load must happen and
// no other code is made. volatile keeps the loads in order; none can be merged or dropped.
#define LARDER_LOAD_LINE(p, VECTOR, CONSTRAINT)                           \
  for (size_t part = 0; part < kCacheLineBytes; part += sizeof(VECTOR)) { \
    const VECTOR loaded = *reinterpret_cast<const VECTOR*>((p) + part);   \
    __asm__ __volatile__("" : : CONSTRAINT(loaded));                      \
  }

// kStreams parts of the region are read side by side, kBlockLines lines of each in turn. The line
// kAhead bytes ahead of each stream is prefetched (0: never). Prefetches run past the end of the
// region; they do not fault. This is a macro because a target attribute cannot be a template
// parameter.
#define LARDER_READ_KERNEL(NAME, TARGET, VECTOR, CONSTRAINT)                        \
  template <size_t kStreams, size_t kAhead>                                         \
  TARGET void NAME(const std::byte* data, size_t bytes) {                           \
    const size_t part_bytes = bytes / kStreams / kBlockBytes * kBlockBytes;         \
    for (size_t at = 0; at < part_bytes; at += kBlockBytes) {                       \
      _Pragma("GCC unroll 8") for (size_t s = 0; s < kStreams; ++s) {               \
        const std::byte* block = data + s * part_bytes + at;                        \
        _Pragma("GCC unroll 4") for (size_t line = 0; line < kBlockLines; ++line) { \
          const std::byte* p = block + line * kCacheLineBytes;                      \
          if constexpr (kAhead != 0) __builtin_prefetch(p + kAhead, 0, 3);          \
          LARDER_LOAD_LINE(p, VECTOR, CONSTRAINT)                                   \
        }                                                                           \
      }                                                                             \
    }                                                                               \
    const size_t rest = bytes / kCacheLineBytes * kCacheLineBytes;                  \
    for (size_t at = kStreams * part_bytes; at < rest; at += kCacheLineBytes) {     \
      LARDER_LOAD_LINE(data + at, VECTOR, CONSTRAINT)                               \
    }                                                                               \
  }

typedef char Vector16 __attribute__((vector_size(16)));
#if defined(__x86_64__)
typedef char Vector32 __attribute__((vector_size(32)));
typedef char Vector64 __attribute__((vector_size(64)));
LARDER_READ_KERNEL(ReadAvx512, __attribute__((target("avx512f"))), Vector64, "v")
LARDER_READ_KERNEL(ReadAvx2, __attribute__((target("avx2"))), Vector32, "x")
LARDER_READ_KERNEL(ReadBaseline, , Vector16, "x")
#else
LARDER_READ_KERNEL(ReadBaseline, , Vector16, "m")
#endif

#define LARDER_PATTERNS(NAME)                                                                     \
  {                                                                                               \
    {"1 stream", NAME<1, 0>}, {"1 stream, prefetch 512 B", NAME<1, 512>},                         \
        {"1 stream, prefetch 2 KB", NAME<1, 2048>}, {"2 streams", NAME<2, 0>},                    \
        {"2 streams, prefetch 512 B", NAME<2, 512>}, {"2 streams, prefetch 2 KB", NAME<2, 2048>}, \
        {"4 streams", NAME<4, 0>}, {"4 streams, prefetch 512 B", NAME<4, 512>},                   \
        {"4 streams, prefetch 2 KB", NAME<4, 2048>}, {"8 streams", NAME<8, 0>},                   \
        {"8 streams, prefetch 1 KB", NAME<8, 1024>},                                              \
  }

constexpr ReadPattern kBaselinePatterns[] = LARDER_PATTERNS(ReadBaseline);
#if defined(__x86_64__)
constexpr ReadPattern kAvx2Patterns[] = LARDER_PATTERNS(ReadAvx2);
constexpr ReadPattern kAvx512Patterns[] = LARDER_PATTERNS(ReadAvx512);
#endif

}  // namespace

std::string_view ReadKernelIsa() {
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx512f")) return "avx512f";
  if (__builtin_cpu_supports("avx2")) return "avx2";
#endif
  return "baseline";
}

std::span<const ReadPattern> ReadPatterns() {
#if defined(__x86_64__)
  static const std::string_view isa = ReadKernelIsa();
  if (isa == "avx512f") return kAvx512Patterns;
  if (isa == "avx2") return kAvx2Patterns;
#endif
  return kBaselinePatterns;
}

bool FlushFromCaches(const std::byte* data, size_t bytes) {
#if defined(__x86_64__)
  static const bool can_clflushopt = [] {
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    constexpr unsigned kClflushopt = 1u << 23;  // CPUID leaf 7, EBX bit 23
    return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 && (ebx & kClflushopt) != 0;
  }();
  for (size_t at = 0; at < bytes; at += kCacheLineBytes) {
    if (can_clflushopt) {
      __asm__ __volatile__("clflushopt %0" : : "m"(data[at]) : "memory");
    } else {
      __asm__ __volatile__("clflush %0" : : "m"(data[at]) : "memory");
    }
  }
  __asm__ __volatile__("mfence" : : : "memory");  // the flushes are done before later reads
  return true;
#else
  (void)data;
  (void)bytes;
  return false;
#endif
}

}  // namespace larder::topology
