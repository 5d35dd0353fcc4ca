// ServerState: what the sessions of a server know. Owned by Server; I/O thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serving/admission/admission.h"
#include "serving/admission/api_keys.h"
#include "serving/admission/background.h"
#include "serving/api/completion_reply.h"
#include "serving/api/completion_request.h"
#include "serving/http/access.h"
#include "serving/metrics/failures.h"
#include "serving/metrics/metrics.h"
#include "serving/metrics/status.h"
#include "serving/scheduling/service.h"

namespace larder::serving {

// What requests have of the budget from their beginning to their end.
struct Admitted {
  Admission::Hold requests, bytes;
};

// What a limit says to whoever meets it: 503 if it is all clients', else 429.
Refused TooMuch(Scope, const char* what);

inline constexpr const char* kInternalError = "the server failed to read this request; its log says why";

// An answer that many may ask for and that takes a while to make.
struct KeptAnswer {
  std::string content_type, body;
  int64_t until_ns = 0;
};

struct ServerState {
  Service* service = nullptr;  // null: still loading
  ServingMetrics* metrics = nullptr;
  CompletionDefaults defaults;
  ApiKeys api_keys;
  Access access;
  // Told in a line of those who were turned away; may be empty.
  std::function<void(const std::string&)> on_denied;
  nlohmann::json plan;
  // Brings what serving/ can't know: slots and sockets into a status, sockets' counters into the metrics.
  std::function<void(StatusView&)> fill_status;
  std::function<void(ServingMetrics&)> fill_metrics;
  double loading_share = 0;
  std::string loading_what = "starting";
  std::string version;
  int64_t start_ns = 0;  // NowNs
  int64_t created = 0;   // seconds since 1970
  // Runs `work` on a thread of its own when it is the peer's turn, then `then` on this one; neither, if the
  // ticket is dropped before. Empty: there is no such thread.
  std::function<JobTicket(const std::string& peer, std::function<void()> work, std::function<void()> then)>
      in_background;
  // Makes what a client sent ready (`work`: any thread), then uses it (`then`: this one; false: the work has
  // thrown something, which is counted). At once if it is little; reading and tokenizing much of it elsewhere
  // keeps this thread free for others' tokens: it is done if the ticket lives until then. Throws Refused: too
  // much waits.
  JobTicket Prepare(const Admission::Client&, size_t bytes, const std::function<void()>& work,
                    const std::function<void(bool ok)>& then);
  // Room for what is to be generated. Throws Refused.
  static Admitted Admit(const Admission::Client&, const std::vector<GenerationSpec>&);
  Failures* failures = nullptr;                                 // null: what is thrown is not counted
  const Admission* admission = nullptr;                         // for the metrics
  std::map<std::string, KeptAnswer, std::less<>> kept_answers;  // by path; http_routes.cc
  size_t http_connections = 0, text_connections = 0;
  uint64_t next_id = 1;  // of requests

  const char* name() const {
    return service == nullptr    ? "loading"
           : service->draining() ? "draining"
           : service->outage()   ? "connecting"
                                 : "serving";
  }
  // Somebody without a key, or a page that may not use the server. A line at most every ten seconds.
  void Denied(const std::string& peer, std::string_view why);
  ReplyHead NewHead(Dialect);
  StatusView Status() const;
  // An answer that is an error, and an error that is a request never admitted. Nothing while loading.
  void CountError(Protocol, int status) const;
  void CountRefused(Protocol) const;

 private:
  int64_t said_denied_ns_ = 0;
  uint64_t denied_unsaid_ = 0;
};

}  // namespace larder::serving
