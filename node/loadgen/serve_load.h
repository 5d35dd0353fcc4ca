// The load of `larder bench-serve`: requests are sent as a Poisson process or as fast as a number
// of clients allows. One thread with one epoll reads all replies. A client keeps its connection as
// long as the server does.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "node/loadgen/serve_wire.h"

namespace larder::node::inline loadgen {

struct LoadSpec {
  ServeTarget target;
  LoadSampling sampling;
  std::vector<LoadRequest> requests;
  // Poisson arrivals; infinity: all at once
  double requests_per_s = std::numeric_limits<double>::infinity();
  size_t max_concurrency = 0;  // 0: no limit
  uint64_t seed = 0;           // seed of the arrivals
  double timeout_s = 600;      // limit for a request, from its start to its end
  // Conversations: the request that follows one that has ended well, sent at once; nullopt: none
  // does. It may take the ended request's messages. Called on RunLoad's thread.
  std::function<std::optional<LoadRequest>(LoadRequest& ended, const RequestResult&)> next;
};

struct LoadRun {
  std::vector<RequestResult> results;  // in the order of the requests, then those that followed;
                                       // without requests that were not sent
  double duration_s = 0;               // from the first request to the end of the last
  size_t most_in_flight = 0;
};

// Calls `go_on(done)` at least every 0.1 s; false ends the run, and the requests in flight count as
// failed. Throws Error if the host's name has no address.
LoadRun RunLoad(const LoadSpec& spec, const std::function<bool(size_t done)>& go_on);

// The first model of GET /v1/models. Throws Error if the server can't be reached or its reply names
// none.
std::string FirstModel(const ServeTarget& target, double timeout_s);

}  // namespace larder::node::loadgen
