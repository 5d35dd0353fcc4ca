#include "topology/affinity.h"

#include <sched.h>

#include <cerrno>

namespace larder::topology {
namespace {

// A cpu_set_t has room for 1024 CPUs only.
class CpuMask {
 public:
  CpuMask() : mask_(CPU_ALLOC(kMaxCpus)) {
    if (mask_ != nullptr) CPU_ZERO_S(bytes(), mask_);
  }
  ~CpuMask() { CPU_FREE(mask_); }
  CpuMask(const CpuMask&) = delete;
  CpuMask& operator=(const CpuMask&) = delete;

  cpu_set_t* get() const { return mask_; }  // null: no memory
  static size_t bytes() { return CPU_ALLOC_SIZE(kMaxCpus); }

 private:
  cpu_set_t* const mask_;
};

}  // namespace

int SetAffinity(pthread_t thread, std::span<const CpuId> cpus) {
  const CpuMask mask;
  if (mask.get() == nullptr) return ENOMEM;
  for (const CpuId cpu : cpus) {
    if (!cpu.valid() || cpu.value >= kMaxCpus) return EINVAL;
    CPU_SET_S(cpu.index(), mask.bytes(), mask.get());
  }
  return pthread_setaffinity_np(thread, mask.bytes(), mask.get());
}

std::vector<CpuId> GetAffinity(pthread_t thread) {
  std::vector<CpuId> cpus;
  const CpuMask mask;
  if (mask.get() == nullptr || pthread_getaffinity_np(thread, mask.bytes(), mask.get()) != 0)
    return cpus;
  for (int cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (CPU_ISSET_S(static_cast<size_t>(cpu), mask.bytes(), mask.get())) cpus.push_back(CpuId(cpu));
  }
  return cpus;
}

}  // namespace larder::topology
