// Server: the text stream and HTTP on two ports, from the start of loading to the end of draining. The thread
// that makes it is free to load the model and then to compute; the server's own I/O thread has all sockets.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/pulse.h"
#include "serving/admission/background.h"
#include "serving/http/http_parser.h"
#include "serving/net/net_server.h"
#include "serving/net/server_state.h"
#include "serving/net/text_session.h"
#include "serving/scheduling/service.h"

namespace larder::serving {

struct ServerOptions {
  std::string host = "127.0.0.1";
  int port = 8080;                                    // HTTP; 0: any, -1: none
  int text_port = 7070;                               // the same
  std::vector<std::string> api_keys;                  // none: everybody is welcome
  std::vector<std::string> allowed_hosts;             // names that it is called by, besides `host`
  std::vector<std::string> cors_origins;              // of web pages that may use it
  std::function<void(const std::string&)> on_denied;  // told in a line; I/O thread; may be empty
  HttpLimits http;
  TextLimits text;
  ConnectionLimits connections;
  AdmissionLimits admission;
  Failures::Log log;    // a line about what was dropped; any thread
  double drain_s = 30;  // for what has begun when Drain is called
  std::string version;
};

// All that is known once the model is loaded.
struct ReadyServer {
  CompletionDefaults defaults;
  size_t slots = 1, queue_limit = 256;
  std::vector<std::string> sockets;  // names, for the metrics
  nlohmann::json plan;
  std::function<std::optional<pipeline::Outage>()> outage;  // of any thread; empty: there is none ever
  std::function<void(StatusView&)> fill_status;
  std::function<void(ServingMetrics&)> fill_metrics;
  std::vector<int> housekeeping_cpus;  // for the I/O thread; empty: wherever there is room
};

class Server {
 public:
  explicit Server(ServerOptions);  // listens and answers that it loads. Throws Error
  ~Server();                       // as Close
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }  // -1: none
  int text_port() const { return text_port_; }

  // What a watchdog may look at, from any thread: the loops of the I/O thread and of the one for large
  // requests.
  struct Loop {
    const char* name;
    const Pulse* pulse;
    int patience;  // how many times as long as others it may take for a turn
  };
  std::vector<Loop> loops() const;

  // Any thread.
  void Loading(const std::string& what, double share);
  // The thread that computes: from here on requests are taken; give the result to Scheduler::Run.
  pipeline::Intake& Ready(ReadyServer);
  void SetKeys(std::vector<std::string> keys);  // from now on
  // Any thread: nothing new is admitted; when what has begun is done, or after drain_s, the intake ends.
  void Drain();
  // Ends both threads and drops whatever is under way: after it nothing that ReadyServer brought is called.
  // Before what it stands for is destroyed; the thread that made the server, any number of times.
  void Close();

 private:
  void Listen();
  pipeline::Intake& BeReady(ReadyServer&);
  void KeepDraining();

  ServerOptions options_;
  Failures failures_;
  Admission admission_;  // what is given back to it goes before it
  ServerState state_;
  std::unique_ptr<ServingMetrics> metrics_;
  std::unique_ptr<Service> service_;
  NetServer net_;  // its sessions end before the service
  int port_ = -1, text_port_ = -1;
  int64_t drain_began_ns_ = 0;  // 0: not draining
  bool cancelled_all_ = false;
  Pulse io_pulse_;
  std::thread thread_;
  JobTicket pinning_;
  Background background_;  // ends before the loop that its jobs post to
};

}  // namespace larder::serving
