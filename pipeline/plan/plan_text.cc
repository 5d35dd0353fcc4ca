// Prints a Plan as tables and as JSON.
#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "attention_node/kv_region.h"
#include "pipeline/manifest/text.h"
#include "pipeline/plan/plan.h"
#include "pipeline/plan/read_text.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {
namespace {

constexpr size_t kMostStagesShown = 24;  // in a table; JSON has all

double Gb(uint64_t bytes) { return static_cast<double>(bytes) * 1e-9; }

std::string Name(const std::string& socket) {
  return socket.empty() ? "(the serving process)" : socket;
}

std::string Layers(const Plan& plan) {
  const auto [least, most] = std::minmax_element(
      plan.stages.begin(), plan.stages.end(),
      [](const PlacedStage& a, const PlacedStage& b) { return a.layers < b.layers; });
  return least->layers == most->layers ? fmt::format("{}", most->layers)
                                       : fmt::format("{} to {}", least->layers, most->layers);
}

struct KvCapacity {
  size_t context = 0;
  uint64_t slot_bytes = 0;  // per slot, over all stages
  size_t slots_in_l3 = 0;   // slots that fit every stage's room
};
std::vector<KvCapacity> KvCapacities(const Plan& plan) {
  std::vector<KvCapacity> capacities;
  std::vector<size_t> contexts = {plan.capacity.context};
  for (size_t context = 1024; context <= std::max<size_t>(plan.config.trained_context, 4096);
       context *= 4)
    contexts.push_back(context);
  std::sort(contexts.begin(), contexts.end());
  contexts.erase(std::unique(contexts.begin(), contexts.end()), contexts.end());
  for (const size_t context : contexts) {
    KvCapacity capacity{context, 0, SIZE_MAX};
    for (const PlacedStage& stage : plan.stages) {
      model::Capacity of_context = plan.capacity;
      of_context.context = context;
      const uint64_t bytes =
          attention_node::KvShape::OfSequence(
              model::LayersOf(plan.config, stage.first_layer, stage.layers), of_context)
              .slot_bytes();
      capacity.slot_bytes += bytes;
      capacity.slots_in_l3 = std::min<size_t>(capacity.slots_in_l3, stage.kv_room_bytes / bytes);
    }
    capacities.push_back(capacity);
  }
  return capacities;
}

// What a step of so many rows reads of all stages' weights and the head's.
double ReadBytes(const Plan& plan, size_t rows) {
  double bytes = plan.single() ? 0 : static_cast<double>(plan.lm_head_bytes);
  for (const PlacedStage& stage : plan.stages) bytes += stage.plan.ReadBytes(rows);
  return bytes;
}

std::string StageTable(const Plan& plan) {
  std::string out =
      "\n  stage  socket                    layers   cores  weights MB  L3 budget MB  resident  "
      "attention\n";
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    if (plan.stages.size() > kMostStagesShown && i == kMostStagesShown - 2) {
      out += fmt::format("    ...  {} more\n", plan.stages.size() - i - 1);
      i = plan.stages.size() - 1;
    }
    const PlacedStage& stage = plan.stages[i];
    std::string attention;
    for (size_t k = 0; k < stage.attention.size(); ++k) {
      const bool elsewhere = stage.plan.attention.at(k).elsewhere;
      attention += fmt::format("{}{}{}", attention.empty() ? "" : ", ", stage.attention[k],
                               elsewhere ? " (another server's)" : "");
    }
    out += fmt::format(
        "  {:>5}  {:<22} {:>9} {:>7} {:>11.2f} {:>13.1f}  {:<8}  {}\n", i,
        fmt::format("{}{}{}", stage.server, stage.server.empty() ? "" : "/", stage.socket),
        fmt::format("{}-{}", stage.first_layer, stage.first_layer + stage.layers - 1), stage.cores,
        Mb(stage.weight_bytes), Mb(stage.l3_budget_bytes), stage.resident ? "yes" : "no",
        attention.empty() ? "colocated" : attention);
  }
  return out;
}

// Where the threads of links to attention sockets of other servers run.
std::string LinkThreads(const Plan& plan) {
  std::string out;
  const auto text = [](CpuId cpu) {
    return cpu.valid() ? fmt::format("CPU {}", cpu.value) : std::string("no core left for it");
  };
  for (const PlacedStage& stage : plan.stages) {
    for (const PlanAttentionSocket& socket : stage.plan.attention) {
      if (!socket.elsewhere) continue;
      out += fmt::format("  links {} - {}: a thread at each end, {}; {}\n", stage.socket,
                         socket.name, text(socket.link_cpu), text(socket.link_cpu_there));
    }
  }
  return out.empty() ? out : "\n" + out;
}

// The line about the stage whose threads wait the most for each other.
std::string BalanceLine(const Plan& plan) {
  const std::span stages = std::span(plan.prediction.stages).first(plan.stages.size());
  const auto worst = std::ranges::min_element(stages, {}, &PredictedStage::balance);
  const PlacedStage& stage = plan.stages.at(static_cast<size_t>(worst - stages.begin()));
  return fmt::format("balance    stage {}, {}\n", plan.index_of(stage),
                     weight_node::BalanceText(plan.config_of(stage), stage.cores));
}

nlohmann::json ExchangeJson(const PredictedStage& stage, const PredictedExchange& exchange) {
  return {{"sent_bytes", stage.sent_bytes},  // of a row and layer, as what comes back
          {"returned_bytes", stage.returned_bytes},
          {"pays_from_batch", exchange.pays ? nlohmann::json(exchange.batch) : nlohmann::json()},
          {"batch", exchange.batch},
          {"exchange_us", exchange.exchange_us},
          {"attention_us", exchange.attention_us},
          {"attention_here_us", exchange.attention_here_us}};
}

}  // namespace

std::string Plan::Table() const {
  const auto& c = config;
  std::string out;
  if (!cluster.empty()) out += fmt::format("cluster    {}\n", cluster);
  out += fmt::format("plan       {:016x}\n", hash());
  out += fmt::format("model      {} ({}): {}, vocab {}, {:.1f} M parameters\n", c.name,
                     c.architecture_name, model::LayersText(c), c.vocab,
                     static_cast<double>(c.parameters()) * 1e-6);
  out += fmt::format(
      "weights    {:.2f} GB in the caches, head {:.2f} GB of it ({:.2f} GB at one byte per "
      "parameter)\n",
      Gb(weight_bytes()), Gb(lm_head_bytes), Gb(c.parameters()));
  const std::string read = ReadText(c, [this](size_t rows) { return ReadBytes(*this, rows); });
  out += read.empty() ? fmt::format("read       {:.2f} MB per token\n", ReadBytes(*this, 1) * 1e-6)
                      : fmt::format("read       {}\n", read);
  out += single() ? fmt::format("sockets    1 that holds weights and serves itself\n")
                  : fmt::format(
                        "sockets    {}+1: {} with {} layer{} each, and 1 that serves (embedding, "
                        "norm, head, sampler)\n",
                        stages.size(), stages.size(), Layers(*this),
                        stages.size() == c.layers ? "" : "s");
  out += fmt::format(
      "in flight  {} micro-batch{} of up to {} rows ({:.1f} KB each over a link){}\n",
      capacity.max_in_flight, capacity.max_in_flight == 1 ? "" : "es", capacity.max_batch_tokens,
      static_cast<double>(capacity.max_batch_tokens * (c.dim + c.all_inputs()) * sizeof(float)) *
          1e-3,
      single() ? "" : ": one per stage and one at the serving socket");
  out += fmt::format("KV cache   {} slot{} x {} tokens{} = {:.2f} MB in all stages, INT8\n",
                     capacity.slots, capacity.slots == 1 ? "" : "s", capacity.context,
                     KvTokensText(capacity), Mb(kv_bytes()));
  if (const std::string classes = KvClassesText(c, capacity); !classes.empty())
    out += fmt::format("           {}\n", classes);
  out +=
      fmt::format("residency  {}\n", resident() ? "all stages' weights fit their L3 budgets"
                                                : "not all stages' weights fit their L3 budgets");
  out += SplitLine();
  out += BalanceLine(*this);
  out += StageTable(*this);
  out += LinkThreads(*this);
  if (!links.empty()) {
    out += "\n  link                                                transport  listens at\n";
    for (size_t i = 0; i < links.size(); ++i) {
      if (links.size() > kMostStagesShown && i == kMostStagesShown - 2) {
        out += fmt::format("  ... {} more\n", links.size() - i - 1);
        i = links.size() - 1;
      }
      const LinkPlan& link = links[i];
      out += fmt::format(
          "  {:<50}  {:<9}  {}:{}\n", fmt::format("{} -> {}", Name(link.from), Name(link.to)),
          rdma::TransportName(link.transport),
          link.listener.host.empty() ? "this server" : link.listener.host, link.listener.port);
    }
  }
  out += "\n  context  KV MB per sequence    sequences whose KV fits L3 beside the weights\n";
  for (const KvCapacity& kv : KvCapacities(*this))
    out += fmt::format("  {:>7} {:>19.2f} {:>16}\n", kv.context, Mb(kv.slot_bytes), kv.slots_in_l3);
  out += fmt::format("\n{}", prediction.Text());
  for (const std::string& note : notes) out += fmt::format("\nnote: {}", note);
  if (!notes.empty()) out += '\n';
  return out;
}

std::string Plan::SplitLine() const {
  if (stages.size() == 1) return "";
  const size_t rows = CeilDiv(capacity.slots, capacity.max_in_flight);
  const auto us_of = [&](const PredictedStage& stage) {
    return prediction.Times(stage, rows).stage_us;
  };
  const auto text_of = [&](const PredictedStage& stage) {
    const PredictedTimes times = prediction.Times(stage, rows);
    return fmt::format("{} takes {:.0f} us for {} layer{} (weights in {}, KV in {})", stage.name,
                       times.stage_us, stage.layers, stage.layers == 1 ? "" : "s",
                       stage.weights_in_l3 ? "L3" : "memory", times.kv_in_l3 ? "L3" : "memory");
  };
  const std::span<const PredictedStage> with_layers =
      std::span(prediction.stages).first(stages.size());
  const auto [fastest, slowest] = std::ranges::minmax_element(
      with_layers, [&](const auto& a, const auto& b) { return us_of(a) < us_of(b); });
  std::string counts;
  for (size_t i = 0, n = 0; i < stages.size(); i += n) {
    n = 1;
    while (i + n < stages.size() && stages[i + n].layers == stages[i].layers) ++n;
    counts += fmt::format("{}{}{}", counts.empty() ? "" : ", ",
                          n == 1 ? "" : fmt::format("{} x ", n), stages[i].layers);
  }
  return fmt::format("layers     {}: {}; the slowest stage, {}, the fastest, {}\n",
                     layers_by_time ? "so that the slowest stage is fastest" : "as said", counts,
                     text_of(*slowest), text_of(*fastest));
}

std::string Plan::SocketTable() const {
  std::string out = fmt::format("cluster    {}\n", cluster);
  for (const auto& of_server : sockets) {
    for (const ResolvedSocket& socket : of_server) {
      std::string cpus;
      for (const CpuId cpu : socket.cpus)
        cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu.value);
      out += fmt::format(
          "socket     {}: {} on cpus {} (NUMA node {}{}){}{}\n", socket.name, RoleName(socket.role),
          cpus, socket.node.value, socket.isolated ? ", isolated" : "",
          socket.slots ? fmt::format(", {} slots", socket.slots) : std::string(),
          socket.reason.empty() ? std::string() : fmt::format(": {}", socket.reason));
    }
  }
  return out;
}

nlohmann::json Plan::Json() const {
  nlohmann::json json = {{"cluster", cluster},
                         {"model",
                          {{"name", config.name},
                           {"architecture", config.architecture_name},
                           {"layers", config.layers},
                           {"dim", config.dim},
                           {"ffn", config.layer(0).sizes.ffn},
                           {"heads", config.FirstWithAttention().sizes.heads},
                           {"kv_heads", config.FirstWithAttention().sizes.kv_heads},
                           {"head_size", config.FirstWithAttention().sizes.head_size},
                           {"vocab", config.vocab},
                           {"parameters", config.parameters()}}},
                         {"hash", fmt::format("{:016x}", hash())},
                         {"sockets", stages.size()},
                         {"serving_sockets", single() ? 0 : 1},
                         {"context", capacity.context},
                         {"slots", capacity.slots},
                         {"kv_tokens", capacity.kv_tokens == 0 ? capacity.slots * capacity.context
                                                               : capacity.kv_tokens},
                         {"cached_tokens", capacity.cached_tokens},
                         {"kv_bytes", kv_bytes()},
                         {"max_batch_tokens", capacity.max_batch_tokens},
                         {"max_in_flight", capacity.max_in_flight},
                         {"weight_bytes", weight_bytes()},
                         {"read_bytes_per_token", ReadBytes(*this, 1)},
                         {"kv_bytes_per_slot", kv_slot_bytes()},
                         {"resident", resident()},
                         {"layers_by_time", layers_by_time},
                         {"notes", notes},
                         {"serving",
                          {{"server", serving_server},
                           {"socket", serving_socket},
                           {"cores", serving_cores},
                           {"lm_head_bytes", lm_head_bytes},
                           {"embedding_bytes", embedding_bytes}}},
                         {"stages", nlohmann::json::array()},
                         {"links", nlohmann::json::array()},
                         {"kv_capacity", nlohmann::json::array()}};
  for (const PlacedStage& stage : stages) {
    nlohmann::json of_stage = {{"server", stage.server},
                               {"socket", stage.socket},
                               {"attention_sockets", nlohmann::json::array()},
                               {"first_layer", stage.first_layer},
                               {"layers", stage.layers},
                               {"cores", stage.cores},
                               {"weight_bytes", stage.weight_bytes},
                               {"l3_bytes", stage.l3_bytes},
                               {"l3_budget_bytes", stage.l3_budget_bytes},
                               {"kv_bytes_per_slot", stage.kv_slot_bytes},
                               {"resident", stage.resident}};
    for (const std::string& name : stage.attention)
      of_stage["attention_sockets"].push_back({{"name", name}});
    const PredictedStage& predicted = prediction.stages.at(index_of(stage));
    if (predicted.attention_elsewhere)
      of_stage["exchange"] = ExchangeJson(predicted, prediction.Exchange(predicted));
    // of sockets that do not exist yet nobody asks for each thread
    if (single() || !links.empty()) of_stage.update(stage.plan.Json());
    json["stages"].push_back(std::move(of_stage));
  }
  for (const LinkPlan& link : links) {
    json["links"].push_back({{"from", link.from},
                             {"to", link.to},
                             {"transport", rdma::TransportName(link.transport)},
                             {"host", link.listener.host},
                             {"port", link.listener.port}});
  }
  for (const KvCapacity& kv : KvCapacities(*this)) {
    json["kv_capacity"].push_back({{"context", kv.context},
                                   {"bytes_per_slot", kv.slot_bytes},
                                   {"slots_in_l3", kv.slots_in_l3}});
  }
  if (!use.empty()) json["use"] = use;
  const Speeds& speeds = prediction.speeds;
  json["prediction"] = {{"rows_gops", speeds.rows_gops},
                        {"sources", nlohmann::json::object()},
                        {"links", prediction.links},
                        {"points", nlohmann::json::array()}};
  for (const SpeedInput& input : SpeedInputs()) {
    json["prediction"][input.key] = speeds.*input.value;
    json["prediction"]["sources"][input.key] = Name(speeds.SourceOf(input.value));
  }
  for (const PredictedPoint& point : prediction.points) {
    json["prediction"]["points"].push_back({{"batch", point.batch},
                                            {"tpot_alone_ms", point.alone_ms},
                                            {"tpot_ms", point.tpot_ms},
                                            {"tpot_best_ms", point.best_ms},
                                            {"tpot_worst_ms", point.worst_ms},
                                            {"tokens_per_s", point.tokens_per_s}});
  }
  return json;
}

}  // namespace larder::pipeline::plan
