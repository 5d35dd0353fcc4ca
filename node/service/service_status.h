// `larder status` and the sockets that answer it. The answer is one line of JSON on the Unix socket
// "larder-status/CLUSTER/SOCKET" (SOCK_STREAM; rdma/common/local_endpoint.h says where it lies),
// then the end of the stream. The client sends nothing. It believes an answer from this user, from
// root and, in the units' folder, from the folder's owner.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "pipeline/stage/socket_status.h"
#include "rdma/common/fd_watch.h"
#include "rdma/common/local_endpoint.h"

namespace larder::node::inline service {

// What the Plan says about a socket; does not change while it runs.
struct SocketFacts {
  std::string cluster, socket, role;
  size_t first_layer = 0, layers = 0;  // layers == 0: it holds none (an attention socket serves all
                                       // layers)
  size_t slots = 0;
  uint64_t weight_bytes = 0;
  uint64_t kv_bytes = 0;
};

inline constexpr const char* kStatusPrefix = "larder-status/";
std::string StatusName(const std::string& cluster, const std::string& socket);

// started_ns: start of the process, by base/clock.h.
nlohmann::json SocketStatusJson(const SocketFacts& facts, const pipeline::SocketStatus& status,
                                int64_t started_ns);

// Another user's process holds the name, and would answer in place of this socket.
class StatusNameTaken : public Error {
 public:
  using Error::Error;
};

class StatusEndpoint {
 public:
  // Answers from now on, on a thread of its own. Error if the name is too long or another process
  // of this user holds it; StatusNameTaken if another user's process does.
  StatusEndpoint(SocketFacts facts, const pipeline::SocketStatus& status);

 private:
  void AnswerOne() const;

  const SocketFacts facts_;
  const pipeline::SocketStatus& status_;
  const int64_t started_ns_;
  rdma::LocalListener listener_;
  std::unique_ptr<rdma::FdWatch> watch_;  // last: its thread uses the others
};

// The status names that have a listener, from the text of /proc/net/unix, sorted: abstract names
// and those in `folder`.
std::vector<std::string> StatusNames(const std::string& proc_net_unix, const std::string& folder);
std::vector<std::string> StatusNames();  // the status names on this server

// Asks one socket. nullopt if there is no valid answer within timeout_ms; *problem then says why.
// An answer is a JSON object of at most 64 KB with a string "socket".
std::optional<nlohmann::json> AskStatus(const std::string& name, int timeout_ms,
                                        std::string* problem);

}  // namespace larder::node::service
