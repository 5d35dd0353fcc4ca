#include "node/serve_view.h"

#include <algorithm>

#include "kernels/isa.h"

namespace larder::node {
namespace {

using serving::L3GroupPlace;
using serving::SocketPlace;

// The threads of one socket, gathered by the L3 they run under; also the cores of that L3 it leaves alone.
std::vector<L3GroupPlace> ViewOfGroups(const pipeline::Plan& plan,
                                       const std::vector<pipeline::PlanThread>& threads,
                                       const topology::Topology& machine) {
  std::vector<L3GroupPlace> groups;
  for (const auto& thread : threads) {
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
    group->threads.push_back({.core = thread.core.value,
                              .cpu = thread.cpu.value,
                              .numa_node = thread.numa_node.value,
                              .weight_bytes = thread.weight_bytes});
  }
  return groups;
}

}  // namespace

serving::PlanView ViewOfPlan(const pipeline::Engine& engine, const topology::Topology& machine,
                             const std::string& chat_format) {
  const pipeline::Plan& plan = engine.plan();
  const model::ModelConfig& config = plan.config;
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
  view.weight_bytes = plan.weight_bytes;
  view.kv_bytes = plan.kv_bytes;
  view.micro_batches = engine.in_flight_limit();
  view.notes = plan.notes;
  SocketPlace weights{.name = plan.separated() ? "weight" : "socket",
                      .role = plan.separated() ? "weight" : "colocated",
                      .server = "",
                      .layers = config.layers,
                      .embedding = true,
                      .head = true};
  weights.l3_groups = ViewOfGroups(plan, plan.threads, machine);
  if (!plan.separated()) {
    weights.slots = plan.options.slots;
    weights.kv_bytes = plan.kv_bytes;
  }
  view.sockets.push_back(std::move(weights));
  for (const auto& socket : plan.attention) {
    SocketPlace place{.name = socket.name, .role = "attention", .server = ""};
    place.first_slot = socket.first_slot;
    place.slots = socket.slots;
    place.kv_bytes = socket.kv_bytes;
    place.l3_groups = ViewOfGroups(plan, socket.threads, machine);
    view.links.push_back({.from = view.sockets[0].name, .to = socket.name, .kind = "memory"});
    view.sockets.push_back(std::move(place));
  }
  return view;
}

std::vector<std::string> SocketNames(const serving::PlanView& plan) {
  std::vector<std::string> names;
  for (const auto& socket : plan.sockets) names.push_back(socket.name);
  return names;
}

void FillStatus(const pipeline::Scheduler& scheduler, const serving::PlanView& plan,
                serving::StatusView& view) {
  for (const auto& slot : scheduler.slots()) {
    view.slots.push_back(
        {.state = static_cast<serving::SlotView::State>(slot.state.load(std::memory_order_relaxed)),
         .cached_tokens = slot.cached_tokens.load(std::memory_order_relaxed),
         .generated_tokens = slot.generated_tokens.load(std::memory_order_relaxed)});
  }
  for (const auto& socket : plan.sockets) {
    serving::SocketView one;
    one.name = socket.name;
    one.state = "serving";
    for (const auto& group : socket.l3_groups) one.sample.weight_bytes += group.weight_bytes;
    view.sockets.push_back(std::move(one));
  }
  if (view.sockets.empty()) return;
  const pipeline::SchedulerStatus& status = scheduler.status();
  serving::SocketSample& first = view.sockets[0].sample;
  first.frames = status.steps.load(std::memory_order_relaxed);
  first.rows = status.prefill_rows.load(std::memory_order_relaxed) +
               status.decode_rows.load(std::memory_order_relaxed);
  first.step_ns = status.step_ns.load(std::memory_order_relaxed);
}

void FillMetrics(const pipeline::Scheduler& scheduler, const serving::PlanView& plan,
                 serving::ServingMetrics& metrics) {
  serving::StatusView view;
  FillStatus(scheduler, plan, view);
  for (size_t i = 0; i < view.sockets.size(); ++i) metrics.SetSocket(i, view.sockets[i].sample);
}

}  // namespace larder::node
