// `larder verify`: runs a model in every mode and prints a hash of each: the same bits?
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <memory>

#include "base/error.h"
#include "kernels/formats/numerics.h"
#include "node/commands/command.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/service/signals.h"
#include "node/tasks/verify_run.h"
#include "topology/host.h"

namespace larder::node::inline commands {
namespace {

struct VerifyOptions {
  ModelOptions model;
  size_t positions = 320;
  bool scalar = false;
};

int Run(const VerifyOptions& o) {
  const InterruptGuard interrupts;
  const topology::Topology machine = ResolveTopology(o.model);
  const VerifySpec spec{
      .file = model::GgufFile::Open(o.model.model),
      .machine = machine,
      .isa = ResolveIsa(o.model.isa),
      .threads = o.model.threads > 0 ? o.model.threads : machine.cores().size(),
      .positions = o.positions,
      .scalar = o.scalar,
  };
  fmt::print("{}: {} positions, arithmetic {}, {} on {}\n\n", o.model.model, o.positions,
             kernels::kArithmeticVersion, kernels::IsaName(spec.isa), topology::CpuName());
  const auto modes = VerifyBits(spec, [](const VerifiedMode& mode) {
    fmt::print(
        "{:016x}  {}{}\n", mode.hash, mode.name,
        mode.differs_at < 0 ? "" : fmt::format(": DIFFERS, first at position {}", mode.differs_at));
    std::fflush(stdout);
  });
  const auto wrong = std::ranges::count_if(modes, [](const auto& m) { return m.differs_at >= 0; });
  if (wrong > 0) {
    throw Error(
        "{} of {} modes give other bits than the first: please report it with this output and your "
        "CPU model",
        wrong, modes.size());
  }
  fmt::print("\nall {} modes: the same bits\n", modes.size());
  return 0;
}

}  // namespace

Command AddVerify(CLI::App& program) {
  auto o = std::make_shared<VerifyOptions>();
  CLI::App* command = program.add_subcommand(
      "verify", "check that a model gives the same bits in every mode on this machine");
  AddCount(*command, "-n,--positions", o->positions,
           "length of the sequence; above 256 a restart from a file is tried, too", kVerified);
  command->add_flag("--scalar", o->scalar,
                    "with the scalar reference, too, which takes minutes for a model of 500 MB");
  ModelOptionSet set;
  set.context = false;
  set.engine = false;
  set.manifest = false;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
