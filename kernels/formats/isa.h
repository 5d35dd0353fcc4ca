// The instruction sets that kernels are generated for. kScalar is the reference: plain C++, the oracle of all
// others.
#pragma once

#include <optional>
#include <string_view>

namespace larder::kernels {

enum class Isa { kScalar, kAvx2, kAvxVnni, kAvx512Vnni };

std::string_view IsaName(Isa);  // "scalar", "avx2", "avx-vnni", "avx512-vnni"
std::optional<Isa> IsaByName(std::string_view);
bool HostHas(Isa);  // the CPU and the operating system both support it
Isa BestIsa();      // of the host

}  // namespace larder::kernels
