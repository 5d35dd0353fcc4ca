// The load of `larder bench-serve`: requests go out as a Poisson process or as fast as a number of clients
// can, one thread and one epoll read all replies. Each client keeps its connection if the server does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "node/loadgen/serve_wire.h"

namespace larder::node {

struct LoadSpec {
  ServeTarget target;
  LoadSampling sampling;
  std::vector<LoadRequest> requests;
  double requests_per_s = std::numeric_limits<double>::infinity();  // Poisson arrivals; infinity: all at once
  size_t max_concurrency = 0;                                       // 0: no limit
  uint64_t seed = 0;                                                // of the arrivals
  double timeout_s = 600;                                           // of a request, to its end
};

struct LoadRun {
  std::vector<RequestResult> results;  // in the order of the requests; those that never began are left out
  double duration_s = 0;               // from the first request to the last end
  size_t most_in_flight = 0;
};

// `go_on(done)` is asked at least every 0.1 s; false ends the run: requests that have not ended count as
// failed. Throws Error if the host's name leads nowhere.
LoadRun RunLoad(const LoadSpec& spec, const std::function<bool(size_t done)>& go_on);

// The first model that GET /v1/models names. Throws Error: the server can't be reached, or the reply is none.
std::string FirstModel(const ServeTarget& target, double timeout_s);

}  // namespace larder::node
