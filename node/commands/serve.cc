// `larder serve`: the text stream and HTTP for many clients at once. The main thread loads the
// model and then runs the scheduler; one thread handles the connections, another waits for signals.
#include <malloc.h>
#include <signal.h>
#include <spdlog/spdlog.h>
#include <sys/resource.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <thread>

#include "base/clock.h"
#include "base/error.h"
#include "model/config/split.h"
#include "node/commands/command.h"
#include "node/loading/load.h"
#include "node/options/answer_options.h"
#include "node/options/api_key_file.h"
#include "node/options/count_option.h"
#include "node/options/model_options.h"
#include "node/options/sampling_options.h"
#include "node/options/scheduling_options.h"
#include "node/service/service_monitor.h"
#include "node/service/signals.h"
#include "node/tasks/completion_defaults.h"
#include "node/tasks/serve_view.h"
#include "node/tasks/slot_files.h"
#include "pipeline/kv_store/kv_store.h"
#include "pipeline/scheduler/scheduler.h"
#include "serving/net/server.h"
#include "topology/affinity.h"

namespace larder::node::inline commands {
namespace {

// Freed memory of this size or more goes back to the system at once, so that the peak of large
// requests is not kept.
constexpr int kLargeBytes = 256 << 10;
constexpr double kNever = 1e9;  // seconds

struct ServeOptions {
  ModelOptions model;
  SamplingOptions sampling;
  serving::ServerOptions server;
  AnswerOptions answers;
  SchedulingOptions scheduling;
  std::string key_file;
  std::string socket;  // the manifest's serving socket that this process is; empty: none
  size_t queue = 256;
  std::string held = "256M";
  std::string slot_folder, slot_disk = "8G";
  std::string batch_disk = "8G";
  std::string responses_held = "64M";
  std::string body = "1M";
  double ping_s = serving::ConnectionLimits().quiet_s;
  size_t batch_slots = 0;  // 0: all that clients leave
  bool reuse = true;
  double patience_s = 5;
};

void DescribeNetwork(CLI::App& command, ServeOptions& o) {
  const char* network = "Network";
  const auto port = CLI::Range(-1, 65535).description("");
  command
      .add_option("--host", o.server.hosts,
                  "address to listen on, or several with commas (default: 127.0.0.1)")
      ->delimiter(',')
      ->type_name("ADDRESS")
      ->group(network);
  command
      .add_option("--port", o.server.port,
                  "HTTP port; 0 picks a free port, -1 disables HTTP (default: 8080)")
      ->type_name("N")
      ->check(port)
      ->group(network);
  command
      .add_option("--text-port", o.server.text_port,
                  "port of the text stream; 0 picks a free port, -1 disables it (default: 7070)")
      ->type_name("N")
      ->check(port)
      ->group(network);
  command
      .add_option("--api-key", o.server.api_keys,
                  "a key that clients must send; other users can see it in ps")
      ->type_name("KEY")
      ->group(network);
  command
      .add_option("--api-key-file", o.key_file,
                  "file of keys that clients must send, one per line; read again when it changes")
      ->type_name("FILE")
      ->group(network);
  command
      .add_option("--allowed-host", o.server.allowed_hosts,
                  "a host name of this server; without keys, requests for others are refused")
      ->type_name("NAME")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->group(network);
  command
      .add_option("--cors-origin", o.server.cors_origins,
                  "origin whose web pages may use the server, such as https://chat.example; "
                  "localhost: those of this machine, on any port; *: all")
      ->type_name("ORIGIN")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->expected(1)
      ->group(network);
  AddCount(
      command, "--max-connections", o.server.connections.connections,
      "connections open at once on each port; one more replaces the longest idle (default: 1024)",
      1)
      ->group(network);
  AddCount(command, "--max-connections-per-peer", o.server.admission.connections.peer,
           "connections per address (IPv6: per /64), both ports together; on loopback only if "
           "given (default: 64)",
           1)
      ->each([&o](const std::string&) { o.server.admission.loopback_is_a_peer = true; })
      ->group(network);
  AddSeconds(command, "--timeout", o.server.connections.receive_s,
             "seconds that a client may take to send a request, or pause in reading its "
             "answer (default: 20)",
             0.1, 1e6)
      ->group(network);
  AddSeconds(command, "--drain-timeout", o.server.drain_s,
             "seconds for running answers to end after SIGTERM (default: 30)", 0.0, 1e6)
      ->group(network);
  AddSeconds(command, "--sse-ping-interval", o.ping_s,
             "seconds after which a silent stream gets an event that keeps it alive; -1: never "
             "(default: 15)",
             -1.0, 1e6)
      ->group(network);
  command
      .add_flag("--ui,!--no-ui", o.server.page,
                "the page at / with the machine and a chat (default: on)")
      ->group(network);
  command
      .add_flag("--slots-endpoint,!--no-slots-endpoint", o.server.slots,
                "GET /slots, which shows what slots do (default: on)")
      ->group(network);
  command
      .add_option(
          "--socket", o.socket,
          "run as the manifest's serving socket of this name, as `larder node` does (with --join)")
      ->type_name("NAME")
      ->group(network);
}

void DescribeRequests(CLI::App& command, ServeOptions& o) {
  const char* requests = "Requests";
  AddCount(command, "--slots,--parallel", o.model.capacity.slots,
           "sequences at once, each with its own context (also -np; default: 4)", 1)
      ->group(requests);
  AddKvOptions(command, o.model, requests);
  AddCacheOptions(command, o.model, requests);
  command
      .add_option("--slot-save-path", o.slot_folder,
                  "folder for the slots that POST /slots/N?action=save writes and restore reads")
      ->type_name("FOLDER")
      ->group(requests);
  AddBytes(command, "--slot-save-disk", o.slot_disk,
           "most bytes of the files in --slot-save-path, such as 500M (default: 8G)")
      ->group(requests);
  command
      .add_option("--batch-dir", o.server.batch_folder,
                  "folder for the files and batches of /v1/files and /v1/batches, which run in the "
                  "slots that other requests leave; only one process at a time may use it")
      ->type_name("DIR")
      ->group(requests);
  AddBytes(command, "--batch-disk", o.batch_disk,
           "most bytes of the files in --batch-dir; with several keys each key may use a quarter "
           "(default: 8G)")
      ->group(requests);
  AddCount(command, "--batch-slots", o.batch_slots,
           "most requests of batches at once; the fewer, the less they slow down clients (default: "
           "as many as clients leave slots)",
           1)
      ->group(requests);
  AddCount(command, "--responses", o.server.responses.responses,
           "most responses kept for /v1/responses (store, previous_response_id), with --cache-dir "
           "over restarts; the least recently used are dropped; 0: none (default: 1000)")
      ->group(requests);
  AddBytes(command, "--responses-held", o.responses_held,
           "most bytes of these responses; with several keys each key may use a quarter of both "
           "limits (default: 64M)")
      ->group(requests);
  AddCount(command, "--queue", o.queue,
           "requests that may wait for a slot; more get 429 with Retry-After (default: 256)")
      ->group(requests);
  AddSeconds(command, "--patience", o.patience_s,
             "seconds that requests, running ones included, wait for a lost socket of the cluster "
             "before they end with 503 (default: 5)",
             0.0, 86400.0)
      ->group(requests);
  AddCount(command, "--max-requests-per-peer", o.server.admission.requests.peer,
           "requests per address, running or waiting; more get 429; on loopback only if given "
           "(default: 128)",
           1)
      ->each([&o](const std::string&) { o.server.admission.loopback_is_a_peer = true; })
      ->group(requests);
  AddBytes(command, "--max-held", o.held,
           "most bytes of clients' requests and answers in memory; each address may use a quarter "
           "(default: 256M)")
      ->group(requests);
  AddStallOptions(command, o.scheduling, requests);
  command
      .add_flag("--cache-prompt,!--no-cache-prompt", o.reuse,
                "reuse the KV cache of an idle slot for the beginning of a prompt (default: on)")
      ->group(requests);
  AddPolicyOptions(command, o.scheduling, requests);
  AddAnswerOptions(command, o.answers, requests);
  AddBytes(command, "--max-body", o.body, "most bytes of a request, such as 4M (default: 1M)")
      ->group(requests);
}

void Describe(CLI::App& command, ServeOptions& o) {
  o.model.capacity.slots = 4;
  DescribeNetwork(command, o);
  DescribeRequests(command, o);
  AddSamplingOptions(command, o.sampling, "a new one for each request without one");
  AddModelOptions(command, o.model, {});
}

// The default soft limit is usually 1024, for the sake of programs that use select().
void AllowManyDescriptors(size_t connections) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const rlim_t wanted = 2 * connections + 256;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
  if (limit.rlim_cur < wanted)
    spdlog::warn(
        "at most {} files may be open, too few for {} connections on two ports; raise the "
        "limit (ulimit -n, LimitNOFILE=)",
        limit.rlim_cur, connections);
}

// The first SIGTERM or SIGINT drains the server, the second ends the process at once. `look` is
// called every second, and at once after SIGHUP. A SIGHUP that asks nobody for anything, as a
// closed terminal's, drains, too (nohup keeps it away). The signals are blocked in all threads that
// are created later, so this object must be made before them.
class Signals {
 public:
  Signals(std::function<void(int)> first, std::function<void(bool asked)> look, bool hangup_drains)
      : first_(std::move(first)), look_(std::move(look)), hangup_drains_(hangup_drains) {
    sigemptyset(&set_);
    sigaddset(&set_, SIGINT);
    sigaddset(&set_, SIGTERM);
    struct sigaction hangup {};
    sigaction(SIGHUP, nullptr, &hangup);
    if (hangup.sa_handler != SIG_IGN) sigaddset(&set_, SIGHUP);
    pthread_sigmask(SIG_BLOCK, &set_, nullptr);
    thread_ = std::thread([this] { Wait(); });
  }
  ~Signals() {
    done_.store(true);
    thread_.join();
  }

 private:
  void Wait() {
    const timespec patience{.tv_sec = 0, .tv_nsec = 100'000'000};
    constexpr int kLookEvery = 10;
    for (int count = 0, waits = 0; !done_.load();) {
      const int number = sigtimedwait(&set_, nullptr, &patience);
      if (number == SIGHUP || ++waits % kLookEvery == 0) look_(number == SIGHUP);
      if (number <= 0 || (number == SIGHUP && !hangup_drains_)) continue;
      if (++count > 1) _exit(128 + number);
      first_(number);
    }
  }
  sigset_t set_;
  std::function<void(int)> first_;
  std::function<void(bool)> look_;
  const bool hangup_drains_;
  std::atomic<bool> done_{false};
  std::thread thread_;
};

// CPUs for the I/O thread that no thread of the plan runs on: those of idle cores, else SMT
// siblings.
std::vector<CpuId> HousekeepingCpus(const topology::Topology& machine,
                                    const std::vector<const pipeline::StagePlan*>& plans) {
  std::set<int> cores, cpus;
  const auto add = [&](const std::vector<pipeline::PlanThread>& threads) {
    for (const auto& thread : threads) {
      cores.insert(thread.core.value);
      cpus.insert(thread.cpu.value);
    }
  };
  for (const pipeline::StagePlan* plan : plans) {
    add(plan->threads);
    for (const auto& socket : plan->attention) add(socket.threads);
  }
  std::vector<CpuId> idle, siblings;
  for (const topology::Core& core : machine.cores()) {
    for (const CpuId cpu : core.cpus) {
      if (cores.contains(core.id.value)) {
        if (!cpus.contains(cpu.value)) siblings.push_back(cpu);
      } else {
        idle.push_back(cpu);
      }
    }
  }
  return machine.from_xml() ? std::vector<CpuId>() : !idle.empty() ? idle : siblings;
}

void PrintAddresses(const serving::Server& server, const ServeOptions& o) {
  const bool open = o.server.api_keys.empty();
  for (const std::string& host : o.server.hosts) {
    const std::string shown = host.find(':') == std::string::npos ? host : "[" + host + "]";
    const char* whose = !open                       ? ""
                        : serving::IsLoopback(host) ? "  (no key)"
                                                    : "  (no key: open to the network)";
    if (server.port() >= 0)
      fmt::print("HTTP         http://{}:{}{}\n", shown, server.port(), whose);
    if (server.text_port() >= 0 && open) {
      fmt::print("text stream  {}:{}  (no key; try: echo \"Once upon a time\" | nc {} {})\n", shown,
                 server.text_port(), host, server.text_port());
    } else if (server.text_port() >= 0) {
      fmt::print("text stream  {}:{}\n", shown, server.text_port());
    }
  }
  std::fflush(stdout);
}

// The name of a server that is not a manifest's socket: systemd keeps one of a unit's, by hand
// there may be several.
std::string OwnSocketName() {
  return std::getenv("NOTIFY_SOCKET") != nullptr ? "serving" : fmt::format("serve-{}", getpid());
}

// Reports to `larder status` and systemd.
std::unique_ptr<ServiceMonitor> MakeMonitor(const ServeOptions& o,
                                            const std::optional<ManifestAndServer>& where,
                                            const pipeline::SocketStatus& status) {
  std::string cluster = "larder";
  if (where) {
    if (!where->manifest.name.empty()) cluster = where->manifest.name;
    if (const auto serving = pipeline::ServingOf(where->manifest);
        !o.socket.empty() && (serving.socket == nullptr || serving.socket->name != o.socket)) {
      throw Error("{}: socket '{}' does not have role serving", o.model.manifest, o.socket);
    }
  } else if (!o.socket.empty()) {
    throw CLI::ValidationError("--socket", "needs --manifest");
  }
  auto monitor = std::make_unique<ServiceMonitor>(
      SocketFacts{.cluster = cluster,
                  .socket = o.socket.empty() ? OwnSocketName() : o.socket,
                  .role = pipeline::RoleName(pipeline::Role::kServing)},
      status);
  monitor->Describe("loading");
  return monitor;
}

// Warns of settings that are legal but open the server to more clients than the user may expect.
void WarnOfOpenDoors(const serving::ServerOptions& o) {
  const auto open = std::ranges::find_if_not(o.hosts, serving::IsLoopback);
  if (o.api_keys.empty() && open != o.hosts.end())
    spdlog::warn(
        "--host {} without a key: anyone who reaches this machine may use the model; add "
        "--api-key-file",
        *open);
  if (std::find(o.cors_origins.begin(), o.cors_origins.end(), "*") != o.cors_origins.end())
    spdlog::warn("--cors-origin *: every web page that somebody opens may use the model{}",
                 o.api_keys.empty() ? "" : " if it has a key");
}

// Gives other threads access to the server only while it is ready and all that it calls still
// exists.
class OpenServer {
 public:
  void Open(serving::Server& server) {
    const std::lock_guard lock(mutex_);
    server_ = &server;
  }
  // False if there is no server.
  bool Use(const std::function<void(serving::Server&)>& what) {
    const std::lock_guard lock(mutex_);
    if (server_ != nullptr) what(*server_);
    return server_ != nullptr;
  }
  void Close() {
    const std::lock_guard lock(mutex_);
    server_ = nullptr;
  }

 private:
  std::mutex mutex_;
  serving::Server* server_ = nullptr;
};

// Ends the server's threads, which call the engine and the scheduler, before these are destroyed,
// also when an exception is thrown.
struct ClosesFirst {
  ~ClosesFirst() {
    open.Close();
    server.Close();
  }
  OpenServer& open;
  serving::Server& server;
};

// Watches all loops of this process. Destroy the result before what is watched.
std::vector<ServiceMonitor::Guard> WatchAll(ServiceMonitor& monitor, const serving::Server& server,
                                            pipeline::Engine& engine, bool others_are_processes) {
  std::vector<ServiceMonitor::Guard> watched = {
      monitor.Watch("scheduler", engine.pulse()),
      monitor.WatchPins([&engine] { return engine.packed().pool().LostPins(); })};
  for (const auto& loop : server.loops())
    watched.push_back(monitor.Watch(loop.name, *loop.pulse, loop.patience));
  if (others_are_processes) {
    watched.push_back(monitor.Excuse([&engine] { return engine.HungAttention().has_value(); }));
  } else if (const auto* stages =
                 engine.client() != nullptr ? engine.client()->stage_threads() : nullptr) {
    for (size_t i = 0; i < stages->chain().stages.size(); ++i)
      watched.push_back(monitor.Watch(stages->chain().stages[i].socket, stages->status(i)));
  }
  return watched;
}

pipeline::SlotFileOptions SlotFilesOf(pipeline::Engine& engine, const PlannedModel& planned) {
  return {.model = engine.identity(planned.plan.identity()),
          .context = engine.kv().shape().capacity.context,
          .vocab = engine.limits().vocab,
          .chunk_positions = engine.kv().shape().chunk_positions,
          .chunk_bytes = pipeline::ChunkBytes(engine.kv().shape(), engine.kv_channel()),
          .classes = engine.kv().shape().classes};
}

// cpus: of this process, before its compute threads were pinned. Null without a folder.
std::unique_ptr<pipeline::KvStore> OpenKvStore(const ServeOptions& o, pipeline::Engine& engine,
                                               const PlannedModel& planned,
                                               const std::vector<CpuId>& cpus) {
  pipeline::KvPartOptions options = KvFilesOf(o.model, planned.where);
  options.cpus = cpus;
  if (options.folder.empty()) return nullptr;
  const std::string serving = planned.plan.single() ? planned.plan.stages.front().socket
                              : planned.plan.serving_socket.empty() ? "serving"
                                                                    : planned.plan.serving_socket;
  auto store = std::make_unique<pipeline::KvStore>(options, serving,
                                                   engine.identity(planned.plan.identity()),
                                                   engine.kv().shape(), engine.kv_channel());
  const pipeline::KvFilesStatus& status = store->files().status();
  const std::string& folder = store->files().options().folder;
  if (const uint64_t outdated = status.outdated.load(); outdated > 0)
    spdlog::warn("{}: {}", folder, pipeline::OutdatedText(outdated));
  spdlog::info("{}: {} KV chunks of ended requests{}", folder, status.files.load(),
               store->here() ? fmt::format(", {:.1f} MB", static_cast<double>(status.bytes) * 1e-6)
                             : std::string(", in the files of the sockets that hold KV"));
  return store;
}

// Where this server keeps files for clients.
std::vector<std::string> FoldersOf(const ServeOptions& o,
                                   const std::optional<ManifestAndServer>& where) {
  std::vector<std::string> folders = {o.server.batch_folder, o.slot_folder,
                                      KvFilesOf(o.model, where).folder};
  std::erase(folders, "");
  return folders;
}

int Serve(ServeOptions o) {
  const std::vector<CpuId> cpus = topology::GetAffinity(pthread_self());
  IgnoreBrokenPipes();
  ApiKeyFile keys(o.server.api_keys, o.key_file);
  o.server.api_keys = keys.Read();
  o.server.on_denied = [](const std::string& line) { spdlog::warn("{}", line); };
  WarnOfOpenDoors(o.server);
  mallopt(M_MMAP_THRESHOLD, kLargeBytes);
  pipeline::SocketStatus status;
  std::unique_ptr<ServiceMonitor> monitor;
  o.server.version = LARDER_VERSION;
  o.server.connections.send_s = o.server.connections.receive_s;
  o.server.connections.quiet_s = o.ping_s > 0 ? o.ping_s : kNever;
  o.server.admission.bytes.all = ParseBytes(o.held);
  o.server.http.body_bytes = ParseBytes(o.body);
  if (const uint64_t most = o.server.admission.bytes.all / 4; o.server.http.body_bytes > most)
    throw Error(
        "--max-body {}: expected at most {} MiB, a quarter of --max-held, as for an address",
        o.body, most >> 20);
  o.server.admission.bytes.peer = o.server.admission.bytes.all / 4;
  o.server.batch_quota.disk_bytes = ParseBytes(o.batch_disk);
  if (!o.server.api_keys.empty())
    o.server.batch_quota.tenant_bytes = o.server.batch_quota.disk_bytes / 4;
  o.server.batch_quota.file_bytes =
      std::min(o.server.batch_quota.file_bytes, o.server.batch_quota.disk_bytes);
  o.server.responses.bytes = ParseBytes(o.responses_held);
  if (!o.server.api_keys.empty()) {
    o.server.responses.tenant_bytes = o.server.responses.bytes / 4;
    o.server.responses.tenant_responses = (o.server.responses.responses + 3) / 4;
  }
  o.server.log = [](const std::string& line) { spdlog::error("{}", line); };
  AllowManyDescriptors(o.server.connections.connections);

  OpenServer open;
  const auto drain = [&](int number) {
    const bool drains = open.Use([&](serving::Server& server) {
      spdlog::warn("draining: running answers have {} s to end; the next signal ends them at once",
                   o.server.drain_s);
      if (monitor) monitor->Stopping("draining");
      server.Drain();
    });
    if (!drains)
      _exit(number == SIGTERM ? 0 : 128 + number);  // nothing has begun, or everything is done
  };
  std::function<void()> warn_of_residency;  // set before the server is open
  const auto look = [&](bool asked) {
    open.Use([&](serving::Server& server) {
      warn_of_residency();
      if (auto changed = keys.Changed(asked)) server.SetKeys(std::move(*changed));
    });
  };
  // Not where there is a key file to read again, or a supervisor.
  const Signals signals(drain, look, o.key_file.empty() && std::getenv("NOTIFY_SOCKET") == nullptr);
  const auto where = LoadManifest(o.model, o.socket);
  monitor = MakeMonitor(o, where, status);  // after Signals, so that its threads have the signals
                                            // blocked
  const auto file = model::GgufFile::Open(ModelPath(o.model, where));
  const auto tokenizer = model::Tokenizer::FromGguf(*file);
  serving::ReadyServer about;
  about.defaults = DefaultsOf(*file, tokenizer, o.sampling, o.answers);
  about.defaults.verbose = o.model.verbose;
  const auto machine = ResolveTopology(o.model);

  // Without keys all clients are one tenant, whatever the secret.
  if (!o.server.api_keys.empty() || !o.key_file.empty())
    o.server.tenant_secret = serving::KeptTenantSecret(FoldersOf(o, where));
  o.model.measure_residency = true;  // for the metrics and the page
  // The server listens before the model is loaded, so that clients can be told how far loading is.
  serving::Server server(o.server);
  const PlannedModel planned = PlanModel(*file, where, machine, ToPlanOptions(o.model), o.model);
  const auto engine = LoadEngine(
      file, planned, o.model,
      [&](uint64_t done, uint64_t all) {
        server.Loading("packing weights",
                       all > 0 ? static_cast<double>(done) / static_cast<double>(all) : 0);
      },
      &status);
  if (planned.plan.single() && o.model.join) {
    spdlog::warn(
        "{}: socket {} serves itself: when one of its attention processes ends, it does, and so do "
        "running answers; they would go on with a socket of role \"serving\"",
        o.model.manifest, planned.plan.stages.front().socket);
  }
  const auto kv_store = OpenKvStore(o, *engine, planned, cpus);
  pipeline::Scheduler scheduler(*engine, {.policy = o.scheduling.ToPolicy(),
                                          .reuse_prefixes = o.reuse,
                                          .active_tokens = o.scheduling.active_kv_tokens,
                                          .background_slots = o.batch_slots,
                                          .patience_ms = static_cast<int>(o.patience_s * 1000),
                                          .tier = kv_store ? &kv_store->tier() : nullptr});
  if (kv_store) {
    about.response_folder = kv_store->files().options().folder + "/.responses";
    about.pin_response_files = [cpus] { topology::SetAffinity(pthread_self(), cpus); };
  }
  ServeView view(planned, *engine, scheduler, about.defaults.chat_template->name());
  about.defaults.context = planned.plan.capacity.context;
  about.defaults.fingerprint = engine->identity(planned.plan.identity());
  about.slots = planned.plan.capacity.slots;
  about.queue_limit = o.queue;
  about.sockets = view.SocketNames();
  about.plan = serving::PlanJson(view.plan());
  const serving::ServedModel served =
      ServedModelOf(about.defaults, o.answers, planned.plan.capacity.slots);
  about.plan["served"] = served.ToJson();
  about.batch = {.engine = served.engine,
                 .options = RequestDefaultsText(o.sampling, o.answers, served)};
  const ClosesFirst guard{open, server};
  about.outage = [&] { return scheduler.outage(); };
  about.fill_status = [&](serving::StatusView& status_now) { view.FillStatus(status_now); };
  about.experts = [&] { return view.Experts(); };
  about.fill_metrics = [&](serving::ServingMetrics& metrics) { view.FillMetrics(metrics); };
  if (!o.slot_folder.empty()) {
    about.slot_action = MakeSlotActions({.folder = o.slot_folder,
                                         .most_bytes = ParseBytes(o.slot_disk),
                                         .files = SlotFilesOf(*engine, planned)},
                                        scheduler, [&server] { server.Nudge(); });
  }
  const std::vector<CpuId> housekeeping = HousekeepingCpus(machine, planned.plans_here(o.model));
  if (!housekeeping.empty()) {  // a failure does no harm
    about.pin_thread = [housekeeping] { topology::SetAffinity(pthread_self(), housekeeping); };
  }
  if (housekeeping.empty() && !machine.from_xml())
    spdlog::info("every CPU computes, and the I/O thread shares them; -t {} would leave one to it",
                 std::max<size_t>(1, engine->plan().threads.size() - 1));
  const std::vector<ServiceMonitor::Guard> watched =
      WatchAll(*monitor, server, *engine, o.model.join);
  warn_of_residency = [&view] { view.WarnOfResidency(NowNs()); };
  pipeline::Intake& intake = server.Ready(std::move(about));
  open.Open(server);
  PrintAddresses(server, o);
  monitor->Ready(
      fmt::format("HTTP on port {}, text stream on port {}", server.port(), server.text_port()));
  scheduler.Run(intake);
  return 0;
}

}  // namespace

Command AddServe(CLI::App& program, const ServingSocket* known) {
  auto options = std::make_shared<ServeOptions>();
  CLI::App* command = program.add_subcommand(
      "serve", "serve many clients: OpenAI's and other HTTP APIs, and a text stream");
  Describe(*command, *options);
  if (known != nullptr) {
    const size_t slots = options->model.capacity.slots;  // node has no such option
    options->model = known->model;
    options->model.capacity.slots = slots;
    options->model.join = true;
    options->socket = known->name;
  }
  return {command, [options] { return Serve(*options); }};
}

}  // namespace larder::node::commands
