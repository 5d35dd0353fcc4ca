// `larder batch`: answers a file of requests, by its own engine or by running servers. A job that
// was killed goes on with --resume, to the same bytes.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <ctime>
#include <filesystem>
#include <functional>
#include <memory>
#include <tuple>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/error.h"
#include "model/config/pooling.h"
#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/options/answer_options.h"
#include "node/options/api_key_file.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/options/progress.h"
#include "node/options/sampling_options.h"
#include "node/options/scheduling_options.h"
#include "node/remote/server_pool.h"
#include "node/remote/server_url.h"
#include "node/service/signals.h"
#include "node/tasks/completion_defaults.h"
#include "pipeline/scheduler/scheduler.h"
#include "serving/batch/batch_run.h"
#include "serving/batch/remote_request.h"

namespace larder::node::inline commands {
namespace {

struct BatchOptions {
  ModelOptions model;
  SamplingOptions sampling;
  AnswerOptions answers;
  SchedulingOptions scheduling = {.max_stall_ms = 0};  // nobody waits for a token
  std::string input, output;
  std::vector<std::string> servers, api_keys;  // URLs; or the name of a server in the manifest
  std::string key_file;
  size_t concurrency = 0;
  double patience_s = 600;
  bool resume = false, restart = false;
};

void Describe(CLI::App& command, BatchOptions& o) {
  const char* job = "Job";
  command
      .add_option("-i,--input", o.input,
                  "requests, one a line: {\"custom_id\", \"url\", \"body\"}, as OpenAI's batch API "
                  "has them")
      ->type_name("FILE")
      ->required()
      ->group(job);
  command
      .add_option("-o,--output", o.output,
                  "answers, one a line, in the order in which they are complete")
      ->type_name("FILE")
      ->required()
      ->group(job);
  command.add_flag("--resume", o.resume, "go on with a job that was interrupted or killed")
      ->group(job);
  command.add_flag("--restart", o.restart, "begin the job anew: removes what it has written")
      ->group(job);
  command
      .add_option("--server", o.servers,
                  "URL of a running server that answers instead of an own engine, such as "
                  "http://host:8080; several times: they share the job. With --manifest: which "
                  "server of it this is")
      ->type_name("URL")
      ->allow_extra_args(false)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(job);
  AddCount(command, "--concurrency", o.concurrency,
           "requests at once with each --server (default: twice its slots)")
      ->group(job);
  command.add_option("--api-key", o.api_keys, "the servers' key; other users can see it in ps")
      ->type_name("KEY")
      ->expected(1)
      ->group(job);
  command.add_option("--api-key-file", o.key_file, "file with the servers' key in its first line")
      ->type_name("FILE")
      ->group(job);
  AddCount(command, "--slots,--parallel", o.model.capacity.slots,
           "requests at once (also -np; default: 16)", 1)
      ->group(job);
  AddKvOptions(command, o.model, job);
  AddSeconds(command, "--patience", o.patience_s,
             "seconds that the job waits for a lost socket of the cluster, or for any server; "
             "then it ends, and --resume goes on (default: 600)",
             0.0, 86400.0)
      ->group(job);
  AddPolicyOptions(command, o.scheduling, job);
  AddAnswerOptions(command, o.answers, job);
  AddSamplingOptions(command, o.sampling, "one for the job, from which each request gets its own");
  AddModelOptions(command, o.model, {.server = false});
}

// The requests, all of which are good. Throws Error after it has said what is wrong.
std::unique_ptr<serving::BatchInput> CheckedInput(const BatchOptions& o,
                                                  const serving::CompletionDefaults& defaults) {
  auto input = std::make_unique<serving::BatchInput>(
      o.input, [&](const serving::BatchLine& line) { serving::CheckBatchLine(line, defaults); });
  input->CheckMore();
  if (input->problems().empty()) return input;
  for (const serving::BatchProblem& problem : input->problems())
    spdlog::error("{}{}: {}", o.input,
                  problem.line > 0 ? fmt::format(", line {}", problem.line) : "", problem.what);
  throw Error("{}: {} of its requests {} wrong; nothing was run", o.input, input->wrong_lines(),
              input->wrong_lines() == 1 ? "is" : "are");
}

// The job's file and its output, new or as they were left.
serving::BatchOutput OpenJob(const BatchOptions& o, const serving::BatchInput& input,
                             serving::BatchJob& job, std::vector<bool>& done) {
  const std::string path = o.output + ".job";
  std::error_code error;
  if (std::filesystem::equivalent(o.input, o.output, error))
    throw Error("{}: is the input; expected another file for the output", o.output);
  bool begun = std::filesystem::exists(path);
  if (o.restart && begun) {  // the job's own file goes last: without it the output is a file like
                             // any other
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
      throw Error(
          "{}: exists, and is not of a job (there is no {}); choose another name, or remove it",
          o.output, path);
    job.Save(path);
    return serving::BatchOutput::Create(o.output);
  }
  const serving::BatchJob before = serving::BatchJob::Load(path);
  const std::string differs = job.Differs(before);
  if (!differs.empty())
    throw Error("{}: can't go on with this job: {}; --restart begins anew", path, differs);
  if (o.sampling.seed != "-1" && job.seed != before.seed)
    throw Error("{}: can't go on with this job: --seed is another one; --restart begins anew",
                path);
  job.seed = before.seed;
  job.created = before.created;
  return serving::BatchOutput::Resume(o.output, input, done);
}

// A job and its files, as they are before anything is computed.
struct OpenedJob {
  OpenedJob(const BatchOptions& o, const serving::ServedModel& served,
            const serving::CompletionDefaults& defaults)
      : input(CheckedInput(o, defaults)),
        job{.input_hash = input->hash(),
            .requests = input->requests(),
            .model = served.name,
            .model_fingerprint = served.fingerprint,
            .engine = served.engine,
            .options = RequestDefaultsText(o.sampling, o.answers, served),
            .seed = defaults.sampling.seed,
            .created = static_cast<int64_t>(std::time(nullptr))},
        done(input->requests()),
        output(OpenJob(o, *input, job, done)) {}

  std::unique_ptr<serving::BatchInput> input;
  serving::BatchJob job;
  std::vector<bool> done;
  serving::BatchOutput output;
};

// Answers what is left, by `answer`, and says what was done.
int Answer(OpenedJob& opened, const std::function<void(serving::BatchWork&)>& answer) {
  const InterruptGuard guard;
  const int64_t start_ns = NowNs();
  auto progress = std::make_unique<Progress>("answering");
  serving::BatchWork work(
      opened.job, *opened.input, opened.output, opened.output, std::move(opened.done),
      [] { return Interrupts() > 0; },
      [&](const serving::BatchProgress& now) {
        progress->Update(now.done, opened.input->requests(), false);
      });
  answer(work);
  progress = nullptr;
  opened.output.Sync();
  const serving::BatchProgress& made = work.progress();
  const double seconds = SecondsSince(start_ns);
  fmt::print(
      stderr,
      "requests   {} of {} answered{}\ntokens     {} of prompts, {} generated in {:.2f} s: {:.1f} "
      "a second\n",
      made.done, opened.input->requests(),
      made.failed > 0 ? fmt::format(", {} of this run with an error", made.failed) : std::string(),
      made.prompt_tokens, made.generated_tokens, seconds,
      static_cast<double>(made.generated_tokens) / seconds);
  if (!work.error().empty()) throw Error("{}; --resume goes on from there", work.error());
  if (made.done == opened.input->requests()) return 0;
  fmt::print(stderr, "interrupted: --resume goes on from here\n");
  return InterruptExitCode();
}

int RunHere(const BatchOptions& o) {
  const auto where = LoadManifest(o.model);
  const auto file = model::GgufFile::Open(ModelPath(o.model, where));
  const auto tokenizer = model::Tokenizer::FromGguf(*file);
  serving::CompletionDefaults defaults = DefaultsOf(*file, tokenizer, o.sampling, o.answers);
  const PlannedModel planned =
      PlanModel(*file, where, ResolveTopology(o.model), ToPlanOptions(o.model), o.model);
  defaults.context = planned.plan.capacity.context;
  defaults.fingerprint = planned.plan.identity();
  OpenedJob opened(o, ServedModelOf(defaults, o.answers, planned.plan.capacity.slots), defaults);

  const auto engine = LoadEngine(file, planned, o.model);
  pipeline::Scheduler scheduler(*engine, {.policy = o.scheduling.ToPolicy(),
                                          .active_tokens = o.scheduling.active_kv_tokens,
                                          .patience_ms = static_cast<int>(o.patience_s * 1000)});
  serving::ServingMetrics metrics({});
  const size_t in_flight = 2 * planned.plan.capacity.slots;
  serving::GenerationService service({.tokenizer = tokenizer,
                                      .vocab = defaults.vocab,
                                      .context = defaults.context,
                                      .slots = planned.plan.capacity.slots,
                                      .queue_limit = in_flight * serving::kMostChoices,
                                      .outage = [&] { return scheduler.outage(); }},
                                     metrics);
  return Answer(opened, [&](serving::BatchWork& work) {
    serving::BatchRun run(service, defaults, work, in_flight);
    scheduler.Run(run);
  });
}

int RunOn(const BatchOptions& o) {
  const std::vector<std::string> keys = ApiKeyFile(o.api_keys, o.key_file).Read();
  ServerPoolOptions pool = {
      .servers = {}, .concurrency = o.concurrency, .patience_s = o.patience_s, .stopped = [] {
        return Interrupts() > 0;
      }};
  for (const std::string& url : o.servers) {
    pool.servers.push_back({url, ParseServerUrl(url)});
    if (!keys.empty()) pool.servers.back().target.api_key = keys.front();
  }
  const serving::ServedModel served = AskServers(pool);
  const std::string alias = o.answers.aliases.empty() ? "" : o.answers.aliases[0];
  for (const auto& [option, given, is] :
       {std::tuple{"--alias", &alias, &served.name},
        std::tuple{"--chat-template", &o.answers.chat_template, &served.chat_template},
        std::tuple{"--tool-parser", &o.answers.tool_parser, &served.tool_parser},
        std::tuple{"--pooling", &o.answers.pooling, &served.pooling}}) {
    if (!given->empty() && *given != *is)
      throw Error("{} {}: the servers have \"{}\"; it is theirs to choose", option, *given, *is);
  }
  serving::CompletionDefaults defaults;
  defaults.sampling = ResolveSampling(o.sampling, served.vocab);
  defaults.max_tokens = o.answers.max_tokens;
  defaults.vocab = served.vocab;
  defaults.context = served.context;
  defaults.model = served.name;
  defaults.dim = served.dim;
  defaults.pooling = *model::PoolingByName(served.pooling);
  OpenedJob opened(o, served, defaults);
  return Answer(opened, [&](serving::BatchWork& work) {
    RunOnServers(pool, served, work, [&](const serving::BatchLine& line) {
      return serving::RemoteBody(line, defaults, serving::SeedOf(opened.job, line),
                                 o.sampling.ignore_eos);
    });
  });
}

int Run(BatchOptions o) {
  if (o.resume && o.restart)
    throw CLI::ValidationError("batch", "give either --resume or --restart");
  const bool on_servers = std::any_of(o.servers.begin(), o.servers.end(), IsUrl);
  if (on_servers) {
    if (!o.model.model.empty() || !o.model.manifest.empty())
      throw CLI::ValidationError("--server",
                                 "the servers have the model: give no --model or --manifest");
    return RunOn(o);
  }
  if (o.concurrency > 0 || !o.api_keys.empty() || !o.key_file.empty())
    throw CLI::ValidationError("batch", "--concurrency and --api-key are for --server URL");
  if (o.servers.size() > 1 || (!o.servers.empty() && o.model.manifest.empty()))
    throw CLI::ValidationError("--server", "expected URLs such as http://host:8080");
  if (!o.servers.empty()) o.model.server = o.servers.front();
  return RunHere(o);
}

}  // namespace

Command AddBatch(CLI::App& program) {
  auto options = std::make_shared<BatchOptions>();
  options->model.capacity.slots = 16;
  CLI::App* command = program.add_subcommand("batch", "answer a file of requests, one a line");
  Describe(*command, *options);
  return {command, [options] { return Run(*options); }};
}

}  // namespace larder::node::commands
