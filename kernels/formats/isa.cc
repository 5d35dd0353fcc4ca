#include "kernels/formats/isa.h"

#include "kernels/formats/host_cpu.h"

namespace larder::kernels::inline formats {
namespace {

constexpr std::string_view kNames[] = {"scalar", "avx2", "avx-vnni", "avx512-vnni"};

}  // namespace

std::string_view IsaName(Isa isa) { return kNames[static_cast<int>(isa)]; }

std::optional<Isa> IsaByName(std::string_view name) {
  if (name == "avx512") return Isa::kAvx512Vnni;
  for (const Isa isa : {Isa::kScalar, Isa::kAvx2, Isa::kAvxVnni, Isa::kAvx512Vnni}) {
    if (name == IsaName(isa)) return isa;
  }
  return std::nullopt;
}

bool HostHas(Isa isa) { return ThisCpu().has[static_cast<size_t>(isa)]; }

Isa BestIsa() {
  for (const Isa isa : {Isa::kAvx512Vnni, Isa::kAvxVnni, Isa::kAvx2}) {
    if (HostHas(isa)) return isa;
  }
  return Isa::kScalar;
}

}  // namespace larder::kernels::formats
