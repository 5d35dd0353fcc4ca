// StartHelper: starts a thread beside those that compute, for rare events or for what they wait
// for. It takes no signals; those go to the program's own threads. It may run on every CPU that the
// process had at its start. (It would otherwise inherit the affinity of its creator, which a pool
// may have pinned, and share that core with a spinning thread.)
#pragma once

#include <functional>
#include <thread>

#include "base/ids.h"

namespace larder::rdma::inline common {

// cpu: the only one that it runs on, if the system allows that; not valid: all. Throws Error if the
// system cannot start a thread.
std::thread StartHelper(std::function<void()> body, CpuId cpu = CpuId());

}  // namespace larder::rdma::common
