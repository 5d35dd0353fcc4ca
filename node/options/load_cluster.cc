#include "node/options/load_cluster.h"

#include <spdlog/spdlog.h>

#include <vector>

#include "base/error.h"
#include "model/config/split.h"
#include "node/options/link_options.h"
#include "node/options/progress.h"
#include "node/service/service.h"
#include "pipeline/chain/cluster_chain.h"
#include "threadpool/wait_choice.h"

namespace larder::node {

bool IsCluster(const pipeline::Manifest& manifest) {
  return pipeline::StagesOf(manifest).size() > 1 || pipeline::ServingOf(manifest).socket != nullptr;
}

Cluster PlanOfCluster(const pipeline::Manifest& manifest, const model::ModelConfig& config,
                      const topology::Topology& machine, const pipeline::PlanOptions& options) {
  Cluster cluster;
  cluster.plan =
      pipeline::MakePlan(manifest, config, options, pipeline::LoadTopologies(manifest, machine));
  for (const std::string& note : cluster.plan.notes) spdlog::warn("{}", note);
  cluster.chain = pipeline::ChainOf(manifest, cluster.plan);
  return cluster;
}

sync::WaitPolicy WaitPolicyFor(const topology::Topology& machine, std::span<const pipeline::StagePlan> plans,
                               bool isolated) {
  std::vector<CpuId> cpus;
  bool all_isolated = true;
  for (const pipeline::StagePlan& plan : plans) {
    all_isolated = all_isolated && plan.options.isolated;
    for (const auto& thread : plan.threads) cpus.push_back(thread.cpu);
    for (const auto& socket : plan.options.attention) all_isolated = all_isolated && socket.isolated;
    for (const auto& socket : plan.attention) {
      for (const auto& thread : socket.threads) cpus.push_back(thread.cpu);
    }
  }
  return threadpool::ChooseWaitPolicy(machine, cpus, isolated || all_isolated);
}

pipeline::PlanOptions AgreedOptions(const pipeline::PlanOptions& plan_options, const ModelOptions& options) {
  if (!options.join) return plan_options;
  pipeline::PlanOptions agreed = ToPlanOptions({});
  agreed.isa = plan_options.isa;
  return agreed;
}

std::unique_ptr<pipeline::Engine> LoadClusterEngine(std::shared_ptr<const model::GgufFile> file,
                                                    const topology::Topology& machine,
                                                    const pipeline::Manifest& manifest,
                                                    const pipeline::PlanOptions& plan_options,
                                                    const ModelOptions& options, const LoadProgress& report,
                                                    pipeline::SocketStatus* status) {
  Cluster cluster =
      PlanOfCluster(manifest, model::ReadModelConfig(*file), machine, AgreedOptions(plan_options, options));
  cluster.chain.fingerprint = model::Fingerprint(*file);
  if (options.join) SetLinkKey(options, cluster.chain);
  if (options.verbose) fmt::print(stderr, "{}", cluster.plan.Table());
  const pipeline::StagePlan ends = pipeline::PlanOfEnds(manifest, cluster.plan, plan_options.threads, machine);
  std::vector<pipeline::StagePlan> stages;
  if (!options.join) {
    if (manifest.servers.size() > 1) {
      throw Error(
          "{}: its {} servers cannot be threads of one process; run `larder node --socket NAME` for each "
          "socket and "
          "add --join here",
          manifest.path, manifest.servers.size());
    }
    for (size_t i = 0; i < cluster.plan.stages.size(); ++i)
      stages.push_back(pipeline::PlanOfStage(cluster.plan, i, machine));
  }
  std::vector<pipeline::StagePlan> here = stages;
  here.push_back(ends);
  Progress progress("packing");
  pipeline::StageOptions stage;
  stage.wait = WaitPolicyFor(machine, here, options.isolated);
  stage.connect_timeout_ms = 30'000;  // as the stages: whoever starts first waits for the others
  stage.progress = [&](uint64_t done, uint64_t all) {
    progress.Update(done, all);
    if (report) report(done, all);
  };
  stage.frame_limit_ms = static_cast<int>(options.frame_timeout_s * 1000);
  stage.yardstick = YardstickOf(machine, options);
  stage.status = status;
  stage.on_lost = [](const pipeline::LostPeer& peer) {
    LogLostPeer(peer,
                fmt::format("lost socket {}: {}; its requests end with an error", peer.socket, peer.reason));
  };
  if (options.verbose) spdlog::info("threads wait: {}", threadpool::Describe(stage.wait));
  return std::make_unique<pipeline::Engine>(std::move(file), cluster.chain, ends, std::move(stages), stage);
}

}  // namespace larder::node
