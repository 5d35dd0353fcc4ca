// What the CPU is that runs this process: its instruction sets and the caches of a core. Read once,
// from CPUID and the C library. Tests describe another one in LARDER_TEST_CPU: so the whole suite
// runs as it would on a CPU with fewer instruction sets or other caches (CONTRIBUTING.md).
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

// `cpu`, but as the text says: words "isa=avx2", "l1=49152", "l2=2097152" and "vector=32", each at
// most once, of any of which there may be none. isa: the best set; of the others only scalar and,
// if it is not scalar itself, avx2 are left. l1, l2: bytes of a core, 0 if it does not say. vector:
// of its vector units, 0, 32 or 64 bytes. Throws Error: another word, or a set that `cpu` does not
// have.
HostCpu Described(HostCpu cpu, std::string_view text);

// The running one, or what LARDER_TEST_CPU makes of it. Throws Error if that is no description.
const HostCpu& ThisCpu();

}  // namespace larder::kernels::formats
