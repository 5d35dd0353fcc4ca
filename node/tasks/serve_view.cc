#include "node/tasks/serve_view.h"

#include <algorithm>

#include "base/check.h"
#include "kernels/formats/isa.h"
#include "node/options/load_cluster.h"
#include "pipeline/chain/cluster_chain.h"

namespace larder::node {
namespace {

using serving::L3GroupPlace;
using serving::SocketPlace;

// The threads of one socket, gathered by the L3 they run under; also the cores of that L3 it leaves alone.
std::vector<L3GroupPlace> ViewOfGroups(const pipeline::StagePlan& plan,
                                       const std::vector<pipeline::PlanThread>& threads,
                                       const topology::Topology& machine) {
  std::vector<L3GroupPlace> groups;
  for (size_t t = 0; t < threads.size(); ++t) {
    const pipeline::PlanThread& thread = threads[t];
    const topology::Core& core = machine.core(thread.core);
    auto group = std::find_if(groups.begin(), groups.end(),
                              [&](const L3GroupPlace& g) { return g.id == core.l3_group.value; });
    if (group == groups.end()) {
      const topology::L3Group& l3 = machine.l3_group(core.l3_group);
      L3GroupPlace place{.id = l3.id.value, .package = l3.package, .l3_bytes = l3.bytes};
      for (const auto& planned : plan.l3_groups) {
        if (planned.id == l3.id) place.budget_bytes = planned.budget_bytes;
      }
      for (const CoreId id : l3.cores) place.cores.push_back(id.value);
      group = groups.insert(groups.end(), std::move(place));
    }
    group->weight_bytes += thread.weight_bytes;
    group->threads.push_back({.thread = t,
                              .core = thread.core.value,
                              .cpu = thread.cpu.value,
                              .numa_node = thread.numa_node.value,
                              .weight_bytes = thread.weight_bytes});
  }
  return groups;
}

// A weight or colocated socket and, if it is separated, its attention sockets and the links to them.
void AddSockets(const pipeline::StagePlan& plan, const topology::Topology& machine, SocketPlace first,
                serving::PlanView& view) {
  first.role = plan.separated() ? "weight" : "colocated";
  first.first_layer = plan.config.first_layer;
  first.layers = plan.config.layers;
  first.l3_groups = ViewOfGroups(plan, plan.threads, machine);
  if (!plan.separated()) {
    first.slots = plan.options.slots;
    first.kv_bytes = plan.kv_bytes;
  }
  const std::string name = first.name, server = first.server;
  view.sockets.push_back(std::move(first));
  for (const auto& socket : plan.attention) {
    SocketPlace place{.name = socket.name, .role = "attention", .server = server};
    place.first_slot = socket.first_slot;
    place.slots = socket.slots;
    place.kv_bytes = socket.kv_bytes;
    place.l3_groups = ViewOfGroups(plan, socket.threads, machine);
    view.links.push_back({.from = name, .to = socket.name, .kind = "shm"});
    view.sockets.push_back(std::move(place));
  }
}

void AddCluster(const pipeline::Manifest& manifest, const pipeline::StagePlan& ends,
                const topology::Topology& machine, const ModelOptions& options,
                const model::ModelConfig& config, serving::PlanView& view) {
  const auto machines = pipeline::LoadTopologies(manifest, machine);
  const pipeline::Plan cluster =
      pipeline::MakePlan(manifest, config, AgreedOptions(ToPlanOptions(options), options), machines);
  const std::string serving = cluster.serving_socket.empty() ? "serving" : cluster.serving_socket;
  SocketPlace place{.name = serving, .role = "serving", .server = cluster.serving_server};
  place.embedding = place.head = true;
  place.l3_groups = ViewOfGroups(ends, ends.threads, machine);
  view.sockets.push_back(std::move(place));
  view.weight_bytes = cluster.weight_bytes();
  view.kv_bytes = cluster.kv_slot_bytes() * cluster.slots;
  view.notes = cluster.notes;
  for (size_t i = 0; i < cluster.stages.size(); ++i) {
    const pipeline::PlacedStage& stage = cluster.stages[i];
    const auto& servers = manifest.servers;
    const auto server = std::find_if(servers.begin(), servers.end(),
                                     [&](const pipeline::ServerSpec& s) { return s.name == stage.server; });
    const topology::Topology& there = machines.at(static_cast<size_t>(server - servers.begin()));
    SocketPlace weights{.name = stage.socket, .role = "", .server = stage.server};
    AddSockets(pipeline::PlanOfStage(cluster, i, there), there, std::move(weights), view);
  }
  for (const pipeline::LinkPlan& link : cluster.links) {
    view.links.push_back({.from = link.from.empty() ? serving : link.from,
                          .to = link.to.empty() ? serving : link.to,
                          .kind = pipeline::TransportName(link.transport)});
  }
}

// The manifest's name for the socket that holds the weights.
std::string NameOfWeights(const ModelOptions& options, bool separated) {
  if (!options.manifest.empty()) {
    const ManifestAndServer where = LoadManifest(options);
    for (const auto& socket : where.server().sockets) {
      if (socket.role == pipeline::Role::kWeight || socket.role == pipeline::Role::kColocated)
        return socket.name;
    }
  }
  return separated ? "weight" : "socket";
}

serving::SocketSample SampleOf(const pipeline::SocketStatus& status) {
  const pipeline::SocketReport r = pipeline::ReportOf(status);
  return {.frames = r.frames,
          .rows = r.rows,
          .step_ns = r.step_ns,
          .wait_ns = r.wait_ns,
          .link_ns = r.link_ns,
          .weight_bytes = r.weight_bytes,
          .resident_bytes = r.resident_bytes,
          .round_trip_ns = r.round_trip_ns};
}

serving::SocketView ViewOf(const pipeline::SocketStatus& status) {
  serving::SocketView view;
  view.state = pipeline::SocketStateName(
      static_cast<pipeline::SocketState>(status.state.load(std::memory_order_relaxed)));
  view.sample = SampleOf(status);
  return view;
}

// The one socket that computes here: the scheduler counts for it.
serving::SocketView ViewOf(const pipeline::Engine& engine, const pipeline::SchedulerStatus& status) {
  const auto load = [](const std::atomic<uint64_t>& number) {
    return number.load(std::memory_order_relaxed);
  };
  const pipeline::Residency& residency = engine.stage().residency();
  serving::SocketView view;
  view.state = pipeline::SocketStateName(pipeline::SocketState::kServing);
  view.sample = {.frames = load(status.steps),
                 .rows = load(status.prefill_rows) + load(status.decode_rows),
                 .step_ns = load(status.step_ns),
                 .wait_ns = load(status.wait_ns),
                 .weight_bytes = engine.plan().weight_bytes,
                 .resident_bytes = residency.resident_bytes()};
  return view;
}

// In the order of ViewOfPlan's sockets.
std::vector<serving::SocketView> ViewOfSockets(const pipeline::Engine& engine,
                                               const pipeline::Scheduler& scheduler,
                                               const serving::PlanView& plan) {
  std::vector<serving::SocketView> views;
  if (const pipeline::ChainEnds* chain = engine.chain()) {
    views.push_back(ViewOf(engine.status()));
    // A colocated stage beside separated ones has no attention sockets, so it is the plan that says.
    const auto is_attention = [&] {
      return views.size() < plan.sockets.size() && plan.sockets[views.size()].role == "attention";
    };
    for (size_t stage = 0; stage < chain->chain().stages.size(); ++stage) {
      views.push_back(ViewOf(chain->stage_status(stage)));
      for (size_t socket = 0; socket < chain->chain().slot_ends.size() && is_attention(); ++socket)
        views.push_back(ViewOf(chain->attention_status(stage, socket)));
    }
    return views;
  }
  views.push_back(ViewOf(engine, scheduler.status()));
  for (size_t socket = 0; socket < engine.plan().attention.size(); ++socket)
    views.push_back(ViewOf(engine.stage().attention_status(socket)));
  return views;
}

}  // namespace

serving::PlanView ViewOfPlan(const pipeline::Engine& engine, const topology::Topology& machine,
                             const ModelOptions& options, const model::ModelConfig& config,
                             const std::string& chat_format) {
  const pipeline::StagePlan& plan = engine.plan();
  serving::PlanView view;
  view.model = config.name;
  view.architecture = config.architecture_name;
  view.machine = machine.packages().empty() ? "" : machine.packages()[0].cpu_model;
  view.isa = kernels::IsaName(plan.options.isa);
  view.chat_format = chat_format;
  view.layers = config.layers;
  view.dim = config.dim;
  view.ffn = config.ffn;
  view.heads = config.heads;
  view.kv_heads = config.kv_heads;
  view.vocab = config.vocab;
  view.context = plan.options.context;
  view.slots = plan.options.slots;
  view.parameters = config.parameters();
  view.micro_batches = engine.in_flight_limit();
  if (engine.chain() != nullptr) {
    AddCluster(LoadManifest(options).manifest, plan, machine, options, config, view);
    return view;
  }
  view.weight_bytes = plan.weight_bytes;
  view.kv_bytes = plan.kv_bytes;
  view.notes = plan.notes;
  SocketPlace first{.name = NameOfWeights(options, plan.separated()), .role = "", .server = ""};
  first.embedding = first.head = true;
  AddSockets(plan, machine, std::move(first), view);
  return view;
}

std::vector<std::string> SocketNames(const serving::PlanView& plan) {
  std::vector<std::string> names;
  for (const auto& socket : plan.sockets) names.push_back(socket.name);
  return names;
}

void FillStatus(const pipeline::Engine& engine, const pipeline::Scheduler& scheduler,
                const serving::PlanView& plan, serving::StatusView& view) {
  for (const auto& slot : scheduler.slots()) {
    view.slots.push_back(
        {.state = static_cast<serving::SlotView::State>(slot.state.load(std::memory_order_relaxed)),
         .cached_tokens = slot.cached_tokens.load(std::memory_order_relaxed),
         .generated_tokens = slot.generated_tokens.load(std::memory_order_relaxed)});
  }
  view.sockets = ViewOfSockets(engine, scheduler, plan);
  LARDER_CHECK(view.sockets.size() == plan.sockets.size());
  for (size_t i = 0; i < view.sockets.size(); ++i) {
    serving::SocketView& socket = view.sockets[i];
    socket.name = plan.sockets[i].name;
    if (socket.sample.weight_bytes > 0 && socket.sample.resident_bytes > 0) {
      socket.resident_share =
          static_cast<double>(socket.sample.resident_bytes) / static_cast<double>(socket.sample.weight_bytes);
    }
  }
  // Thread by thread where the threads are this process's: the first socket's.
  const auto& shards = engine.stage().residency().shards;
  if (shards.empty()) return;
  for (const auto& group : plan.sockets[0].l3_groups) {
    for (const auto& thread : group.threads)
      view.sockets[0].thread_resident_share.push_back(shards.at(thread.thread).resident_share);
  }
}

void FillMetrics(const pipeline::Engine& engine, const pipeline::Scheduler& scheduler,
                 const serving::PlanView& plan, serving::ServingMetrics& metrics) {
  serving::StatusView view;
  FillStatus(engine, scheduler, plan, view);
  for (size_t i = 0; i < view.sockets.size(); ++i) metrics.SetSocket(i, view.sockets[i].sample);
}

}  // namespace larder::node
