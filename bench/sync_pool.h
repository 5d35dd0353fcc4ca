// The rows of bench_sync that compare the static pool with OpenMP regions.
#pragma once

namespace larder::bench {

void RegisterPool();

}  // namespace larder::bench
