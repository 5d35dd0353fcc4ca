// `larder plan`: the Plan for this machine or another; loads no weights.
#include "pipeline/plan/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "model/config/split.h"
#include "model/synth/synth.h"
#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/machine/speed_measure.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"

namespace larder::node::inline commands {
namespace {

constexpr double kMeasureSeconds = 2.0;  // the same as `larder doctor`

using SpeedField = double pipeline::Speeds::*;

struct PlanCommandOptions {
  ModelOptions model;
  std::string shape, type;
  bool json = false;
  bool measure = false;
  size_t socket_cores = 0;  // 0: as on this machine
  std::string socket_l3;    // such as "1152M"; empty: as on this machine
  pipeline::Speeds speeds;
  std::vector<SpeedField> given;
};

// A file name may contain bytes that are not UTF-8, which JSON text may not.
void Print(const nlohmann::json& object) {
  fmt::print("{}\n", object.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

// The inputs of a prediction: values from flags take precedence over those that --measure finds
// here.
pipeline::Speeds SpeedsOf(const PlanCommandOptions& o, const topology::Topology& machine) {
  if (!o.measure) return o.speeds;
  pipeline::Speeds speeds =
      MeasureSpeeds(machine, ToPlanOptions(o.model).isa, kMeasureSeconds, o.speeds);
  for (const SpeedField field : o.given) {
    speeds.*field = o.speeds.*field;
    if (field == &pipeline::Speeds::core_gops) speeds.rows_gops = {};
  }
  return speeds;
}

// The shape of the sockets to plan for: as the flags describe them, else as this machine's first
// package.
pipeline::SocketShape SocketOf(const PlanCommandOptions& o, const topology::Topology& machine) {
  pipeline::SocketShape socket{machine.packages()[0].cores.size(), 0};
  for (const L3GroupId id : machine.packages()[0].l3_groups)
    socket.l3_bytes += machine.l3_group(id).bytes;
  if (o.socket_cores != 0) socket.cores = o.socket_cores;
  if (!o.socket_l3.empty()) socket.l3_bytes = ParseBytes(o.socket_l3);
  return socket;
}

int PlanSockets(const PlanCommandOptions& o, const model::ModelConfig& config,
                const topology::Topology& machine) {
  const pipeline::SocketShape socket = SocketOf(o, machine);
  const auto plan =
      pipeline::PlanUniformCluster(config, socket, ToPlanOptions(o.model), SpeedsOf(o, machine));
  if (o.json) {
    Print(plan.Json());
  } else {
    fmt::print("socket     {} cores, {:.1f} MB of L3, {:.0f} % of it for weights\n{}", socket.cores,
               static_cast<double>(socket.l3_bytes) * 1e-6, 100 * o.model.l3_fraction,
               plan.Table());
  }
  return 0;
}

// file: null: only the model's shape is known.
pipeline::PlanOptions OptionsOf(const PlanCommandOptions& o, const model::GgufFile* file) {
  pipeline::PlanOptions options = ToPlanOptions(o.model);
  if (file != nullptr) options.fingerprint = model::Fingerprint(*file);
  return options;
}

int PlanServers(const PlanCommandOptions& o, const pipeline::Manifest& manifest,
                const model::GgufFile* file, const model::ModelConfig& config,
                const topology::Topology& machine) {
  const auto machines = pipeline::LoadTopologies(manifest, machine);
  auto plan =
      pipeline::MakePlan(manifest, config, OptionsOf(o, file), machines, SpeedsOf(o, machine));
  std::string alike;
  for (const pipeline::ServerSpec& server : manifest.servers) {
    if (!server.topology) alike += fmt::format("{}{}", alike.empty() ? "" : ", ", server.name);
  }
  if (manifest.servers.size() > 1 && !alike.empty()) {
    plan.notes.push_back(
        fmt::format("no topology of server {} (key topology): planned with that of {}", alike,
                    machine.source()));
  }
  if (o.json) {
    Print(plan.Json());
    return 0;
  }
  fmt::print("{}", plan.Table());
  // threads and shards of this server's stages
  for (const pipeline::PlacedStage& stage : plan.stages) {
    if (stage.server != o.model.server) continue;
    fmt::print("\nsocket {} (layers {}-{})\n{}", stage.socket, stage.first_layer,
               stage.first_layer + stage.layers - 1, stage.plan.Table());
  }
  return 0;
}

// The plan of one server; manifest may be null.
int PlanHere(const PlanCommandOptions& o, const pipeline::Manifest* manifest,
             const model::GgufFile* file, const model::ModelConfig& config,
             const topology::Topology& machine) {
  const pipeline::PlanOptions options = OptionsOf(o, file);
  const pipeline::Speeds speeds = SpeedsOf(o, machine);
  const pipeline::Plan whole =
      manifest == nullptr
          ? pipeline::MakePlan(config, machine, options, speeds)
          : pipeline::MakePlan(*manifest, config, options,
                               pipeline::LoadTopologies(*manifest, machine), speeds);
  const pipeline::StagePlan& plan = whole.stages.front().plan;
  std::string table = plan.Table();
  if (!whole.use.empty()) table = fmt::format("use        {}\n{}", whole.use, table);
  if (manifest != nullptr) table = whole.SocketTable() + table;
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
  if (o.measure || machine.from_xml() || o.speeds.source != pipeline::Speeds().source) {
    fmt::print("\n{}", whole.prediction.Text());
  } else {
    fmt::print("\nprediction --measure predicts tokens/s from this machine's bandwidths\n");
  }
  const pipeline::SocketShape socket = SocketOf(o, machine);
  if (manifest != nullptr || plan.resident() || socket.l3_bytes == 0) return 0;
  const auto cluster = pipeline::PlanUniformCluster(config, socket, options, o.speeds);
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
  if (o.model.model.empty() && o.shape.empty() && o.model.manifest.empty())
    throw CLI::ValidationError("plan", "give either -m FILE or --shape NAME");
  if (!o.model.model.empty() && !o.shape.empty())
    throw CLI::ValidationError("plan", "give either -m FILE or --shape NAME, not both");
  if (!o.type.empty() && o.shape.empty())
    throw CLI::ValidationError("plan", "--type is for --shape; a file has its own types");
  const auto where = ReadManifest(o.model);
  std::shared_ptr<const model::GgufFile> file;  // null: a shape without a file
  if (o.shape.empty()) file = model::GgufFile::Open(ModelPath(o.model, where));
  if (file) WarnOfTokenizer(*file);
  const model::ModelConfig config =
      file ? model::ReadModelConfig(*file)
           : model::ConfigOfShape(model::ShapeByName(o.shape), o.shape,
                                  model::MatrixTypesByName(o.type.empty() ? "q8_0" : o.type));
  const auto machine = ResolveTopology(o.model);
  const bool sockets_given = o.socket_cores != 0 || !o.socket_l3.empty();
  if (sockets_given && !o.model.manifest.empty())
    throw CLI::ValidationError("plan",
                               "--socket-cores and --socket-l3 are for plans without a manifest");
  if (sockets_given) return PlanSockets(o, config, machine);
  if (!where) return PlanHere(o, nullptr, file.get(), config, machine);
  const pipeline::Manifest& manifest = where->manifest;
  const bool cluster = IsCluster(manifest) || manifest.servers.size() > 1;
  return cluster ? PlanServers(o, manifest, file.get(), config, machine)
                 : PlanHere(o, &manifest, file.get(), config, machine);
}

}  // namespace

Command AddPlan(CLI::App& program) {
  auto o = std::make_shared<PlanCommandOptions>();
  CLI::App* command =
      program.add_subcommand("plan", "show which core would hold what, without loading the model");
  command
      ->add_option("--shape", o->shape,
                   "a well-known model's shape instead of a file; `larder synth --list` lists them")
      ->type_name("NAME");
  const std::vector<std::string> types = model::MatrixTypeNames();
  command
      ->add_option("--type", o->type,
                   fmt::format("with --shape, the type of its matrices: {} (default: q8_0)",
                               fmt::join(types, ", ")))
      ->check(CLI::IsMember(types).description(""))
      ->type_name("NAME");
  command->add_flag("--json", o->json, "print JSON");
  const char* sockets = "How many sockets a model needs";
  AddCount(*command, "--socket-cores", o->socket_cores,
           "cores per socket (default: those of this machine's package)", 1)
      ->group(sockets);
  command
      ->add_option("--socket-l3", o->socket_l3,
                   "L3 per socket, such as 1152M (M is 2^20 bytes; default: this machine's)")
      ->type_name("BYTES")
      ->check([](const std::string& text) { return NotBytes(text); }, "")
      ->group(sockets);
  const char* speeds = "Inputs of the prediction";
  command->add_flag("--measure", o->measure, "measure this machine first (some seconds)")
      ->group(speeds);
  const auto speed = [&](const char* name, SpeedField field, const std::string& text) {
    double& value = o->speeds.*field;
    command->add_option(name, value, fmt::format("{} (default: {:g})", text, value))
        ->type_name("N")
        ->check(NotFinite)
        ->check(CLI::Range(1e-3, 1e6).description(""))
        ->each([o, field](const std::string&) {
          o->speeds.source = "given, the rest assumed";
          o->given.push_back(field);
        })
        ->group(speeds);
  };
  using pipeline::Speeds;
  speed("--l3-gbps", &Speeds::l3_core_gbps, "GB/s at which each core reads L3 while all cores do");
  speed("--dram-gbps", &Speeds::dram_socket_gbps, "GB/s at which a socket reads memory");
  speed("--dram-core-gbps", &Speeds::dram_core_gbps, "GB/s at which a core reads it at most");
  speed("--core-gops", &Speeds::core_gops, "INT8 GOP/s of a core");
  speed("--element-ns", &Speeds::element_ns,
        "nanoseconds of a core for norm and quantisation of an element");
  speed("--sync-us", &Speeds::layer_sync_us, "microseconds of barriers per layer");
  speed("--package-hop-us", &Speeds::package_hop_us,
        "microseconds for a cache line between packages");
  speed("--link-us", &Speeds::link_latency_us, "latency of a link in microseconds");
  speed("--link-gbps", &Speeds::link_gbps, "GB/s of a link");
  ModelOptionSet set;
  set.model_required = false;
  set.slots = true;
  set.engine = false;
  set.budget = true;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
