// `larder plan`: the Plan for this machine or another; loads no weights. `larder simulate`, whose
// work node/simulate/ does: what requests would see of it.
#include "pipeline/plan/plan.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "node/commands/command.h"
#include "node/loading/plan_inputs.h"
#include "node/options/model_options.h"
#include "node/simulate/simulate.h"

namespace larder::node::inline commands {
namespace {

struct PlanCommandOptions {
  PlanInputOptions inputs;
  bool json = false;
};

// A file name may contain bytes that are not UTF-8, which JSON text may not.
void Print(const nlohmann::json& object) {
  fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

int PlanSockets(const PlanCommandOptions& o, const PlanInputs& inputs) {
  const pipeline::SocketShape socket = SocketOf(o.inputs, inputs.machine);
  const pipeline::Plan plan = PlanOf(o.inputs, inputs);
  if (o.json) {
    Print(plan.Json());
  } else {
    fmt::print("socket     {} cores, {:.1f} MB of L3, {:.0f} % of it for weights\n{}", socket.cores,
               static_cast<double>(socket.l3_bytes) * 1e-6, 100 * o.inputs.model.l3_fraction,
               plan.Table());
  }
  return 0;
}

int PlanServers(const PlanCommandOptions& o, const PlanInputs& inputs) {
  const pipeline::Manifest& manifest = inputs.where->manifest;
  pipeline::Plan plan = PlanOf(o.inputs, inputs);
  std::string alike;
  for (const pipeline::ServerSpec& server : manifest.servers) {
    if (!server.topology) alike += fmt::format("{}{}", alike.empty() ? "" : ", ", server.name);
  }
  if (manifest.servers.size() > 1 && !alike.empty()) {
    plan.notes.push_back(
        fmt::format("no topology of server {} (key topology): planned with that of {}", alike,
                    inputs.machine.source()));
  }
  if (o.json) {
    Print(plan.Json());
    return 0;
  }
  fmt::print("{}", plan.Table());
  // threads and shards of this server's stages
  for (const pipeline::PlacedStage& stage : plan.stages) {
    if (stage.server != o.inputs.model.server) continue;
    fmt::print("\nsocket {} (layers {}-{})\n{}", stage.socket, stage.first_layer,
               stage.first_layer + stage.layers - 1, stage.plan.Table());
  }
  return 0;
}

// The plan of one server, with a manifest or without.
int PlanHere(const PlanCommandOptions& o, const PlanInputs& inputs) {
  const topology::Topology& machine = inputs.machine;
  const pipeline::Plan whole = PlanOf(o.inputs, inputs);
  const pipeline::StagePlan& plan = whole.stages.front().plan;
  std::string table = plan.Table();
  if (!whole.use.empty()) table = fmt::format("use        {}\n{}", whole.use, table);
  if (inputs.where) table = whole.SocketTable() + table;
  for (const std::string& warning : whole.notes_of_sockets())
    table += fmt::format("\nwarning: {}", warning);
  if (whole.socket_notes > 0) table += '\n';
  if (o.json) {
    nlohmann::json object = whole.Json();
    object["machine"] = machine.source();
    Print(object);
    return 0;
  }
  fmt::print("machine    {}: {} cores in {} L3 group(s), {:.1f} MB of L3\nplan       {:016x}\n{}",
             machine.source(), machine.cores().size(), machine.l3_groups().size(),
             static_cast<double>(machine.total_l3_bytes()) * 1e-6, whole.hash(), table);
  for (const std::string& warning : machine.warnings()) fmt::print("\nnote: {}", warning);
  if (!machine.warnings().empty()) fmt::print("\n");
  if (o.inputs.measure || machine.from_xml() ||
      o.inputs.speeds.AnyOf(pipeline::SpeedSource::kGiven)) {
    fmt::print("\n{}", whole.prediction.Text());
  } else {
    fmt::print("\nprediction --measure predicts tokens/s from this machine's bandwidths\n");
  }
  const pipeline::SocketShape socket = SocketOf(o.inputs, machine);
  if (inputs.where || plan.resident() || socket.l3_bytes == 0) return 0;
  const auto cluster = pipeline::PlanUniformCluster(
      inputs.config, socket, PlanOptionsOf(o.inputs, inputs), o.inputs.speeds);
  if (cluster.resident()) {
    fmt::print(
        "\n{}+1 such sockets ({} cores, {:.1f} MB of L3) would hold the model in L3; "
        "--socket-cores {} says more\n",
        cluster.stages.size(), socket.cores, static_cast<double>(socket.l3_bytes) * 1e-6,
        socket.cores);
  }
  return 0;
}

int Run(const PlanCommandOptions& o) {
  const PlanInputs inputs = ReadPlanInputs(o.inputs, "plan");
  if (o.inputs.sockets_given()) return PlanSockets(o, inputs);
  const bool cluster = inputs.where && (IsCluster(inputs.where->manifest) ||
                                        inputs.where->manifest.servers.size() > 1);
  return cluster ? PlanServers(o, inputs) : PlanHere(o, inputs);
}

}  // namespace

Command AddPlan(CLI::App& program) {
  auto o = std::make_shared<PlanCommandOptions>();
  CLI::App* command =
      program.add_subcommand("plan", "show which core would hold what, without loading the model");
  AddPlanInputs(*command, o->inputs);
  command->add_flag("--json", o->json, "print JSON");
  return {command, [o] { return Run(*o); }};
}

Command AddSimulate(CLI::App& program) {
  auto o = std::make_shared<SimulateOptions>();
  CLI::App* command = program.add_subcommand(
      "simulate", "what requests would see of a plan: the real scheduler over predicted times");
  DescribeSimulate(*command, *o);
  return {command, [o] { return Simulate(*o); }};
}

}  // namespace larder::node::commands
