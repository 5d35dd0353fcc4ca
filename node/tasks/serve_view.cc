#include "node/tasks/serve_view.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <utility>

#include "kernels/formats/isa.h"

namespace larder::node::inline tasks {
namespace {

using serving::L3GroupPlace;
using serving::SocketPlace;

// The threads of one socket, grouped by L3, with the cores of each L3 that the socket does not use.
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

serving::SocketView ViewOf(const pipeline::SocketStatus& status) {
  serving::SocketView view;
  view.state = pipeline::SocketStateName(
      static_cast<pipeline::SocketState>(status.state.load(std::memory_order_relaxed)));
  view.counters = pipeline::LoadCounters(status);
  return view;
}

std::optional<double> ShareAfterLoading(const SocketCounters& counters) {
  if (counters.weight_bytes == 0 || counters.resident_bytes == 0) return std::nullopt;
  return static_cast<double>(counters.resident_bytes) / static_cast<double>(counters.weight_bytes);
}

serving::SlotView::State StateOf(const pipeline::SlotStatus& slot) {
  switch (slot.state.load(std::memory_order_relaxed)) {
    case pipeline::SlotStatus::kPrefill:
      return serving::SlotView::State::kPrefill;
    case pipeline::SlotStatus::kDecode:
      return serving::SlotView::State::kDecode;
    default:
      return serving::SlotView::State::kIdle;
  }
}

}  // namespace

void ServeView::AddSocket(SocketPlace place, Reader now) {
  plan_.sockets.push_back(std::move(place));
  now_.push_back(std::move(now));
  warnings_.emplace_back();
}

// Adds the stage's weight or colocated socket and, if it is separated, its attention sockets and
// their links.
void ServeView::AddStage(const pipeline::PlacedStage& stage, const topology::Topology& machine,
                         SocketPlace first, Reader now,
                         const std::function<Reader(AttentionId)>& attention_now) {
  const pipeline::StagePlan& plan = stage.plan;
  first.role = plan.separated() ? "weight" : "colocated";
  first.first_layer = stage.first_layer;
  first.layers = stage.layers;
  first.l3_groups = ViewOfGroups(plan, plan.threads, machine);
  if (!plan.separated()) {
    first.slots = plan.options.capacity.slots;
    first.kv_bytes = plan.kv_bytes;
  }
  const std::string name = first.name, server = first.server;
  AddSocket(std::move(first), std::move(now));
  for (AttentionId i(0); i.index() < plan.attention.size(); ++i) {
    const pipeline::PlanAttentionSocket& socket = plan.attention[i.index()];
    SocketPlace place{.name = socket.name, .role = "attention", .server = server};
    place.first_slot = socket.first_slot;
    place.slots = socket.slots;
    place.kv_bytes = socket.kv_bytes;
    place.l3_groups = ViewOfGroups(plan, socket.threads, machine);
    plan_.links.push_back({.from = name, .to = socket.name, .kind = "shm"});
    AddSocket(std::move(place), attention_now(i));
  }
}

void ServeView::AddChain(const PlannedModel& planned) {
  const pipeline::Plan& plan = planned.plan;
  const pipeline::ChainClient& chain = *engine_.client();
  const std::string serving = plan.serving_socket.empty() ? "serving" : plan.serving_socket;
  SocketPlace place{.name = serving, .role = "serving", .server = plan.serving_server};
  place.embedding = place.lm_head = true;
  place.l3_groups = ViewOfGroups(plan.ends, plan.ends.threads, planned.serving_machine());
  AddSocket(std::move(place), [this] { return ViewOf(engine_.status()); });
  for (size_t i = 0; i < plan.stages.size(); ++i) {
    const pipeline::PlacedStage& stage = plan.stages[i];
    AddStage(
        stage, planned.machine_of(stage),
        {.name = stage.socket, .role = "", .server = stage.server},
        [&chain, i] { return ViewOf(chain.stage_status(i)); },
        [&chain, i](AttentionId k) -> Reader {
          return [&chain, i, k] { return ViewOf(chain.attention_status(i, k)); };
        });
  }
  for (const pipeline::LinkPlan& link : plan.links) {
    plan_.links.push_back({.from = link.from.empty() ? serving : link.from,
                           .to = link.to.empty() ? serving : link.to,
                           .kind = rdma::TransportName(link.transport)});
  }
}

ServeView::ServeView(const PlannedModel& planned, const pipeline::Engine& engine,
                     const pipeline::Scheduler& scheduler, const std::string& chat_format)
    : engine_(engine), scheduler_(scheduler) {
  const pipeline::Plan& plan = planned.plan;
  const model::ModelConfig& config = plan.config;
  const topology::Topology& machine = planned.serving_machine();
  plan_.model = config.name;
  plan_.architecture = config.architecture_name;
  plan_.machine = machine.packages().empty() ? "" : machine.packages()[0].cpu_model;
  plan_.isa = kernels::IsaName(engine.plan().options.isa);
  plan_.chat_format = chat_format;
  plan_.layers = config.layers;
  plan_.dim = config.dim;
  plan_.ffn = config.layer(0).sizes.ffn;
  plan_.heads = config.FirstWithAttention().sizes.heads;
  plan_.kv_heads = config.FirstWithAttention().sizes.kv_heads;
  plan_.vocab = config.vocab;
  plan_.context = plan.capacity.context;
  plan_.slots = plan.capacity.slots;
  plan_.parameters = config.parameters();
  plan_.max_in_flight = plan.capacity.max_in_flight;
  plan_.weight_bytes = plan.weight_bytes();
  plan_.kv_bytes = plan.kv_bytes();
  plan_.notes = plan.notes;
  if (!plan.single()) {
    AddChain(planned);
    return;
  }
  const pipeline::PlacedStage& stage = plan.stages.front();
  SocketPlace first{.name = stage.socket, .role = "", .server = ""};
  first.embedding = first.lm_head = true;
  AddStage(
      stage, machine, std::move(first), [this] { return ViewOf(engine_.status()); },
      [this](AttentionId i) -> Reader {
        return [this, i] { return ViewOf(engine_.stage().attention_status(i)); };
      });
}

std::vector<std::string> ServeView::SocketNames() const {
  std::vector<std::string> names;
  for (const auto& socket : plan_.sockets) names.push_back(socket.name);
  return names;
}

void ServeView::FillStatus(serving::StatusView& view) const {
  for (const auto& slot : scheduler_.slots()) {
    view.slots.push_back(
        {.state = StateOf(slot),
         .cached_tokens = slot.cached_tokens.load(std::memory_order_relaxed),
         .generated_tokens = slot.generated_tokens.load(std::memory_order_relaxed)});
  }
  const pipeline::SchedulerStatus& status = scheduler_.status();
  view.kv_chunks = status.kv_chunks.load(std::memory_order_relaxed);
  view.used_kv_chunks = status.used_kv_chunks.load(std::memory_order_relaxed);
  view.shared_kv_chunks = status.shared_kv_chunks.load(std::memory_order_relaxed);
  view.kept_states = status.kept_states.load(std::memory_order_relaxed);
  view.kv_files = scheduler_.files().files.load(std::memory_order_relaxed);
  view.kv_file_bytes = scheduler_.files().bytes.load(std::memory_order_relaxed);
  for (size_t i = 0; i < now_.size(); ++i) {
    serving::SocketView socket = now_[i]();
    socket.name = plan_.sockets[i].name;
    socket.resident_share = ShareAfterLoading(socket.counters);
    view.sockets.push_back(std::move(socket));
  }
  if (const std::vector<ExpertCounts> experts = Experts(); !experts.empty())
    view.experts = ExpertTotals(experts);
  // Per thread only where the threads are in this process: the first socket.
  serving::SocketView& here = view.sockets[0];
  const auto& shards = engine_.packed().residency().shards;
  const pipeline::ResidencyEstimate& live = engine_.packed().live().estimate();
  for (const auto& group : plan_.sockets[0].l3_groups) {
    for (const auto& thread : group.threads) {
      if (!shards.empty())
        here.thread_resident_share.push_back(shards.at(thread.thread).resident_share);
      here.thread_resident_share_live.push_back(live.of_thread(thread.thread));
    }
  }
  for (size_t layer = 0; layer < plan_.sockets[0].layers; ++layer)
    here.layer_resident_share_live.push_back(live.of_part(layer));
}

void ServeView::WarnOfResidency(int64_t now_ns) {
  const pipeline::SchedulerStatus& status = scheduler_.status();
  const auto chunks = static_cast<double>(status.kv_chunks.load(std::memory_order_relaxed));
  const auto used = static_cast<double>(status.used_kv_chunks.load(std::memory_order_relaxed));
  for (size_t i = 0; i < now_.size(); ++i) {
    const serving::SocketPlace& place = plan_.sockets[i];
    if (!IsPlannedResident(place)) continue;
    const SocketCounters now = now_[i]().counters;
    const std::optional<double> live = now.live_resident_share();
    if (!warnings_[i].Due(now_ns, now.frames, live)) continue;
    const double kv_bytes = chunks > 0 ? static_cast<double>(place.kv_bytes) * used / chunks : 0;
    spdlog::warn(
        "{}", ResidencyLine(place, ShareAfterLoading(now), *live, static_cast<uint64_t>(kv_bytes)));
  }
}

void ServeView::FillMetrics(serving::ServingMetrics& metrics) const {
  metrics.SetExperts(ExpertTotals(Experts()));
  for (size_t i = 0; i < now_.size(); ++i) metrics.SetSocket(i, now_[i]().counters);
  const pipeline::SchedulerStatus& status = scheduler_.status();
  const auto load = [](const auto& number) { return number.load(std::memory_order_relaxed); };
  const pipeline::KvFilesStatus& files = scheduler_.files();
  metrics.SetScheduler({.transitions = load(status.transitions),
                        .lost = load(status.lost),
                        .preempted = load(status.preempted),
                        .yielded = load(status.yielded),
                        .parked = load(status.parked),
                        .recomputed_tokens = load(status.recomputed_tokens),
                        .steps = load(status.steps),
                        .busy_slots = load(status.busy_slots),
                        .kv_chunks = load(status.kv_chunks),
                        .used_kv_chunks = load(status.used_kv_chunks),
                        .shared_kv_chunks = load(status.shared_kv_chunks),
                        .kept_states = load(status.kept_states),
                        .kv_files = load(files.files),
                        .kv_file_bytes = load(files.bytes),
                        .kv_files_written = load(files.written),
                        .kv_files_read = load(files.read),
                        .kv_files_refused = load(files.refused),
                        .kv_files_failed = load(files.failed)});
}

}  // namespace larder::node::tasks
