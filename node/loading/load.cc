#include "node/loading/load.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "model/config/split.h"
#include "model/tokenizer/tokenizer_data.h"
#include "node/options/link_options.h"
#include "node/options/progress.h"
#include "node/options/schedule_file.h"
#include "node/service/service_log.h"
#include "node/service/service_monitor.h"
#include "pipeline/plan/socket_waits.h"
#include "pipeline/residency/residency.h"
#include "threadpool/wait_choice.h"

namespace larder::node::inline loading {
namespace {

constexpr double kReportBudgetS = 1.0, kMeasureBudgetS = 0.3;  // time spent reading L3 and memory
constexpr int kConnectTimeoutMs = 30'000;  // processes start in any order and wait for each other

// How the threads of these plans, all in one process, wait. isolated: --isolated was given; without
// it they spin if the manifest says of all their sockets that nothing else runs on their cores.
sync::WaitPolicy WaitPolicyFor(const topology::Topology& machine,
                               std::span<const pipeline::StagePlan* const> plans, bool isolated) {
  std::vector<CpuId> cpus;
  bool all_isolated = true;
  for (const pipeline::StagePlan* plan : plans) {
    all_isolated = all_isolated && plan->options.isolated;
    for (const auto& thread : plan->threads) cpus.push_back(thread.cpu);
    for (const auto& socket : plan->options.attention)
      all_isolated = all_isolated && socket.isolated;
    for (const auto& socket : plan->attention) {
      for (const auto& thread : socket.threads) cpus.push_back(thread.cpu);
    }
  }
  return threadpool::ChooseWaitPolicy(machine, cpus, isolated || all_isolated);
}

std::unique_ptr<pipeline::Engine> LoadStage(std::shared_ptr<const model::GgufFile> file,
                                            const PlannedModel& planned,
                                            const ModelOptions& options,
                                            pipeline::ChainOptions stage) {
  const pipeline::PlacedStage& only = planned.plan.stages.front();
  const pipeline::StagePlan& plan = only.plan;
  const topology::Topology& machine = planned.machine_of(only);
  if (planned.where && planned.where->server().name != only.server) {
    throw Error(
        "{}: socket '{}' holds the weights and belongs to server '{}', but this is server '{}'; "
        "start it there",
        options.manifest, only.socket, only.server, planned.where->server().name);
  }
  if (options.join) {
    if (!plan.separated())
      throw Error("{}: --join needs attention sockets; this manifest has none", options.manifest);
    stage.processes = ClusterName(planned, options.manifest);
    stage.socket = only.socket;
    stage.link_key = LoadLinkKey(options);
    stage.attention_links = AttentionLinksOf(planned, only, only.socket, options);
    if (only.attention_elsewhere()) stage.connect_timeout_ms = kConnectTimeoutMs;
  } else if (only.attention_elsewhere()) {
    throw Error(
        "{}: attention sockets of socket '{}' are on other servers, not threads of this process; "
        "run `larder node --socket NAME` for each of them there and add --join here",
        options.manifest, only.socket);
  }
  const pipeline::SocketWaits waits = pipeline::WaitsOf(plan, machine);
  stage.wait = waits.weight;
  stage.attention_waits = waits.attention;
  if (plan.options.threads > machine.cores().size()) {
    spdlog::warn("{} threads on {} cores: they share them and wait for each other",
                 plan.options.threads, machine.cores().size());
  }
  if (options.verbose) {
    fmt::print(stderr, "{}", plan.Table());
    spdlog::info("threads wait: {}", threadpool::Describe(stage.wait));
  }
  return std::make_unique<pipeline::Engine>(std::move(file), plan, stage);
}

std::unique_ptr<pipeline::Engine> LoadChain(std::shared_ptr<const model::GgufFile> file,
                                            const PlannedModel& planned,
                                            const ModelOptions& options,
                                            pipeline::ChainOptions stage) {
  if (options.verbose) fmt::print(stderr, "{}", planned.plan.Table());
  std::vector<pipeline::StagePlan> stages;
  if (!options.join) {
    if (planned.machines.size() > 1) {
      throw Error(
          "{}: its {} servers cannot run as threads of one process; run `larder node --socket "
          "NAME` for each socket and add --join here",
          options.manifest, planned.machines.size());
    }
    for (const pipeline::PlacedStage& placed : planned.plan.stages) stages.push_back(placed.plan);
  }
  stage.wait =
      WaitPolicyFor(planned.serving_machine(), planned.plans_here(options), options.isolated);
  stage.connect_timeout_ms = kConnectTimeoutMs;
  stage.frame_limit_ms = static_cast<int>(options.frame_timeout_s * 1000);
  if (!options.join) stage.kv_files = KvFilesOf(options, planned.where);
  stage.on_lost = [](const pipeline::LostPeer& peer) {
    LogLostPeer(peer,
                fmt::format("{}; its requests wait until it is back", pipeline::Describe(peer)));
  };
  if (options.verbose) spdlog::info("threads wait: {}", threadpool::Describe(stage.wait));
  return std::make_unique<pipeline::Engine>(std::move(file),
                                            ChainOf(planned, options, options.join),
                                            planned.plan.ends, std::move(stages), stage);
}

}  // namespace

const topology::Topology& PlannedModel::serving_machine() const {
  for (size_t i = 0; where && i < where->manifest.servers.size(); ++i) {
    if (where->manifest.servers[i].name == plan.serving_server) return machines[i];
  }
  return machine_of(plan.stages.front());
}

std::vector<const pipeline::StagePlan*> PlannedModel::plans_here(
    const ModelOptions& options) const {
  std::vector<const pipeline::StagePlan*> here;
  if (plan.single() || !options.join) {
    for (const pipeline::PlacedStage& stage : plan.stages) here.push_back(&stage.plan);
  }
  if (!plan.single()) here.push_back(&plan.ends);
  return here;
}

PlannedModel PlanModel(const model::GgufFile& file, std::optional<ManifestAndServer> where,
                       const topology::Topology& machine, const pipeline::PlanOptions& plan_options,
                       const ModelOptions& options) {
  const model::ModelConfig config = model::ReadModelConfig(file);
  PlannedModel planned;
  planned.where = std::move(where);
  pipeline::PlanOptions agreed = plan_options;
  const auto complete = [&] {
    agreed.tuning = TuningWith(agreed.isa, options.schedules);
    agreed.fingerprint = model::Fingerprint(file);
    agreed.pinned = !machine.from_xml();
  };
  if (!planned.where) {
    complete();
    planned.machines = {machine};
    planned.plan = pipeline::MakePlan(config, machine, agreed);
    if (!planned.plan.use.empty()) spdlog::info("{}", planned.plan.use);
  } else {
    const pipeline::Manifest& manifest = planned.where->manifest;
    planned.machines = pipeline::LoadTopologies(manifest, machine);
    if (options.join && IsCluster(manifest)) {
      agreed = ToPlanOptions({});
      agreed.isa = plan_options.isa;
      agreed.threads = plan_options.threads;  // the serving socket chooses its own
    }
    if (manifest.isa) agreed.isa = *manifest.isa;
    complete();
    planned.plan = pipeline::MakePlan(manifest, config, agreed, planned.machines);
    const pipeline::Plan& plan = planned.plan;
    for (const std::string& note : plan.single() ? plan.notes_of_sockets() : std::span(plan.notes))
      spdlog::warn("{}", note);
  }
  return planned;
}

const std::string& ClusterName(const PlannedModel& planned, const std::string& manifest) {
  if (planned.plan.cluster.empty()) {
    throw Error(
        "{}: name is missing: sockets that are processes of their own find each other by it; add a "
        "line such as name = \"story\" at the top, for all of them",
        manifest);
  }
  return planned.plan.cluster;
}

void WarnOfTokenizer(const model::GgufFile& file) {
  try {
    model::CheckTokenizerIsKnown(file);
  } catch (const Error& error) {
    spdlog::warn("text cannot be read or written with this model: {}", error.what());
  }
}

pipeline::ChainPlan ChainOf(const PlannedModel& planned, const ModelOptions& options,
                            bool between_processes) {
  pipeline::ChainPlan chain = pipeline::ChainOf(planned.where->manifest, planned.plan);
  if (between_processes) SetLinkKey(options, chain);
  return chain;
}

pipeline::AttentionLinks AttentionLinksOf(const PlannedModel& planned,
                                          const pipeline::PlacedStage& stage,
                                          const std::string& socket, const ModelOptions& options) {
  if (!stage.attention_elsewhere()) return {};
  pipeline::AttentionLinks links = pipeline::AttentionLinksOf(planned.where->manifest, planned.plan,
                                                              stage, socket, LoadLinkKey(options));
  CheckLinkKey(options, links);
  return links;
}

std::function<pipeline::ResidencyBaseline(const pipeline::StagePlan&)> BaselineOf(
    const topology::Topology& machine, const ModelOptions& options) {
  if (!options.residency && !options.measure_residency) return {};
  const double budget_s = options.residency ? kReportBudgetS : kMeasureBudgetS;
  return [&machine, budget_s](const pipeline::StagePlan& plan) {
    return pipeline::MeasureBaseline(machine, plan, budget_s);
  };
}

std::unique_ptr<pipeline::Engine> LoadEngine(std::shared_ptr<const model::GgufFile> file,
                                             const PlannedModel& planned,
                                             const ModelOptions& options,
                                             const weight_node::LoadProgress& report,
                                             pipeline::SocketStatus* status) {
  if (options.verbose) SetLogLevel(spdlog::level::info);
  pipeline::ChainOptions stage;
  stage.baseline = BaselineOf(planned.serving_machine(), options);
  stage.status = status;
  const int64_t start = NowNs();
  std::unique_ptr<pipeline::Engine> engine;
  {
    Progress progress("packing");
    stage.progress = [&](uint64_t done, uint64_t all) {
      progress.Update(done, all);
      if (report) report(done, all);
    };
    engine = planned.plan.single() ? LoadStage(std::move(file), planned, options, stage)
                                   : LoadChain(std::move(file), planned, options, stage);
  }
  if (!planned.plan.single()) return engine;
  const pipeline::StagePlan& plan = engine->plan();
  spdlog::info("packed {:.1f} MB in {:.2f} s",
               static_cast<double>(plan.weight_bytes + plan.embedding_bytes) * 1e-6,
               SecondsSince(start));
  for (const std::string& warning : engine->packed().pool().warnings()) spdlog::info("{}", warning);
  if (options.residency) fmt::print(stderr, "{}", engine->packed().residency().Text());
  return engine;
}

}  // namespace larder::node::loading
