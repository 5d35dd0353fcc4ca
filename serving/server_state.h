// ServerState: what the sessions of a server know. Owned by Server; I/O thread.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

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
  std::vector<std::string> api_keys;  // none: everybody is welcome
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
  // Takes as long for a wrong key as for a right one.
  bool KeyIsGood(std::string_view key) const;
  ReplyHead NewHead(Dialect);
  StatusView Status() const;
  // An answer that is an error, and an error that is a request never admitted. Nothing while loading.
  void CountError(Protocol, int status) const;
  void CountRefused(Protocol) const;
};

}  // namespace larder::serving
