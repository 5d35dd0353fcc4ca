// Server: the text stream and HTTP on two ports, from the start of loading to the end of draining.
// The thread that makes it is free to load the model and then to compute; the server's I/O thread
// has all connections.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/pulse.h"
#include "serving/admission/background.h"
#include "serving/batch/batch_service.h"
#include "serving/generation/generation_service.h"
#include "serving/http/http_parser.h"
#include "serving/net/net_server.h"
#include "serving/net/server_state.h"
#include "serving/net/text_session.h"

namespace larder::serving::inline net {

struct ServerOptions {
  std::vector<std::string> hosts = {"127.0.0.1"};     // addresses to listen on; at least one
  int port = 8080;                                    // HTTP; 0: any, -1: none
  int text_port = 7070;                               // the same
  std::vector<std::string> api_keys;                  // empty: no key is needed
  TenantSecret tenant_secret = NewTenantSecret();     // KeptTenantSecret, if it keeps files
  std::vector<std::string> allowed_hosts;             // names of the server besides `host`
  std::vector<std::string> cors_origins;              // origins of web pages that may use it
  std::function<void(const std::string&)> on_denied;  // gets a line per denial; I/O thread; may be
                                                      // empty
  HttpLimits http;
  TextLimits text;
  ConnectionLimits connections;
  AdmissionLimits admission;
  Failures::Log log;         // gets a line about each failure; any thread
  std::string batch_folder;  // folder of files and batches; empty: there are none
  BatchQuota batch_quota;
  ResponseQuota responses;         // limits for /v1/responses with `store`
  bool page = true, slots = true;  // whether the page at / and GET /slots are there
  double drain_s = 30;  // time limit for the requests that have begun when Drain is called
  std::string version;
};

// What is known once the model is loaded.
struct ReadyServer {
  CompletionDefaults defaults;
  size_t slots = 1, queue_limit = 256;
  std::vector<std::string> sockets;  // names, for the metrics
  nlohmann::json plan;
  // any thread; empty: there are no outages
  std::function<std::optional<pipeline::Outage>()> outage;
  std::function<void(StatusView&)> fill_status;
  std::function<void(ServingMetrics&)> fill_metrics;
  std::function<std::vector<ExpertCounts>()> experts;  // what routers choose; any thread
  SlotActions slot_action;                             // empty: none
  BatchFacts batch;                                    // used if there is a folder of batches
  // Folder of stored responses; empty: they are lost at the end of the process.
  std::string response_folder;
  std::function<void()> pin_response_files;  // called on their thread; may be empty
  // Called once on the I/O thread and once on the background thread: pins the calling thread to
  // CPUs that are not the compute threads'. Empty: the system chooses.
  std::function<void()> pin_thread;
};

class Server {
 public:
  explicit Server(ServerOptions);  // listens, and answers that the model is loading. Throws Error
  ~Server();                       // calls Close
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  int port() const { return port_; }  // -1: none
  int text_port() const { return text_port_; }

  // The loops of the I/O thread and of the background thread, for a watchdog on any thread.
  struct Loop {
    const char* name;
    const Pulse* pulse;
    int patience;  // factor on the time that other loops may take per round
  };
  std::vector<Loop> loops() const;

  // Shows the progress of loading, `share` in 0..1. Any thread.
  void Loading(const std::string& what, double share);
  // Called by the compute thread: requests are accepted from now on. Give the result to
  // Scheduler::Run.
  pipeline::Intake& Ready(ReadyServer);
  void SetKeys(std::vector<std::string> keys);  // from now on
  // Ends a wait of the intake. After Ready, by any thread.
  void Nudge() { service_->Nudge(); }
  // From now on no new request is admitted. The intake ends when the running requests are done, or
  // after drain_s. Any thread.
  void Drain();
  // Ends both threads and drops all running requests. Afterwards no function of ReadyServer is
  // called, so call it before their objects are destroyed. Called by the thread that made the
  // server, any number of times.
  void Close();

 private:
  void OpenBatches();
  void OpenResponses(ReadyServer&);
  void Listen();
  pipeline::Intake& BeReady(ReadyServer&);
  void KeepDraining();

  ServerOptions options_;
  Failures failures_;
  Admission admission_;  // declared before all members that hold parts of it, so destroyed after
                         // them
  std::unique_ptr<ResponseStore> responses_;  // null: no responses are kept
  ServerState state_;
  std::unique_ptr<ServingMetrics> metrics_;
  std::unique_ptr<GenerationService> service_;
  std::unique_ptr<BatchService> batches_;  // null: there are none
  NetServer net_;                          // declared after these, so that its sessions end before
                                           // them
  int port_ = -1, text_port_ = -1;
  int64_t drain_began_ns_ = 0;  // 0: not draining
  bool cancelled_all_ = false;
  Pulse io_pulse_;
  std::thread thread_;
  JobTicket pinning_;
  Background background_;  // last: it ends before the loop that its jobs post to
};

}  // namespace larder::serving::net
