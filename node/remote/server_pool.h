// A batch job over several running servers. Each gets as many requests at once as it has room for.
// Requests of a lost server go to the others, and it is left out until it is back. Each connection
// first asks which model is served, so that no answer of another model is ever accepted. One
// thread, the caller's.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "node/loadgen/serve_wire.h"
#include "serving/batch/batch_work.h"
#include "serving/batch/served_model.h"

namespace larder::node::inline remote {

struct NamedServer {
  std::string url;  // for messages
  ServeTarget target;
};

struct ServerPoolOptions {
  std::vector<NamedServer> servers;
  size_t concurrency = 0;   // requests at once with each; 0: twice its slots
  double patience_s = 600;  // how long there may be no answer from any server
  std::function<bool()> stopped;
};

// What the servers serve. Waits until one answers; those that don't are left out of the comparison.
// Throws Error if two differ, one refuses the key, none answers in time, or it was stopped.
serving::ServedModel AskServers(const ServerPoolOptions& options);

// Answers the requests of `work` until none is left, or until it ends. body: makes the body that is
// sent for a request.
void RunOnServers(const ServerPoolOptions& options, const serving::ServedModel& model,
                  serving::BatchWork& work,
                  const std::function<std::string(const serving::BatchLine&)>& body);

}  // namespace larder::node::remote
