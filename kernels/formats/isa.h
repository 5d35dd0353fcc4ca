// The instruction sets that kernels are generated for. kScalar is plain C++, the reference for all
// others.
#pragma once

#include <optional>
#include <string_view>

namespace larder::kernels::inline formats {

enum class Isa { kScalar, kAvx2, kAvxVnni, kAvx512Vnni };

std::string_view IsaName(Isa);  // "scalar", "avx2", "avx-vnni", "avx512-vnni"
std::optional<Isa> IsaByName(std::string_view);
bool HostHas(Isa);  // both the CPU and the operating system support it
Isa BestIsa();      // the best that the host has

}  // namespace larder::kernels::formats
