// The CPUs that a thread may run on. All code of the program that pins a thread uses these
// functions.
#pragma once

#include <pthread.h>

#include <span>
#include <vector>

#include "base/ids.h"

namespace larder::topology {

inline constexpr int kMaxCpus = 1 << 14;  // CPU numbers are below it

// Returns 0, or an error number; EINVAL for a CPU that is not 0..kMaxCpus-1.
int SetAffinity(pthread_t thread, std::span<const CpuId> cpus);
// In ascending order; empty if the kernel does not say.
std::vector<CpuId> GetAffinity(pthread_t thread);

// Pins the calling thread; returns whether that succeeded.
inline bool PinThisThread(CpuId cpu) { return SetAffinity(pthread_self(), {&cpu, 1}) == 0; }

}  // namespace larder::topology
