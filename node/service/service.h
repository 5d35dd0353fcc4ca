// Service: what a long-running process of `larder` tells its surroundings while it lives. To systemd: READY,
// STATUS, STOPPING and the watchdog's pings, if it is a unit of Type=notify; to `larder status`: the socket's
// numbers, on a Unix socket; to the journal: log lines with fields, if stderr is a journal stream.
// It watches the socket's frames and whatever loops it is told of: one that hangs is logged by name, and
// there are no pings until it goes on. Two sleeping threads; who is watched only counts
// (pipeline/stage/socket_status.h, base/pulse.h). One a process, made by the main thread before anything is
// loaded.
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
#include "pipeline/stage/progress_watch.h"
#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage.h"

namespace larder::node {

class Service {
 public:
  // status: outlives this object. If another process of this user has the status name (it runs this socket) a
  // warning is logged; the socket's own links will refuse to start. Error if another user's has it, which by
  // rdma/ipc/local_socket.h can only happen by hand.
  Service(SocketFacts facts, const pipeline::SocketStatus& status);
  ~Service();  // STOPPING=1
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // READY=1: weights or KV region are resident and peers can work with us. Call again with another text after
  // a change; `text` is what `systemctl status` and `larder-cluster up` show.
  void Ready(const std::string& text);
  void Describe(const std::string& text);  // STATUS= only: loading, connecting
  void Stopping(const std::string& text);  // STOPPING=1: draining; the stop timeout runs from the SIGTERM

  // What holds as long as the result lives: it is let go before what it names, and before this object.
  using Guard = std::shared_ptr<void>;
  // A loop of this process that must go round or rest. patience: in units of what frames have.
  [[nodiscard]] Guard Watch(std::string name, const Pulse& pulse, int patience = 1);
  [[nodiscard]] Guard Watch(std::string name,
                            const pipeline::SocketStatus& frames);  // of a stage that is a thread
  // Asked about frames that do not end: true if other sockets hold them, so that this one has nothing to
  // answer for. On the watching thread.
  [[nodiscard]] Guard Excuse(std::function<bool()> others_hold_it);
  // Asked once a second: a line for each thread that is not where it was pinned. On the watching thread; what
  // is new is logged.
  [[nodiscard]] Guard WatchPins(std::function<std::vector<std::string>()> lost_pins);

 private:
  struct Loop {
    std::string name;
    std::function<bool(int64_t now_ns)> alive;
    bool was_alive = true;
  };
  void Watchdog();
  bool Look(int64_t now_ns);  // are all alive
  void LookAtPins();
  Guard Add(Loop loop);

  const pipeline::SocketStatus& status_;
  int64_t interval_ns_;  // of systemd's watchdog, or what is usual
  bool pings_ = false;
  std::unique_ptr<StatusSocket> status_socket_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::list<Loop> loops_;
  std::function<bool()> excuse_;
  std::function<std::vector<std::string>()> lost_pins_;
  std::vector<std::string> known_lost_pins_;
  std::thread watchdog_;  // last: it uses the others
};

// Sends log lines to the journal with fields (MESSAGE, PRIORITY, LARDER_CLUSTER, LARDER_SOCKET, LARDER_ROLE)
// if stderr is a journal stream; else leaves the log as it is. Returns whether it is. Once a process.
bool LogToJournal(const SocketFacts& facts);
// An error line; in the journal with the fields LARDER_PEER and LARDER_REASON as well. Any thread, no lock.
void LogLostPeer(const pipeline::LostPeer& peer, const std::string& line);
// Whether stderr is the stream that systemd announced in JOURNAL_STREAM ("device:inode").
bool StderrIsJournal();

}  // namespace larder::node
