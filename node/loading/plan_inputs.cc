#include "node/loading/plan_inputs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "model/config/split.h"
#include "model/synth/synth.h"
#include "node/loading/load.h"
#include "node/machine/speed_measure.h"
#include "node/options/count_option.h"

namespace larder::node::inline loading {
namespace {

constexpr double kMeasureSeconds = 2.0;  // the same as `larder doctor`

}  // namespace

void AddPlanInputs(CLI::App& command, PlanInputOptions& options) {
  command
      .add_option("--shape", options.shape,
                  "a well-known model's shape instead of a file; `larder synth --list` lists them")
      ->type_name("NAME");
  const std::vector<std::string> types = model::MatrixTypeNames();
  command
      .add_option("--type", options.type,
                  fmt::format("with --shape, the type of its matrices: {} (default: q8_0)",
                              fmt::join(types, ", ")))
      ->check(CLI::IsMember(types).description(""))
      ->type_name("NAME");
  const char* sockets = "How many sockets a model needs";
  AddCount(command, "--socket-cores", options.socket_cores,
           "cores per socket (default: those of this machine's package)", 1)
      ->group(sockets);
  command
      .add_option("--socket-l3", options.socket_l3,
                  "L3 per socket, such as 1152M (M is 2^20 bytes; default: this machine's)")
      ->type_name("BYTES")
      ->check([](const std::string& text) { return NotBytes(text); }, "")
      ->group(sockets);
  const char* speeds = "Inputs of the prediction";
  command.add_flag("--measure", options.measure, "measure this machine first (some seconds)")
      ->group(speeds);
  for (const pipeline::SpeedInput& input : pipeline::SpeedInputs()) {
    double& value = options.speeds.*input.value;
    command.add_option(input.option, value, fmt::format("{} (default: {:g})", input.help, value))
        ->type_name("N")
        ->check(NotFinite)
        ->check(CLI::Range(1e-3, 1e6).description(""))
        ->each([&options, &input](const std::string&) {
          options.speeds.sources.at(pipeline::IndexOf(input.value)) = pipeline::SpeedSource::kGiven;
        })
        ->group(speeds);
  }
  ModelOptionSet set;
  set.model_required = false;
  set.slots = true;
  set.engine = false;
  set.budget = true;
  AddModelOptions(command, options.model, set);
}

PlanInputs ReadPlanInputs(const PlanInputOptions& o, const std::string& command) {
  if (o.model.model.empty() && o.shape.empty() && o.model.manifest.empty())
    throw CLI::ValidationError(command, "give either -m FILE or --shape NAME");
  if (!o.model.model.empty() && !o.shape.empty())
    throw CLI::ValidationError(command, "give either -m FILE or --shape NAME, not both");
  if (!o.type.empty() && o.shape.empty())
    throw CLI::ValidationError(command, "--type is for --shape; a file has its own types");
  auto where = ReadManifest(o.model);
  std::shared_ptr<const model::GgufFile> file;
  if (o.shape.empty()) file = model::GgufFile::Open(ModelPath(o.model, where));
  if (file) WarnOfTokenizer(*file);
  model::ModelConfig config =
      file ? model::ReadModelConfig(*file)
           : model::ConfigOfShape(model::ShapeByName(o.shape), o.shape,
                                  model::MatrixTypesByName(o.type.empty() ? "q8_0" : o.type));
  PlanInputs inputs = {std::move(where), std::move(file), std::move(config),
                       ResolveTopology(o.model)};
  if (o.sockets_given() && !o.model.manifest.empty())
    throw CLI::ValidationError(command,
                               "--socket-cores and --socket-l3 are for plans without a manifest");
  return inputs;
}

pipeline::Speeds SpeedsOf(const PlanInputOptions& o, const topology::Topology& machine) {
  if (!o.measure) return o.speeds;
  pipeline::Speeds speeds =
      MeasureSpeeds(machine, ToPlanOptions(o.model).isa, kMeasureSeconds, o.speeds);
  for (const pipeline::SpeedInput& input : pipeline::SpeedInputs()) {
    if (o.speeds.SourceOf(input.value) != pipeline::SpeedSource::kGiven) continue;
    speeds.Set(input.value, o.speeds.*input.value, pipeline::SpeedSource::kGiven);
    if (input.value == &pipeline::Speeds::core_gops) speeds.rows_gops = {};
  }
  return speeds;
}

pipeline::SocketShape SocketOf(const PlanInputOptions& o, const topology::Topology& machine) {
  pipeline::SocketShape socket{machine.packages()[0].cores.size(), 0};
  for (const L3GroupId id : machine.packages()[0].l3_groups)
    socket.l3_bytes += machine.l3_group(id).bytes;
  if (o.socket_cores != 0) socket.cores = o.socket_cores;
  if (!o.socket_l3.empty()) socket.l3_bytes = ParseBytes(o.socket_l3);
  return socket;
}

pipeline::PlanOptions PlanOptionsOf(const PlanInputOptions& o, const PlanInputs& inputs) {
  pipeline::PlanOptions options = ToPlanOptions(o.model);
  if (inputs.file != nullptr) options.fingerprint = model::Fingerprint(*inputs.file);
  return options;
}

pipeline::Plan PlanOf(const PlanInputOptions& o, const PlanInputs& inputs) {
  const auto& [where, file, config, machine] = inputs;
  const pipeline::Speeds speeds = SpeedsOf(o, machine);
  if (o.sockets_given())
    return pipeline::PlanUniformCluster(config, SocketOf(o, machine), ToPlanOptions(o.model),
                                        speeds);
  const pipeline::PlanOptions options = PlanOptionsOf(o, inputs);
  if (!where) return pipeline::MakePlan(config, machine, options, speeds);
  return pipeline::MakePlan(where->manifest, config, options,
                            pipeline::LoadTopologies(where->manifest, machine), speeds);
}

}  // namespace larder::node::loading
