// `larder bench`: prefill and decode speeds for lists of sizes, batches and threads.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <memory>
#include <utility>

#include "base/error.h"
#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/options/progress.h"
#include "node/service/signals.h"
#include "node/tasks/bench_measure.h"
#include "node/tasks/bench_report.h"
#include "topology/host.h"

namespace larder::node::inline commands {
namespace {

struct BenchOptions {
  ModelOptions model;
  std::string prompts = "512", generates = "128", batches = "1", threads, depths = "0",
              format = "md";
  size_t repetitions = 5;
  double probe_s = 1.0;
  bool breakdown = false, experts = false;
  bool speeds() const { return !breakdown && !experts; }
};

// Parses a list such as "1,8,32". Throws CLI::ValidationError.
std::vector<size_t> ParseList(const char* option, const std::string& text, size_t least) {
  std::vector<size_t> values;
  size_t at = 0;
  while (at <= text.size()) {
    const size_t comma = std::min(text.find(',', at), text.size());
    size_t value = 0;
    const auto [end, failed] = std::from_chars(text.data() + at, text.data() + comma, value);
    if (failed != std::errc() || end != text.data() + comma || value < least) {
      throw CLI::ValidationError(
          option,
          fmt::format("'{}' is not a list of numbers of at least {}, such as 1,8,32", text, least));
    }
    values.push_back(value);
    at = comma + 1;
  }
  return values;
}

std::vector<BenchTest> Tests(const BenchOptions& o) {
  std::vector<BenchTest> tests;
  const auto depths = ParseList("-d", o.depths, 0);
  const auto batches = ParseList("-b", o.batches, 1);
  for (const size_t depth : depths) {
    for (const size_t tokens : ParseList("-p", o.prompts, 0)) {
      if (tokens > 0)
        tests.push_back({.decode = false, .tokens = tokens, .batch = 1, .depth = depth});
    }
    for (const size_t batch : batches) {
      for (const size_t tokens : ParseList("-n", o.generates, 0)) {
        if (tokens > 0)
          tests.push_back({.decode = true, .tokens = tokens, .batch = batch, .depth = depth});
      }
    }
  }
  if (tests.empty())
    throw CLI::ValidationError("bench", "nothing to measure: both -p and -n are 0");
  return tests;
}

// What is measured with one number of threads: speeds, a breakdown, or what routers choose.
struct ThreadsRun {
  BenchRun speeds;
  std::vector<Breakdown> breakdowns;
  std::vector<BenchRouting> routing;
};

// The bandwidths are measured first: a thread pool that existed already would wait on the same
// cores.
ThreadsRun MeasureWithThreads(const BenchOptions& o, const BenchSpec& spec,
                              const topology::Topology& machine,
                              const std::shared_ptr<const model::GgufFile>& file,
                              const std::optional<ManifestAndServer>& where, size_t threads) {
  ThreadsRun run;
  pipeline::PlanOptions plan = ToPlanOptions(o.model);
  plan.threads = threads != 0 ? threads : machine.cores().size();
  plan.capacity.context = 0;
  for (const BenchTest& test : spec.tests) {
    plan.capacity.slots = std::max(plan.capacity.slots, test.batch);
    plan.capacity.context = std::max(plan.capacity.context, test.context());
  }
  run.speeds.threads = plan.threads;
  if (!machine.from_xml() && o.speeds()) {
    auto cpus = machine.CpusOf(machine.PickCores(std::min(plan.threads, machine.cores().size())));
    run.speeds.machine = topology::MeasureBandwidth(machine, cpus, 0, spec.probe_budget_s);
  }
  const PlannedModel planned = PlanModel(*file, where, machine, plan, o.model);
  const auto engine = LoadEngine(file, planned, o.model);
  if (plan.capacity.slots > engine->slots()) {
    throw Error(
        "-b {}: the cluster of {} has only {} slots; raise slots under [model] in it, or measure "
        "fewer sequences",
        plan.capacity.slots, o.model.manifest, engine->slots());
  }
  const InterruptGuard guard;
  Progress progress("");
  const auto go_on = [&](const BenchTest& test, size_t repetition) {
    progress.Rename(fmt::format("{} threads, {}", plan.threads, test.name()));
    progress.Update(repetition, spec.repetitions, false);
    return Interrupts() == 0;
  };
  if (o.breakdown) {
    run.breakdowns = MeasureBreakdown(*engine, spec, go_on);
  } else if (o.experts) {
    run.routing = MeasureRouting(*engine, spec, go_on);
  } else {
    MeasureBench(*engine, spec, run.speeds, go_on);
  }
  return run;
}

void Print(const BenchOptions& o, const BenchModel& model, std::vector<ThreadsRun> runs) {
  const bool json = o.format == "json";
  if (o.experts) {
    for (const ThreadsRun& run : runs)
      fmt::print("{}",
                 json ? RoutingJson(model, run.routing) : RoutingMarkdown(model, run.routing));
    return;
  }
  if (o.speeds()) {
    std::vector<BenchRun> speeds;
    speeds.reserve(runs.size());
    for (ThreadsRun& run : runs) speeds.push_back(std::move(run.speeds));
    fmt::print("{}", json ? BenchJson(model, speeds) : BenchMarkdown(model, speeds));
    return;
  }
  std::vector<std::pair<size_t, std::vector<Breakdown>>> breakdowns;
  breakdowns.reserve(runs.size());
  for (ThreadsRun& run : runs)
    breakdowns.emplace_back(run.speeds.threads, std::move(run.breakdowns));
  if (json) {
    fmt::print("{}", BreakdownJson(model, breakdowns));
    return;
  }
  for (const auto& [threads, tests] : breakdowns)
    fmt::print("{}{}", &tests == &breakdowns.front().second ? "" : "\n",
               BreakdownMarkdown(model, threads, tests));
}

int Run(const BenchOptions& o) {
  BenchSpec spec;
  spec.tests = Tests(o);
  spec.repetitions = o.repetitions;
  spec.probe_budget_s = o.probe_s;
  const std::vector<size_t> threads =
      o.threads.empty() ? std::vector<size_t>{0} : ParseList("-t", o.threads, 1);
  if (o.experts && threads.size() > 1)
    throw CLI::ValidationError("--experts", "threads change no choice: expected one number (-t)");

  const auto where = LoadManifest(o.model);
  const auto file = model::GgufFile::Open(ModelPath(o.model, where));
  WarnOfTokenizer(*file);
  const auto machine = ResolveTopology(o.model);
  BenchModel model{file->path(), model::ReadModelConfig(*file), 0,
                   std::string(kernels::IsaName(ResolveIsa(o.model.isa))), topology::CpuName()};
  for (const auto& tensor : file->tensors()) model.tensor_bytes += tensor.size_bytes;
  std::vector<ThreadsRun> runs;
  for (const size_t n : threads) {
    runs.push_back(MeasureWithThreads(o, spec, machine, file, where, n));
    if (Interrupts() > 0) break;
  }
  Print(o, model, std::move(runs));
  return Interrupts() > 0 ? InterruptExitCode() : 0;
}

}  // namespace

Command AddBench(CLI::App& program) {
  auto o = std::make_shared<BenchOptions>();
  CLI::App* command = program.add_subcommand("bench", "measure prefill and decode speeds");
  const char* group = "Tests";
  auto list = [&](const char* name, std::string& value, const char* text) {
    // A repeated option adds its values, as in llama-bench.
    command->add_option(name, value, text)
        ->type_name("N,...")
        ->multi_option_policy(CLI::MultiOptionPolicy::Join)
        ->delimiter(',')
        ->group(group);
  };
  list("-p,--n-prompt", o->prompts, "tokens per prompt; 0: no prefill test (default: 512)");
  list("-n,--n-gen", o->generates, "tokens to decode; 0: no decode test (default: 128)");
  list("-b,--batch", o->batches, "sequences decoded together (default: 1)");
  list("-t,--threads", o->threads, "threads (default: one per physical core)");
  list("-d,--n-depth,--depth", o->depths, "tokens in the KV cache before each test (default: 0)");
  AddCount(*command, "-r,--repetitions", o->repetitions,
           "repetitions of each test, after one that is not counted (default: 5)", 1)
      ->group(group);
  AddSeconds(*command, "--probe-seconds", o->probe_s,
             "seconds to measure the machine's bandwidths (default: 1)", 0.01, 60.0)
      ->group(group);
  command
      ->add_flag("--breakdown", o->breakdown,
                 "show where the time of a step goes (products, norms, attention, waiting) instead "
                 "of speeds")
      ->group(group);
  command
      ->add_flag("--experts", o->experts,
                 "show which experts the routers choose, and how many a step reads, instead of "
                 "speeds")
      ->excludes("--breakdown")
      ->group(group);
  command->add_option("-o,--output", o->format, "md or json (default: md)")
      ->check(CLI::IsMember({"md", "json"}).description(""))
      ->type_name("FORMAT")
      ->group(group);
  ModelOptionSet set;
  set.threads = false;
  set.context = false;
  AddModelOptions(*command, o->model, set);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
