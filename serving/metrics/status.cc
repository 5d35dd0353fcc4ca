#include "serving/metrics/status.h"

#include <cmath>
#include <nlohmann/json.hpp>

namespace larder::serving::inline metrics {
namespace {

using nlohmann::json;

json ToJson(const L3GroupPlace& group) {
  json threads = json::array();
  for (const ThreadPlace& thread : group.threads) {
    threads.push_back({{"thread", thread.thread},
                       {"core", thread.core},
                       {"cpu", thread.cpu},
                       {"numa_node", thread.numa_node},
                       {"weight_bytes", thread.weight_bytes}});
  }
  return {{"id", group.id},
          {"package", group.package},
          {"l3_bytes", group.l3_bytes},
          {"budget_bytes", group.budget_bytes},
          {"weight_bytes", group.weight_bytes},
          {"cores", group.cores},
          {"threads", threads}};
}

json ToJson(const SocketPlace& socket) {
  json groups = json::array();
  for (const L3GroupPlace& group : socket.l3_groups) groups.push_back(ToJson(group));
  return {{"name", socket.name},       {"role", socket.role},
          {"server", socket.server},   {"first_layer", socket.first_layer},
          {"layers", socket.layers},   {"embedding", socket.embedding},
          {"lm_head", socket.lm_head}, {"first_slot", socket.first_slot.value},
          {"slots", socket.slots},     {"kv_bytes", socket.kv_bytes},
          {"l3_groups", groups}};
}

const char* Name(SlotView::State state) {
  switch (state) {
    case SlotView::State::kIdle:
      return "idle";
    case SlotView::State::kPrefill:
      return "prefill";
    case SlotView::State::kDecode:
      return "decode";
  }
  return "unknown";
}

json ToJson(std::optional<double> share) { return share ? json(*share) : json(nullptr); }
json ToJson(const std::vector<std::optional<double>>& shares) {
  json out = json::array();
  for (const auto& share : shares) out.push_back(ToJson(share));
  return out;
}

json ToJson(const SocketView& socket) {
  const SocketCounters& s = socket.counters;
  const double all_ns = static_cast<double>(s.step_ns) + static_cast<double>(s.wait_ns) +
                        static_cast<double>(s.link_ns);
  json out = {
      {"name", socket.name},
      {"state", socket.state},
      {"frames", s.frames},
      {"tokens", s.rows},
      {"step_seconds_total", static_cast<double>(s.step_ns) * 1e-9},
      {"wait_seconds_total", static_cast<double>(s.wait_ns) * 1e-9},
      {"link_wait_seconds_total", static_cast<double>(s.link_ns) * 1e-9},
      {"waiting_ratio", all_ns > 0 ? static_cast<double>(s.wait_ns + s.link_ns) / all_ns : 0.0},
      {"mean_step_seconds",
       s.frames > 0 ? static_cast<double>(s.step_ns) * 1e-9 / static_cast<double>(s.frames) : 0.0},
      {"weight_bytes", s.weight_bytes},
      {"resident_bytes", s.resident_bytes},
      {"resident_share", ToJson(socket.resident_share)},
      {"resident_share_live", ToJson(s.live_resident_share())},
      {"thread_resident_share", socket.thread_resident_share},
      {"thread_resident_share_live", ToJson(socket.thread_resident_share_live)},
      {"layer_resident_share_live", ToJson(socket.layer_resident_share_live)},
      {"link_round_trip_seconds", nullptr}};
  if (s.round_trip_ns > 0)
    out["link_round_trip_seconds"] = static_cast<double>(s.round_trip_ns) * 1e-9;
  return out;
}

// The count of each bucket alone, as it is drawn; the last bucket has no upper bound: null.
json ToJson(const HistogramView& histogram) {
  json buckets = json::array();
  uint64_t before = 0;
  for (size_t i = 0; i < histogram.count.size(); ++i) {
    json bound = std::isfinite(histogram.upper_s[i]) ? json(histogram.upper_s[i]) : json(nullptr);
    buckets.push_back(
        {{"upper_seconds", std::move(bound)}, {"count", histogram.count[i] - before}});
    before = histogram.count[i];
  }
  return {{"count", before}, {"sum_seconds", histogram.sum_s}, {"buckets", buckets}};
}

}  // namespace

json PlanJson(const PlanView& plan) {
  json sockets = json::array(), links = json::array();
  for (const SocketPlace& socket : plan.sockets) sockets.push_back(ToJson(socket));
  for (const LinkPlace& link : plan.links) {
    links.push_back({{"from", link.from}, {"to", link.to}, {"kind", link.kind}});
  }
  return {{"object", "larder.plan"},
          {"machine", plan.machine},
          {"isa", plan.isa},
          {"model",
           {{"name", plan.model},
            {"architecture", plan.architecture},
            {"chat_format", plan.chat_format.empty() ? json(nullptr) : json(plan.chat_format)},
            {"parameters", plan.parameters},
            {"layers", plan.layers},
            {"dim", plan.dim},
            {"ffn", plan.ffn},
            {"heads", plan.heads},
            {"kv_heads", plan.kv_heads},
            {"vocab", plan.vocab}}},
          {"context", plan.context},
          {"slots", plan.slots},
          {"max_in_flight", plan.max_in_flight},
          {"weight_bytes", plan.weight_bytes},
          {"kv_bytes", plan.kv_bytes},
          {"sockets", sockets},
          {"links", links},
          {"notes", plan.notes}};
}

static json ToJson(const std::optional<BatchCounts>& batches) {
  if (!batches) return nullptr;
  return {{"jobs", batches->jobs},
          {"requests_left", batches->requests_left},
          {"requests_completed", batches->completed},
          {"requests_failed", batches->failed},
          {"files", batches->files},
          {"file_bytes", batches->file_bytes},
          {"file_bytes_limit", batches->most_file_bytes}};
}

static json ToJson(const std::optional<ExpertTotals>& experts) {
  if (!experts) return nullptr;
  return {{"rows", experts->pairs},
          {"per_layer_and_step", experts->active_per_step()},
          {"reuse", experts->reuse()}};
}

json ServerStatusJson(const StatusView& status) {
  json slots = json::array(), sockets = json::array();
  size_t used = 0;
  for (const SlotView& slot : status.slots) {
    used += slot.state != SlotView::State::kIdle;
    slots.push_back({{"state", Name(slot.state)},
                     {"cached_tokens", slot.cached_tokens},
                     {"generated_tokens", slot.generated_tokens}});
  }
  for (const SocketView& socket : status.sockets) sockets.push_back(ToJson(socket));
  return {{"object", "larder.status"},
          {"state", status.state},
          {"loading_share", status.loading_share},
          {"version", status.version},
          {"uptime_seconds", status.uptime_s},
          {"slots_used", used},
          {"slots", slots},
          {"kv_chunks",
           {{"total", status.kv_chunks},
            {"used", status.used_kv_chunks},
            {"shared", status.shared_kv_chunks}}},
          {"states_kept", status.kept_states},
          {"kv_files", {{"chunks", status.kv_files}, {"bytes", status.kv_file_bytes}}},
          {"batches", ToJson(status.batches)},
          {"queue", {{"waiting", status.queue_length}, {"limit", status.queue_limit}}},
          {"connections", {{"http", status.http_connections}, {"text", status.text_connections}}},
          {"generated_tokens_per_second", status.generated_tokens_per_s},
          {"prompt_tokens_per_second", status.prompt_tokens_per_s},
          {"generated_tokens_total", status.generated_tokens},
          {"prompt_tokens_total", status.prompt_tokens},
          {"tpot", ToJson(status.tpot)},
          {"experts", ToJson(status.experts)},
          {"sockets", sockets}};
}

}  // namespace larder::serving::metrics
