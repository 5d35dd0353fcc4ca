#include "kernels/formats/isa.h"

#include <asmjit/core.h>
#include <cpuid.h>

namespace larder::kernels::inline formats {
namespace {

constexpr std::string_view kNames[] = {"scalar", "avx2", "avx-vnni", "avx512-vnni"};

// asmjit's version in Debian 12 did not report this bit on a Sapphire Rapids that has it.
bool CpuHasAvxVnni() {
  unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
  return __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx) != 0 && (eax & (1u << 4)) != 0;
}

}  // namespace

std::string_view IsaName(Isa isa) { return kNames[static_cast<int>(isa)]; }

std::optional<Isa> IsaByName(std::string_view name) {
  if (name == "avx512") return Isa::kAvx512Vnni;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (name == IsaName(isa)) return isa;
  }
  return std::nullopt;
}

bool HostHas(Isa isa) {
  // asmjit reports AVX and AVX-512 only if XCR0 shows that the operating system saves their
  // registers.
  const auto& cpu = asmjit::CpuInfo::host().features().x86();
  const bool avx2 = cpu.hasAVX2() && cpu.hasFMA() && cpu.hasF16C();
  switch (isa) {
    case Isa::kScalar:
      return true;
    case Isa::kAvx2:
      return avx2;
    case Isa::kAvxVnni:
      return avx2 && CpuHasAvxVnni();
    case Isa::kAvx512Vnni:
      return avx2 && cpu.hasAVX512_F() && cpu.hasAVX512_BW() && cpu.hasAVX512_DQ() &&
             cpu.hasAVX512_VL() && cpu.hasAVX512_VNNI();
  }
  return false;
}

Isa BestIsa() {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvxVnni, Isa::kAvx2}) {
    if (HostHas(isa)) return isa;
  }
  return Isa::kScalar;
}

}  // namespace larder::kernels::formats
