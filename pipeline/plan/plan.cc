#include "pipeline/plan/plan.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "attention_node/kv_region.h"
#include "attention_node/state_shape.h"
#include "base/check.h"
#include "base/error.h"
#include "kernels/formats/kv_page.h"
#include "pipeline/manifest/text.h"
#include "pipeline/plan/made_manifests.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {
namespace {

using topology::Topology;

// Another use of a machine must take less than this of the time of what is simpler.
constexpr double kWorthLeaving = 0.9;

constexpr size_t kUniformFrameRows = 64;  // the smallest that a Plan chooses

uint64_t L3Bytes(const Topology& machine, std::span<const CoreId> cores,
                 std::set<L3GroupId>* groups) {
  for (const CoreId core : cores) groups->insert(machine.core(core).l3_group);
  uint64_t bytes = 0;
  for (const L3GroupId group : *groups) {
    if (machine.l3_group(group).bytes == 0) return 0;
    bytes += machine.l3_group(group).bytes;
  }
  return bytes;
}

// The core of each of the socket's CPUs: with SMT threads a core is listed once for each of its
// CPUs.
std::vector<CoreId> CoresOf(const ResolvedSocket& socket, const Topology& topology) {
  std::vector<CoreId> cores;
  for (const CpuId cpu : socket.cpus) {
    const auto owner = std::find_if(socket.cores.begin(), socket.cores.end(), [&](CoreId core) {
      const auto& cpus = topology.core(core).cpus;
      return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end();
    });
    cores.push_back(*owner);
  }
  return cores;
}

// Bytes of a token that is kept, over all layers, in whole chunks: its KV, and its share of states.
uint64_t KvTokenBytes(const model::ModelConfig& config) {
  return attention_node::KvShape(config, 1, kernels::kChunkPositions).chunk_bytes() /
             kernels::kChunkPositions +
         attention_node::StateShape(config).bytes() / model::kStatePositions;
}

// Gives the stage its plan and the sums that follow from it.
void SetPlan(PlacedStage& stage, StagePlan plan) {
  stage.plan = std::move(plan);
  stage.weight_bytes = stage.plan.weight_bytes;
  stage.kv_slot_bytes = stage.plan.kv_slot_bytes;
  stage.resident = stage.plan.resident();
}

std::set<int> PackagesOf(const Topology& machine, std::span<const CoreId> cores) {
  std::set<int> packages;
  for (const CoreId core : cores) packages.insert(machine.core(core).package);
  return packages;
}

class Planner {
 public:
  Planner(const Manifest& manifest, const model::ModelConfig& config, const PlanOptions& options,
          std::span<const Topology> machines)
      : manifest_(manifest), options_(options), machines_(machines), specs_(StagesOf(manifest)) {
    plan_.config = config;
    plan_.fingerprint = options.fingerprint;
    plan_.cluster = manifest.name;
  }

  Plan Run(const Speeds& speeds) {
    if (specs_.empty())
      throw Error("{}: no socket holds weights; expected one with role weight, colocated or auto",
                  manifest_.path);
    const ServingSpec serving = ServingOf(manifest_);
    plan_.serving_server =
        serving.server != nullptr ? serving.server->name : specs_[0].server->name;
    plan_.serving_socket = serving.socket != nullptr ? serving.socket->name : "";
    ResolveSockets();
    for (const StageSpec& spec : specs_) AddStage(spec);
    CheckAttention();
    plan_.serves_beside = ServesBeside();
    ShareOut();
    PlanStages();
    PlanServing(serving);
    if (!plan_.single() && manifest_.written()) AddLinks(serving);
    Note();
    plan_.prediction = PredictionOf(plan_, speeds);
    NoteSlowHead();
    return std::move(plan_);
  }

 private:
  size_t IndexOf(const ServerSpec& server) const {
    return static_cast<size_t>(&server - manifest_.servers.data());
  }
  const ResolvedSocket* Find(const ServerSpec& server, const std::string& name) const {
    for (const ResolvedSocket& socket : plan_.sockets[IndexOf(server)]) {
      if (socket.name == name) return &socket;
    }
    return nullptr;
  }

  void ResolveSockets() {
    // With several stages a socket's layers are not known yet; PlanStages checks them against the
    // L3.
    const model::ModelConfig* config = specs_.size() == 1 ? &plan_.config : nullptr;
    for (size_t i = 0; i < manifest_.servers.size(); ++i) {
      plan_.sockets.push_back(
          Resolve(manifest_, manifest_.servers[i], machines_[i], config, &plan_.notes));
      link_threads_.push_back(
          LinkThreadsOf(manifest_, manifest_.servers[i], plan_.sockets[i], machines_[i]));
    }
    plan_.socket_notes = plan_.notes.size();
  }

  // Of the links' thread in this socket's process.
  CpuId LinkCpu(size_t server, const std::string& socket, const std::string& attention) const {
    for (const LinkThread& thread : link_threads_[server]) {
      if (thread.socket == socket && thread.attention == attention) return thread.cpu;
    }
    return CpuId();
  }

  void AddStage(const StageSpec& spec) {
    const Topology& machine = machines_[IndexOf(*spec.server)];
    const ResolvedSocket& socket = *Find(*spec.server, spec.socket->name);
    PlacedStage stage{.server = spec.server->name,
                      .socket = socket.name,
                      .machine = IndexOf(*spec.server),
                      .cores = socket.cores.size()};
    PlanOptions options = options_;
    options.cores = CoresOf(socket, machine);
    options.cpus = socket.cpus;
    options.l3_fraction = socket.l3_fraction;
    options.isolated = options_.isolated || socket.isolated;
    options.attention.clear();
    model::Capacity& capacity = options.capacity;
    capacity.slots = std::max<size_t>(1, socket.slots);
    if (capacity.context == 0) capacity.context = manifest_.context;
    if (capacity.kv_tokens == 0) capacity.kv_tokens = manifest_.kv_tokens;
    if (options.cache_ram_bytes == 0) options.cache_ram_bytes = manifest_.cache_ram_mib << 20;
    capacity.cached_tokens = options.cache_ram_bytes / KvTokenBytes(plan_.config);
    if (manifest_.isa) options.isa = *manifest_.isa;
    const std::set<int> packages = PackagesOf(machine, socket.cores);
    std::set<int> kv_packages;         // of this server
    size_t kv_packages_elsewhere = 0;  // of others
    stage.packages.weights = stage.packages.kv = packages.size();
    std::set<L3GroupId> groups, kv_groups;
    stage.l3_bytes = L3Bytes(machine, socket.cores, &groups) / socket.l3_sharers;
    stage.l3_budget_bytes = static_cast<uint64_t>(
        static_cast<double>(stage.l3_bytes * socket.l3_sharers) * socket.l3_fraction);
    std::map<size_t, std::set<L3GroupId>> groups_of_others;  // [machine]
    std::map<size_t, uint64_t> kv_l3_bytes;                  // the same
    for (const SocketSpec* wanted : spec.attention) {
      const ServerSpec& server = manifest_.server_of_socket(wanted->name);
      const size_t at = IndexOf(server);
      const bool here = &server == spec.server;
      const ResolvedSocket* attention = Find(server, wanted->name);
      if (attention == nullptr || attention->role != Role::kAttention) continue;  // joined
      stage.attention.push_back(attention->name);
      stage.attention_machines.push_back(at);
      stage.attention_cores += attention->cores.size();
      const std::vector<CoreId> cores = CoresOf(*attention, machines_[at]);
      options.attention.push_back(
          {.name = attention->name,
           .cores = cores,
           .cpus = attention->cpus,
           .slots = attention->slots,
           .isolated = options_.isolated || attention->isolated,
           .elsewhere =
               here ? std::vector<PlanThread>{} : ThreadsOn(machines_[at], cores, attention->cpus),
           .link_cpu = LinkCpu(stage.machine, stage.socket, attention->name),
           .link_cpu_there = LinkCpu(at, attention->name, attention->name)});
      kv_l3_bytes[at] =
          L3Bytes(machines_[at], attention->cores, here ? &kv_groups : &groups_of_others[at]);
      std::set<int> of_socket = PackagesOf(machines_[at], attention->cores);
      if (here) {
        kv_packages.merge(of_socket);
      } else {
        kv_packages_elsewhere += of_socket.size();
      }
    }
    if (socket.role == Role::kWeight && stage.attention.empty()) {
      throw Error(
          "{}: socket '{}' has role weight, but server '{}' has no attention socket to hold its KV "
          "cache; add one, or make it colocated",
          manifest_.path, socket.name, spec.server->name);
    }
    const bool shared = std::any_of(kv_groups.begin(), kv_groups.end(),
                                    [&](L3GroupId group) { return groups.contains(group); });
    if (!stage.attention.empty()) {
      stage.packages.kv = kv_packages.size() + kv_packages_elsewhere;
      stage.packages.apart =
          !kv_packages.empty() && std::ranges::none_of(kv_packages, [&](int package) {
            return packages.contains(package);
          });
    }
    // PlanStages subtracts the weights when they are known.
    stage.kv_room_bytes = stage.l3_bytes;
    if (!stage.attention.empty()) stage.kv_room_bytes = 0;
    for (const auto& [at, bytes] : kv_l3_bytes) stage.kv_room_bytes += bytes;
    kv_beside_weights_.push_back(stage.attention.empty() || shared);
    stage.holds_lm_head = specs_.size() == 1 && plan_.serving_socket.empty();
    stage_options_.push_back(std::move(options));
    plan_.stages.push_back(std::move(stage));
  }

  // Assigns layers as the manifest says, or by time.
  void ShareOut() {
    const size_t layers = plan_.config.layers;
    if (specs_[0].socket->layers) {
      const Range<size_t> last = *specs_.back().socket->layers;
      if (last.end != layers) {
        throw Error(
            "{}: layers = \"{}-{}\" of socket \"{}\": the model has {} layers; expected the last "
            "stage to end with layer {}",
            manifest_.path, last.begin, last.end - 1, specs_.back().socket->name, layers,
            layers - 1);
      }
      for (size_t i = 0; i < specs_.size(); ++i) {
        const Range<size_t> range = *specs_[i].socket->layers;
        plan_.stages[i].first_layer = range.begin;
        plan_.stages[i].layers = range.count();
        CheckKeysAndValues(*specs_[i].socket, range);
      }
      return;
    }
    if (specs_.size() > 1) NoteUnknownL3();
    plan_.layers_by_time = true;
    std::vector<StageResources> resources;
    for (const PlacedStage& stage : plan_.stages) resources.push_back(ResourcesOf(stage));
    const std::vector<size_t> share =
        LayersByTime(plan_.config, SplitCapacity(), resources, plan_.serves_beside);
    size_t next = 0;
    for (size_t i = 0; i < share.size(); ++i) {
      plan_.stages[i].first_layer = next;
      plan_.stages[i].layers = share[i];
      next += share[i];
    }
  }

  void NoteUnknownL3() {
    const bool unknown = std::ranges::any_of(
        plan_.stages, [](const PlacedStage& stage) { return stage.l3_bytes == 0; });
    if (unknown)
      plan_.notes.push_back(
          "the size of an L3 is not known: layers are divided as if its weights stayed in it");
  }

  // Of the manifest, not of the command line: `larder split` cuts files for all that is asked of
  // them later.
  model::Capacity SplitCapacity() const {
    model::Capacity capacity = {.slots = 0,
                                .context = manifest_.context,
                                .kv_tokens = manifest_.kv_tokens,
                                .max_in_flight = MaxInFlight(plan_.stages.size())};
    const PlanOptions& first = stage_options_[0];
    for (const PlanOptions::Attention& socket : first.attention) capacity.slots += socket.slots;
    if (first.attention.empty()) capacity.slots = first.capacity.slots;
    if (capacity.context == 0)
      capacity.context = attention_node::KvShape::DefaultContext(plan_.config);
    return capacity;
  }

  StageResources ResourcesOf(const PlacedStage& stage) const {
    const size_t i = plan_.index_of(stage);
    StageResources resources = {
        .cores = stage.cores,
        .l3_bytes = stage.l3_bytes,
        .l3_budget_bytes = stage.l3_budget_bytes,
        .kv_cores = stage.attention.empty() ? stage.cores : stage.attention_cores,
        .attention_elsewhere = stage.attention_elsewhere(),
        .packages = stage.packages,
        .kv_room_bytes = stage.kv_room_bytes,
        .kv_beside_weights = kv_beside_weights_[i]};
    if (stage.l3_budget_bytes == 0 || plan_.stages.size() == 1) return resources;
    const Topology& machine = machines_[stage.machine];
    const std::vector<CoreId>& cores = stage_options_[i].cores;
    const model::ModelConfig layers = model::LayersOf(plan_.config, 0, plan_.config.layers);
    const weight_node::ShardPlan shards = weight_node::MakeShardPlan(layers, cores.size());
    std::map<L3GroupId, double> bytes;
    double all = 0;
    for (size_t t = 0; t < cores.size(); ++t) {
      const auto mine = static_cast<double>(shards.ThreadBytes(layers, t));
      bytes[machine.core(cores[t]).l3_group] += mine;
      all += mine;
    }
    double l3_bytes = 0, fullest = 0;
    for (const auto& [group, of_group] : bytes)
      l3_bytes += static_cast<double>(machine.l3_group(group).bytes);
    for (const auto& [group, of_group] : bytes)
      fullest = std::max(fullest, of_group / static_cast<double>(machine.l3_group(group).bytes));
    resources.fullest_share = fullest * l3_bytes / all;
    return resources;
  }

  // A process that joins to serve finds no core that is free on its server.
  bool ServesBeside() const {
    if (!plan_.serving_socket.empty() || plan_.stages.size() == 1) return false;
    const size_t machine = plan_.stages[0].machine;
    std::set<CoreId> taken;
    for (const ResolvedSocket& socket : plan_.sockets[machine])
      taken.insert(socket.cores.begin(), socket.cores.end());
    return taken.size() == machines_[machine].cores().size();
  }

  void CheckKeysAndValues(const SocketSpec& socket, Range<size_t> layers) const {
    for (size_t i = layers.begin; i < layers.end; ++i) {
      const std::optional<size_t>& of = plan_.config.layer(i).kv_of;
      if (!of || layers.contains(*of)) continue;
      throw Error(
          "{}: layers = \"{}-{}\" of socket \"{}\": layer {} attends to the keys and values of "
          "layer {}; expected layers {}-{} in one socket",
          manifest_.path, layers.begin, layers.end - 1, socket.name, i, *of,
          plan_.config.layers - plan_.config.layers_together(), plan_.config.layers - 1);
    }
  }

  void PlanStages() {
    // A micro-batch passes through every stage, so the smallest L2 limits its rows.
    size_t rows = SIZE_MAX;
    for (const PlacedStage& stage : plan_.stages)
      rows = std::min(rows, DefaultBatchTokens(plan_.config_of(stage), machines_[stage.machine],
                                               plan_.single()));
    const size_t wanted = options_.capacity.max_batch_tokens;
    const size_t max_in_flight = plan_.single() ? 1 : MaxInFlight(plan_.stages.size());
    // Colocated stages have the KV chunks of the attention sockets of the others together.
    std::vector<size_t> kv_pools;
    for (const bool separated : {true, false}) {
      for (size_t i = 0; i < plan_.stages.size(); ++i) {
        if (plan_.stages[i].attention.empty() == separated) continue;
        PlanOptions& options = stage_options_[i];
        options.capacity.max_batch_tokens = wanted != 0 ? wanted : rows;
        options.capacity.max_in_flight = max_in_flight;
        options.kv_pools = kv_pools;
        PlanStage(i);
        if (separated) kv_pools = plan_.stages[i].plan.kv_pools;
      }
    }
    for (const PlacedStage& stage : plan_.stages) {
      for (const std::string& note : stage.plan.notes) stage_notes_[note].push_back(stage.socket);
    }
  }

  void PlanStage(size_t i) {
    PlacedStage& stage = plan_.stages[i];
    SetPlan(stage,
            MakeStagePlan(plan_.config_of(stage), machines_[stage.machine], stage_options_[i]));
    const PlanOptions& own = stage.plan.options;
    if (kv_beside_weights_[i])
      stage.kv_room_bytes -= std::min(stage.kv_room_bytes, stage.weight_bytes);
    plan_.capacity = own.capacity;
    plan_.config = model::ForContext(plan_.config, plan_.capacity.context);
    if (!stage.resident && manifest_.require_resident) {
      throw Error(
          "{}: socket '{}': {:.1f} MB of weights ({} layers) exceed its L3 budget of {:.1f} MB; "
          "[model] require_resident = true forbids that",
          manifest_.path, stage.socket, static_cast<double>(stage.weight_bytes) * 1e-6,
          stage.layers, static_cast<double>(stage.l3_budget_bytes) * 1e-6);
    }
  }

  // A micro-batch's rows are grouped by attention socket once for all stages, so their attention
  // sockets must agree.
  void CheckAttention() const {
    const PlacedStage* first = nullptr;
    for (const PlacedStage& stage : plan_.stages) {
      if (stage.attention.empty()) continue;
      if (first == nullptr) first = &stage;
      const auto& mine = stage_options_[plan_.index_of(stage)].attention;
      const auto& other = stage_options_[plan_.index_of(*first)].attention;
      const bool alike =
          std::equal(mine.begin(), mine.end(), other.begin(), other.end(),
                     [](const auto& a, const auto& b) { return a.slots == b.slots; });
      if (alike) continue;
      throw Error(
          "{}: the attention sockets of '{}' and of '{}' differ in their slots; expected as many "
          "attention sockets with the same slots for each weight socket",
          manifest_.path, stage.socket, first->socket);
    }
  }

  void PlanServing(const ServingSpec& spec) {
    plan_.lm_head_bytes = LmHeadBytes(plan_.config);
    plan_.embedding_bytes = EmbeddingBytes(plan_.config);
    plan_.serving_resident = plan_.stages[0].holds_lm_head && plan_.stages[0].resident;
    if (plan_.single()) plan_.serving_cores = plan_.stages[0].cores;
    if (!plan_.single()) PlanEnds(spec);
    if (spec.socket == nullptr) return;
    const ResolvedSocket& socket = *Find(*spec.server, spec.socket->name);
    std::set<L3GroupId> groups;
    plan_.serving_cores = socket.cores.size();
    const auto budget =
        static_cast<double>(L3Bytes(machines_[IndexOf(*spec.server)], socket.cores, &groups)) *
        socket.l3_fraction;
    plan_.serving_resident = static_cast<double>(plan_.lm_head_bytes) <= budget;
  }

  // Plans the ends on the serving socket's cores or, if a process joins to serve, on some cores of
  // its server, not pinned.
  void PlanEnds(const ServingSpec& spec) {
    const Topology& machine =
        machines_[IndexOf(spec.server != nullptr ? *spec.server : *specs_[0].server)];
    PlanOptions options = stage_options_[0];
    options.attention.clear();
    options.capacity = plan_.capacity;
    if (spec.socket == nullptr) {
      options.threads = std::max<size_t>(1, options_.threads);
      options.cores = machine.PickCores(options.threads);
      options.cpus.assign(options.cores.size(), CpuId{});
      options.isolated = false;
    } else {
      const ResolvedSocket& socket = *Find(*spec.server, spec.socket->name);
      options.cores = CoresOf(socket, machine);
      options.cpus = socket.cpus;
      options.isolated = socket.isolated;
    }
    plan_.ends = MakeStagePlan(model::EndsOf(plan_.config), machine, options);
  }

  void AddLinks(const ServingSpec& serving) {
    struct End {
      std::string name;
      const ServerSpec* server;
      const SocketSpec* socket;  // null: the process that joins to serve
    };
    std::vector<End> loop;
    loop.push_back({plan_.serving_socket,
                    serving.server != nullptr ? serving.server : specs_[0].server, serving.socket});
    for (const StageSpec& spec : specs_)
      loop.push_back({spec.socket->name, spec.server, spec.socket});
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

  // Adds a note of all stages once, a note of some stages with their names.
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
    NoteLargeLayer();
    const size_t slots = plan_.capacity.slots, max_in_flight = plan_.capacity.max_in_flight;
    if (slots < max_in_flight) {
      plan_.notes.push_back(fmt::format(
          "{} slot{} for {} micro-batches in flight: the pipeline is never full; [model] slots = "
          "{} would fill it",
          slots, slots == 1 ? "" : "s", max_in_flight, max_in_flight));
    }
  }

  void NoteSlowHead() {
    const Prediction& p = plan_.prediction;
    const double serving_us = p.Times(p.stages.back(), 1).stage_us;
    const bool slowest = std::ranges::all_of(p.stages, [&](const PredictedStage& stage) {
      return p.Times(stage, 1).stage_us <= serving_us;
    });
    if (plan_.single() || !slowest || p.stages.back().weights_in_l3) return;
    plan_.notes.push_back(fmt::format(
        "lm_head ({:.1f} MB, read from memory) takes longer than a stage; a serving socket with "
        "that much L3 to spare would be faster",
        Mb(plan_.lm_head_bytes)));
  }

  // The first stage whose layers cannot be divided, and are too large for it.
  void NoteLargeLayer() {
    const size_t together = plan_.config.layers_together();
    const auto whole = [&](const PlacedStage& stage) {
      return stage.layers == 1 ||
             (stage.layers == together && stage.first_layer + together == plan_.config.layers);
    };
    const auto large = std::ranges::find_if(plan_.stages, [&](const PlacedStage& stage) {
      return whole(stage) && !stage.holds_lm_head && stage.l3_bytes != 0 &&
             stage.weight_bytes > stage.l3_budget_bytes;
    });
    if (large == plan_.stages.end()) return;
    const bool one = large->layers == 1;
    plan_.notes.push_back(fmt::format(
        "{} {:.1f} MB of packed weights, {:.1f} MB more than the budget of a socket ({:.1f} MB, "
        "{:.0f} % of its L3); {}",
        one ? std::string("one layer has")
            : fmt::format("layers {}-{} share keys and values, so that they cannot be divided, and "
                          "have",
                          large->first_layer, large->first_layer + large->layers - 1),
        Mb(large->weight_bytes), Mb(large->weight_bytes - large->l3_budget_bytes),
        Mb(large->l3_budget_bytes), 100 * large->plan.options.l3_fraction,
        large->weight_bytes <= large->l3_bytes
            ? fmt::format("{} the L3 with less room for the rest", one ? "it fits" : "they fit")
        : one ? "it streams from memory: a layer is never split over sockets"
              : "they stream from memory"));
  }

  const Manifest& manifest_;
  const PlanOptions& options_;
  std::span<const Topology> machines_;
  std::vector<StageSpec> specs_;
  std::vector<std::vector<LinkThread>> link_threads_;  // [server]
  // Per stage:
  std::vector<PlanOptions> stage_options_;
  std::vector<bool> kv_beside_weights_;
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

Plan MakePlan(const model::ModelConfig& config, const Topology& machine, const PlanOptions& options,
              const Speeds& speeds) {
  const std::vector<MachineUse> uses = UsesOf(machine, options);
  std::optional<Plan> best;
  double best_ms = 0;
  std::string times;
  for (const MachineUse& use : uses) {
    Plan plan = MakePlan(use.manifest, config, options, std::span(&machine, 1), speeds);
    const double ms = PredictionOf(plan, {}).Point(plan.capacity.slots).tpot_ms;
    times += fmt::format("{}{} {:.3f} ms", times.empty() ? "" : ", ", use.what, ms);
    if (best && ms > kWorthLeaving * best_ms) continue;
    plan.use = use.what;
    best = std::move(plan);
    best_ms = ms;
  }
  if (uses.size() > 1) {
    const size_t slots = best->capacity.slots;
    best->use += fmt::format("; predicted, {} sequence{} at full context: {}", slots,
                             slots == 1 ? "" : "s", times);
  } else {
    best->use.clear();
  }
  return std::move(*best);
}

Plan PlanUniformCluster(const model::ModelConfig& config, const SocketShape& socket,
                        const PlanOptions& wanted, const Speeds& speeds) {
  PlanOptions options = wanted;
  if (options.capacity.max_batch_tokens == 0) options.capacity.max_batch_tokens = kUniformFrameRows;
  options.pinned = false;
  const Manifest manifest = UniformCluster(config, socket, options);
  const std::vector<Topology> machines(manifest.servers.size(), MachineOf(socket));
  return MakePlan(manifest, config, options, machines, speeds);
}

std::vector<Topology> LoadTopologies(const Manifest& manifest, const Topology& here) {
  std::map<std::string, Topology> files;  // a rack's servers often share a file
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

}  // namespace larder::pipeline::plan
