// `larder batch`: answers a file of requests. A job that was killed goes on with --resume, to the same bytes.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <ctime>
#include <filesystem>
#include <memory>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "kernels/formats/numerics.h"
#include "model/config/split.h"
#include "node/commands/command.h"
#include "node/options/answer_options.h"
#include "node/options/count_option.h"
#include "node/options/load.h"
#include "node/options/model_options.h"
#include "node/options/progress.h"
#include "node/options/sampling_options.h"
#include "node/service/signals.h"
#include "node/tasks/completion_defaults.h"
#include "pipeline/scheduler/scheduler.h"
#include "serving/batch/batch_run.h"

namespace larder::node::inline commands {
namespace {

struct BatchOptions {
  ModelOptions model;
  SamplingOptions sampling;
  AnswerOptions answers;
  std::string input, output;
  double patience_s = 600;
  bool resume = false, restart = false;
};

void Describe(CLI::App& command, BatchOptions& o) {
  const char* job = "Job";
  command
      .add_option("-i,--input", o.input,
                  "requests, one a line: {\"custom_id\", \"url\", \"body\"}, as OpenAI's batch API has them")
      ->type_name("FILE")
      ->required()
      ->group(job);
  command.add_option("-o,--output", o.output, "answers, one a line, in the order in which they are complete")
      ->type_name("FILE")
      ->required()
      ->group(job);
  command.add_flag("--resume", o.resume, "go on with a job that was interrupted or killed")->group(job);
  command.add_flag("--restart", o.restart, "begin the job anew: removes what it has written")->group(job);
  AddCount(command, "--slots,--parallel", o.model.slots, "requests at once (also -np; default: 16)", 1)
      ->group(job);
  AddKvOptions(command, o.model, job);
  command
      .add_option(
          "--patience", o.patience_s,
          "seconds that the job waits for a lost socket of the cluster; then it ends, and --resume goes "
          "on (default: 600)")
      ->type_name("S")
      ->check(NotFinite)
      ->check(CLI::Range(0.0, 86400.0).description(""))
      ->group(job);
  AddAnswerOptions(command, o.answers, job);
  AddSamplingOptions(command, o.sampling, "one for the job, from which each request gets its own");
  AddModelOptions(command, o.model, {});
}

// The defaults of the command line that change answers, as text.
std::string OptionsText(const BatchOptions& o, size_t context) {
  const serving::SamplingParams& p = o.sampling.params;
  std::string bias;
  for (const std::string& one : o.sampling.logit_bias) bias += " " + one;
  return fmt::format(
      "temp {} top-k {} top-p {} min-p {} repeat {} last {} presence {} frequency {} bias{} ignore-eos {} "
      "n {} context {} chat {}{}",
      p.temperature, p.top_k, p.top_p, p.min_p, p.repeat_penalty, p.repeat_last_n, p.presence_penalty,
      p.frequency_penalty, bias, o.sampling.ignore_eos, o.answers.max_tokens, context,
      o.answers.chat_template.empty() ? "auto" : o.answers.chat_template, SamplersText(o.sampling));
}

// The requests, all of which are good. Throws Error after it has said what is wrong.
std::unique_ptr<serving::BatchInput> CheckedInput(const BatchOptions& o,
                                                  const serving::CompletionDefaults& defaults) {
  auto input = std::make_unique<serving::BatchInput>(o.input, serving::CheckBatchLine, defaults);
  if (input->problems().empty()) return input;
  for (const std::string& problem : input->problems()) spdlog::error("{}", problem);
  throw Error("{}: {} of its requests {} wrong; nothing was run", o.input, input->wrong_lines(),
              input->wrong_lines() == 1 ? "is" : "are");
}

// The job's file and its output, new or as they were left.
serving::BatchOutput OpenJob(const BatchOptions& o, const serving::BatchInput& input, serving::BatchJob& job,
                             std::vector<bool>& done) {
  const std::string path = o.output + ".job";
  std::error_code error;
  if (std::filesystem::equivalent(o.input, o.output, error))
    throw Error("{}: is the input; expected another file for the output", o.output);
  bool begun = std::filesystem::exists(path);
  if (o.restart && begun) {  // the job's own file goes last: without it the output is a file like any other
    error.clear();
    std::filesystem::remove(o.output, error);
    if (!error) std::filesystem::remove(path, error);
    if (error) throw Error("{}: can't remove it: {}", o.output, error.message());
    begun = false;
  }
  if (begun && !o.resume) {
    throw Error("{}: a job that was begun; --resume goes on with it, --restart begins anew", path);
  }
  if (!begun) {
    if (std::filesystem::exists(o.output))
      throw Error("{}: exists, and is not of a job (there is no {}); choose another name, or remove it",
                  o.output, path);
    job.Save(path);
    return serving::BatchOutput::Create(o.output);
  }
  const serving::BatchJob before = serving::BatchJob::Load(path);
  const std::string differs = job.Differs(before);
  if (!differs.empty())
    throw Error("{}: can't go on with this job: {}; --restart begins anew", path, differs);
  if (o.sampling.seed != "-1" && job.seed != before.seed)
    throw Error("{}: can't go on with this job: --seed is another one; --restart begins anew", path);
  job.seed = before.seed;
  job.created = before.created;
  return serving::BatchOutput::Resume(o.output, input, done);
}

int Run(BatchOptions o) {
  if (o.resume && o.restart) throw CLI::ValidationError("batch", "give either --resume or --restart");
  const auto where = LoadManifest(o.model);
  const auto file = model::GgufFile::Open(ModelPath(o.model, where));
  const auto tokenizer = model::Tokenizer::FromGguf(*file);
  serving::CompletionDefaults defaults = DefaultsOf(*file, tokenizer, o.sampling, o.answers);
  const PlannedModel planned =
      PlanModel(*file, where, ResolveTopology(o.model), ToPlanOptions(o.model), o.model);
  defaults.context = planned.plan.context;
  const auto input = CheckedInput(o, defaults);
  serving::BatchJob job = {
      .input_hash = input->hash(),
      .requests = input->requests(),
      .model = defaults.model,
      .model_fingerprint = model::Fingerprint(*file),
      .engine = fmt::format("larder {}, arithmetic {}", LARDER_VERSION, kernels::kArithmeticVersion),
      .options = OptionsText(o, defaults.context),
      .seed = defaults.sampling.seed,
      .created = static_cast<int64_t>(std::time(nullptr))};
  std::vector<bool> done(input->requests());
  serving::BatchOutput output = OpenJob(o, *input, job, done);

  const auto engine = LoadEngine(file, planned, o.model);
  pipeline::Scheduler scheduler(
      *engine, {.policy = {.policy = *pipeline::PolicyByName(o.answers.policy), .max_stall_ms = 0},
                .patience_ms = static_cast<int>(o.patience_s * 1000)});
  serving::ServingMetrics metrics({});
  const size_t in_flight = 2 * planned.plan.slots;
  serving::GenerationService service({.tokenizer = tokenizer,
                                      .vocab = defaults.vocab,
                                      .context = defaults.context,
                                      .slots = planned.plan.slots,
                                      .queue_limit = in_flight * serving::kMostChoices,
                                      .outage = [&] { return scheduler.outage(); }},
                                     metrics);
  const InterruptGuard guard;
  const int64_t start_ns = NowNs();
  auto progress = std::make_unique<Progress>("answering");
  serving::BatchRun run(
      service, defaults, job, *input, output, std::move(done), in_flight, [] { return Interrupts() > 0; },
      [&](const serving::BatchProgress& now) { progress->Update(now.done, input->requests(), false); });
  scheduler.Run(run);
  progress = nullptr;
  output.Sync();
  const serving::BatchProgress& made = run.progress();
  const double seconds = SecondsSince(start_ns);
  fmt::print(
      stderr,
      "requests   {} of {} answered{}\ntokens     {} of prompts, {} generated in {:.2f} s: {:.1f} a second\n",
      made.done, input->requests(),
      made.failed > 0 ? fmt::format(", {} of this run with an error", made.failed) : std::string(),
      made.prompt_tokens, made.generated_tokens, seconds,
      static_cast<double>(made.generated_tokens) / seconds);
  if (!run.error().empty()) throw Error("{}; --resume goes on from there", run.error());
  if (made.done == input->requests()) return 0;
  fmt::print(stderr, "interrupted: --resume goes on from here\n");
  return InterruptExitCode();
}

}  // namespace

Command AddBatch(CLI::App& program) {
  auto options = std::make_shared<BatchOptions>();
  options->model.slots = 16;
  CLI::App* command = program.add_subcommand("batch", "answer a file of requests, one a line");
  Describe(*command, *options);
  return {command, [options] { return Run(*options); }};
}

}  // namespace larder::node::commands
