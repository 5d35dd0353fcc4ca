// `larder doctor`: what this machine offers, and what to change on it.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/machine/diagnosis.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"

namespace larder::node::inline commands {
namespace {

struct DoctorOptions {
  ModelOptions model;
  double seconds = 2.0;
  bool json = false;
};

Diagnosis DiagnoseResidency(const ModelOptions& options,
                            const std::shared_ptr<const model::GgufFile>& file,
                            const PlannedModel& planned, std::string& table) {
  const auto engine = LoadEngine(file, planned, options);
  const pipeline::Residency& result = engine->packed().residency();
  table = result.Text();
  const double share = result.resident_share();
  const bool fits = engine->plan().resident();
  return {
      share >= 0.9 ? Health::kOk : Health::kWarn,
      "residency of " + options.model,
      fmt::format("{:.0f} % of {:.1f} MB of weights re-read at L3 speed, {:.1f} GB/s", 100 * share,
                  static_cast<double>(engine->plan().weight_bytes) * 1e-6, result.reread_gbps()),
      share >= 0.9 ? ""
      : fits       ? "they fit the plan's budget, so other work uses the cache; isolate the cores"
             : "the weights exceed the L3 budget: `larder plan` says how many L3 groups would hold "
               "them",
      {{"resident_percent", 100 * share},
       {"weight_bytes", static_cast<double>(engine->plan().weight_bytes)},
       {"reread_gbps", result.reread_gbps()}}};
}

int Run(const DoctorOptions& o) {
  const auto machine = ResolveTopology(o.model);
  const auto text = [&](const std::string& s) {
    if (!o.json) fmt::print("{}", s);
  };
  text(machine.Describe());
  text("\n");
  std::vector<Diagnosis> all;
  auto report = [&](const std::vector<Diagnosis>& found) {
    for (const Diagnosis& d : found) {
      text(fmt::format("{:<4} {}: {}{}\n", HealthName(d.health), d.what, d.value,
                       d.advice.empty() ? "" : " - " + d.advice));
      all.push_back(d);
    }
    std::fflush(stdout);
  };
  for (const auto isa : {kernels::Isa::kScalar, kernels::Isa::kAvx2, kernels::Isa::kAvxVnni,
                         kernels::Isa::kAvx512Vnni}) {
    report({DiagnoseKernels(isa)});
  }
  report({DiagnoseSchedules(ResolveIsa(o.model.isa), o.model.schedules)});
  if (machine.from_xml()) {
    report({{Health::kNote, "machine",
             "read from " + machine.source() + ": nothing can be measured here", ""}});
  } else {
    report(DiagnoseHost(machine));
    report(DiagnoseBandwidth(machine, o.seconds));
    report(DiagnoseHandOver(machine));
  }
  if (!o.model.model.empty()) {
    ModelOptions options = o.model;
    options.residency = false;  // this command prints the report itself
    options.measure_residency = true;
    const std::shared_ptr<const model::GgufFile> file = model::GgufFile::Open(options.model);
    const PlannedModel planned =
        PlanModel(*file, std::nullopt, machine, ToPlanOptions(options), options);
    report(DiagnoseNodes(planned.plan.stages[0].plan));
    std::string table;
    report({DiagnoseResidency(options, file, planned, table)});
    text("\n" + table);
  }
  if (o.json) {
    nlohmann::json json = {{"machine", machine.source()},
                           {"topology", machine.Describe()},
                           {"findings", nlohmann::json::array()}};
    for (const Diagnosis& d : all) {
      json["findings"].push_back({{"health", HealthName(d.health)},
                                  {"what", d.what},
                                  {"value", d.value},
                                  {"advice", d.advice}});
      for (const auto& [name, figure] : d.figures) json["findings"].back()[name] = figure;
    }
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
  }
  return 0;
}

}  // namespace

Command AddDoctor(CLI::App& program) {
  auto o = std::make_shared<DoctorOptions>();
  CLI::App* command =
      program.add_subcommand("doctor", "examine this machine: what it offers and what to change");
  AddSeconds(*command, "--seconds", o->seconds, "seconds to measure bandwidths (default: 2)", 0.01,
             60.0);
  command->add_flag("--json", o->json, "print JSON");
  ModelOptionSet set;
  set.model_required = false;
  set.manifest = false;
  set.engine = false;
  set.budget = true;
  set.schedules = true;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
