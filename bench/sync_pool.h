// The rows of bench_sync that compare the static thread pool with OpenMP parallel regions.
#pragma once

namespace larder::bench {

void RegisterPool();

}  // namespace larder::bench
