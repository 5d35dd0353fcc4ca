// StartHelper: starts a thread for rare events that must not cost the data path anything. The
// thread takes no signals; those go to the program's own threads. It may run on every CPU that the
// process had at its start. (It would otherwise inherit the affinity of its creator, which a pool
// may have pinned, and share that core with a spinning thread.)
#pragma once

#include <functional>
#include <thread>

namespace larder::rdma::inline common {

// Throws Error if the system cannot start a thread.
std::thread StartHelper(std::function<void()> body);

}  // namespace larder::rdma::common
