// Service: what a long-running process of `larder` tells its surroundings while it lives. To systemd: READY,
// STATUS, STOPPING and the watchdog's pings, if it is a unit of Type=notify; to `larder status`: the socket's
// numbers, on a Unix socket; to the journal: log lines with fields, if stderr is a journal stream.
// Two sleeping threads; the data path only counts (pipeline/socket_status.h). One a process, made by the main
// thread before anything is loaded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "node/service_status.h"
#include "pipeline/socket_status.h"
#include "pipeline/stage.h"

namespace larder::node {

// Is the socket's frame loop alive? Pure, so that it can be tested without waiting.
class ProgressWatch {
 public:
  // A frame may be in flight for patience_ns before the loop counts as hung.
  explicit ProgressWatch(int64_t patience_ns) : patience_ns_(patience_ns) {}
  // False if frames were started that are not finished, and nothing was started or finished for patience_ns.
  bool Alive(const pipeline::SocketStatus& status, int64_t now_ns);

 private:
  int64_t patience_ns_;
  uint64_t started_ = 0, finished_ = 0;
  int64_t since_ns_ = -1;
};

class Service {
 public:
  // status: outlives this object. If another process of this user has the status name (it runs this socket) a
  // warning is logged; the socket's own links will refuse to start. Error if another user's has it, which by
  // rdma/local_socket.h can only happen by hand.
  Service(SocketFacts facts, const pipeline::SocketStatus& status);
  ~Service();  // STOPPING=1
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // READY=1: weights or KV region are resident and peers can work with us. Call again with another text after
  // a change; `text` is what `systemctl status` and `larder-cluster up` show.
  void Ready(const std::string& text);
  void Describe(const std::string& text);  // STATUS= only: loading, connecting
  void Stopping(const std::string& text);  // STOPPING=1: draining; the stop timeout runs from the SIGTERM

 private:
  void Watchdog(int64_t interval_ns);

  const pipeline::SocketStatus& status_;
  std::unique_ptr<StatusSocket> status_socket_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::thread watchdog_;  // not started if systemd wants no pings
};

// Sends log lines to the journal with fields (MESSAGE, PRIORITY, LARDER_CLUSTER, LARDER_SOCKET, LARDER_ROLE)
// if stderr is a journal stream; else leaves the log as it is. Returns whether it is. Once a process.
bool LogToJournal(const SocketFacts& facts);
// An error line; in the journal with the fields LARDER_PEER and LARDER_REASON as well. Any thread, no lock.
void LogLostPeer(const pipeline::LostPeer& peer, const std::string& line);
// Whether stderr is the stream that systemd announced in JOURNAL_STREAM ("device:inode").
bool StderrIsJournal();

}  // namespace larder::node
