#include "kernels/formats/host_cpu.h"

#include <asmjit/core.h>
#include <cpuid.h>
#include <unistd.h>

#include <charconv>
#include <cstdlib>
#include <set>
#include <string>

#include "base/error.h"

namespace larder::kernels::inline formats {
namespace {

constexpr std::string_view kVariable = "LARDER_TEST_CPU";

// asmjit's version in Debian 12 did not report this bit on a Sapphire Rapids that has it.
bool CpuHasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

std::array<bool, 4> IsasOfCpu() {
  // asmjit reports AVX and AVX-512 only if XCR0 shows that the operating system saves their
  // registers.
  const auto& cpu = asmjit::CpuInfo::host().features().x86();
  const bool avx2 = cpu.hasAVX2() && cpu.hasFMA() && cpu.hasF16C();
  const bool avx512 = avx2 && cpu.hasAVX512_F() && cpu.hasAVX512_BW() && cpu.hasAVX512_DQ() &&
                      cpu.hasAVX512_VL() && cpu.hasAVX512_VNNI();
  return {true, avx2, avx2 && CpuHasAvxVnni(), avx512};
}

size_t SizeOf(int name) {
  const long bytes = sysconf(name);
  return bytes > 0 ? static_cast<size_t>(bytes) : 0;
}

// The width of an AMD CPU's vector units (CPUID Fn8000_001A, EAX: FP256 and FP512); 0 for others.
// KVM hides FP512: a CPU that has AVX-512, and answers without FP256, has it.
size_t VectorBytes(bool avx512) {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  if (__get_cpuid(0x8000001A, &eax, &ebx, &ecx, &edx) == 0) return 0;
  const bool fp256 = (eax & (1u << 2)) != 0, fp512 = (eax & (1u << 3)) != 0;
  const bool hidden = avx512 && eax != 0 && !fp256;
  return fp512 || hidden ? 64 : fp256 ? 32 : 0;
}

HostCpu ReadCpu() {
  const std::array<bool, 4> has = IsasOfCpu();
  return {.has = has,
          .core = {.l1_bytes = SizeOf(_SC_LEVEL1_DCACHE_SIZE),
                   .l2_bytes = SizeOf(_SC_LEVEL2_CACHE_SIZE),
                   .vector_bytes = VectorBytes(has[static_cast<size_t>(Isa::kAvx512Vnni)])}};
}

void SetBest(HostCpu& cpu, std::string_view name) {
  const std::optional<Isa> best = IsaByName(name);
  if (!best || !cpu.has[static_cast<size_t>(*best)])
    throw Error("{}: '{}' is not an instruction set of this CPU", kVariable, name);
  const bool avx2 = *best != Isa::kScalar;
  cpu.has = {true, avx2, false, false};
  cpu.has[static_cast<size_t>(*best)] = true;
}

size_t Bytes(std::string_view word, std::string_view value) {
  size_t bytes = 0;
  const auto [end, failed] = std::from_chars(value.begin(), value.end(), bytes);
  if (failed != std::errc() || end != value.end() || bytes > (size_t{1} << 30))
    throw Error("{}: '{}': expected a number of bytes up to 2^30", kVariable, word);
  return bytes;
}

void SetWord(HostCpu& cpu, std::string_view word) {
  const size_t equals = std::min(word.find('='), word.size() - 1);
  const std::string_view key = word.substr(0, equals), value = word.substr(equals + 1);
  if (key == "isa") {
    SetBest(cpu, value);
  } else if (key == "l1") {
    cpu.core.l1_bytes = Bytes(word, value);
  } else if (key == "l2") {
    cpu.core.l2_bytes = Bytes(word, value);
  } else if (key == "vector" && (value == "0" || value == "32" || value == "64")) {
    cpu.core.vector_bytes = Bytes(word, value);
  } else {
    throw Error(
        "{}: '{}': expected isa=NAME, l1=BYTES, l2=BYTES or vector=0, 32 or 64; unset it unless "
        "this is a test",
        kVariable, word);
  }
}

}  // namespace

HostCpu Described(HostCpu cpu, std::string_view text) {
  std::set<std::string_view> seen;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(' ', begin), text.size());
    const std::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    if (word.empty()) continue;
    SetWord(cpu, word);
    if (!seen.insert(word.substr(0, word.find('='))).second)
      throw Error("{}: '{}': it was given before", kVariable, word);
  }
  return cpu;
}

const HostCpu& ThisCpu() {
  static const HostCpu cpu = [] {
    const char* text = std::getenv(kVariable.data());
    return Described(ReadCpu(), text == nullptr ? "" : text);
  }();
  return cpu;
}

}  // namespace larder::kernels::formats
