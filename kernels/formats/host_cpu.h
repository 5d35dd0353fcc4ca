// The CPU that runs this process: its instruction sets and the caches of a core. Read once, from
// CPUID and the C library. Tests may describe another CPU in LARDER_TEST_CPU; the whole suite then
// runs as it would with fewer instruction sets or other caches (CONTRIBUTING.md).
#pragma once

#include <array>
#include <string_view>

#include "kernels/formats/isa.h"
#include "kernels/formats/schedule.h"

namespace larder::kernels::inline formats {

struct HostCpu {
  std::array<bool, 4> has{};  // [Isa]
  CoreShape core;
};

// `cpu`, changed as the text says. The text consists of the words "isa=avx2", "l1=49152",
// "l2=2097152" and "vector=32", each at most once; all are optional. isa: the best instruction set;
// of the others only scalar and avx2 stay (with isa=scalar, only scalar). l1, l2: bytes per core, 0
// for a CPU that does not say. vector: bytes of its vector units: 0, 32 or 64. Throws Error for any
// other word, and for a set that `cpu` lacks.
HostCpu Described(HostCpu cpu, std::string_view text);

// The running CPU, changed by LARDER_TEST_CPU. Throws Error if that variable is not a description.
const HostCpu& ThisCpu();

}  // namespace larder::kernels::formats
