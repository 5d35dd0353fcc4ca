#include "node/simulate/simulate.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "node/loadgen/arrivals.h"
#include "node/loadgen/serve_report.h"
#include "node/loading/load.h"
#include "node/options/count_option.h"
#include "node/simulate/planned_load.h"
#include "pipeline/simulation/simulated_engine.h"
#include "pipeline/simulation/simulated_plan.h"
#include "pipeline/simulation/virtual_clock.h"

namespace larder::node::inline simulate {
namespace {

using nlohmann::json;

// Null without --trace.
struct TraceFile {
  explicit TraceFile(const std::string& path)
      : file(path.empty() ? nullptr : std::fopen(path.c_str(), "w"), &std::fclose) {
    if (!path.empty() && !file) throw Error("can't write '{}': {}", path, std::strerror(errno));
  }
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file;
};

// Of a simulation: how much of the time a station computed.
struct Station {
  std::string name;
  double busy = 0;
};

struct Outcome {
  PlannedRun run;
  size_t most_micro_batches = 0;
  std::vector<Station> stations;  // empty: they were real ones
};

Outcome RunSimulated(const pipeline::Plan& plan, const PlannedLoad& load) {
  const pipeline::SimulatedPlan simulated = pipeline::SimulatedOf(plan);
  pipeline::PlanTimes times(plan);
  pipeline::VirtualClock clock;
  pipeline::SimulatedEngine engine(simulated.limits, simulated.chunks, times, clock);
  Outcome out;
  out.run = RunPlanned(
      engine, clock, [&](uint64_t at_ns) { clock.AdvanceTo(at_ns); }, load);
  out.most_micro_batches = engine.most_in_flight();
  const auto add = [&](const std::string& name, uint64_t busy_ns) {
    out.stations.push_back({name, static_cast<double>(busy_ns) * 1e-9 / out.run.load.duration_s});
  };
  for (size_t i = 0; i < plan.stages.size(); ++i)
    add(plan.stages[i].socket, engine.stations().stage_busy_ns(i));
  add("serving", engine.stations().serving_busy_ns());
  return out;
}

Outcome RunReal(const SimulateOptions& o, const PlanInputs& inputs, const PlannedLoad& load) {
  const PlannedModel planned = PlanModel(*inputs.file, inputs.where, inputs.machine,
                                         ToPlanOptions(o.inputs.model), o.inputs.model);
  const auto engine = LoadEngine(inputs.file, planned, o.inputs.model);
  Clock clock;
  const auto wait_until = [&](uint64_t at_ns) {
    const uint64_t now_ns = clock.now_ns();
    if (at_ns > now_ns) std::this_thread::sleep_for(std::chrono::nanoseconds(at_ns - now_ns));
  };
  return {.run = RunPlanned(*engine, clock, wait_until, load),
          .most_micro_batches = planned.plan.capacity.max_in_flight,
          .stations = {}};
}

double PerStep(uint64_t count, const ScheduledSteps& of) {
  return of.steps > 0 ? static_cast<double>(count) / static_cast<double>(of.steps) : 0;
}

std::string StepsText(const Outcome& out) {
  const ScheduledSteps& of = out.run.scheduled;
  std::string text = fmt::format(
      "\nsteps        {}, of {:.2f} rows of {:.2f} sequences in the mean; at most {} micro-batch{} "
      "in flight\nrows         {} of prompts, {} of answers\n",
      of.steps, PerStep(of.prompt_rows + of.answer_rows, of), PerStep(of.sequences, of),
      out.most_micro_batches, out.most_micro_batches == 1 ? "" : "es", of.prompt_rows,
      of.answer_rows);
  if (of.transitions > 0)
    text += fmt::format("phases       {} changes between prompts and answers\n", of.transitions);
  if (of.preempted + of.yielded > 0) {
    text += fmt::format(
        "paused       {} sequences for want of KV, {} to stay within the active KV; {} rows "
        "computed again\n",
        of.preempted, of.yielded, of.repeated_rows);
  }
  for (const Station& station : out.stations)
    text += fmt::format("{:<13}{:.1f} % busy\n", station.name + " ", 100 * station.busy);
  return text;
}

json StepsJson(const Outcome& out) {
  const ScheduledSteps& of = out.run.scheduled;
  json text = {{"steps", of.steps},
               {"prompt_rows", of.prompt_rows},
               {"answer_rows", of.answer_rows},
               {"mean_step_rows", PerStep(of.prompt_rows + of.answer_rows, of)},
               {"mean_step_sequences", PerStep(of.sequences, of)},
               {"max_micro_batches", out.most_micro_batches},
               {"transitions", of.transitions},
               {"preempted", of.preempted},
               {"yielded", of.yielded},
               {"repeated_rows", of.repeated_rows},
               {"stations", json::array()}};
  for (const Station& station : out.stations)
    text["stations"].push_back({{"name", station.name}, {"busy", station.busy}});
  return text;
}

std::string PlanLine(const pipeline::Plan& plan) {
  return fmt::format(
      "plan         {:016x}: {}, {}, {} slots of {} tokens, micro-batches of up to {} rows\n",
      plan.hash(), plan.config.name,
      plan.single() ? std::string("1 socket") : fmt::format("{}+1 sockets", plan.stages.size()),
      plan.capacity.slots, plan.capacity.context, plan.capacity.max_batch_tokens);
}

}  // namespace

int Simulate(const SimulateOptions& o) {
  if (o.real &&
      (!o.inputs.shape.empty() || o.inputs.sockets_given() || !o.inputs.model.topology.empty()))
    throw CLI::ValidationError(
        "--real",
        "needs a model's file and this machine: neither --shape nor --socket-cores, "
        "--socket-l3 or --topology");
  loadgen::Goodput goodput;
  for (const std::string& limit : o.goodput) goodput.Add(limit);
  PlannedLoad load = {
      .requests = o.replay.empty() ? MakeWorkload(o.workload) : WorkloadOfFile(o.replay),
      .max_concurrency = o.max_concurrency,
      .policy = o.scheduling.ToPolicy(),
      .active_tokens = o.scheduling.active_kv_tokens};
  const PlanInputs inputs = ReadPlanInputs(o.inputs, "simulate");
  const pipeline::Plan plan = PlanOf(o.inputs, inputs);
  CheckContext(load.requests, plan.capacity.context);
  const TraceFile trace(o.trace);
  load.trace = trace.file.get();
  const Outcome out = o.real ? RunReal(o, inputs, load) : RunSimulated(plan, load);
  const loadgen::ServeReport report = loadgen::MakeServeReport(out.run.load, goodput);
  const std::string source = o.real ? "this machine's engine" : plan.prediction.speeds.Origin();
  if (o.json) {
    json text = {{"plan", fmt::format("{:016x}", plan.hash())},
                 {"model", plan.config.name},
                 {"simulated", !o.real},
                 {"speeds", source},
                 {"policy", o.scheduling.policy},
                 {"slots", plan.capacity.slots},
                 {"context", plan.capacity.context},
                 {"seed", o.workload.seed}};
    text.update(
        loadgen::LoadJson(load.requests.size(), o.workload.requests_per_s, o.max_concurrency));
    if (!o.replay.empty()) text["request_rate"] = o.replay;
    text.update(loadgen::FiguresJson(goodput, report));
    text.update(StepsJson(out));
    fmt::print("{}\n", text.dump(2, ' ', false, json::error_handler_t::replace));
  } else {
    fmt::print(
        "{}{}; {}\n{}{}", PlanLine(plan),
        o.real ? "real         " + source : fmt::format("simulated    speeds are {}", source),
        o.replay.empty() ? loadgen::ArrivalsText(o.workload.requests_per_s, o.max_concurrency)
                         : "requests of " + o.replay,
        loadgen::FiguresText(goodput, report), StepsText(out));
  }
  return report.failed == 0 ? 0 : 1;
}

void DescribeSimulate(CLI::App& command, SimulateOptions& o) {
  o.inputs.model.capacity.slots = 4;  // as serve
  AddPlanInputs(command, o.inputs);
  command.add_flag("--json", o.json, "print JSON");
  command
      .add_option("--trace", o.trace,
                  "write the micro-batches to this file: a line each, with the request, first "
                  "position and number of the rows of each sequence")
      ->type_name("FILE");
  command.add_flag("--real", o.real,
                   "run the same requests on this machine's engine, by its clock: what a "
                   "simulation is held against");
  const char* requests = "Requests";
  AddCount(command, "--num-prompts", o.workload.requests, "requests (default: 1000)", 1)
      ->group(requests);
  AddRate(command, "--request-rate", o.workload.requests_per_s,
          "requests per second, arriving as a Poisson process (default: inf)")
      ->group(requests);
  AddCount(command, "--max-concurrency", o.max_concurrency,
           "requests at a time; 0: any number (default: 0)")
      ->group(requests);
  AddCount(command, "--input-len", o.workload.prompt_tokens, "tokens per prompt (default: 128)", 1)
      ->group(requests);
  AddCount(command, "--output-len", o.workload.answer_tokens, "tokens per answer (default: 128)", 1)
      ->group(requests);
  command
      .add_option("--range-ratio", o.workload.range,
                  "lengths are spread from 1-F to 1+F times these (default: 0)")
      ->type_name("F")
      ->check(NotFinite)
      ->check(CLI::Range(0.0, 1.0).description(""))
      ->group(requests);
  size_t& seed = o.workload.seed;
  AddCount(command, "--seed", seed, "seed of arrivals and lengths (default: 0)")->group(requests);
  command
      .add_option("--replay", o.replay,
                  "file of requests, one a line: seconds from the beginning, tokens of the prompt, "
                  "tokens of the answer")
      ->type_name("FILE")
      ->excludes("--num-prompts", "--request-rate")
      ->group(requests);
  command
      .add_option("--goodput", o.goodput,
                  "limits in ms that a good request meets, such as ttft:100 tpot:10 e2el:2000")
      ->type_name("LIMIT...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(requests);
  const char* scheduling = "Scheduling";
  AddPolicyOptions(command, o.scheduling, scheduling);
  AddStallOptions(command, o.scheduling, scheduling);
}

}  // namespace larder::node::simulate
