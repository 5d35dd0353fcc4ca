#include "serving/metrics/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <array>
#include <mutex>
#include <optional>

#include "base/check.h"
#include "base/clock.h"
#include "serving/admission/recent_rate.h"

namespace larder::serving::inline metrics {
namespace {

using prometheus::Counter;
using prometheus::Gauge;
using prometheus::Histogram;

constexpr std::array kProtocols = {Protocol::kHttp, Protocol::kText, Protocol::kBatch};
constexpr std::array kOutcomes = {RequestOutcome::kStop, RequestOutcome::kLength,
                                  RequestOutcome::kCancelled, RequestOutcome::kRefused,
                                  RequestOutcome::kFailed};

template <typename Ns>
double Seconds(Ns ns) {
  return static_cast<double>(ns) * 1e-9;
}

// 0.1 ms to 600 s, three per decade: requests differ widely.
Histogram::BucketBoundaries RequestBuckets() {
  Histogram::BucketBoundaries bounds;
  for (const double decade : {1e-4, 1e-3, 1e-2, 1e-1, 1.0, 10.0}) {
    for (const double step : {1.0, 2.5, 5.0}) bounds.push_back(decade * step);
  }
  bounds.insert(bounds.end(), {100.0, 300.0, 600.0});
  return bounds;
}

// 0.1 ms to 1 s, six per decade: a token's time varies little, and the difference of 3 and 4 ms
// matters.
Histogram::BucketBoundaries TokenBuckets() {
  Histogram::BucketBoundaries bounds;
  for (const double decade : {1e-4, 1e-3, 1e-2, 1e-1}) {
    for (const double step : {1.0, 1.5, 2.0, 3.0, 5.0, 7.0}) bounds.push_back(decade * step);
  }
  bounds.push_back(1.0);
  return bounds;
}

// The growth of a counter that another object keeps; a counter that fell has started again at 0.
uint64_t Growth(uint64_t now, uint64_t last) { return now >= last ? now - last : now; }

}  // namespace

const char* ProtocolName(Protocol protocol) {
  return protocol == Protocol::kHttp ? "http" : protocol == Protocol::kText ? "text" : "batch";
}

const char* RequestOutcomeName(RequestOutcome outcome) {
  switch (outcome) {
    case RequestOutcome::kStop:
      return "stop";
    case RequestOutcome::kLength:
      return "length";
    case RequestOutcome::kCancelled:
      return "cancelled";
    case RequestOutcome::kRefused:
      return "refused";
    case RequestOutcome::kFailed:
      return "failed";
  }
  return "unknown";
}

struct ServingMetrics::Families {
  struct Socket {
    Counter *frames, *rows, *step, *wait, *link_wait;
    Gauge *weight_bytes, *resident_bytes, *waiting_ratio, *mean_step, *round_trip;
    Gauge* live_resident_ratio = nullptr;  // since there is a figure
    std::string name = {};
    SocketCounters last = {};
  };

  prometheus::Registry registry;
  Histogram *ttft, *tpot, *itl, *queue, *end_to_end;
  std::array<std::array<Counter*, kOutcomes.size()>, kProtocols.size()> requests;
  Counter* ignored_fields;
  prometheus::Family<Gauge>* live_resident_ratio;
  prometheus::Family<Counter>* errors;  // a counter for each protocol and status that occurred
  Counter *prompt_tokens, *reused_tokens, *generated_tokens, *prefix_hits;
  Gauge *slots, *slots_used, *waiting;
  std::array<Gauge*, 2> connections;  // for kHttp and kText
  std::array<Gauge*, kResources> held;
  Gauge *compiled_bytes, *automata_bytes;
  std::array<std::array<Counter*, kScopes>, kResources> over_limit;
  Counter *failures, *transitions, *lost, *preempted, *parked, *recomputed_tokens;
  Gauge *kv_chunks, *used_kv_chunks, *shared_kv_chunks, *kept_states, *kv_files, *kv_file_bytes;
  Gauge *batch_jobs, *batch_left, *batch_files, *batch_file_bytes, *batch_disk_bytes;
  Counter *batch_completed, *batch_failed, *yielded;
  Counter *expert_rows, *expert_steps, *experts_read, *expert_rows_again;
  Counter *kv_files_written, *kv_files_read, *kv_files_refused, *kv_files_failed;
  Gauge *responses, *response_bytes;
  struct LlamaServer {
    Counter *prompt_tokens, *cached_tokens, *prompt_seconds, *generated_tokens, *decode_seconds,
        *steps, *most_tokens;
    Gauge *prompt_rate, *generated_rate, *running, *waiting, *busy_slots;
  };
  LlamaServer llama;
  RecentRate prompt_rate, generated_rate;
  mutable std::mutex sockets_mutex;  // guards Socket::last
  std::vector<Socket> sockets;

  // A metric, and where it is kept.
  template <typename Of, typename Metric>
  struct Row {
    Metric* Of::*metric;
    const char *name, *help;
  };
  explicit Families(const std::vector<std::string>& names);
  void AddLlamaServer();
  void AddSockets(const std::vector<std::string>& names);
  void FollowForLlamaServer();

  Histogram* AddHistogram(const char* name, const char* help,
                          const Histogram::BucketBoundaries& bounds) {
    return &prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add({}, bounds);
  }
  prometheus::Family<Counter>& Counters(const char* name, const char* help) {
    return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
  }
  prometheus::Family<Gauge>& Gauges(const char* name, const char* help) {
    return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
  }
};

ServingMetrics::Families::Families(const std::vector<std::string>& names) {
  static constexpr Row<Families, Counter> kCounters[] = {
      {&Families::ignored_fields, "larder_ignored_fields_total",
       "Fields, tools and items of requests that Larder does not know."},
      {&Families::prompt_tokens, "larder_prompt_tokens_total", "Prompt tokens computed."},
      {&Families::reused_tokens, "larder_prefix_reused_tokens_total",
       "Prompt tokens found in a slot's KV cache."},
      {&Families::prefix_hits, "larder_prefix_hits_total",
       "Requests with a prefix found in a slot's KV cache."},
      {&Families::generated_tokens, "larder_generated_tokens_total", "Tokens generated."},
      {&Families::transitions, "larder_schedule_transitions_total",
       "Changes between computing prompts and decoding (0 with --policy mixed)."},
      {&Families::lost, "larder_chain_lost_total",
       "Times that a socket or link of the cluster was lost."},
      {&Families::parked, "larder_requests_paused_total",
       "Requests with tokens that paused, for a lost socket or for room in the KV cache, and went "
       "on from their tokens."},
      {&Families::preempted, "larder_requests_preempted_total",
       "Times a request lost its place in the KV cache to an older one (--kv-tokens)."},
      {&Families::recomputed_tokens, "larder_recomputed_tokens_total",
       "Tokens of paused and preempted requests that are computed again."},
      {&Families::kv_files_written, "larder_kv_files_written_total",
       "KV chunks written to files (--cache-dir)."},
      {&Families::kv_files_read, "larder_kv_files_read_total",
       "KV chunks read from files (--cache-dir)."},
      {&Families::kv_files_refused, "larder_kv_files_refused_total",
       "KV files removed because they were damaged or of another model or server."},
      {&Families::kv_files_failed, "larder_kv_files_failed_total",
       "KV chunks that could not be written to files."},
      {&Families::yielded, "larder_batch_yields_total",
       "Times a request of a batch gave its slot to a client's and went on later."},
      {&Families::expert_rows, "larder_experts_chosen_total",
       "Experts that routers chose for tokens, over all layers (each expert's: /metrics/experts)."},
      {&Families::expert_steps, "larder_expert_steps_total", "Steps of layers with experts."},
      {&Families::experts_read, "larder_experts_read_total",
       "Experts whose weights those steps read: each at most once a step."},
      {&Families::expert_rows_again, "larder_experts_chosen_again_total",
       "Experts that routers chose for a token and for the one before it in its sequence."},
      {&Families::failures, "larder_failures_total",
       "Connections and requests dropped because handling them failed: no memory, or a bug."},
  };
  static constexpr Row<Families, Gauge> kGauges[] = {
      {&Families::slots, "larder_slots", "Sequences that have a place in the KV cache."},
      {&Families::slots_used, "larder_slots_used", "Slots in which a request is being answered."},
      {&Families::waiting, "larder_requests_waiting", "Requests that wait for a slot."},
      {&Families::kv_chunks, "larder_kv_chunks", "Chunks of 256 tokens that the KV caches hold."},
      {&Families::used_kv_chunks, "larder_kv_chunks_used",
       "KV chunks that hold tokens of a request, past or running."},
      {&Families::shared_kv_chunks, "larder_kv_chunks_shared",
       "KV chunks that several requests share."},
      {&Families::kept_states, "larder_states_kept",
       "States of recurrent layers that are kept for requests that begin as others did."},
      {&Families::kv_files, "larder_kv_files", "KV chunks of 256 tokens in files (--cache-dir)."},
      {&Families::kv_file_bytes, "larder_kv_file_bytes",
       "Bytes of KV chunks in files (--cache-dir)."},
      {&Families::batch_jobs, "larder_batches", "Batches that have not ended (--batch-dir)."},
      {&Families::batch_left, "larder_batch_requests_left",
       "Requests without an answer, of batches that have not ended."},
      {&Families::batch_files, "larder_batch_files", "Files of clients in --batch-dir."},
      {&Families::batch_file_bytes, "larder_batch_file_bytes",
       "Bytes of clients' files in --batch-dir."},
      {&Families::batch_disk_bytes, "larder_batch_file_bytes_limit",
       "Bytes that clients' files in --batch-dir may have (--batch-disk)."},
      {&Families::responses, "larder_responses", "Stored responses that are kept (--responses)."},
      {&Families::response_bytes, "larder_response_bytes",
       "Bytes of stored responses (--responses-held limits them)."},
  };
  for (const auto& row : kCounters) this->*row.metric = &Counters(row.name, row.help).Add({});
  for (const auto& row : kGauges) this->*row.metric = &Gauges(row.name, row.help).Add({});

  ttft = AddHistogram("larder_time_to_first_token_seconds",
                      "From a request's arrival to its first token.", RequestBuckets());
  tpot = AddHistogram("larder_time_per_output_token_seconds",
                      "Mean time between the tokens of a finished request, without the first.",
                      TokenBuckets());
  itl = AddHistogram("larder_inter_token_latency_seconds", "Time between two tokens of a request.",
                     TokenBuckets());
  queue = AddHistogram("larder_queue_time_seconds", "From a request's arrival until it has a slot.",
                       RequestBuckets());
  end_to_end = AddHistogram(
      "larder_end_to_end_latency_seconds",
      "From a request's arrival to its last token, of requests that ended by stop or length.",
      RequestBuckets());

  auto& request_family =
      Counters("larder_requests_total", "Requests that ended, by protocol and outcome.");
  auto& connection_family = Gauges("larder_connections", "Open connections, by protocol.");
  for (size_t p = 0; p < kProtocols.size(); ++p) {
    const std::string protocol = ProtocolName(kProtocols[p]);
    for (size_t o = 0; o < kOutcomes.size(); ++o) {
      requests[p][o] = &request_family.Add(
          {{"protocol", protocol}, {"outcome", RequestOutcomeName(kOutcomes[o])}});
    }
    if (p < connections.size()) connections[p] = &connection_family.Add({{"protocol", protocol}});
  }
  errors = &Counters("larder_error_answers_total",
                     "Answers that are errors, by protocol and HTTP status.");

  auto& batch_requests = Counters("larder_batch_requests_total",
                                  "Requests of batches that were answered, by outcome.");
  batch_completed = &batch_requests.Add({{"outcome", "completed"}});
  batch_failed = &batch_requests.Add({{"outcome", "failed"}});

  AddLlamaServer();

  auto& grammar_family = Gauges("larder_grammar_bytes",
                                "Memory of grammars that are kept: compiled, and the states that "
                                "texts reached.");
  compiled_bytes = &grammar_family.Add({{"of", "compiled"}});
  automata_bytes = &grammar_family.Add({{"of", "states"}});
  auto& held_family =
      Gauges("larder_held", "What clients make the server hold: connections, requests, bytes.");
  auto& over_family = Counters("larder_over_limit_total",
                               "Refusals by a limit per connection, per peer or in all.");
  for (size_t r = 0; r < kResources; ++r) {
    const std::string resource = ResourceName(static_cast<Resource>(r));
    held[r] = &held_family.Add({{"resource", resource}});
    for (size_t s = 0; s < kScopes; ++s)
      over_limit[r][s] =
          &over_family.Add({{"resource", resource}, {"scope", ScopeName(static_cast<Scope>(s))}});
  }

  AddSockets(names);
}

void ServingMetrics::Families::AddSockets(const std::vector<std::string>& names) {
  static constexpr Row<Socket, Counter> kCounters[] = {
      {&Socket::frames, "larder_socket_frames_total", "Frames computed by a socket."},
      {&Socket::rows, "larder_socket_tokens_total", "Tokens in the frames that a socket computed."},
      {&Socket::step, "larder_socket_step_seconds_total",
       "Time that a socket spent computing frames."},
      {&Socket::wait, "larder_socket_wait_seconds_total", "Time that a socket waited for a frame."},
      {&Socket::link_wait, "larder_socket_link_wait_seconds_total",
       "Time that a socket waited for room in its next link."},
  };
  static constexpr Row<Socket, Gauge> kGauges[] = {
      {&Socket::weight_bytes, "larder_socket_weight_bytes", "Bytes of a socket's packed weights."},
      {&Socket::resident_bytes, "larder_socket_resident_bytes",
       "Bytes of a socket's weights that are re-read at the speed of the L3 cache."},
      {&Socket::waiting_ratio, "larder_socket_waiting_ratio",
       "Share of a socket's time spent waiting since the last scrape."},
      {&Socket::mean_step, "larder_socket_step_seconds",
       "Mean time of a socket's frame since the last scrape."},
      {&Socket::round_trip, "larder_socket_link_round_trip_seconds",
       "Round trip of the socket's link, last measured."},
  };
  live_resident_ratio =
      &Gauges("larder_socket_live_resident_ratio",
              "Share of a socket's weights that its frames find in the L3 cache.");
  sockets.resize(names.size());
  for (size_t i = 0; i < names.size(); ++i) sockets[i].name = names[i];
  const auto add = [&](auto& family, auto Socket::*metric) {
    for (size_t i = 0; i < names.size(); ++i)
      sockets[i].*metric = &family.Add({{"socket", names[i]}});
  };
  for (const auto& row : kCounters) add(Counters(row.name, row.help), row.metric);
  for (const auto& row : kGauges) add(Gauges(row.name, row.help), row.metric);
}

// Names and kinds are llama-server's: dashboards know them.
void ServingMetrics::Families::AddLlamaServer() {
  const auto counter = [this](const char* name, const char* help) {
    return &Counters(name, help).Add({});
  };
  const auto gauge = [this](const char* name, const char* help) {
    return &Gauges(name, help).Add({});
  };
  llama = {
      .prompt_tokens = counter("llamacpp:prompt_tokens_total", "Prompt tokens computed."),
      .cached_tokens =
          counter("llamacpp:prompt_tokens_cached_total", "Prompt tokens found in the KV cache."),
      .prompt_seconds = counter("llamacpp:prompt_seconds_total",
                                "Time from a slot to the end of the prompt, of all requests."),
      .generated_tokens = counter("llamacpp:tokens_predicted_total", "Tokens generated."),
      .decode_seconds = counter("llamacpp:tokens_predicted_seconds_total",
                                "Time from the first token to the last, of all requests."),
      .steps = counter("llamacpp:n_decode_total", "Micro-batches computed."),
      .most_tokens = counter("llamacpp:n_tokens_max", "The most tokens of a request in a slot."),
      .prompt_rate = gauge("llamacpp:prompt_tokens_seconds",
                           "Prompt tokens per second, over the last two seconds."),
      .generated_rate = gauge("llamacpp:predicted_tokens_seconds",
                              "Generated tokens per second, over the last two seconds."),
      .running = gauge("llamacpp:requests_processing", "Requests with a slot."),
      .waiting = gauge("llamacpp:requests_deferred", "Requests without a slot."),
      .busy_slots =
          gauge("llamacpp:n_busy_slots_per_decode", "Mean number of slots in a micro-batch.")};
  for (const char* name :
       {"llamacpp:spec_decode_num_draft_tokens_total",
        "llamacpp:spec_decode_num_accepted_tokens_total", "llamacpp:spec_decode_num_drafts_total"})
    counter(name, "Speculative decoding, which Larder does not have: 0.");
}

ServingMetrics::ServingMetrics(const std::vector<std::string>& sockets)
    : families_(std::make_unique<Families>(sockets)) {}
ServingMetrics::~ServingMetrics() = default;

void ServingMetrics::Admitted(Protocol protocol, int64_t queue_ns, size_t prompt_tokens,
                              size_t reused_tokens) {
  LARDER_CHECK(reused_tokens <= prompt_tokens);
  if (protocol != Protocol::kBatch) families_->queue->Observe(Seconds(queue_ns));
  families_->prompt_tokens->Increment(static_cast<double>(prompt_tokens - reused_tokens));
  families_->reused_tokens->Increment(static_cast<double>(reused_tokens));
  families_->prompt_rate.Add(NowNs(), prompt_tokens - reused_tokens);
  if (reused_tokens > 0) families_->prefix_hits->Increment();
}

void ServingMetrics::FirstToken(Protocol protocol, int64_t ns) {
  if (protocol != Protocol::kBatch) families_->ttft->Observe(Seconds(ns));
  families_->generated_tokens->Increment();
  families_->generated_rate.Add(NowNs());
}

void ServingMetrics::NextToken(Protocol protocol, int64_t ns) {
  if (protocol != Protocol::kBatch) families_->itl->Observe(Seconds(ns));
  families_->generated_tokens->Increment();
  families_->generated_rate.Add(NowNs());
}

void ServingMetrics::Finished(Protocol protocol, RequestOutcome outcome, size_t tokens,
                              int64_t first_token_ns, int64_t end_to_end_ns) {
  families_->requests[static_cast<size_t>(protocol)][static_cast<size_t>(outcome)]->Increment();
  if (outcome != RequestOutcome::kStop && outcome != RequestOutcome::kLength) return;
  if (protocol == Protocol::kBatch) return;
  families_->end_to_end->Observe(Seconds(end_to_end_ns));
  if (tokens > 1) {
    families_->tpot->Observe(Seconds(end_to_end_ns - first_token_ns) /
                             static_cast<double>(tokens - 1));
  }
}

// A counter that shows the largest value so far.
static void Raise(Counter& counter, double value) {
  counter.Increment(std::max(0.0, value - counter.Value()));
}

void ServingMetrics::Worked(int64_t prompt_ns, int64_t decode_ns, size_t tokens) {
  families_->llama.prompt_seconds->Increment(Seconds(prompt_ns));
  families_->llama.decode_seconds->Increment(Seconds(decode_ns));
  Raise(*families_->llama.most_tokens, static_cast<double>(tokens));
}

void ServingMetrics::ErrorAnswered(Protocol protocol, int status) {
  families_->errors->Add({{"protocol", ProtocolName(protocol)}, {"code", std::to_string(status)}})
      .Increment();
}

void ServingMetrics::IgnoredFields(size_t count) {
  families_->ignored_fields->Increment(static_cast<double>(count));
}

void ServingMetrics::SetSlots(size_t total, size_t used) {
  families_->slots->Set(static_cast<double>(total));
  families_->slots_used->Set(static_cast<double>(used));
}

void ServingMetrics::SetQueue(size_t waiting) {
  families_->waiting->Set(static_cast<double>(waiting));
}

void ServingMetrics::SetConnections(Protocol protocol, size_t open) {
  families_->connections[static_cast<size_t>(protocol)]->Set(static_cast<double>(open));
}

// Adopts a counter that another object keeps.
static void Follow(Counter& counter, uint64_t now) { Raise(counter, static_cast<double>(now)); }

void ServingMetrics::SetAdmission(const Admission& admission) {
  for (size_t r = 0; r < kResources; ++r) {
    const auto resource = static_cast<Resource>(r);
    families_->held[r]->Set(static_cast<double>(admission.used(resource)));
    for (size_t s = 0; s < kScopes; ++s)
      Follow(*families_->over_limit[r][s], admission.refused(resource, static_cast<Scope>(s)));
  }
}

void ServingMetrics::SetGrammars(size_t compiled_bytes, size_t automata_bytes) {
  families_->compiled_bytes->Set(static_cast<double>(compiled_bytes));
  families_->automata_bytes->Set(static_cast<double>(automata_bytes));
}

void ServingMetrics::SetFailures(uint64_t count) { Follow(*families_->failures, count); }

void ServingMetrics::SetScheduler(const SchedulerCounts& counts) {
  Follow(*families_->transitions, counts.transitions);
  Follow(*families_->lost, counts.lost);
  Follow(*families_->preempted, counts.preempted);
  Follow(*families_->yielded, counts.yielded);
  Follow(*families_->parked, counts.parked);
  Follow(*families_->recomputed_tokens, counts.recomputed_tokens);
  Follow(*families_->llama.steps, counts.steps);
  families_->llama.busy_slots->Set(counts.steps == 0 ? 0.0
                                                     : static_cast<double>(counts.busy_slots) /
                                                           static_cast<double>(counts.steps));
  families_->kv_chunks->Set(static_cast<double>(counts.kv_chunks));
  families_->used_kv_chunks->Set(static_cast<double>(counts.used_kv_chunks));
  families_->shared_kv_chunks->Set(static_cast<double>(counts.shared_kv_chunks));
  families_->kept_states->Set(static_cast<double>(counts.kept_states));
  families_->kv_files->Set(static_cast<double>(counts.kv_files));
  families_->kv_file_bytes->Set(static_cast<double>(counts.kv_file_bytes));
  Follow(*families_->kv_files_written, counts.kv_files_written);
  Follow(*families_->kv_files_read, counts.kv_files_read);
  Follow(*families_->kv_files_refused, counts.kv_files_refused);
  Follow(*families_->kv_files_failed, counts.kv_files_failed);
}

void ServingMetrics::SetExperts(const ExpertTotals& experts) {
  Follow(*families_->expert_rows, experts.pairs);
  Follow(*families_->experts_read, experts.active);
  Follow(*families_->expert_steps, experts.steps);
  Follow(*families_->expert_rows_again, experts.again);
}

void ServingMetrics::SetBatches(const BatchCounts& counts) {
  families_->batch_jobs->Set(static_cast<double>(counts.jobs));
  families_->batch_left->Set(static_cast<double>(counts.requests_left));
  families_->batch_files->Set(static_cast<double>(counts.files));
  families_->batch_file_bytes->Set(static_cast<double>(counts.file_bytes));
  families_->batch_disk_bytes->Set(static_cast<double>(counts.most_file_bytes));
  Follow(*families_->batch_completed, counts.completed);
  Follow(*families_->batch_failed, counts.failed);
}

void ServingMetrics::SetResponses(size_t count, size_t bytes) {
  families_->responses->Set(static_cast<double>(count));
  families_->response_bytes->Set(static_cast<double>(bytes));
}

void ServingMetrics::SetSocket(size_t index, const SocketCounters& now) {
  LARDER_CHECK(index < families_->sockets.size());
  const std::lock_guard lock(families_->sockets_mutex);
  Families::Socket& socket = families_->sockets[index];
  const SocketCounters& last = socket.last;
  const uint64_t frames = Growth(now.frames, last.frames);
  const double step_s = Seconds(Growth(now.step_ns, last.step_ns));
  const double wait_s = Seconds(Growth(now.wait_ns, last.wait_ns));
  const double link_s = Seconds(Growth(now.link_ns, last.link_ns));
  socket.frames->Increment(static_cast<double>(frames));
  socket.rows->Increment(static_cast<double>(Growth(now.rows, last.rows)));
  socket.step->Increment(step_s);
  socket.wait->Increment(wait_s);
  socket.link_wait->Increment(link_s);
  socket.weight_bytes->Set(static_cast<double>(now.weight_bytes));
  socket.resident_bytes->Set(static_cast<double>(now.resident_bytes));
  if (const std::optional<double> live = now.live_resident_share()) {
    if (socket.live_resident_ratio == nullptr)
      socket.live_resident_ratio = &families_->live_resident_ratio->Add({{"socket", socket.name}});
    socket.live_resident_ratio->Set(*live);
  }
  socket.round_trip->Set(Seconds(now.round_trip_ns));
  if (frames > 0) socket.mean_step->Set(step_s / static_cast<double>(frames));
  if (const double all_s = step_s + wait_s + link_s; all_s > 0) {
    socket.waiting_ratio->Set((wait_s + link_s) / all_s);
  }
  socket.last = now;
}

void ServingMetrics::Families::FollowForLlamaServer() {
  Raise(*llama.prompt_tokens, prompt_tokens->Value());
  Raise(*llama.cached_tokens, reused_tokens->Value());
  Raise(*llama.generated_tokens, generated_tokens->Value());
  llama.prompt_rate->Set(prompt_rate.PerSecond(NowNs()));
  llama.generated_rate->Set(generated_rate.PerSecond(NowNs()));
  llama.running->Set(slots_used->Value());
  llama.waiting->Set(waiting->Value());
}

std::string ServingMetrics::Render() const {
  families_->FollowForLlamaServer();
  return prometheus::TextSerializer().Serialize(families_->registry.Collect());
}

HistogramView ServingMetrics::TpotHistogram() const {
  const auto histogram = families_->tpot->Collect().histogram;
  HistogramView view;
  view.sum_s = histogram.sample_sum;
  for (const auto& bucket : histogram.bucket) {
    view.upper_s.push_back(bucket.upper_bound);
    view.count.push_back(bucket.cumulative_count);
  }
  return view;
}

double ServingMetrics::GeneratedPerSecond() const {
  return families_->generated_rate.PerSecond(NowNs());
}
double ServingMetrics::PromptPerSecond() const { return families_->prompt_rate.PerSecond(NowNs()); }
uint64_t ServingMetrics::generated_tokens() const {
  return static_cast<uint64_t>(families_->generated_tokens->Value());
}
uint64_t ServingMetrics::prompt_tokens() const {
  return static_cast<uint64_t>(families_->prompt_tokens->Value());
}

}  // namespace larder::serving::metrics
