// `larder bench-serve`: sends load to an OpenAI-compatible HTTP server, Larder's or another, or to
// Larder's text stream, and measures its speed. Option names are those of vLLM's `bench serve`.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "node/commands/command.h"
#include "node/loadgen/agent_load.h"
#include "node/loadgen/serve_prompts.h"
#include "node/loadgen/serve_report.h"
#include "node/options/count_option.h"
#include "node/options/progress.h"
#include "node/service/signals.h"

namespace larder::node::inline commands {
namespace {

constexpr size_t kPrompts = 100, kConversations = 4;

struct BenchServeOptions {
  LoadSpec load;
  std::string endpoint, prompt_file, format = "text";
  AgentSpec agent;
  bool agents = false;
  size_t port = 0, prompts = 0, input_words = 128, output_tokens = 128, warmups = 1, seed = 0;
  std::vector<std::string> goodput;
};

void SetEndpoint(const BenchServeOptions& o, ServeTarget& target) {
  target.path = !o.endpoint.empty() ? o.endpoint
                : o.agents          ? "/v1/chat/completions"
                                    : "/v1/completions";
  if (target.path == "text") {
    target.kind = EndpointKind::kText;
  } else if (target.path.starts_with('/') &&
             target.path.find_first_of(" \r\n") == std::string::npos) {
    target.kind = target.path.ends_with("/chat/completions") ? EndpointKind::kChat
                                                             : EndpointKind::kCompletions;
  } else {
    throw CLI::ValidationError("--endpoint",
                               "expected /v1/completions, /v1/chat/completions or text");
  }
  if (o.agents && target.kind != EndpointKind::kChat)
    throw CLI::ValidationError("--endpoint", "agents speak to /v1/chat/completions");
  if (o.port > 65535)
    throw CLI::ValidationError("--port",
                               fmt::format("{} is not a port; expected at most 65535", o.port));
  target.port = static_cast<uint16_t>(o.port != 0                          ? o.port
                                      : target.kind == EndpointKind::kText ? 7070
                                                                           : 8080);
}

// Requests that are not counted: a server's first tokens are slow, and an error should show at
// once.
void WarmUp(const BenchServeOptions& o, LoadSpec load) {
  load.requests = RandomPrompts(o.warmups, o.input_words, o.output_tokens, ~load.seed);
  load.requests_per_s = INFINITY;
  load.max_concurrency = 1;
  load.next = nullptr;
  const LoadRun run = RunLoad(load, [](size_t) { return Interrupts() == 0; });
  for (const RequestResult& result : run.results) {
    if (!result.ok && Interrupts() == 0) {
      throw Error("the first request to {}:{} failed: {}", load.target.host, load.target.port,
                  result.error);
    }
  }
}

void AddRequests(const BenchServeOptions& o, LoadSpec& load) {
  const size_t count = o.prompts > 0 ? o.prompts : o.agents ? kConversations : kPrompts;
  if (o.agents) {
    AgentSpec agent = o.agent;
    agent.conversations = count;
    agent.message_words = o.input_words;
    agent.output_tokens = o.output_tokens;
    agent.seed = o.seed;
    load.requests = AgentTasks(agent);
    load.next = [agent](LoadRequest& ended, const RequestResult& result) {
      return AgentTurn(agent, ended, result);
    };
  } else {
    load.requests = o.prompt_file.empty()
                        ? RandomPrompts(count, o.input_words, o.output_tokens, load.seed)
                        : PromptsOfFile(o.prompt_file, count, o.output_tokens);
  }
}

int Run(const BenchServeOptions& o) {
  LoadSpec load = o.load;
  SetEndpoint(o, load.target);
  load.seed = o.seed;
  Goodput goodput;
  for (const std::string& limit : o.goodput) goodput.Add(limit);
  AddRequests(o, load);
  const size_t requests = load.requests.size() * (o.agents ? o.agent.turns : 1);
  if (load.target.kind != EndpointKind::kText && load.target.model.empty()) {
    load.target.model = FirstModel(load.target, std::min(load.timeout_s, 10.0));
  }
  const InterruptGuard guard;
  if (o.warmups > 0) WarmUp(o, load);
  LoadRun run;
  {
    Progress progress("requests");
    run = RunLoad(load, [&](size_t done) {
      progress.Update(done, requests, false);
      return Interrupts() == 0;
    });
  }
  const ServeReport report = MakeServeReport(run, goodput);
  fmt::print(
      "{}{}",
      o.format == "json" ? ServeJson(load, goodput, report) : ServeText(load, goodput, report),
      o.format == "json" ? "\n" : "");
  if (Interrupts() > 0) return InterruptExitCode();
  return report.completed > 0 ? 0 : 1;
}

void AddLoadOptions(CLI::App& command, BenchServeOptions& o) {
  const char* const group = "Load";
  AddCount(command, "--num-prompts", o.prompts, "requests, or conversations (default: 100, or 4)",
           1)
      ->group(group);
  AddRate(command, "--request-rate", o.load.requests_per_s,
          "requests per second, arriving as a Poisson process (default: inf)")
      ->group(group);
  AddCount(command, "--max-concurrency", o.load.max_concurrency,
           "requests at a time; 0: any number (default: 0)")
      ->group(group);
  AddCount(command, "--input-len", o.input_words,
           "random words per prompt, or per tool's result; about one token each (default: 128)", 1)
      ->group(group);
  AddCount(command, "--output-len", o.output_tokens,
           "most tokens to generate per request (default: 128)", 1)
      ->group(group);
  command
      .add_option("--prompt-file", o.prompt_file,
                  "prompts, one a line: text, or JSON with \"prompt\" and \"output_len\"")
      ->type_name("FILE")
      ->group(group);
  command
      .add_flag("--ignore-eos", o.load.sampling.ignore_eos, "keep generating after the end of text")
      ->group(group);
  command
      .add_option("--temperature", o.load.sampling.temperature,
                  "sampling temperature (default: the server's)")
      ->type_name("T")
      ->check(NotFinite)
      ->group(group);
  AddCount(command, "--seed", o.seed, "seed of arrivals and prompts (default: 0)")->group(group);
  CLI::Option* agents =
      command.add_flag("--agent", o.agents,
                       "conversations of an agent: a long system prompt with tools, many turns");
  agents->excludes("--prompt-file")->group(group);
  AddCount(command, "--turns", o.agent.turns,
           "requests of a conversation, each with all before it (default: 10)", 1)
      ->needs(agents)
      ->group(group);
  AddCount(command, "--system-len", o.agent.system_words,
           "words of the agents' system prompt and tools, about one token each (default: 16000)", 1)
      ->needs(agents)
      ->group(group);
  AddCount(command, "--num-warmups", o.warmups, "warm-up requests, not counted (default: 1)")
      ->group(group);
}

}  // namespace

Command AddBenchServe(CLI::App& program) {
  auto o = std::make_shared<BenchServeOptions>();
  CLI::App* command =
      program.add_subcommand("bench-serve", "load a server and measure what its clients see");
  const char* const server = "Server";
  command->add_option("--host", o->load.target.host, "name or address (default: 127.0.0.1)")
      ->type_name("HOST")
      ->group(server);
  AddCount(*command, "--port", o->port, "port (default: 8080; for the text stream 7070)", 1)
      ->group(server);
  command
      ->add_option("--endpoint", o->endpoint,
                   "/v1/completions, /v1/chat/completions, or text (default: /v1/completions; of "
                   "agents chat)")
      ->type_name("PATH")
      ->group(server);
  command
      ->add_option("--model", o->load.target.model,
                   "the model's name on the server (default: the first of /v1/models)")
      ->type_name("NAME")
      ->group(server);
  command->add_option("--api-key", o->load.target.api_key, "sent as a bearer token")
      ->type_name("KEY")
      ->group(server);
  AddSeconds(*command, "--timeout", o->load.timeout_s, "seconds for a whole request (default: 600)",
             0.001, 1e6)
      ->group(server);
  AddLoadOptions(*command, *o);
  const char* const output = "Output";
  command
      ->add_option("--goodput", o->goodput,
                   "limits in ms that a good request meets, such as ttft:100 tpot:10 e2el:2000")
      ->type_name("LIMIT...")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->group(output);
  command->add_option("-o,--output", o->format, "text or json (default: text)")
      ->check(CLI::IsMember({"text", "json"}).description(""))
      ->type_name("FORMAT")
      ->group(output);
  return {command, [o] { return Run(*o); }};
}

}  // namespace larder::node::commands
