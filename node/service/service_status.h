// What `larder status` asks and each running socket answers: one line of JSON on the Unix socket
// "larder-status/CLUSTER/SOCKET" (SOCK_STREAM; rdma/ipc/local_socket.h says where it lies), then the end of
// the stream. Nothing is read from whoever asks, and an answer is believed of this user, root and, in the
// units' folder, its owner.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "pipeline/stage/socket_status.h"
#include "rdma/ipc/fd_watch.h"
#include "rdma/ipc/local_socket.h"

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

// A process of another user has the name: what it says of this socket would be a lie.
class StatusNameTaken : public Error {
 public:
  using Error::Error;
};

class StatusSocket {
 public:
  // Answers from now on, on a thread that sleeps in between. Error if the name is too long or another process
  // of this user has it; StatusNameTaken if another user's has.
  StatusSocket(SocketFacts facts, const pipeline::SocketStatus& status);

 private:
  void AnswerOne() const;

  const SocketFacts facts_;
  const pipeline::SocketStatus& status_;
  const int64_t started_ns_;
  rdma::LocalListener listener_;
  std::unique_ptr<rdma::FdWatch> watch_;  // last: its thread uses the others
};

// The status names that somebody listens on, from the text of /proc/net/unix, sorted: abstract ones and those
// in `folder`.
std::vector<std::string> StatusNames(const std::string& proc_net_unix, const std::string& folder);
std::vector<std::string> StatusNames();  // of this server

// Asks one; nothing if nobody answers within timeout_ms; then *problem says why. The answer is an object with
// "socket" a string, at most 64 KB.
std::optional<nlohmann::json> AskStatus(const std::string& name, int timeout_ms, std::string* problem);

}  // namespace larder::node
