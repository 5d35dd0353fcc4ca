// `larder plan`: who would do what, on this machine or another; loads nothing.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <memory>
#include <nlohmann/json.hpp>

#include "model/synth.h"
#include "node/command.h"
#include "node/model_options.h"
#include "threadpool/wait_choice.h"

namespace larder::node {
namespace {

struct PlanCommandOptions {
  ModelOptions model;
  std::string shape;
  bool json = false;
};

int Run(const PlanCommandOptions& o) {
  if (o.model.model.empty() == o.shape.empty())
    throw CLI::ValidationError("plan", "give either -m FILE or --shape NAME");
  const model::ModelConfig config = o.shape.empty()
                                        ? model::ReadModelConfig(*model::GgufFile::Open(o.model.model))
                                        : model::ConfigOfShape(model::ShapeByName(o.shape), o.shape);
  const auto machine = ResolveTopology(o.model);
  const pipeline::PlanOptions options = ToPlanOptions(o.model);
  pipeline::Plan plan;
  std::string table;
  if (o.model.manifest.empty()) {
    plan = pipeline::MakePlan(config, machine, options);
    table = plan.Table();
  } else {
    const ManifestAndServer where = LoadManifest(o.model);
    const auto server_machine =
        where.server().topology ? pipeline::LoadTopology(where.manifest, where.server()) : machine;
    const pipeline::ManifestPlan sockets =
        pipeline::PlanManifest(where.manifest, where.server(), config, server_machine, options);
    plan = sockets.plan;
    table = pipeline::Table(sockets);
    for (const std::string& line : pipeline::NotYetSupported(where.manifest))
      table += fmt::format("\nnot run yet: {}\n", line);
  }
  if (o.json) {
    nlohmann::json json = plan.Json();
    json["machine"] = machine.source();
    // a file's name may hold anything; JSON text may not
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
    return 0;
  }
  fmt::print("machine    {}: {} cores in {} L3 group(s), {:.1f} MB of L3\n{}", machine.source(),
             machine.cores().size(), machine.l3_groups().size(),
             static_cast<double>(machine.total_l3_bytes()) * 1e-6, table);
  for (const std::string& warning : machine.warnings()) fmt::print("\nnote: {}", warning);
  if (!machine.warnings().empty()) fmt::print("\n");
  return 0;
}

}  // namespace

Command AddPlan(CLI::App& program) {
  auto o = std::make_shared<PlanCommandOptions>();
  CLI::App* command = program.add_subcommand("plan", "show which core would hold what, without loading");
  command
      ->add_option("--shape", o->shape,
                   "a well-known model instead of a file; `larder synth --list` names them")
      ->type_name("NAME");
  command->add_flag("--json", o->json, "print JSON");
  ModelOptionSet set;
  set.model_required = false;
  set.slots = true;
  set.engine = false;
  set.budget = true;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node
