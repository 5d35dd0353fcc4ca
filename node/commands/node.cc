// `larder node`: one socket of a manifest as a process. An attention socket waits for its weight
// socket's process, serves it until it says goodbye, and waits for the next one; a stage of a
// cluster (node/tasks/stage_node.h) serves chains; a serving socket runs `larder serve` for the
// cluster. If a process that this one needs dies, it logs that and exits with status 75, so that
// its supervisor starts it again.
#include <signal.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/error.h"
#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/options/link_options.h"
#include "node/options/model_options.h"
#include "node/options/option_sources.h"
#include "node/service/service_log.h"
#include "node/service/service_monitor.h"
#include "node/service/signals.h"
#include "node/tasks/stage_node.h"
#include "pipeline/manifest/manifest.h"
#include "pipeline/stage/attention_client.h"

namespace larder::node::inline commands {
namespace {

struct NodeOptions {
  ModelOptions model;
  std::string socket;
  std::optional<size_t> rank;  // of the socket, in the place of its name
  bool once = false;
  const CLI::App* command = nullptr;  // has the remaining arguments: a serving socket's options of
                                      // `larder serve`
};

// The long names of the options that were given, in whatever way.
std::vector<std::string> Given(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() > 0)
      names.insert(names.end(), option->get_lnames().begin(), option->get_lnames().end());
  }
  return names;
}

// Throws if the manifest's options have one that `larder node` has settled.
void RefuseTwice(const CLI::App& serve, const std::vector<std::string>& settled,
                 const std::string& socket) {
  for (const std::string& name : settled) {
    const CLI::Option* twice = serve.get_option_no_throw("--" + name);
    if (name != "config" && twice != nullptr && twice->count() > 0)
      throw CLI::ValidationError(fmt::format(
          "--{} is among the manifest's options of socket {}, and `larder node` has it from its "
          "command line, a variable or --config: expected it in one place",
          name, socket));
  }
}

// A serving socket's process runs `larder serve` for the cluster, with this command's options, the
// manifest's, and those of the command line that only serve knows.
int RunServing(const NodeOptions& o, const std::string& server,
               const std::vector<std::string>& options) {
  ModelOptions model = o.model;
  model.server = server;
  const ServingSocket known{model, o.socket};
  CLI::App program;
  const Command serve = AddServe(program, &known);
  OptionSources::Describe(*serve.options);
  std::vector<std::string> arguments = options;
  for (const std::string& extra : o.command->remaining()) arguments.push_back(extra);
  std::vector<std::string> settled = Given(*o.command);
  for (const char* name : {"server", "join"}) settled.emplace_back(name);
  const CLI::Option* config = o.command->get_option_no_throw("--config");
  if (config != nullptr && config->count() > 0)
    arguments.insert(arguments.end(), {"--config", config->as<std::string>()});
  OptionSources sources;
  arguments = sources.Complete(*serve.options, {}, std::move(arguments), settled);
  arguments.insert(arguments.begin(), "serve");
  std::reverse(arguments.begin(), arguments.end());  // CLI11 expects them in reverse
  try {
    program.parse(std::move(arguments));
    RefuseTwice(*serve.options, settled, o.socket);
    return serve.run();
  } catch (const CLI::ParseError& error) {
    throw CLI::ValidationError(sources.Reword(error.what()));
  }
}

int Run(NodeOptions o) {
  if (o.model.manifest.empty()) throw CLI::RequiredError("--manifest");
  if (o.socket.empty() != o.rank.has_value())
    throw CLI::ValidationError("node", "give either --socket NAME or --rank N");
  auto where = ReadManifest(o.model);
  if (o.rank) o.socket = pipeline::SocketOfRank(where->manifest, *o.rank);
  SetLogLevel(spdlog::level::info);
  IgnoreBrokenPipes();
  where->index = ServerIndex(where->manifest, o.model, o.socket);
  const pipeline::ServingSpec serving = pipeline::ServingOf(where->manifest);
  if (serving.socket != nullptr && serving.socket->name == o.socket)
    return RunServing(o, where->server().name, serving.socket->options);
  if (const auto extra = o.command->remaining(); !extra.empty()) throw CLI::ExtrasError(extra);
  const FarewellGuard farewells;
  // Only serving sockets use `systemctl reload`, which makes them read their keys again.
  if (std::getenv("NOTIFY_SOCKET") != nullptr) signal(SIGHUP, SIG_IGN);
  const auto file = model::GgufFile::Open(ModelPath(o.model, where, o.socket));
  const PlannedModel planned =
      PlanModel(*file, where, ResolveTopology(o.model), ToPlanOptions(o.model), o.model);
  const pipeline::PlacedStage& stage = planned.plan.stage_of_socket(o.socket);
  if (stage.socket == o.socket && !planned.plan.single())
    return RunStage(file, planned, planned.plan.index_of(stage), o.model, o.once);
  const pipeline::StagePlan& plan = stage.plan;
  const std::string& cluster = ClusterName(planned, o.model.manifest);
  const AttentionId index = stage.attention_id(o.socket);
  const pipeline::PlanAttentionSocket& socket = plan.attention[index.index()];
  const size_t machine = stage.attention_machines[index.index()];
  const bool elsewhere = machine != stage.machine;  // than its weight socket
  const pipeline::SocketWaits waits =
      pipeline::WaitsOf(plan, planned.machines.at(machine), elsewhere ? index : AttentionId());
  const pipeline::AttentionLinks links = AttentionLinksOf(planned, stage, o.socket, o.model);
  std::optional<rdma::LinkListener> link_listener;
  if (elsewhere) link_listener.emplace(links.of.at(index.index())->there);
  const std::shared_ptr<const rdma::LinkKey> key = LoadLinkKey(o.model);
  pipeline::SocketStatus status;
  ServiceMonitor monitor({.cluster = cluster,
                          .socket = o.socket,
                          .role = pipeline::RoleName(pipeline::Role::kAttention),
                          .slots = socket.slots,
                          .kv_bytes = socket.kv_bytes},
                         status);
  const auto watch =
      [&monitor](const pipeline::AttentionSocket& attention) -> ServiceMonitor::Guard {
    return std::make_shared<std::pair<ServiceMonitor::Guard, ServiceMonitor::Guard>>(
        // it waits for its weight socket
        monitor.Excuse([&attention] { return !attention.Hangs(); }),
        monitor.WatchPins([&attention] { return attention.pool().LostPins(); }));
  };
  monitor.Describe("mapping the KV cache");
  const pipeline::KvPartOptions kv_files = KvFilesOf(o.model, planned.where);
  pipeline::DryRunAttention(plan, index, *file, waits, kv_files);
  do {
    // A new listener for each weight process. A second process that connects while the first is
    // served is refused, and told which process is connected.
    std::optional<rdma::ControlListener> listener;
    if (!elsewhere) listener.emplace(pipeline::ControlName(cluster, o.socket));
    status.state.store(static_cast<uint32_t>(pipeline::SocketState::kConnecting),
                       std::memory_order_relaxed);
    monitor.Ready(fmt::format("{} slots of {} tokens, {:.1f} MB; listening for the weight socket",
                              socket.slots, plan.options.capacity.context,
                              static_cast<double>(socket.kv_bytes) * 1e-6));
    spdlog::info(
        "attention socket {}: {} slots of {} tokens ({:.1f} MB); waiting for the weight socket of "
        "cluster {}",
        o.socket, socket.slots, plan.options.capacity.context,
        static_cast<double>(socket.kv_bytes) * 1e-6, cluster);
    try {
      if (elsewhere) {
        pipeline::ServeAttentionServer(plan, index, *file, *link_listener, *links.of[index.index()],
                                       links.identity, waits, &status, watch, kv_files,
                                       [](const std::string& line) { spdlog::info("{}", line); });
      } else {
        pipeline::ServeAttentionProcess(plan, index, *file, *listener, waits, &status, key, watch,
                                        kv_files);
      }
      spdlog::info("attention socket {}: the weight socket has ended", o.socket);
    } catch (const Error& error) {
      if (o.once) throw;
      spdlog::error("{}", error.what());  // the peer was refused or gave up: wait for the next one
    }
  } while (!o.once);
  return 0;
}

}  // namespace

Command AddNode(CLI::App& program) {
  auto o = std::make_shared<NodeOptions>();
  o->model.whole_machine = true;
  CLI::App* command = program.add_subcommand(
      "node",
      "run one socket of a manifest as a process; a serving socket also takes serve's options");
  command->allow_extras();
  o->command = command;
  command->add_option("--socket", o->socket, "its name in the manifest")->type_name("NAME");
  command
      ->add_option(
          "--rank", o->rank,
          "its number among all sockets of the manifest, from 0, where a scheduler numbers "
          "processes: --rank $SLURM_PROCID")
      ->type_name("N");
  command->add_flag("--once", o->once, "end when the weight socket's process has ended");
  ModelOptionSet set;
  set.threads = false;
  AddModelOptions(*command, o->model, set);
  AddCacheOptions(*command, o->model, "KV files");
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
