// `larder unit`: the systemd drop-in of one socket of a manifest, on standard output.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>

#include "base/error.h"
#include "node/commands/command.h"
#include "node/options/model_options.h"
#include "node/service/service_unit.h"
#include "pipeline/plan/plan.h"

namespace larder::node::inline commands {
namespace {

using pipeline::ResolvedSocket;

struct UnitOptions {
  ModelOptions model;
  std::string socket;
};

// A weight socket connects to its attention sockets, which become ready without it; units know only
// those of the same server. No other socket may wait for another's READY: stages and the serving
// socket form a ring, in which none is ready before all have started.
std::vector<std::string> StartBefore(const pipeline::Manifest& manifest,
                                     const std::vector<ResolvedSocket>& of_server,
                                     const std::string& socket) {
  std::vector<std::string> names;
  for (const pipeline::StageSpec& stage : pipeline::StagesOf(manifest)) {
    if (stage.socket->name != socket) continue;
    for (const pipeline::SocketSpec* attention : stage.attention) {
      const bool here = std::ranges::any_of(of_server, [&](const ResolvedSocket& other) {
        return other.name == attention->name && other.role == pipeline::Role::kAttention;
      });
      if (here) names.push_back(attention->name);
    }
  }
  return names;
}

std::set<NumaNodeId> NodesOf(const ResolvedSocket& socket, const topology::Topology& machine) {
  std::set<NumaNodeId> nodes{socket.node};
  for (const CoreId core : socket.cores) nodes.insert(machine.core(core).numa_node);
  return nodes;
}

using BytesOfSocket = std::map<std::string, uint64_t>;

// Assigns the weights to their socket, with the KV cache if it is colocated; else the KV cache to
// attention's.
void Count(const pipeline::StagePlan& plan, const std::string& weights, BytesOfSocket* bytes) {
  (*bytes)[weights] +=
      plan.weight_bytes + plan.embedding_bytes + (plan.separated() ? 0 : plan.kv_bytes);
  for (const auto& attention : plan.attention) (*bytes)[attention.name] += attention.kv_bytes;
}

// Bytes that each server's sockets keep resident. A serving socket's share is small and not
// counted.
BytesOfSocket ResidentBytes(const pipeline::Manifest& manifest, const model::ModelConfig& config,
                            const topology::Topology& machine,
                            const pipeline::PlanOptions& options) {
  BytesOfSocket bytes;
  const pipeline::Plan plan =
      pipeline::MakePlan(manifest, config, options, pipeline::LoadTopologies(manifest, machine));
  for (const pipeline::PlacedStage& stage : plan.stages) Count(stage.plan, stage.socket, &bytes);
  return bytes;
}

int Run(const UnitOptions& o) {
  if (o.model.manifest.empty()) throw CLI::RequiredError("--manifest");
  const auto where = LoadManifest(o.model, o.socket);
  const pipeline::Manifest& manifest = where->manifest;
  const pipeline::ServerSpec& server = manifest.server_of_socket(o.socket);
  // The manifest's topology file takes precedence: the drop-in may be for another machine.
  const auto machine =
      server.topology ? pipeline::LoadTopology(manifest, server) : ResolveTopology(o.model);
  std::optional<model::ModelConfig> config;  // needed for roles "auto" and the bytes, and for
                                             // nothing else
  if (!o.model.model.empty() || manifest.model)
    config = model::ReadModelConfig(*model::GgufFile::Open(ModelPath(o.model, where)));
  const std::vector<ResolvedSocket> sockets =
      pipeline::Resolve(manifest, server, machine, config ? &*config : nullptr, nullptr);
  const auto found = std::find_if(sockets.begin(), sockets.end(),
                                  [&](const auto& s) { return s.name == o.socket; });
  if (found == sockets.end()) {
    throw Error("{}: socket \"{}\" has role auto and became part of another socket; give it a role",
                o.model.manifest, o.socket);
  }
  UnitFacts facts{.manifest = o.model.manifest,
                  .server = server.name,
                  .socket = o.socket,
                  .role = pipeline::RoleName(found->role),
                  .cpus = found->cpus,
                  .network = NetworkOf(manifest, o.socket, found->role)};
  for (const auto& spec : server.sockets) {
    if (spec.name == o.socket) facts.cores = spec.cores;
  }
  for (const pipeline::LinkThread& thread :
       pipeline::LinkThreadsOf(manifest, server, sockets, machine)) {
    if (thread.socket == o.socket && thread.cpu.valid()) facts.link_cpus.push_back(thread.cpu);
  }
  facts.before = StartBefore(manifest, sockets, o.socket);
  const std::set<NumaNodeId> nodes = NodesOf(*found, machine);
  facts.nodes.assign(nodes.begin(), nodes.end());
  BytesOfSocket bytes;
  try {
    if (config) bytes = ResidentBytes(manifest, *config, machine, ToPlanOptions(o.model));
  } catch (const Error& error) {
    // CPUs and nodes do not depend on a Plan.
    spdlog::warn("huge pages are not reserved: {}", error.what());
  }
  facts.resident_bytes = bytes[o.socket];
  for (const auto& node : machine.numa_nodes()) {
    if (nodes.count(node.id) == 0) continue;
    auto& memory = facts.node_memory[node.id.value];
    memory.memory_bytes = node.memory_bytes;
    for (const ResolvedSocket& other : sockets) {
      const std::set<NumaNodeId> its = NodesOf(other, machine);
      if (its.count(node.id) != 0) memory.resident_bytes += bytes[other.name] / its.size();
    }
  }
  fmt::print("{}", UnitDropIn(facts));
  return 0;
}

}  // namespace

Command AddUnit(CLI::App& program) {
  auto o = std::make_shared<UnitOptions>();
  o->model.whole_machine = true;
  CLI::App* command = program.add_subcommand(
      "unit", "print the systemd drop-in of a socket: its CPUs, NUMA nodes, addresses and ports");
  command->add_option("--socket", o->socket, "its name in the manifest")
      ->type_name("NAME")
      ->required();
  ModelOptionSet set;
  set.threads = false;
  set.engine = false;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
