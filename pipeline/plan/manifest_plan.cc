#include "pipeline/plan/manifest_plan.h"

#include <algorithm>
#include <filesystem>

#include "base/error.h"

namespace larder::pipeline {

std::vector<CoreId> CoresOf(const ResolvedSocket& socket, const topology::Topology& topology) {
  std::vector<CoreId> cores;
  for (const CpuId cpu : socket.cpus) {
    const auto owner = std::find_if(socket.cores.begin(), socket.cores.end(), [&](CoreId core) {
      const auto& cpus = topology.core(core).cpus;
      return std::find(cpus.begin(), cpus.end(), cpu) != cpus.end();
    });
    cores.push_back(*owner);
  }
  return cores;
}

ManifestPlan PlanManifest(const Manifest& manifest, const ServerSpec& server,
                          const model::ModelConfig& config, const topology::Topology& topology,
                          PlanOptions options) {
  const size_t stages = StagesOf(manifest).size();
  if (stages > 1 || ServingOf(manifest).socket != nullptr) {
    throw Error(
        "{}: a cluster of {} stage{}; expected one socket that holds weights, and no serving socket, for one "
        "server alone",
        manifest.path, stages, stages == 1 ? "" : "s");
  }
  ManifestPlan result;
  result.cluster = manifest.name;
  result.sockets = Resolve(manifest, server, topology, &config, &result.warnings);
  std::stable_sort(result.sockets.begin(), result.sockets.end(),
                   [](const ResolvedSocket& a, const ResolvedSocket& b) {
                     return HoldsWeights(a.role) > HoldsWeights(b.role);
                   });
  const auto weights = std::count_if(result.sockets.begin(), result.sockets.end(),
                                     [](const auto& s) { return HoldsWeights(s.role); });
  if (weights != 1) {
    throw Error(
        "{}: server '{}' has {} sockets that hold weights; this version runs one (role weight, colocated or "
        "auto)",
        manifest.path, server.name, weights);
  }
  const ResolvedSocket& first = result.sockets.front();
  options.cores = CoresOf(first, topology);
  options.cpus = first.cpus;
  options.l3_fraction = first.l3_fraction;
  options.attention.clear();
  if (options.context == 0) options.context = manifest.context;
  if (manifest.isa) options.isa = *manifest.isa;
  if (first.role == Role::kColocated) options.slots = std::max<size_t>(1, first.slots);
  const bool all_isolated = options.isolated;  // --isolated
  options.isolated = all_isolated || first.isolated;
  for (const ResolvedSocket& socket : result.sockets) {
    if (socket.role == Role::kAttention)
      options.attention.push_back({socket.name, CoresOf(socket, topology), socket.cpus, socket.slots,
                                   all_isolated || socket.isolated});
  }
  if (first.role == Role::kWeight && options.attention.empty()) {
    throw Error(
        "{}: socket '{}' has role weight, but server '{}' has no attention socket to hold its KV cache; add "
        "one, or make it colocated",
        manifest.path, first.name, server.name);
  }
  result.plan = MakeStagePlan(config, topology, options);
  return result;
}

std::string ModelFileOf(const Manifest& manifest, const std::string& model, std::string_view socket) {
  const std::filesystem::path folder(model);
  std::error_code ignored;
  if (!std::filesystem::is_directory(folder, ignored)) return model;
  for (const StageSpec& stage : StagesOf(manifest)) {
    const bool mine =
        stage.socket->name == socket || std::any_of(stage.attention.begin(), stage.attention.end(),
                                                    [&](const SocketSpec* s) { return s->name == socket; });
    if (mine) return folder / (stage.socket->name + ".gguf");
  }
  const ServingSpec serving = ServingOf(manifest);
  return folder / ((serving.socket != nullptr ? serving.socket->name : "serving") + ".gguf");
}

void CheckRunnable(const Manifest& manifest) {
  const std::vector<std::string> lines = NotYetSupported(manifest);
  if (!lines.empty()) throw Error("{}", lines.front());
}

size_t AttentionIndex(const ManifestPlan& plan, const std::string& socket) {
  std::string names;
  for (size_t i = 0; i < plan.plan.attention.size(); ++i) {
    if (plan.plan.attention[i].name == socket) return i;
    names += fmt::format("{}'{}'", names.empty() ? "" : ", ", plan.plan.attention[i].name);
  }
  for (const ResolvedSocket& other : plan.sockets) {
    if (std::find(other.joined.begin(), other.joined.end(), socket) == other.joined.end()) continue;
    throw Error(
        "socket '{}' has role auto and its cores became part of socket '{}' ({}); expected no process for "
        "it, or role attention in the manifest",
        socket, other.name, other.reason);
  }
  throw Error("socket '{}' is not an attention socket of cluster '{}'; those are: {}", socket, plan.cluster,
              names.empty() ? "none" : names);
}

std::string Table(const ManifestPlan& plan) {
  std::string out = fmt::format("cluster    {}\n", plan.cluster);
  for (const ResolvedSocket& socket : plan.sockets) {
    std::string cpus;
    for (const CpuId cpu : socket.cpus) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu.value);
    out += fmt::format("socket     {}: {} on cpus {} (NUMA node {}{}){}{}\n", socket.name,
                       RoleName(socket.role), cpus, socket.node.value, socket.isolated ? ", isolated" : "",
                       socket.slots ? fmt::format(", {} slots", socket.slots) : std::string(),
                       socket.reason.empty() ? std::string() : fmt::format(": {}", socket.reason));
  }
  out += plan.plan.Table();
  for (const std::string& warning : plan.warnings) out += fmt::format("\nwarning: {}", warning);
  if (!plan.warnings.empty()) out += '\n';
  return out;
}

}  // namespace larder::pipeline
