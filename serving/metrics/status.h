// The answers to GET /v1/larder/plan (which socket does what) and /v1/larder/status (how busy it
// is). They are plain structs, which node/ fills from the Plan, the topology and the sockets'
// counters; serving/ knows none of these. A plan is made once, a status for each request, on the
// I/O thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "base/expert_counts.h"
#include "base/ids.h"
#include "serving/metrics/metrics.h"

namespace larder::serving::inline metrics {

// A core that a socket uses; several threads may share one.
struct ThreadPlace {
  size_t thread = 0;  // number of the thread in the socket
  int core = 0;
  int cpu = 0;  // the operating system's number
  int numa_node = 0;
  uint64_t weight_bytes = 0;  // bytes of the thread's shard
};

// All cores that share one L3, including those that the socket does not use.
struct L3GroupPlace {
  int id = 0;
  int package = 0;
  uint64_t l3_bytes = 0;  // 0: not known
  uint64_t budget_bytes = 0;
  uint64_t weight_bytes = 0;
  std::vector<int> cores;
  std::vector<ThreadPlace> threads;
};

struct SocketPlace {
  std::string name;
  std::string role;    // "colocated", "weight", "attention", "serving"
  std::string server;  // the machine; empty: this one
  size_t first_layer = 0, layers = 0;
  bool embedding = false, lm_head = false;
  SlotId first_slot{0};  // the first of the `slots` whose KV cache lies here
  size_t slots = 0;
  uint64_t kv_bytes = 0;
  std::vector<L3GroupPlace> l3_groups;
};

struct LinkPlace {
  std::string from, to;  // sockets' names
  std::string kind;      // "shm", "tcp", "verbs"
};

struct PlanView {
  std::string model, architecture, isa, machine;
  std::string chat_format;  // the template's name; empty: the model has none
  size_t layers = 0, dim = 0, ffn = 0, heads = 0, kv_heads = 0, vocab = 0, context = 0, slots = 0;
  uint64_t parameters = 0, weight_bytes = 0, kv_bytes = 0;
  size_t max_in_flight = 1;  // micro-batches
  std::vector<SocketPlace> sockets;
  std::vector<LinkPlace> links;
  std::vector<std::string> notes;
};
nlohmann::json PlanJson(const PlanView&);

struct SlotView {
  enum class State { kIdle, kPrefill, kDecode };
  State state = State::kIdle;
  size_t cached_tokens = 0;     // tokens in its KV cache; those of an idle slot may be reused as
                                // the start of another prompt
  size_t generated_tokens = 0;  // tokens of the running request
};

struct SocketView {
  std::string name, state;  // pipeline::SocketStateName
  SocketCounters counters;
  std::optional<double> resident_share;  // the resident share of its weights; nullopt: not measured
  // The same per thread, in the order of the plan's L3 groups and their threads; empty: not
  // measured.
  std::vector<double> thread_resident_share;
  // While it computes: of a thread, in the same order, and of a layer; nullopt: no figure yet.
  // Empty: those of another process, which only tells its counters.
  std::vector<std::optional<double>> thread_resident_share_live, layer_resident_share_live;
};

struct StatusView {
  std::string state;         // "loading", "serving", "connecting" (a socket is lost), "draining"
  double loading_share = 1;  // 0..1
  std::string version;
  double uptime_s = 0;
  std::vector<SlotView> slots;
  // Chunks of tokens in the KV caches: all, those with tokens of a request, past or running, and
  // those that several requests share.
  size_t kv_chunks = 0, used_kv_chunks = 0, shared_kv_chunks = 0;
  size_t kept_states = 0;  // of recurrent layers, for requests that begin as others did
  uint64_t kv_files = 0, kv_file_bytes = 0;  // chunks in files
  std::optional<BatchCounts> batches;        // nullopt: the server keeps none
  size_t queue_length = 0, queue_limit = 0;
  size_t http_connections = 0, text_connections = 0;
  double generated_tokens_per_s = 0, prompt_tokens_per_s = 0;
  uint64_t generated_tokens = 0, prompt_tokens = 0;
  HistogramView tpot;
  std::optional<ExpertTotals> experts;  // nullopt: no layer has experts
  std::vector<SocketView> sockets;
};
nlohmann::json ServerStatusJson(const StatusView&);

}  // namespace larder::serving::metrics
