// What `larder status` asks and each running socket answers: one line of JSON on the abstract Unix socket
// "larder-status/CLUSTER/SOCKET" (SOCK_STREAM), then the end of the stream. Nothing is read from whoever
// asks.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "pipeline/socket_status.h"
#include "rdma/descriptor.h"
#include "rdma/fd_watch.h"

namespace larder::node {

// What the Plan says of a socket; does not change while it runs.
struct SocketFacts {
  std::string cluster, socket, role;
  size_t first_layer = 0, layers = 0;  // layers == 0: holds none (attention: it serves all layers)
  size_t slots = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
};

inline constexpr const char* kStatusPrefix = "larder-status/";
std::string StatusName(const std::string& cluster, const std::string& socket);

// started_ns: of the process, by base/clock.h.
nlohmann::json StatusJson(const SocketFacts& facts, const pipeline::SocketStatus& status, int64_t started_ns);

class StatusSocket {
 public:
  // Answers from now on, on a thread that sleeps in between. Error if the name is taken or too long.
  StatusSocket(SocketFacts facts, const pipeline::SocketStatus& status);

 private:
  void AnswerOne() const;

  const SocketFacts facts_;
  const pipeline::SocketStatus& status_;
  const int64_t started_ns_;
  rdma::Descriptor listener_;
  std::unique_ptr<rdma::FdWatch> watch_;  // last: its thread uses the others
};

// The status names that somebody listens on, from the text of /proc/net/unix, sorted.
std::vector<std::string> StatusNames(const std::string& proc_net_unix);

// Asks one; nothing if nobody answers within timeout_ms; then *problem says why. The answer is an object with
// "socket" a string, at most 64 KB.
std::optional<nlohmann::json> AskStatus(const std::string& name, int timeout_ms, std::string* problem);

}  // namespace larder::node
