#include <algorithm>

#include "base/check.h"
#include "base/error.h"
#include "pipeline/chain/chain_plan.h"

namespace larder::pipeline::inline chain {
namespace {

std::string HostOf(const Endpoint& at) { return at.host.empty() ? "127.0.0.1" : at.host; }

// here: the link keys of the end that uses the endpoint.
rdma::LinkEndpoint EndpointFor(const std::string& cluster, const std::string& listener,
                               rdma::Transport transport, const Endpoint& at,
                               const LinkSpec& here) {
  return {.transport = transport,
          .name = fmt::format("larder/{}/{}/frames", cluster, listener),
          .host = HostOf(at),
          .port = at.port,
          .device = here.device.value_or(""),
          .device_port = here.device_port.value_or(1),
          .gid_index = here.gid_index.value_or(-1),
          .mtu = here.mtu.value_or(0)};
}

}  // namespace

ChainPlan ChainOf(const Manifest& manifest, const Plan& cluster) {
  const size_t stages = cluster.stages.size();
  LARDER_CHECK(cluster.links.size() == stages + 1);
  ChainPlan chain;
  chain.cluster = cluster.cluster;
  chain.config = cluster.config;
  chain.plan_hash = cluster.hash();
  chain.serving_socket = cluster.serving_socket.empty() ? "serving" : cluster.serving_socket;
  chain.capacity = cluster.capacity;

  // Who listens where, by rank: the serving socket first.
  struct Listener {
    std::string name;
    Endpoint at;
    LinkSpec link;
  };
  std::vector<Listener> loop(1);
  auto listener = [&](const std::string& name) -> Listener {
    const ServerSpec& server = manifest.server_of_socket(name);
    const auto socket = std::find_if(server.sockets.begin(), server.sockets.end(),
                                     [&](const SocketSpec& s) { return s.name == name; });
    return {name, EndpointOf(manifest, server, *socket), LinkOf(manifest, *socket)};
  };
  for (const PlacedStage& stage : cluster.stages) loop.push_back(listener(stage.socket));
  if (cluster.serving_socket.empty()) {
    loop[0] = {chain.serving_socket, loop[1].at, manifest.link};
    --loop[0].at.port;
  } else {
    loop[0] = listener(cluster.serving_socket);
  }
  auto receiving = [&](size_t i, size_t user) {
    const size_t link = i == 0 ? stages : i - 1;  // links[k] leads from rank k to the next
    rdma::LinkEndpoint endpoint = EndpointFor(
        chain.cluster, loop[i].name, cluster.links[link].transport, loop[i].at, loop[user].link);
    if (user == i) {
      endpoint.peer_host = HostOf(loop[link].at);  // links[k] comes from rank k
    } else {
      endpoint.own_host = HostOf(loop[user].at);
    }
    return endpoint;
  };
  for (size_t i = 0; i < stages; ++i) {
    const PlacedStage& stage = cluster.stages[i];
    const size_t next = i + 1 == stages ? 0 : i + 2;
    chain.stages.push_back({.socket = stage.socket,
                            .first_layer = stage.first_layer,
                            .layers = stage.layers,
                            .endpoint = receiving(i + 1, i + 1),
                            .next = receiving(next, i + 1)});
    chain.DivideLike(stage.plan);
  }
  chain.serving = receiving(0, 0);
  chain.first = receiving(1, 0);
  return chain;
}

AttentionLinks AttentionLinksOf(const Manifest& manifest, const Plan& plan,
                                const PlacedStage& stage, const std::string& socket,
                                const std::shared_ptr<const rdma::LinkKey>& key) {
  AttentionLinks links{
      .identity = {.plan_hash = plan.hash(), .name = socket, .cluster = plan.cluster, .key = key},
      .of = {}};
  const std::vector<StageSpec> specs = StagesOf(manifest);
  const auto spec = std::ranges::find_if(
      specs, [&](const StageSpec& of) { return of.socket->name == stage.socket; });
  LARDER_CHECK(spec != specs.end());
  for (size_t i = 0; i < stage.attention.size(); ++i) {
    if (stage.attention_machines[i] == stage.machine) {
      links.of.emplace_back();
      continue;
    }
    // Its place in the manifest: sockets that were joined have none in the Plan.
    const auto place = std::ranges::find_if(spec->attention, [&](const SocketSpec* attention) {
      return attention->name == stage.attention[i];
    });
    LARDER_CHECK(place != spec->attention.end());
    const SocketSpec& attention = **place;
    const ServerSpec& server = manifest.server_of_socket(attention.name);
    const LinkSpec there = LinkOf(manifest, attention), here = LinkOf(manifest, *spec->socket);
    const rdma::Transport transport = ChooseTransport(here, there, false);
    const Endpoint at = EndpointOf(manifest, server, attention);
    const Endpoint back =
        BackEndpointOf(manifest, *spec, static_cast<size_t>(place - spec->attention.begin()));
    const bool weights = socket == stage.socket;
    AttentionEndpoints ends{
        .there = EndpointFor(plan.cluster, attention.name, transport, at, weights ? here : there),
        .back = EndpointFor(plan.cluster, stage.socket, transport, back, weights ? here : there)};
    (weights ? ends.there : ends.back).own_host = HostOf(weights ? back : at);
    (weights ? ends.back : ends.there).peer_host = HostOf(weights ? at : back);
    links.of.emplace_back(std::move(ends));
  }
  return links;
}

}  // namespace larder::pipeline::chain
