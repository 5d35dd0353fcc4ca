#include "node/tasks/stage_node.h"

#include <spdlog/spdlog.h>

#include <chrono>
#include <thread>

#include "base/error.h"
#include "model/config/split.h"
#include "node/options/progress.h"
#include "node/service/service_monitor.h"
#include "pipeline/chain/stage_socket.h"
#include "pipeline/plan/socket_waits.h"

namespace larder::node::inline tasks {

int RunStage(std::shared_ptr<const model::GgufFile> file, const PlannedModel& planned, size_t index,
             const ModelOptions& options, bool once) {
  const pipeline::PlacedStage& part = planned.plan.stages.at(index);
  const pipeline::StagePlan& plan = part.plan;
  const topology::Topology& machine = planned.machine_of(part);
  const std::string& socket = part.socket;
  const pipeline::ChainPlan chain = ChainOf(planned, options, /*between_processes=*/true);
  model::CheckHolds(*file, planned.plan.config, part.first_layer, part.layers, /*serving=*/false);
  pipeline::ChainOptions stage;
  const pipeline::SocketWaits waits = pipeline::WaitsOf(plan, machine);
  stage.wait = waits.weight;
  stage.attention_waits = waits.attention;
  stage.connect_timeout_ms = 30'000;
  stage.frame_limit_ms = static_cast<int>(options.frame_timeout_s * 1000);
  ModelOptions measured = options;
  measured.measure_residency = true;
  stage.baseline = BaselineOf(machine, measured);
  if (plan.separated()) stage.processes = ClusterName(planned, options.manifest);
  stage.socket = socket;
  stage.link_key = chain.link_key;
  stage.attention_links = AttentionLinksOf(planned, part, socket, options);
  if (!plan.separated()) stage.kv_files = KvFilesOf(options, planned.where);
  pipeline::SocketStatus status;
  ServiceMonitor monitor({.cluster = planned.plan.cluster,
                          .socket = socket,
                          .role = pipeline::RoleName(plan.separated() ? pipeline::Role::kWeight
                                                                      : pipeline::Role::kColocated),
                          .first_layer = part.first_layer,
                          .layers = part.layers,
                          .slots = plan.options.capacity.slots,
                          .weight_bytes = plan.weight_bytes,
                          .kv_bytes = plan.separated() ? 0 : plan.kv_bytes},
                         status);
  monitor.Describe("packing weights");
  std::unique_ptr<pipeline::StageSocket> stage_socket;
  {
    Progress progress("packing");
    stage.progress = [&](uint64_t done, uint64_t all) { progress.Update(done, all); };
    stage_socket =
        std::make_unique<pipeline::StageSocket>(chain, index, plan, *file, stage, status);
  }
  const auto excuse =
      monitor.Excuse([&] { return stage_socket->stage().HungAttention().has_value(); });
  const auto pins =
      monitor.WatchPins([&] { return stage_socket->stage().packed().pool().LostPins(); });
  monitor.Ready(fmt::format("layers {}-{}, {:.1f} MB of weights", part.first_layer,
                            part.first_layer + part.layers - 1,
                            static_cast<double>(plan.weight_bytes) * 1e-6));
  spdlog::info("stage {}: layers {}-{}, {:.1f} MB of weights; waiting for the stage before", socket,
               part.first_layer, part.first_layer + part.layers - 1,
               static_cast<double>(plan.weight_bytes) * 1e-6);
  do {
    try {
      stage_socket->Serve([](const std::string& line) { spdlog::info("{}", line); });
      spdlog::info("stage {}: the serving socket has ended", socket);
    } catch (const pipeline::PeerLostError& lost) {
      if (once) throw;
      LogLostPeer(lost.peer(), lost.what());
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    } catch (const Error& error) {
      if (once) throw;
      spdlog::error("{}", error.what());  // the weights stay packed, and the next chain may succeed
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
  } while (!once);
  return 0;
}

}  // namespace larder::node::tasks
