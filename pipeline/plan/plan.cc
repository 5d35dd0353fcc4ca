#include "pipeline/plan/plan.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "base/error.h"
#include "pipeline/plan/layer_split.h"
#include "pipeline/plan/manifest_plan.h"

namespace larder::pipeline {
namespace {

using topology::Topology;

uint64_t L3Bytes(const Topology& machine, std::span<const CoreId> cores, std::set<L3GroupId>* groups) {
  for (const CoreId core : cores) groups->insert(machine.core(core).l3_group);
  uint64_t bytes = 0;
  for (const L3GroupId group : *groups) {
    if (machine.l3_group(group).bytes == 0) return 0;
    bytes += machine.l3_group(group).bytes;
  }
  return bytes;
}

class Planner {
 public:
  Planner(const Manifest& manifest, const model::ModelConfig& config, const PlanOptions& options,
          std::span<const Topology> machines)
      : manifest_(manifest), options_(options), machines_(machines), specs_(StagesOf(manifest)) {
    plan_.config = config;
    plan_.cluster = manifest.name;
  }

  Plan Run(const Speeds& speeds) {
    if (specs_.empty())
      throw Error("{}: no socket holds weights; expected one with role weight, colocated or auto",
                  manifest_.path);
    const ServingSpec serving = ServingOf(manifest_);
    plan_.serving_server = serving.server != nullptr ? serving.server->name : specs_[0].server->name;
    plan_.serving_socket = serving.socket != nullptr ? serving.socket->name : "";
    ResolveSockets();
    for (const StageSpec& spec : specs_) AddStage(spec);
    CheckAttention();
    ShareOut();
    PlanStages();
    PlanServing(serving);
    if (!plan_.single()) {
      plan_.micro_batches = MicroBatchesOf(plan_.stages.size());
      AddLinks(serving);
    }
    Note();
    Predict(plan_, speeds);
    return std::move(plan_);
  }

 private:
  size_t IndexOf(const ServerSpec& server) const {
    return static_cast<size_t>(&server - manifest_.servers.data());
  }
  const ResolvedSocket* Find(const ServerSpec& server, const std::string& name) const {
    for (const ResolvedSocket& socket : resolved_[IndexOf(server)]) {
      if (socket.name == name) return &socket;
    }
    return nullptr;
  }

  void ResolveSockets() {
    // With several stages what a socket holds is not known yet: PlanStages holds it against the L3.
    const model::ModelConfig* config = specs_.size() == 1 ? &plan_.config : nullptr;
    for (size_t i = 0; i < manifest_.servers.size(); ++i) {
      resolved_.push_back(Resolve(manifest_, manifest_.servers[i], machines_[i], config, &plan_.notes));
      for (const ResolvedSocket& socket : resolved_.back()) {
        for (const std::string& name : socket.joined) plan_.joined.emplace_back(name, socket.name);
      }
    }
  }

  void AddStage(const StageSpec& spec) {
    const Topology& machine = machines_[IndexOf(*spec.server)];
    const ResolvedSocket& socket = *Find(*spec.server, spec.socket->name);
    PlacedStage stage{.server = spec.server->name, .socket = socket.name, .cores = socket.cores.size()};
    stage.options = options_;
    stage.options.cores = CoresOf(socket, machine);
    stage.options.cpus = socket.cpus;
    stage.options.l3_fraction = socket.l3_fraction;
    stage.options.slots = std::max<size_t>(1, socket.slots);
    stage.options.isolated = options_.isolated || socket.isolated;
    stage.options.attention.clear();
    if (stage.options.context == 0) stage.options.context = manifest_.context;
    if (manifest_.isa) stage.options.isa = *manifest_.isa;
    std::set<L3GroupId> groups, kv_groups;
    stage.l3_bytes = L3Bytes(machine, socket.cores, &groups) / socket.l3_sharers;
    stage.l3_budget_bytes =
        static_cast<uint64_t>(static_cast<double>(stage.l3_bytes * socket.l3_sharers) * socket.l3_fraction);
    uint64_t kv_l3_bytes = 0;
    for (const SocketSpec* wanted : spec.attention) {
      const ResolvedSocket* attention = Find(*spec.server, wanted->name);
      if (attention == nullptr || attention->role != Role::kAttention) continue;  // joined
      stage.attention.push_back(attention->name);
      stage.attention_cores += attention->cores.size();
      stage.options.attention.push_back({attention->name, CoresOf(*attention, machine), attention->cpus,
                                         attention->slots, options_.isolated || attention->isolated});
      kv_l3_bytes = L3Bytes(machine, attention->cores, &kv_groups);
    }
    if (socket.role == Role::kWeight && stage.attention.empty()) {
      throw Error(
          "{}: socket '{}' has role weight, but server '{}' has no attention socket to hold its KV cache; "
          "add one, or make it colocated",
          manifest_.path, socket.name, spec.server->name);
    }
    const bool shared = std::any_of(kv_groups.begin(), kv_groups.end(),
                                    [&](L3GroupId group) { return groups.contains(group); });
    // The weights are taken off when they are known: PlanStages.
    stage.kv_room_bytes = stage.attention.empty() ? stage.l3_bytes : kv_l3_bytes;
    kv_beside_weights_.push_back(stage.attention.empty() || shared);
    stage.holds_head = specs_.size() == 1 && plan_.serving_socket.empty();
    plan_.stages.push_back(std::move(stage));
  }

  // Layers in proportion to the budgets, or to the cores if one of them is not known.
  void ShareOut() {
    const size_t layers = plan_.config.layers;
    if (specs_[0].socket->layers) {
      const LayerRange last = *specs_.back().socket->layers;
      if (last.last + 1 != layers) {
        throw Error(
            "{}: layers = \"{}-{}\" of socket \"{}\": the model has {} layers; expected the last stage to "
            "end with layer {}",
            manifest_.path, last.first, last.last, specs_.back().socket->name, layers, layers - 1);
      }
      for (size_t i = 0; i < specs_.size(); ++i) {
        const LayerRange range = *specs_[i].socket->layers;
        plan_.stages[i].first_layer = range.first;
        plan_.stages[i].layers = range.last - range.first + 1;
      }
      return;
    }
    std::vector<uint64_t> weights;
    for (const PlacedStage& stage : plan_.stages) weights.push_back(stage.l3_budget_bytes);
    if (std::find(weights.begin(), weights.end(), 0) != weights.end()) {
      for (size_t i = 0; i < weights.size(); ++i) weights[i] = plan_.stages[i].cores;
      if (weights.size() > 1)
        plan_.notes.push_back("the size of an L3 is not known: layers are shared out by cores");
    }
    const std::vector<size_t> share = ShareLayers(layers, weights);
    size_t next = 0;
    for (size_t i = 0; i < share.size(); ++i) {
      plan_.stages[i].first_layer = next;
      plan_.stages[i].layers = share[i];
      next += share[i];
    }
  }

  void PlanStages() {
    plan_.frame_rows = options_.prefill_rows;
    std::vector<size_t> frame_rows;
    for (size_t i = 0; i < plan_.stages.size(); ++i) {
      PlacedStage& stage = plan_.stages[i];
      const StagePlan own = MakeStagePlan(ConfigOf(stage), machines_[IndexOf(*specs_[i].server)], stage.options);
      stage.weight_bytes = own.weight_bytes;
      stage.kv_slot_bytes = own.kv_slot_bytes;
      stage.resident = own.resident();
      stage.options.context = own.options.context;
      stage.options.slots = own.options.slots;
      if (kv_beside_weights_[i]) stage.kv_room_bytes -= std::min(stage.kv_room_bytes, stage.weight_bytes);
      frame_rows.push_back(own.options.prefill_rows);
      for (const std::string& note : own.notes) stage_notes_[note].push_back(stage.socket);
      plan_.context = own.options.context;
      plan_.slots = own.options.slots;
      if (!stage.resident && manifest_.require_resident) {
        throw Error(
            "{}: socket '{}': {:.1f} MB of weights ({} layers) exceed its L3 budget of {:.1f} MB; [model] "
            "require_resident = true forbids that",
            manifest_.path, stage.socket, static_cast<double>(stage.weight_bytes) * 1e-6, stage.layers,
            static_cast<double>(stage.l3_budget_bytes) * 1e-6);
      }
    }
    // A frame passes every stage: as large as the smallest L2 allows.
    plan_.frame_rows = *std::min_element(frame_rows.begin(), frame_rows.end());
    for (PlacedStage& stage : plan_.stages) stage.options.prefill_rows = plan_.frame_rows;
  }

  model::ModelConfig ConfigOf(const PlacedStage& stage) const {
    return stage.holds_head ? plan_.config : model::LayersOf(plan_.config, stage.first_layer, stage.layers);
  }

  // A frame's rows are grouped by attention socket once, for all stages.
  void CheckAttention() const {
    const PlacedStage* first = nullptr;
    for (const PlacedStage& stage : plan_.stages) {
      if (stage.attention.empty()) continue;
      if (first == nullptr) first = &stage;
      const auto& mine = stage.options.attention;
      const auto& other = first->options.attention;
      const bool alike = std::equal(mine.begin(), mine.end(), other.begin(), other.end(),
                                    [](const auto& a, const auto& b) { return a.slots == b.slots; });
      if (alike) continue;
      throw Error(
          "{}: the attention sockets of '{}' have other slots than those of '{}'; expected as many attention "
          "sockets with the same slots for each weight socket",
          manifest_.path, stage.socket, first->socket);
    }
  }

  void PlanServing(const ServingSpec& spec) {
    plan_.head_bytes = HeadBytes(plan_.config);
    plan_.embedding_bytes = EmbeddingBytes(plan_.config);
    plan_.serving_resident = plan_.stages[0].holds_head && plan_.stages[0].resident;
    if (spec.socket == nullptr) return;
    const ResolvedSocket& socket = *Find(*spec.server, spec.socket->name);
    std::set<L3GroupId> groups;
    plan_.serving_cores = socket.cores.size();
    const auto budget =
        static_cast<double>(L3Bytes(machines_[IndexOf(*spec.server)], socket.cores, &groups)) *
        socket.l3_fraction;
    plan_.serving_resident = static_cast<double>(plan_.head_bytes) <= budget;
  }

  void AddLinks(const ServingSpec& serving) {
    struct End {
      std::string name;
      const ServerSpec* server;
      const SocketSpec* socket;  // null: whoever serves
    };
    std::vector<End> loop;
    loop.push_back({plan_.serving_socket, serving.server != nullptr ? serving.server : specs_[0].server,
                    serving.socket});
    for (const StageSpec& spec : specs_) loop.push_back({spec.socket->name, spec.server, spec.socket});
    const auto spec_of = [&](const End& end) {
      return end.socket != nullptr ? LinkOf(manifest_, *end.socket) : manifest_.link;
    };
    for (size_t i = 0; i < loop.size(); ++i) {
      const End &from = loop[i], &to = loop[(i + 1) % loop.size()];
      const End& near = to.socket != nullptr ? to : loop[1];
      Endpoint listener = EndpointOf(manifest_, *near.server, *near.socket);
      if (to.socket == nullptr) --listener.port;
      plan_.links.push_back({from.name, to.name,
                             ChooseTransport(spec_of(from), spec_of(to), from.server == to.server),
                             listener});
    }
  }

  // A note of all stages once, one of some with their names.
  void Note() {
    for (const auto& [note, sockets] : stage_notes_) {
      if (sockets.size() == plan_.stages.size()) {
        plan_.notes.push_back(note);
        continue;
      }
      std::string names;
      for (const std::string& name : sockets) names += (names.empty() ? "" : ", ") + name;
      plan_.notes.push_back(fmt::format("{}: {}", names, note));
    }
    for (const std::string& line : NotYetSupported(manifest_)) plan_.notes.push_back(line);
    if (plan_.slots < plan_.micro_batches) {
      plan_.notes.push_back(
          fmt::format("{} slot{} for {} micro-batches in flight: the pipeline is never full; [model] slots = "
                      "{} would fill it",
                      plan_.slots, plan_.slots == 1 ? "" : "s", plan_.micro_batches, plan_.micro_batches));
    }
  }

  const Manifest& manifest_;
  const PlanOptions& options_;
  std::span<const Topology> machines_;
  std::vector<StageSpec> specs_;
  std::vector<std::vector<ResolvedSocket>> resolved_;  // of each server
  std::vector<bool> kv_beside_weights_;                // of each stage
  std::map<std::string, std::vector<std::string>> stage_notes_;
  Plan plan_;
};

}  // namespace

Plan MakePlan(const Manifest& manifest, const model::ModelConfig& config,
                        const PlanOptions& options, std::span<const Topology> machines,
                        const Speeds& speeds) {
  LARDER_CHECK(machines.size() == manifest.servers.size(), "{} machines", machines.size());
  return Planner(manifest, config, options, machines).Run(speeds);
}

std::vector<Topology> LoadTopologies(const Manifest& manifest, const Topology& here) {
  std::map<std::string, Topology> files;  // a rack's servers are often alike
  std::vector<Topology> machines;
  for (const ServerSpec& server : manifest.servers) {
    if (!server.topology) {
      machines.push_back(here);
      continue;
    }
    const std::string path = manifest.ResolvePath(*server.topology);
    if (!files.contains(path)) files.emplace(path, Topology::FromXml(path));
    machines.push_back(files.at(path));
  }
  return machines;
}

}  // namespace larder::pipeline
