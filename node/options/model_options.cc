#include "node/options/model_options.h"

#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "node/options/count_option.h"
#include "node/options/link_options.h"
#include "node/options/load_cluster.h"
#include "node/options/progress.h"
#include "pipeline/stage/residency.h"
#include "threadpool/wait_choice.h"

namespace larder::node {
namespace {

constexpr double kReportBudgetS = 1.0, kMeasureBudgetS = 0.3;  // of reading L3 and memory

}  // namespace

void AddModelOptions(CLI::App& command, ModelOptions& options, const ModelOptionSet& set) {
  const char* group = "Model and machine";
  auto* model = command.add_option("-m,--model", options.model, "GGUF file")->type_name("FILE")->group(group);
  if (set.model_required && !set.manifest) model->required();
  if (set.manifest) {
    command
        .add_option("--manifest", options.manifest,
                    "sockets of this server: who holds weights, who the KV cache")
        ->type_name("FILE")
        ->group(group);
    command
        .add_option("--server", options.server,
                    "which server of the manifest this is (default: by host name)")
        ->type_name("NAME")
        ->group(group);
    if (set.engine) {
      command
          .add_option(
              "--frame-timeout", options.frame_timeout_s,
              "seconds that a stage may compute one frame before it counts as hung; 0: any (default: 10)")
          ->type_name("S")
          ->check(NotFinite)
          ->check(CLI::Range(0.0, 86400.0).description(""))
          ->group(group);
      command
          .add_flag(
              "--join", options.join,
              "the manifest's attention sockets are running processes (larder node), not threads of this one")
          ->group(group);
      command
          .add_option("--link-key", options.link_key,
                      "the cluster's key, which all its sockets need (default: link.key of "
                      "$CREDENTIALS_DIRECTORY, if it is there)")
          ->type_name("FILE")
          ->group(group);
      command
          .add_flag(
              "--open-links", options.open_links,
              "links to other servers without a key: anyone on their network can join or stop the cluster")
          ->group(group);
    }
  }
  if (set.threads) {
    AddCount(command, "-t,--threads", options.threads, "threads (default: one per physical core)")
        ->group(group);
  }
  if (set.context) {
    AddCount(command, "-c,--ctx-size", options.context,
             "tokens of context (default: the model's, at most 4096)")
        ->group(group);
  }
  if (set.slots) {
    AddCount(command, "--slots", options.slots, "sequences with a place in the KV cache (default: 1)")
        ->group(group);
  }
  if (set.engine || set.budget) {
    AddCount(command, "--ubatch-size", options.ubatch,
             "-ub: the most rows of a prefill frame (default: as fit in L2)")
        ->group(group);
  }
  if (set.engine) {
    command
        .add_flag("--isolated", options.isolated, "these cores are ours alone: threads spin and never sleep")
        ->group(group);
    command
        .add_flag("--residency", options.residency,
                  "after loading, say how much of each shard re-reads at L3 speed")
        ->group(group);
  }
  if (set.engine || set.budget) {
    command
        .add_option("--l3-fraction", options.l3_fraction,
                    "share of each L3 that weights may take (default: 0.75)")
        ->type_name("F")
        ->check(NotFinite)
        ->check(CLI::Range(0.01, 1.0).description(""))
        ->group(group);
  }
  command
      .add_option("--isa", options.isa,
                  "instruction set: scalar, avx2, avx-vnni, avx512 (default: the best here)")
      ->type_name("NAME")
      ->group(group);
  command
      .add_option("--topology", options.topology,
                  "plan for another machine: XML from lstopo (threads aren't pinned)")
      ->type_name("FILE")
      ->group(group);
  command.add_flag("-v,--verbose", options.verbose, "log the plan and what is done")->group(group);
}

kernels::Isa ResolveIsa(const std::string& name) {
  if (name.empty()) return kernels::BestIsa();
  const auto isa = kernels::IsaByName(name == "avx512" ? "avx512-vnni" : name);
  if (!isa)
    throw CLI::ValidationError("--isa", fmt::format("'{}' is none of scalar, avx2, avx-vnni, avx512", name));
  if (!kernels::HostHas(*isa)) {
    throw Error("--isa {}: this machine does not have it; the best it has is {}", name,
                kernels::IsaName(kernels::BestIsa()));
  }
  return *isa;
}

topology::Topology ResolveTopology(const ModelOptions& options) {
  using topology::Topology;
  const auto scope =
      options.whole_machine || options.join ? Topology::Scope::kAll : Topology::Scope::kAllowed;
  auto machine = options.topology.empty() ? Topology::Detect(scope) : Topology::FromXml(options.topology);
  for (const std::string& warning : machine.warnings()) {
    if (options.verbose) spdlog::warn("topology: {}", warning);
  }
  return machine;
}

pipeline::PlanOptions ToPlanOptions(const ModelOptions& options) {
  pipeline::PlanOptions plan;
  plan.threads = options.threads;
  plan.context = options.context;
  plan.slots = options.slots;
  plan.prefill_rows = options.ubatch;
  plan.l3_fraction = options.l3_fraction;
  plan.isolated = options.isolated;
  plan.isa = ResolveIsa(options.isa);
  return plan;
}

std::string ModelPath(const ModelOptions& options, const std::string& socket) {
  if (options.manifest.empty()) {
    if (options.model.empty()) throw CLI::RequiredError("-m,--model");
    return options.model;
  }
  const pipeline::Manifest manifest = pipeline::Manifest::Load(options.manifest);
  if (options.model.empty() && !manifest.model)
    throw Error("{}: names no model (key model.path) and there is no -m FILE", options.manifest);
  return pipeline::ModelFileOf(
      manifest, options.model.empty() ? manifest.ResolvePath(*manifest.model) : options.model, socket);
}

ManifestAndServer LoadManifest(const ModelOptions& options) {
  ManifestAndServer result{pipeline::Manifest::Load(options.manifest), 0};
  const auto& servers = result.manifest.servers;
  std::string name = options.server;
  if (name.empty() && servers.size() > 1) {
    char host[256] = {};
    gethostname(host, sizeof(host) - 1);
    name = host;
  }
  if (!name.empty()) result.index = static_cast<size_t>(&result.manifest.server(name) - servers.data());
  return result;
}

std::function<pipeline::ResidencyYardstick(const pipeline::StagePlan&)> YardstickOf(
    const topology::Topology& machine, const ModelOptions& options) {
  if (!options.residency && !options.measure_residency) return {};
  const double budget_s = options.residency ? kReportBudgetS : kMeasureBudgetS;
  return [&machine, budget_s](const pipeline::StagePlan& plan) {
    return pipeline::MeasureYardstick(machine, plan, budget_s);
  };
}

std::unique_ptr<pipeline::Engine> LoadEngine(std::shared_ptr<const model::GgufFile> file,
                                             const topology::Topology& machine,
                                             pipeline::PlanOptions plan_options, const ModelOptions& options,
                                             const LoadProgress& report, pipeline::SocketStatus* status) {
  if (options.verbose) spdlog::set_level(spdlog::level::info);
  const model::ModelConfig config = model::ReadModelConfig(*file);
  pipeline::StagePlan plan;
  pipeline::StageOptions stage;
  if (options.manifest.empty()) {
    plan = pipeline::MakeStagePlan(config, machine, plan_options);
  } else {
    const ManifestAndServer where = LoadManifest(options);
    pipeline::CheckRunnable(where.manifest);
    if (IsCluster(where.manifest))
      return LoadClusterEngine(std::move(file), machine, where.manifest, plan_options, options, report,
                               status);
    const pipeline::ManifestPlan sockets =
        pipeline::PlanManifest(where.manifest, where.server(), config, machine, plan_options);
    for (const std::string& warning : sockets.warnings) spdlog::warn("{}", warning);
    plan = sockets.plan;
    if (options.join) {
      if (!plan.separated())
        throw Error("{}: --join needs attention sockets; this manifest has none", options.manifest);
      stage.processes = sockets.cluster;
      stage.socket = sockets.sockets.front().name;
      stage.link_key = LoadLinkKey(options);
    }
  }
  const pipeline::SocketWaits waits = pipeline::WaitsOf(plan, machine);
  stage.wait = waits.weight;
  stage.attention_waits = waits.attention;
  if (machine.from_xml()) {  // the other machine's numbers mean nothing here
    for (auto& thread : plan.threads) {
      thread.cpu = CpuId{};
      thread.numa_node = NumaNodeId{};
    }
  }
  stage.yardstick = YardstickOf(machine, options);
  stage.status = status;
  if (plan.options.threads > machine.cores().size()) {
    spdlog::warn("{} threads on {} cores: they share them and wait for each other", plan.options.threads,
                 machine.cores().size());
  }
  if (options.verbose) {
    fmt::print(stderr, "{}", plan.Table());
    spdlog::info("threads wait: {}", threadpool::Describe(stage.wait));
  }
  const int64_t start = NowNs();
  std::unique_ptr<pipeline::Engine> engine;
  {
    Progress progress("packing");
    stage.progress = [&](uint64_t done, uint64_t all) {
      progress.Update(done, all);
      if (report) report(done, all);
    };
    engine = std::make_unique<pipeline::Engine>(std::move(file), plan, stage);
  }
  spdlog::info("packed {:.1f} MB in {:.2f} s",
               static_cast<double>(plan.weight_bytes + plan.embedding_bytes) * 1e-6, SecondsSince(start));
  for (const std::string& warning : engine->stage().pool().warnings()) spdlog::info("{}", warning);
  if (options.residency) fmt::print(stderr, "{}", engine->stage().residency().Text());
  return engine;
}

}  // namespace larder::node
