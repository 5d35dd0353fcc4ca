// A thread for what happens rarely and must not cost the data path anything: it takes no signals, those go to
// the program's own threads; and it may run on every CPU that the process had at its start, not only on the
// one to which a pool has pinned the thread that makes it, where it would share a core with a spinner.
#pragma once

#include <functional>
#include <thread>

namespace larder::rdma {

// Error if the system gives no thread.
std::thread StartHelper(std::function<void()> body);

}  // namespace larder::rdma
