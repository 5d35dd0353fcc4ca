#include "pipeline/plan/made_manifests.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory.h"
#include "pipeline/plan/layer_split.h"
#include "pipeline/plan/plan.h"
#include "weight_node/shard_plan.h"

namespace larder::pipeline::inline plan {
namespace {

// The layers of each socket: as few sockets as hold them all. Layers may differ in their types, and
// so in their bytes; a socket has at least one, whether or not it fits. Last layers that belong
// together and do not fit have a socket of their own: more sockets would not make them smaller.
std::vector<size_t> Share(const model::ModelConfig& config, uint64_t budget) {
  size_t layers = config.layers, together = config.layers_together();
  std::vector<size_t> alone;
  if (weight_node::LayerBytes(config, layers - together, together) > budget) {
    alone.push_back(together);
    layers -= std::exchange(together, 1);
  }
  std::vector<size_t> share;
  if (layers > 0) {
    const uint64_t mean_bytes = CeilDiv(weight_node::LayerBytes(config, 0, layers), layers);
    SocketCount count = CountSockets(layers, mean_bytes, budget);
    const size_t most = layers - together + 1;
    count.sockets = std::min(count.sockets, most);
    const auto fits = [&] {
      size_t first = 0;
      return std::ranges::all_of(share, [&](size_t of_socket) {
        const uint64_t bytes = weight_node::LayerBytes(config, first, of_socket);
        first += of_socket;
        return bytes <= budget || of_socket == 1;
      });
    };
    do {
      share = SplitEvenly(layers, count.sockets, together);
    } while (!fits() && count.sockets++ < most);
  }
  share.insert(share.end(), alone.begin(), alone.end());
  return share;
}

}  // namespace

Manifest OneSocket(const PlanOptions& options) {
  Manifest manifest;
  manifest.slots = options.capacity.slots;
  manifest.l3_fraction = options.l3_fraction;
  SocketSpec socket{.name = "socket", .role = Role::kColocated, .isolated = options.isolated};
  socket.threads = options.threads;
  manifest.servers.push_back({.sockets = {std::move(socket)}});
  return manifest;
}

std::vector<MachineUse> UsesOf(const topology::Topology& machine, const PlanOptions& options) {
  const auto packages = machine.packages();
  std::vector<MachineUse> uses = {
      {fmt::format("one pool over {} packages", packages.size()), OneSocket(options)}};
  if (packages.size() < 2 || options.threads != 0) return uses;
  PlanOptions first = options;
  first.threads = packages[0].cores.size();
  uses.push_back({"one package, the others idle", OneSocket(first)});
  if (packages.size() > 2) return uses;
  Manifest apart = OneSocket(options);
  const auto cores = [&](size_t i) {
    return fmt::format("package:{}", machine.core(packages[i].cores.front()).package);
  };
  SocketSpec& weights = apart.servers[0].sockets[0];
  weights.role = Role::kWeight;
  weights.cores = cores(0);
  apart.servers[0].sockets.push_back({.name = "kv",
                                      .role = Role::kAttention,
                                      .cores = cores(1),
                                      .isolated = options.isolated,
                                      .for_socket = weights.name});
  uses.push_back({"weights on one package, KV on the other", std::move(apart)});
  return uses;
}

Manifest UniformCluster(const model::ModelConfig& config, const SocketShape& socket,
                        const PlanOptions& options) {
  if (socket.cores == 0 || socket.l3_bytes == 0)
    throw Error("plan: a socket of {} cores and {} bytes of L3; expected at least one of each",
                socket.cores, socket.l3_bytes);
  Manifest manifest;
  manifest.l3_fraction = options.l3_fraction;
  const auto add = [&](std::string name, Role role, std::optional<Range<size_t>> layers) {
    SocketSpec spec{
        .name = std::move(name), .role = role, .isolated = options.isolated, .layers = layers};
    manifest.servers.push_back({.sockets = {std::move(spec)}});
  };
  const auto budget =
      static_cast<uint64_t>(static_cast<double>(socket.l3_bytes) * options.l3_fraction);
  size_t first = 0;
  for (const size_t layers : Share(config, budget)) {
    add(fmt::format("stage-{}", manifest.servers.size()), Role::kColocated,
        Range<size_t>{first, first + layers});
    first += layers;
  }
  manifest.slots = std::max(options.capacity.slots, MaxInFlight(manifest.servers.size()));
  add("serving", Role::kServing, std::nullopt);
  return manifest;
}

topology::Topology MachineOf(const SocketShape& socket) {
  return topology::Topology::FromSynthetic(fmt::format(
      "[numa(memory=0)] package:1 l3:1(size={}) core:{} pu:1", socket.l3_bytes, socket.cores));
}

}  // namespace larder::pipeline::plan
