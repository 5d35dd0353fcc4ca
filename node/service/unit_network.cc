#include "node/service/unit_network.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"
#include "serving/net/server.h"

namespace larder::node::inline service {
namespace {

using pipeline::Manifest;

// An IP address without its zone, as systemd accepts it; empty for a name.
std::string AddressOf(const std::string& host) {
  const std::string address = host.substr(0, host.find('%'));
  in6_addr bytes;
  const bool good =
      inet_pton(AF_INET, address.c_str(), &bytes) == 1 ||
      (host.find(':') != host.npos && inet_pton(AF_INET6, address.c_str(), &bytes) == 1);
  return good ? address : "";
}

bool IsLoopback(const std::string& host) {
  return host.empty() || host == "localhost" || host == "::1" ||
         (host.starts_with("127.") && !AddressOf(host).empty());
}

// The chain in order: the stages, then the serving socket. Without one, the joining process on the
// first stage's server stands in for it.
std::vector<std::pair<std::string, std::string>> SocketsAndHosts(const Manifest& manifest) {
  std::vector<std::pair<std::string, std::string>> loop;
  for (const pipeline::StageSpec& stage : pipeline::StagesOf(manifest))
    loop.emplace_back(stage.socket->name, EndpointOf(manifest, *stage.server, *stage.socket).host);
  const pipeline::ServingSpec serving = pipeline::ServingOf(manifest);
  if (serving.socket != nullptr) {
    loop.emplace_back(serving.socket->name,
                      EndpointOf(manifest, *serving.server, *serving.socket).host);
  } else if (!loop.empty()) {
    loop.emplace_back("", loop.front().second);
  }
  return loop;
}

// Where the socket meets attention sockets of other servers, or as one of them its weight socket.
void AddAttention(const Manifest& manifest, const std::string& socket, std::set<std::string>* hosts,
                  std::set<uint16_t>* ports) {
  for (const pipeline::StageSpec& stage : pipeline::StagesOf(manifest)) {
    for (size_t i = 0; i < stage.attention.size(); ++i) {
      const pipeline::SocketSpec& attention = *stage.attention[i];
      const pipeline::ServerSpec& server = manifest.server_of_socket(attention.name);
      if (&server == stage.server) continue;
      if (attention.name == socket)
        hosts->insert(EndpointOf(manifest, *stage.server, *stage.socket).host);
      if (stage.socket->name != socket) continue;
      hosts->insert(EndpointOf(manifest, server, attention).host);
      ports->insert(BackEndpointOf(manifest, stage, i).port);
    }
  }
}

// Reads the few options that a unit depends on; `larder serve` checks the others.
serving::ServerOptions ReadOptions(const pipeline::SocketSpec& socket) {
  serving::ServerOptions options;
  CLI::App program;
  program.allow_extras();
  program.set_help_flag();
  program.add_option("--host", options.hosts)->delimiter(',');
  program.add_option("--port", options.port);
  program.add_option("--text-port", options.text_port);
  program.add_option("--drain-timeout", options.drain_s);
  // reversed for CLI11
  std::vector<std::string> words(socket.options.rbegin(), socket.options.rend());
  try {
    program.parse(std::move(words));
  } catch (const CLI::ParseError& error) {
    throw Error("socket \"{}\": options: {}", socket.name, error.what());
  }
  return options;
}

}  // namespace

NetworkFacts NetworkOf(const Manifest& manifest, const std::string& socket, pipeline::Role role) {
  NetworkFacts facts;
  const pipeline::ServerSpec& server = manifest.server_of_socket(socket);
  std::set<std::string> hosts;
  std::set<uint16_t> ports;
  AddAttention(manifest, socket, &hosts, &ports);
  if (role == pipeline::Role::kAttention && hosts.empty())
    return facts;  // it has no network connections, only shared memory
  const auto spec = std::find_if(server.sockets.begin(), server.sockets.end(),
                                 [&](const pipeline::SocketSpec& s) { return s.name == socket; });
  const pipeline::Endpoint own = EndpointOf(manifest, server, *spec);
  hosts.insert(own.host);
  ports.insert(own.port);
  facts.link_port = own.port;
  const auto loop = SocketsAndHosts(manifest);
  for (size_t i = 0; i < loop.size(); ++i) {
    if (loop[i].first != socket) continue;
    hosts.insert(loop[(i + 1) % loop.size()].second);
    hosts.insert(loop[(i + loop.size() - 1) % loop.size()].second);
  }
  if (role == pipeline::Role::kServing) {
    const serving::ServerOptions options = ReadOptions(*spec);
    for (const std::string& host : options.hosts)
      if (!IsLoopback(host)) facts.clients_host = host;
    facts.drain_s = options.drain_s;
    for (const int port : {options.port, options.text_port}) {
      if (port > 0 && port <= 65535) ports.insert(static_cast<uint16_t>(port));
      facts.any_port |= port == 0;
    }
  }
  for (const std::string& host : hosts) {
    if (IsLoopback(host)) continue;
    const std::string address = AddressOf(host);
    (address.empty() ? facts.names : facts.peers).push_back(address.empty() ? host : address);
  }
  facts.ports.assign(ports.begin(), ports.end());
  return facts;
}

std::string NetworkLines(const NetworkFacts& facts) {
  std::string out;
  if (!facts.clients_host.empty()) {
    out += fmt::format(
        "# No IPAddressDeny=: clients reach it on {}, and a filter of addresses is one for all of "
        "its ports. Its link is\n"
        "# guarded by the cluster's key; a firewall can keep strangers from port {}.\n",
        facts.clients_host, facts.link_port);
  } else if (!facts.names.empty()) {
    out += fmt::format(
        "# No IPAddressDeny=: the manifest has names ({}), and filters know addresses only.\n",
        fmt::join(facts.names, ", "));
  } else {
    out += fmt::format(
        "# The kernel drops packets from hosts that are {}. RDMA goes past this filter.\n"
        "IPAddressDeny=any\n"
        "IPAddressAllow=localhost{}{}\n",
        facts.peers.empty() ? "not on this server" : "not its neighbours in the manifest",
        facts.peers.empty() ? "" : " ", fmt::join(facts.peers, " "));
  }
  if (facts.any_port) {
    out += "# No SocketBindDeny=: one of its ports is 0, which the system chooses.\n";
  } else {
    out += fmt::format(
        "# It listens {}, whatever takes it over. Where `systemctl --version` says -BPF_FRAMEWORK, "
        "as Debian 12's does,\n"
        "# nothing comes of it.\n"
        "SocketBindDeny=any\n",
        facts.ports.empty() ? "nowhere, having shared memory only" : "here and nowhere else");
    for (const uint16_t port : facts.ports) out += fmt::format("SocketBindAllow=tcp:{}\n", port);
  }
  if (facts.drain_s > 0) {
    out += fmt::format(
        "# Its answers get {:.0f} s after SIGTERM (--drain-timeout); what is left then has half a "
        "minute to end by itself.\n"
        "TimeoutStopSec={:.0f}\n",
        facts.drain_s, std::ceil(facts.drain_s) + 30);
  }
  return out;
}

}  // namespace larder::node::service
