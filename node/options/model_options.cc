#include "node/options/model_options.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <CLI/CLI.hpp>

#include "base/error.h"
#include "node/options/count_option.h"

namespace larder::node::inline options {

void AddModelOptions(CLI::App& command, ModelOptions& options, const ModelOptionSet& set) {
  const char* group = "Model and machine";
  auto* model =
      command.add_option("-m,--model", options.model, "GGUF file")->type_name("FILE")->group(group);
  if (set.model_required && !set.manifest) model->required();
  if (set.manifest) {
    command
        .add_option("--manifest", options.manifest,
                    "the sockets of each server and what they hold, weights or KV cache")
        ->type_name("FILE")
        ->group(group);
    if (set.server) {
      command
          .add_option("--server", options.server,
                      "which server of the manifest this is (default: by host name)")
          ->type_name("NAME")
          ->group(group);
    }
    if (set.engine) {
      command
          .add_option(
              "--frame-timeout", options.frame_timeout_s,
              "seconds that a stage may compute one frame before it counts as hung; 0: no limit "
              "(default: 10)")
          ->type_name("S")
          ->check(NotFinite)
          ->check(CLI::Range(0.0, 86400.0).description(""))
          ->group(group);
      command
          .add_flag("--join", options.join,
                    "connect to the manifest's sockets, which run as processes (larder node), not "
                    "as threads here")
          ->group(group);
      command
          .add_option(
              "--link-key", options.link_key,
              "file with the cluster's key, the same for all its sockets (default: link.key of "
              "$CREDENTIALS_DIRECTORY, if it exists)")
          ->type_name("FILE")
          ->group(group);
      command
          .add_flag("--open-links", options.open_links,
                    "links to other servers without a key: anyone on their network can join or "
                    "stop the cluster")
          ->group(group);
    }
  }
  if (set.threads) {
    AddCount(command, "-t,--threads", options.threads, "threads (default: one per physical core)")
        ->group(group);
  }
  if (set.context) {
    AddCount(command, "-c,--context,--ctx-size", options.capacity.context,
             "tokens of context (default: the model's, at most 4096)")
        ->group(group);
  }
  if (set.slots) {
    AddCount(
        command, "--slots,--parallel", options.capacity.slots,
        fmt::format("sequences with a place in the KV cache (default: {})", options.capacity.slots))
        ->group(group);
    AddKvOptions(command, options, group);
  }
  if (set.engine || set.budget) {
    AddCount(command, "--ubatch-size", options.capacity.max_batch_tokens,
             "-ub: most tokens per micro-batch (default: as many as fit in L2)")
        ->group(group);
  }
  if (set.engine) {
    command
        .add_flag("--isolated", options.isolated,
                  "the cores run nothing else: threads spin and never sleep")
        ->group(group);
    command
        .add_flag("--residency", options.residency,
                  "after loading, report how much of each shard re-reads at L3 speed")
        ->group(group);
  }
  if (set.engine || set.schedules) {
    command
        .add_option(
            "--schedules", options.schedules,
            "file of `larder tune`, or none (default: the user's or the system's, if there is one)")
        ->type_name("FILE")
        ->group(group);
  }
  if (set.engine || set.budget) {
    command
        .add_option("--l3-fraction", options.l3_fraction,
                    "share of each L3 that weights may take (default: 0.75)")
        ->type_name("F")
        ->check(NotFinite)
        ->check(CLI::Range(0.01, 1.0).description(""))
        ->group(group);
  }
  command
      .add_option("--isa", options.isa,
                  "instruction set: auto (this machine's best), scalar, avx2, avx-vnni, "
                  "avx512-vnni (default: auto)")
      ->type_name("NAME")
      ->group(group);
  command
      .add_option("--topology", options.topology,
                  "plan for another machine: XML from lstopo (threads aren't pinned)")
      ->type_name("FILE")
      ->group(group);
  command
      .add_flag(
          "-v,--verbose", options.verbose,
          "log the plan and each step; answers of serve show their prompt (docs/api.md, verbose)")
      ->group(group);
}

kernels::Isa ResolveIsa(const std::string& name) {
  if (name.empty() || name == "auto") return kernels::BestIsa();
  const auto isa = kernels::IsaByName(name);
  if (!isa)
    throw CLI::ValidationError(
        "--isa",
        fmt::format(
            "unknown instruction set '{}'; expected auto, scalar, avx2, avx-vnni or avx512-vnni",
            name));
  if (!kernels::HostHas(*isa)) {
    throw Error("--isa {}: not supported by this machine, whose best is {}", name,
                kernels::IsaName(kernels::BestIsa()));
  }
  return *isa;
}

topology::Topology ResolveTopology(const ModelOptions& options) {
  using topology::Topology;
  const auto scope =
      options.whole_machine || options.join ? Topology::Scope::kAll : Topology::Scope::kAllowed;
  auto machine =
      options.topology.empty() ? Topology::Detect(scope) : Topology::FromXml(options.topology);
  for (const std::string& warning : machine.warnings()) {
    if (options.verbose) spdlog::warn("topology: {}", warning);
  }
  return machine;
}

void AddKvOptions(CLI::App& command, ModelOptions& options, const char* group) {
  AddCount(
      command, "--kv-tokens", options.capacity.kv_tokens,
      "tokens that the KV cache holds for all slots together; when it is full, ended requests are "
      "shortened, then the youngest running ones pause (default: a full context for each slot)",
      1)
      ->group(group);
  AddCount(command, "--cache-ram", options.cache_ram_mib,
           "MiB of memory more, for the KV of ended requests that others may begin as (default: 0)")
      ->check(CLI::Range(size_t{0}, size_t{1} << 30).description(""))
      ->group(group);
}

void AddCacheOptions(CLI::App& command, ModelOptions& options, const char* group) {
  options.keeps_kv_files = true;
  command
      .add_option("--cache-dir", options.cache_folder,
                  "folder in which the KV of ended requests outlives this process; one process's "
                  "at a time (default: the manifest's cache_dir, in which each socket has its own)")
      ->type_name("DIR")
      ->group(group);
  command
      .add_option("--cache-disk", options.cache_disk,
                  "most bytes of its files; the ones unused for longest go (default: the "
                  "manifest's cache_disk, or 8G)")
      ->type_name("BYTES")
      ->check(NotBytes)
      ->group(group);
}

pipeline::KvPartOptions KvFilesOf(const ModelOptions& options,
                                  const std::optional<ManifestAndServer>& where) {
  if (!options.keeps_kv_files) return {};
  pipeline::KvPartOptions files;
  if (!options.cache_folder.empty()) {
    files.folder = options.cache_folder;
  } else if (where && !where->manifest.cache_dir.empty()) {
    files.folder = where->manifest.ResolvePath(where->manifest.cache_dir);
  }
  const uint64_t mib = where ? where->manifest.cache_disk_mib : pipeline::Manifest().cache_disk_mib;
  files.most_bytes = options.cache_disk.empty() ? mib << 20 : ParseBytes(options.cache_disk);
  files.on_problem = [](const std::string& problem) { spdlog::warn("{}", problem); };
  return files;
}

pipeline::PlanOptions ToPlanOptions(const ModelOptions& options) {
  pipeline::PlanOptions plan;
  plan.threads = options.threads;
  plan.capacity.context = options.capacity.context;
  plan.capacity.slots = options.capacity.slots;
  plan.capacity.kv_tokens = options.capacity.kv_tokens;
  plan.cache_ram_bytes = uint64_t{options.cache_ram_mib} << 20;
  plan.capacity.max_batch_tokens = options.capacity.max_batch_tokens;
  plan.l3_fraction = options.l3_fraction;
  plan.isolated = options.isolated;
  plan.isa = ResolveIsa(options.isa);
  return plan;
}

std::optional<ManifestAndServer> ReadManifest(const ModelOptions& options) {
  if (options.manifest.empty()) return std::nullopt;
  return ManifestAndServer{pipeline::Manifest::Load(options.manifest), 0};
}

size_t ServerIndex(const pipeline::Manifest& manifest, const ModelOptions& options,
                   const std::string& socket) {
  const auto index = [&](const pipeline::ServerSpec& server) {
    return static_cast<size_t>(&server - manifest.servers.data());
  };
  if (!options.server.empty()) return index(manifest.server(options.server));
  if (!socket.empty()) return index(manifest.server_of_socket(socket));
  if (manifest.servers.size() == 1) return 0;
  char host[256] = {};
  gethostname(host, sizeof(host) - 1);
  return index(manifest.server(host));
}

std::optional<ManifestAndServer> LoadManifest(const ModelOptions& options,
                                              const std::string& socket) {
  auto result = ReadManifest(options);
  if (result) result->index = ServerIndex(result->manifest, options, socket);
  return result;
}

bool IsCluster(const pipeline::Manifest& manifest) {
  return pipeline::StagesOf(manifest).size() > 1 || pipeline::ServingOf(manifest).socket != nullptr;
}

std::string ModelPath(const ModelOptions& options, const std::optional<ManifestAndServer>& where,
                      const std::string& socket) {
  if (!where) {
    if (options.model.empty()) throw CLI::RequiredError("-m,--model");
    return options.model;
  }
  const pipeline::Manifest& manifest = where->manifest;
  if (options.model.empty() && !manifest.model)
    throw Error("{}: has no model (key model.path); add one or give -m FILE", options.manifest);
  return pipeline::ModelFileOf(
      manifest, options.model.empty() ? manifest.ResolvePath(*manifest.model) : options.model,
      socket);
}

}  // namespace larder::node::options
