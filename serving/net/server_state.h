// ServerState: the state that all sessions of a server share. Owned by Server; I/O thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/ids.h"
#include "serving/admission/admission.h"
#include "serving/admission/api_keys.h"
#include "serving/admission/background.h"
#include "serving/api/completion_request.h"
#include "serving/batch/batch_service.h"
#include "serving/generation/generation_service.h"
#include "serving/history/response_store.h"
#include "serving/http/access.h"
#include "serving/metrics/failures.h"
#include "serving/metrics/metrics.h"
#include "serving/metrics/status.h"
#include "serving/reply/reply.h"

namespace larder::serving::inline net {

// A request's part of the budget, from its start to its end.
struct Admitted {
  Admission::Hold requests, bytes;
};

// The Refused of an exceeded limit: 503 if it is the limit in all, else 429.
Refused TooMuch(Scope, const char* what);

// The result of an action on a slot (slot_routes.h).
struct SlotActionResult {
  size_t tokens = 0, bytes = 0;
  int status = 200;
  std::string error;  // the error, if the status is not 200
};
// Does "save", "restore" or "erase" for a tenant and waits until it is done. Any thread but the I/O
// thread.
using SlotActions = std::function<SlotActionResult(SlotId slot, const std::string& action,
                                                   const std::string& filename, Tenant tenant)>;

// For a request that is never small: it is prepared on the background thread, however few bytes it
// has.
inline constexpr size_t kInBackground = (size_t{8} << 10) + 1;

inline constexpr const char* kInternalError =
    "the server failed to read this request; its log says why";

// A cached answer that is expensive to make and often requested.
struct KeptAnswer {
  std::string content_type, body;
  int64_t until_ns = 0;
};

struct ServerState {
  GenerationService* service = nullptr;  // null: still loading
  ServingMetrics* metrics = nullptr;
  BatchService* batches = nullptr;     // null: the server keeps no files and batches
  ResponseStore* responses = nullptr;  // null: the server keeps none
  CompletionDefaults defaults;
  ApiKeys api_keys;
  Access access;
  // Gets a line about clients that were denied; may be empty.
  std::function<void(const std::string&)> on_denied;
  nlohmann::json plan;
  // Fill in what serving/ cannot know: slots and sockets of a status, sockets' counters of the
  // metrics.
  std::function<void(StatusView&)> fill_status;
  std::function<void(ServingMetrics&)> fill_metrics;
  std::function<std::vector<ExpertCounts>()> experts;
  SlotActions slot_action;  // empty: there are none. Not called on the I/O thread
  double loading_share = 0;
  std::string loading_what = "starting";
  std::string version;
  int64_t start_ns = 0;                      // NowNs
  int64_t created = 0;                       // seconds since 1970
  bool has_page = true, shows_slots = true;  // the page at /, GET /slots
  // Runs `work` on a background thread when it is the peer's turn, then `then` on this one;
  // neither, if the ticket is dropped first. Empty: there is no background thread.
  std::function<JobTicket(const std::string& peer, std::function<void()> work,
                          std::function<void()> then)>
      in_background;
  // Prepares what a client sent (`work`, on any thread), then uses it (`then`, on this thread; its
  // argument is false if the work threw, which is counted). A small request is prepared here at
  // once. If it turns out to take more than a few steps of Work, it is started again in the
  // background; a large one is prepared there from the start. So this thread stays free for other
  // clients' tokens. Dropping the ticket cancels the work. Throws Refused if too many bytes wait.
  JobTicket Prepare(const Admission::Client&, size_t bytes, const std::function<void()>& work,
                    const std::function<void(bool ok)>& then);
  // Takes the budget for these generations. Throws Refused.
  static Admitted Admit(const Admission::Client&, const CompletionRequest&,
                        const std::vector<GenerationSpec>&);
  Failures* failures = nullptr;                                 // null: failures are not counted
  const Admission* admission = nullptr;                         // for the metrics
  std::map<std::string, KeptAnswer, std::less<>> kept_answers;  // kept answers by path; see
                                                                // http_routes.cc
  size_t http_connections = 0, text_connections = 0;
  uint64_t next_id = 1;  // id of the next request

  const char* name() const {
    return service == nullptr    ? "loading"
           : service->draining() ? "draining"
           : service->outage()   ? "connecting"
                                 : "serving";
  }
  // Logs a client without a key, or a page that may not use the server; at most one line per ten
  // seconds.
  void Denied(const std::string& peer, std::string_view why);
  ReplyFacts NewFacts(Dialect);
  StatusView Status() const;
  // Count an answer that is an error, and a request that was not admitted. They do nothing while
  // loading.
  void CountError(Protocol, int status) const;
  void CountRefused(Protocol) const;

 private:
  std::optional<bool> PreparedAtOnce(size_t bytes, const std::function<void()>& work) const;
  int64_t said_denied_ns_ = 0;
  uint64_t denied_unsaid_ = 0;
};

}  // namespace larder::serving::net
