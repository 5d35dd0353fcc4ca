// ServingMetrics: the Prometheus metrics of serving, for GET /metrics. There is one per process,
// made before the first request and alive until the last. Any thread may call its methods, but they
// are meant for the I/O thread: an observation takes an uncontended lock and a few atomic
// additions. Compute threads keep counters of their own (pipeline/stage/socket_status.h); the I/O
// thread copies these here with SetSocket for each GET /metrics.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/expert_counts.h"
#include "base/socket_counters.h"
#include "serving/admission/admission.h"

namespace larder::serving::inline metrics {

enum class Protocol {
  kHttp,
  kText,
  kBatch,  // requests of jobs of files, which nobody waits for: they are in no histogram of times
};
const char* ProtocolName(Protocol);

// The values of the label `outcome`: fewer than FinishReason's (serving/generation/generation.h, a
// room above), because each is a time series for each protocol.
enum class RequestOutcome {
  kStop,       // end of text or a stop string
  kLength,     // as many tokens as were asked for, or the context was full
  kCancelled,  // the client asked for it, or disconnected
  kRefused,    // never admitted: bad request, full queue, draining
  kFailed,     // our fault
};
const char* RequestOutcomeName(RequestOutcome);

// Cumulative counts of durations: count[i] observations were at most upper_s[i]; the last bound is
// infinity.
struct HistogramView {
  std::vector<double> upper_s;
  std::vector<uint64_t> count;
  double sum_s = 0;
};

// Counts of pipeline::SchedulerStatus.
struct SchedulerCounts {
  uint64_t transitions = 0;
  uint64_t lost = 0;                   // times the chain was lost
  uint64_t preempted = 0;              // times a request lost its slot to an older one
  uint64_t yielded = 0;                // times a request of a job gave its slot to a client's
  uint64_t parked = 0;                 // requests with tokens that paused for either
  uint64_t recomputed_tokens = 0;      // tokens that these had in the KV cache, computed again
  uint64_t steps = 0, busy_slots = 0;  // micro-batches; the slots that had rows in them, summed
  size_t kv_chunks = 0, used_kv_chunks = 0, shared_kv_chunks = 0;
  size_t kept_states = 0;
  // Counts of pipeline::KvFilesStatus; 0 without files.
  uint64_t kv_files = 0, kv_file_bytes = 0;
  uint64_t kv_files_written = 0, kv_files_read = 0, kv_files_refused = 0, kv_files_failed = 0;
};

// Counts of batch jobs (--batch-dir).
struct BatchCounts {
  size_t jobs = 0;                     // jobs that have not ended
  size_t requests_left = 0;            // of these
  uint64_t completed = 0, failed = 0;  // requests that were answered, of all jobs of this process
  size_t files = 0;
  uint64_t file_bytes = 0, most_file_bytes = 0;
};

class ServingMetrics {
 public:
  // `sockets`: names of the sockets of the Plan, for the label; SetSocket takes indices into it.
  explicit ServingMetrics(const std::vector<std::string>& sockets);
  ~ServingMetrics();
  ServingMetrics(const ServingMetrics&) = delete;
  ServingMetrics& operator=(const ServingMetrics&) = delete;

  // The events of a request. Admitted: it got a slot, `queue_ns` after it arrived; `reused_tokens`
  // of its prompt were in that slot's KV cache. FirstToken and NextToken: `ns` since the request
  // arrived, or since the previous token. Finished: TPOT is (end_to_end_ns - first_token_ns) /
  // (tokens - 1) if there were at least two tokens. A refused request has only Finished, with
  // zeros.
  void Admitted(Protocol, int64_t queue_ns, size_t prompt_tokens, size_t reused_tokens);
  void FirstToken(Protocol, int64_t ns);
  void NextToken(Protocol, int64_t ns);
  void Finished(Protocol, RequestOutcome, size_t tokens, int64_t first_token_ns,
                int64_t end_to_end_ns);
  // The time that a request with a slot took: for its prompt, then for the tokens after the first.
  // `tokens`: how many it had in the slot at its end.
  void Worked(int64_t prompt_ns, int64_t decode_ns, size_t tokens);
  // Counts an answer that is an error, also an answer to bytes that are not a request. `status` is
  // HTTP's.
  void ErrorAnswered(Protocol, int status);

  // Fields of requests that Larder does not know.
  void IgnoredFields(size_t count);

  void SetSlots(size_t total, size_t used);
  void SetQueue(size_t waiting);
  void SetConnections(Protocol, size_t open);
  void SetAdmission(const Admission&);
  void SetGrammars(size_t compiled_bytes, size_t automata_bytes);
  void SetFailures(uint64_t count);
  void SetScheduler(const SchedulerCounts&);
  void SetExperts(const ExpertTotals&);
  void SetBatches(const BatchCounts&);
  void SetResponses(size_t count, size_t bytes);  // responses that are kept
  void SetSocket(size_t socket, const SocketCounters&);

  // Text exposition format 0.0.4: Larder's own, and under `llamacpp:` llama-server's names for what
  // they have in common.
  std::string Render() const;
  static constexpr const char* kContentType = "text/plain; version=0.0.4; charset=utf-8";

  HistogramView TpotHistogram() const;
  double GeneratedPerSecond() const;  // mean of the last two seconds
  double PromptPerSecond() const;
  uint64_t generated_tokens() const;
  uint64_t prompt_tokens() const;  // prompt tokens that were computed, not reused

 private:
  struct Families;
  std::unique_ptr<Families> families_;
};

}  // namespace larder::serving::metrics
