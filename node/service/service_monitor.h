// ServiceMonitor: reports the state of a long-running `larder` process. To systemd: READY, STATUS,
// STOPPING and watchdog pings, if the process is a unit of Type=notify. To `larder status`: the
// socket's numbers, on a Unix socket. To the journal: log lines with fields, if stderr is a journal
// stream. It watches the socket's micro-batches and the loops registered with Watch: one that hangs
// is logged by name, and pings stop until it moves again. It has two threads, which mostly sleep; a
// watched thread only increments a counter (pipeline/stage/socket_status.h, base/pulse.h). There is
// one ServiceMonitor per process, made by the main thread before anything is loaded.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/pulse.h"
#include "node/service/service_status.h"
#include "pipeline/chain/chain_options.h"
#include "pipeline/stage/progress_watch.h"
#include "pipeline/stage/socket_status.h"

namespace larder::node::inline service {

class ServiceMonitor {
 public:
  // status: outlives this object. If another process of this user holds the status name (it runs
  // this socket), a warning is logged; the socket's own links will refuse to start. Error if
  // another user's process holds it, which by rdma/common/local_endpoint.h can happen only for
  // processes started by hand.
  ServiceMonitor(SocketFacts facts, const pipeline::SocketStatus& status);
  ~ServiceMonitor();  // STOPPING=1
  ServiceMonitor(const ServiceMonitor&) = delete;
  ServiceMonitor& operator=(const ServiceMonitor&) = delete;

  // READY=1: weights or KV region are resident and peers can connect. Call again with another text
  // after a change; `text` is what `systemctl status` and `larder-cluster up` show.
  void Ready(const std::string& text);
  void Describe(const std::string& text);  // STATUS= only: loading, connecting
  void Stopping(const std::string& text);  // STOPPING=1: draining; the stop timeout runs from the
                                           // SIGTERM

  // A registration that lasts as long as the result lives. Destroy it before what it watches, and
  // before this object.
  using Guard = std::shared_ptr<void>;
  // Watches a loop that must advance or be at rest. patience: how many times as long as a
  // micro-batch it may take.
  [[nodiscard]] Guard Watch(std::string name, const Pulse& pulse, int patience = 1);
  // The same for a stage that is a thread of this process.
  [[nodiscard]] Guard Watch(std::string name, const pipeline::SocketStatus& frames);
  // Called on the watching thread about micro-batches that do not end: returns true if other
  // sockets hold them, so that this socket is not at fault.
  [[nodiscard]] Guard Excuse(std::function<bool()> others_hold_it);
  // Called on the watching thread once a second: returns a line for each thread that has lost its
  // pin. New lines are logged.
  [[nodiscard]] Guard WatchPins(std::function<std::vector<std::string>()> lost_pins);

 private:
  struct Loop {
    std::string name;
    std::function<bool(int64_t now_ns)> alive;
    bool was_alive = true;
  };
  void Watchdog();
  bool Look(int64_t now_ns);  // whether all watched loops are alive
  void LookAtPins();
  Guard Add(Loop loop);

  const pipeline::SocketStatus& status_;
  int64_t interval_ns_;  // interval of systemd's watchdog, or the default
  bool pings_ = false;
  std::unique_ptr<StatusEndpoint> status_endpoint_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::list<Loop> loops_;
  std::function<bool()> excuse_;
  std::function<std::vector<std::string>()> lost_pins_;
  std::vector<std::string> known_lost_pins_;
  std::thread watchdog_;  // last: it uses the others
};

// Sends log lines to the journal with fields (MESSAGE, PRIORITY, LARDER_CLUSTER, LARDER_SOCKET,
// LARDER_ROLE) and returns true if stderr is a journal stream; otherwise leaves the log as it is.
// Once per process.
bool LogToJournal(const SocketFacts& facts);
// Logs an error line (information, if somebody stopped the peer), in the journal also with the
// fields LARDER_PEER and LARDER_REASON. Any thread; takes no lock.
void LogLostPeer(const pipeline::LostPeer& peer, const std::string& line);
// Whether stderr is the stream that systemd announced in JOURNAL_STREAM ("device:inode").
bool StderrIsJournal();

}  // namespace larder::node::service
