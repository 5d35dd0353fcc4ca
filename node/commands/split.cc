// `larder split`: splits a model into parts, one for each stage of a cluster and one for serving.
#include "model/config/split.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <memory>

#include "base/error.h"
#include "node/commands/command.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/options/progress.h"
#include "node/options/terminal.h"
#include "node/service/signals.h"
#include "pipeline/plan/layer_split.h"
#include "pipeline/plan/plan.h"

namespace larder::node::inline commands {
namespace {

struct SplitOptions {
  ModelOptions model;
  std::string folder;
  size_t stages = 0;
};

// The layers of each stage and its file's name, which is the socket's name or a number.
std::vector<model::SplitStage> StagesFor(const SplitOptions& o,
                                         const std::optional<ManifestAndServer>& where,
                                         const model::ModelConfig& config, std::string* serving) {
  std::vector<model::SplitStage> stages;
  *serving = "serving";
  if (!where) {
    size_t next = 0;
    for (const size_t layers :
         pipeline::SplitEvenly(config.layers, o.stages, config.layers_together())) {
      stages.push_back({fmt::format("stage-{}", stages.size()), next, layers});
      next += layers;
    }
    return stages;
  }
  const pipeline::Manifest& manifest = where->manifest;
  const auto plan =
      pipeline::MakePlan(manifest, config, ToPlanOptions(o.model),
                         pipeline::LoadTopologies(manifest, ResolveTopology(o.model)));
  if (!plan.serving_socket.empty()) *serving = plan.serving_socket;
  for (const pipeline::PlacedStage& stage : plan.stages) {
    if (stage.socket == *serving)
      throw Error(
          "{}: a socket with layers is called '{}', which is the name of the serving file; "
          "expected another name",
          manifest.path, stage.socket);
    stages.push_back({stage.socket, stage.first_layer, stage.layers});
  }
  return stages;
}

int Run(const SplitOptions& o) {
  if (o.model.manifest.empty() == (o.stages == 0))
    throw CLI::ValidationError("split", "give either --manifest FILE or --stages N");
  const auto where = ReadManifest(o.model);
  const auto file = model::GgufFile::Open(ModelPath(o.model, where));
  const auto config = model::ReadModelConfig(*file);
  std::string serving;
  std::vector<model::SplitStage> stages = StagesFor(o, where, config, &serving);
  std::error_code error;
  std::filesystem::create_directories(o.folder, error);
  if (error) throw Error("{}: can't create the folder: {}", o.folder, error.message());
  const auto path = [&](const std::string& name) {
    return (std::filesystem::path(o.folder) / (name + ".gguf")).string();
  };
  for (model::SplitStage& stage : stages) stage.path = path(stage.path);
  serving = path(serving);
  {
    const InterruptGuard guard;
    Progress progress("writing");
    model::WriteSplit(*file, stages, serving, [&](uint64_t done, uint64_t all) {
      progress.Update(done, all);
      ThrowIfInterrupted();
    });
  }
  std::vector<std::string> paths;
  paths.reserve(stages.size() + 1);
  for (const model::SplitStage& stage : stages) paths.push_back(stage.path);
  paths.push_back(serving);
  for (const std::string& written : paths) {
    const auto part = model::ReadModelConfig(*model::GgufFile::Open(written)).part;
    fmt::print("{}: {}, {}\n", written, model::Describe(part),
               HumanBytes(static_cast<double>(std::filesystem::file_size(written))));
  }
  return 0;
}

}  // namespace

Command AddSplit(CLI::App& program) {
  auto o = std::make_shared<SplitOptions>();
  CLI::App* command = program.add_subcommand(
      "split", "write a file for each stage of a cluster and one for serving");
  command
      ->add_option("-o,--output", o->folder,
                   "folder for the files: SOCKET.gguf, or stage-N.gguf; serving.gguf")
      ->type_name("DIR")
      ->required();
  AddCount(*command, "--stages", o->stages, "this many even stages, without a manifest", 1);
  ModelOptionSet set;
  set.model_required = false;
  set.threads = false;
  set.context = false;
  set.engine = false;
  set.budget = true;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
