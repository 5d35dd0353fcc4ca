// `larder tune`: finds the schedules of matrix products and the sizes of attention that are fastest
// on this CPU, and keeps them.
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <filesystem>
#include <memory>
#include <system_error>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "kernels/formats/panel_format.h"
#include "model/gguf/gguf.h"
#include "node/commands/command.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/options/progress.h"
#include "node/options/schedule_file.h"
#include "node/tasks/tune_run.h"

namespace larder::node::inline commands {
namespace {

struct TuneCommandOptions {
  ModelOptions model;
  double seconds = 60;
  std::string output;
};

// What the file has for this machine.
ScheduleFile Kept(const std::string& path, kernels::Isa isa) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return {};
  try {
    return ReadSchedules(path, isa);
  } catch (const Error& error) {
    spdlog::warn("{}; it is replaced", error.what());
    return {};
  }
}

// At most so many; the oldest go.
template <typename T>
void KeepNewest(std::vector<T>& list, size_t most) {
  if (list.size() > most) list.erase(list.begin(), list.end() - static_cast<ptrdiff_t>(most));
}

// Takes what was found into the file, in the place of what was for the same.
void Merge(ScheduleFile& file, const TuneWork& work, const TuneResult& found) {
  for (size_t i = 0; i < work.products.size(); ++i) {
    const kernels::PanelShape& panel = work.products[i].panel;
    std::erase_if(file.products, [&](const auto& old) {
      return old.panel == panel && old.IsFor(panel, work.weight_bytes);
    });
    file.products.push_back({panel, work.weight_bytes, found.products[i].table});
  }
  for (size_t i = 0; i < work.heads.size(); ++i) {
    const size_t blocks = CeilDiv(work.heads[i].head_size, kernels::kBlock);
    const size_t group = work.heads[i].group;
    std::erase_if(file.attention,
                  [&](const auto& old) { return old.blocks == blocks && old.group == group; });
    file.attention.push_back({blocks, group, found.heads[i].tuning});
  }
  KeepNewest(file.products, kMaxScheduleTables);
  KeepNewest(file.attention, kMaxAttentionTunings);
}

int Run(const TuneCommandOptions& o) {
  const kernels::Isa isa = ResolveIsa(o.model.isa);
  if (isa == kernels::Isa::kScalar) throw Error("the scalar set has no kernels to tune");
  const std::string path = o.output.empty() ? UserSchedules() : o.output;
  if (path.empty())
    throw Error("neither XDG_CACHE_HOME nor HOME is set; name the file with -o FILE");
  const topology::Topology machine = ResolveTopology(o.model);
  if (machine.from_xml()) throw Error("--topology: another machine cannot be tuned from here");
  const size_t threads = o.model.threads ? o.model.threads : machine.cores().size();
  const TuneWork work =
      o.model.model.empty()
          ? UsualWork()
          : WorkOf(model::ReadModelConfig(*model::GgufFile::Open(o.model.model)), threads);
  const topology::Core& core = machine.core(machine.PickCores(1)[0]);
  TuneResult found;
  {
    Progress progress("tuning");
    found = Tune(isa, work, o.seconds, core.cpus.front(), core.numa_node,
                 [&](size_t done, size_t all) { progress.Update(done, all, false); });
  }
  fmt::print("{}\n\n{}", ScheduleMachine(isa), TuneText(work, found));
  ScheduleFile file = Kept(path, isa);
  file.machine = ScheduleMachine(isa);
  file.tuned_at = fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(std::time(nullptr)));
  Merge(file, work, found);
  WriteSchedules(path, file);
  fmt::print("{}: written. {}\n", path,
             o.output.empty()
                 ? "run, serve, node and bench use it from now on; --schedules none does without"
                 : "Give it to run, serve, node and bench with --schedules");
  return 0;
}

}  // namespace

Command AddTune(CLI::App& program) {
  auto o = std::make_shared<TuneCommandOptions>();
  CLI::App* command = program.add_subcommand(
      "tune", "find the fastest schedules of products and attention on this CPU");
  AddSeconds(*command, "--seconds", o->seconds, "seconds to search (default: 60)", 0.1, 3600.0);
  command
      ->add_option(
          "-o,--output", o->output,
          "file to keep them in (default: larder/schedules.json in $XDG_CACHE_HOME or ~/.cache)")
      ->type_name("FILE");
  ModelOptionSet set;
  set.model_required = false;
  set.manifest = false;
  set.engine = false;
  set.context = false;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
