#include "node/tasks/stage_node.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "model/config/split.h"
#include "node/options/link_options.h"
#include "node/options/load_cluster.h"
#include "node/options/progress.h"
#include "node/service/service.h"
#include "pipeline/chain/cluster_chain.h"
#include "pipeline/chain/stage_socket.h"

namespace larder::node {
namespace {

size_t IndexOf(const pipeline::Plan& plan, const std::string& socket) {
  const pipeline::PlacedStage& stage = plan.stage_of_socket(socket);
  return static_cast<size_t>(&stage - plan.stages.data());
}

}  // namespace

bool IsStage(const pipeline::Manifest& manifest, const std::string& socket) {
  if (!IsCluster(manifest)) return false;
  const auto stages = pipeline::StagesOf(manifest);
  return std::any_of(stages.begin(), stages.end(),
                     [&](const pipeline::StageSpec& stage) { return stage.socket->name == socket; });
}

int RunStage(std::shared_ptr<const model::GgufFile> file, const topology::Topology& machine,
             const pipeline::Manifest& manifest, const std::string& socket, const ModelOptions& options,
             bool once) {
  const model::ModelConfig config = model::ReadModelConfig(*file);
  Cluster cluster = PlanOfCluster(manifest, config, machine, ToPlanOptions(options));
  cluster.chain.fingerprint = model::Fingerprint(*file);
  SetLinkKey(options, cluster.chain);
  const size_t index = IndexOf(cluster.plan, socket);
  const pipeline::StagePlan plan = pipeline::PlanOfStage(cluster.plan, index, machine);
  model::CheckHolds(*file, config, plan.config.first_layer, plan.config.layers, /*serving=*/false);
  pipeline::StageOptions stage;
  const pipeline::SocketWaits waits = pipeline::WaitsOf(plan, machine);
  stage.wait = waits.weight;
  stage.attention_waits = waits.attention;
  stage.connect_timeout_ms = 30'000;
  stage.frame_limit_ms = static_cast<int>(options.frame_timeout_s * 1000);
  ModelOptions measured = options;
  measured.measure_residency = true;
  stage.yardstick = YardstickOf(machine, measured);
  if (plan.separated()) stage.processes = cluster.plan.cluster;
  stage.socket = socket;
  stage.link_key = cluster.chain.link_key;
  const pipeline::PlacedStage& part = cluster.plan.stages[index];
  pipeline::SocketStatus status;
  Service service(
      {.cluster = cluster.plan.cluster,
       .socket = socket,
       .role = pipeline::RoleName(plan.separated() ? pipeline::Role::kWeight : pipeline::Role::kColocated),
       .first_layer = part.first_layer,
       .layers = part.layers,
       .slots = plan.options.slots,
       .weight_bytes = plan.weight_bytes,
       .kv_bytes = plan.separated() ? 0 : plan.kv_bytes},
      status);
  service.Describe("packing weights");
  std::unique_ptr<pipeline::StageSocket> stage_socket;
  {
    Progress progress("packing");
    stage.progress = [&](uint64_t done, uint64_t all) { progress.Update(done, all); };
    stage_socket = std::make_unique<pipeline::StageSocket>(cluster.chain, index, plan, *file, stage, status);
  }
  const auto excuse = service.Excuse([&] { return stage_socket->stage().HungAttention().has_value(); });
  const auto pins = service.WatchPins([&] { return stage_socket->stage().pool().LostPins(); });
  service.Ready(fmt::format("layers {}-{}, {:.1f} MB of weights", part.first_layer,
                            part.first_layer + part.layers - 1,
                            static_cast<double>(plan.weight_bytes) * 1e-6));
  spdlog::info("stage {}: layers {}-{}, {:.1f} MB of weights; waiting for the stage before", socket,
               part.first_layer, part.first_layer + part.layers - 1,
               static_cast<double>(plan.weight_bytes) * 1e-6);
  do {
    try {
      stage_socket->Serve([](const std::string& line) { spdlog::info("{}", line); });
      spdlog::info("stage {}: the serving socket has ended", socket);
    } catch (const pipeline::PeerLost& lost) {
      if (once) throw;
      LogLostPeer(lost.peer(), lost.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } catch (const Error& error) {
      if (once) throw;
      spdlog::error("{}", error.what());  // weights stay where they are; the next chain may do better
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  } while (!once);
  return 0;
}

pipeline::ManifestPlan PlanOfAttention(const ManifestAndServer& where, const model::ModelConfig& config,
                                       const topology::Topology& machine, const ModelOptions& options,
                                       const std::string& socket) {
  if (!IsCluster(where.manifest))
    return pipeline::PlanManifest(where.manifest, where.server(), config, machine, ToPlanOptions(options));
  const Cluster cluster = PlanOfCluster(where.manifest, config, machine, ToPlanOptions(options));
  pipeline::ManifestPlan result;
  result.plan = pipeline::PlanOfStage(cluster.plan, IndexOf(cluster.plan, socket), machine);
  result.cluster = cluster.plan.cluster;
  const auto sockets =
      pipeline::Resolve(where.manifest, where.manifest.server_of_socket(socket), machine, &config, nullptr);
  std::copy_if(sockets.begin(), sockets.end(), std::back_inserter(result.sockets),
               [&](const pipeline::ResolvedSocket& s) { return s.name == socket; });
  return result;
}

}  // namespace larder::node
