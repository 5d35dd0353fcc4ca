// ServerState: what the sessions of a server know. Owned by Server; I/O thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "serving/access.h"
#include "serving/api_keys.h"
#include "serving/completion_reply.h"
#include "serving/completion_request.h"
#include "serving/metrics.h"
#include "serving/service.h"
#include "serving/status.h"

namespace larder::serving {

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
  // Runs `work` on a thread of its own, then `then` on this one. Empty: there is no such thread.
  std::function<void(std::function<void()> work, std::function<void()> then)> in_background;
  // Makes what a client sent ready (`work`: any thread), then uses it (`then`: this one). At once if it is
  // little; reading and tokenizing much of it elsewhere keeps this thread free for others' tokens.
  void Prepare(size_t bytes, const std::function<void()>& work, const std::function<void()>& then) const;
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
