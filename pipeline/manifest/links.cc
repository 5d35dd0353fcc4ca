#include "pipeline/manifest/links.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "pipeline/manifest/text.h"

namespace larder::pipeline::inline manifest {
namespace {

constexpr int kMaxPort = 65535;
constexpr int kMtus[] = {256, 512, 1024, 2048, 4096};  // InfiniBand's MTUs

struct SplitAddress {
  std::string_view host, port;  // the host without brackets
};

// Returns nullopt if brackets or colons are misplaced. The caller checks the parts.
std::optional<SplitAddress> Split(std::string_view text, bool* bracketed) {
  *bracketed = !text.empty() && text.front() == '[';
  const size_t end = *bracketed ? text.find(']') : text.find(':');
  if (*bracketed && end == text.npos) return {};
  SplitAddress split{*bracketed ? text.substr(1, end - 1) : text.substr(0, end), {}};
  std::string_view rest =
      end == text.npos ? std::string_view() : text.substr(end + (*bracketed ? 1 : 0));
  if (rest.empty()) return split;
  if (rest.front() != ':' || rest.size() == 1) return {};
  split.port = rest.substr(1);
  return split;
}

constexpr bool IsNameByte(char c) { return IsAlnum(c) || c == '-' || c == '_' || c == '.'; }

// HOST[:PORT] or [IPV6][:PORT]; alias: the host may be a name from ssh's configuration, which may
// contain
// '_'.
bool IsTarget(std::string_view text, bool alias) {
  bool bracketed = false;
  const auto split = Split(text, &bracketed);
  if (!split || split->host.empty() || split->host.size() > 253) return false;
  const char first = split->host.front();
  const bool begins = IsAlnum(first) || (bracketed ? first == ':' : alias && first == '_');
  const bool host = std::all_of(split->host.begin(), split->host.end(), [&](char c) {
    if (bracketed) return IsAlnum(c) || c == '.' || c == ':' || c == '%';
    return IsNameByte(c) && (alias || c != '_');
  });
  return begins && host &&
         (split->port.empty() || ParseNumber(split->port, kMaxPort).value_or(0) > 0);
}

const char* ChoiceName(TransportChoice choice) {
  switch (choice) {
    case TransportChoice::kShm:
      return rdma::TransportName(rdma::Transport::kSharedMemory);
    case TransportChoice::kTcp:
      return rdma::TransportName(rdma::Transport::kTcp);
    case TransportChoice::kVerbs:
      return rdma::TransportName(rdma::Transport::kVerbs);
    case TransportChoice::kAuto:
      break;
  }
  return "auto";
}

}  // namespace

std::optional<int> ParseNumber(std::string_view text, int most) {
  if (text.empty() || text.size() > 9) return {};
  int number = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return {};
    number = number * 10 + (c - '0');
  }
  return number <= most ? std::optional(number) : std::nullopt;
}

bool IsAddress(std::string_view text) { return IsTarget(text, false); }

bool IsSshTarget(std::string_view text) {
  const size_t at = text.find('@');
  if (at == text.npos) return IsTarget(text, true);
  const std::string_view user = text.substr(0, at);
  return !user.empty() && (IsAlnum(user.front()) || user.front() == '_') &&
         std::all_of(user.begin(), user.end(), [](char c) { return IsNameByte(c); }) &&
         IsTarget(text.substr(at + 1), true);
}

void ReadPort(Fields& fields, std::optional<uint16_t>* port) {
  if (const auto number = fields.Integer("port", 1, kMaxPort, "a TCP port"))
    *port = static_cast<uint16_t>(*number);
}

void ReadLink(Fields& fields, LinkSpec* link) {
  constexpr const char* kTransports = "\"auto\", \"shm\", \"tcp\" or \"verbs\"";
  if (const auto text = fields.String("transport", kTransports)) {
    for (const TransportChoice choice : {TransportChoice::kAuto, TransportChoice::kShm,
                                         TransportChoice::kTcp, TransportChoice::kVerbs}) {
      if (*text == ChoiceName(choice)) link->transport = choice;
    }
    if (!link->transport)
      fields.Fail("transport", fmt::format("no such transport; expected {}", kTransports));
  }
  constexpr const char* kDevice = "an RDMA device as `ibv_devices` names it, such as \"mlx5_0\"";
  link->device = fields.String("device", kDevice);
  const bool good =
      !link->device || (link->device->size() < 64 && IsAlnum(link->device->front()) &&
                        std::all_of(link->device->begin(), link->device->end(), [](char c) {
                          return IsAlnum(c) || c == '_' || c == '-' || c == '.';
                        }));
  if (!good) fields.Fail("device", fmt::format("not a device's name; expected {}", kDevice));
  const auto number = [&](const char* key, int64_t low, int64_t high, const char* expected) {
    const auto value = fields.Integer(key, low, high, expected);
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  };
  link->device_port = number("device_port", 1, 255, "a port of the device");
  link->gid_index = number("gid_index", 0, 255, "an index of the port's GID table (`show_gids`)");
  link->mtu = number("mtu", 256, 4096, "256, 512, 1024, 2048 or 4096");
  if (link->mtu && std::find(std::begin(kMtus), std::end(kMtus), *link->mtu) == std::end(kMtus))
    fields.Fail("mtu", "no MTU of RDMA; expected 256, 512, 1024, 2048 or 4096");
}

Endpoint EndpointOf(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket) {
  Endpoint endpoint;
  int port = manifest.port;
  bool bracketed = false;
  if (const auto split = Split(server.address, &bracketed)) {
    endpoint.host = split->host;
    if (!split->port.empty()) port = ParseNumber(split->port, kMaxPort).value_or(port);
  }
  port = socket.port ? *socket.port : port + static_cast<int>(&socket - server.sockets.data());
  if (port > kMaxPort) {
    throw Error(
        "{}: its port would be {}, the server's first port plus the socket's index; expected port "
        "= with a free port up to {}",
        AtSocket(manifest, server, socket), port, kMaxPort);
  }
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

LinkSpec LinkOf(const Manifest& manifest, const SocketSpec& socket) {
  const LinkSpec &own = socket.link, &all = manifest.link;
  return {own.transport ? own.transport : all.transport, own.device ? own.device : all.device,
          own.device_port ? own.device_port : all.device_port,
          own.gid_index ? own.gid_index : all.gid_index, own.mtu ? own.mtu : all.mtu};
}

rdma::Transport ChooseTransport(const LinkSpec& one, const LinkSpec& other, bool same_server) {
  using enum TransportChoice;
  const TransportChoice a = one.transport.value_or(kAuto), b = other.transport.value_or(kAuto);
  if (a != kAuto && b != kAuto && a != b) {
    throw Error(
        "one end of the link has transport \"{}\", the other \"{}\"; expected the same, or auto",
        ChoiceName(a), ChoiceName(b));
  }
  switch (a != kAuto ? a : b) {
    case kShm:
      if (same_server) return rdma::Transport::kSharedMemory;
      throw Error(
          "transport \"shm\" is for sockets of one server; expected \"tcp\", \"verbs\" or "
          "\"auto\"");
    case kTcp:
      return rdma::Transport::kTcp;
    case kVerbs:
      return rdma::Transport::kVerbs;
    case kAuto:
      break;
  }
  if (same_server) return rdma::Transport::kSharedMemory;
  return one.device && other.device ? rdma::Transport::kVerbs : rdma::Transport::kTcp;
}

Endpoint BackEndpointOf(const Manifest& manifest, const StageSpec& stage, size_t attention) {
  constexpr size_t kApart = 64;
  Endpoint endpoint = EndpointOf(manifest, *stage.server, *stage.socket);
  const size_t port = endpoint.port + kApart * (attention + 1);
  if (port > kMaxPort) {
    throw Error(
        "{}: it would listen for attention socket \"{}\" on port {}, its own and {} for each; "
        "expected port = with one that leaves room",
        AtSocket(manifest, *stage.server, *stage.socket), stage.attention[attention]->name, port,
        kApart);
  }
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

void CheckLinks(const Manifest& manifest) {
  std::map<std::pair<std::string, uint16_t>, const SocketSpec*> places;
  for (const ServerSpec& server : manifest.servers) {
    for (const SocketSpec& socket : server.sockets) {
      const Endpoint at = EndpointOf(manifest, server, socket);
      const auto [place, fresh] = places.try_emplace({at.host, at.port}, &socket);
      if (!fresh) {
        throw Error(
            "{}: it would listen on port {}, which socket \"{}\" has; expected port = with another",
            AtSocket(manifest, server, socket), at.port, place->second->name);
      }
    }
  }
  for (const StageSpec& stage : StagesOf(manifest)) {
    for (size_t i = 0; i < stage.attention.size(); ++i) {
      const SocketSpec& socket = *stage.attention[i];
      const ServerSpec& server = manifest.server_of_socket(socket.name);
      if (&server == stage.server) continue;
      try {
        ChooseTransport(LinkOf(manifest, *stage.socket), LinkOf(manifest, socket), false);
      } catch (const Error& error) {
        throw Error("{}: transport: link to socket \"{}\": {}", AtSocket(manifest, server, socket),
                    stage.socket->name, error.what());
      }
      const Endpoint back = BackEndpointOf(manifest, stage, i);
      const auto [place, fresh] = places.try_emplace({back.host, back.port}, stage.socket);
      if (!fresh) {
        throw Error(
            "{}: its weight socket would listen for it on port {}, which socket \"{}\" has; "
            "expected port = with another",
            AtSocket(manifest, server, socket), back.port, place->second->name);
      }
    }
  }
  // The loop: each stage sends to the next, the last to the serving socket, and that to the first.
  const std::vector<StageSpec> stages = StagesOf(manifest);
  std::vector<ServingSpec> loop;
  loop.reserve(stages.size() + 1);
  for (const StageSpec& stage : stages) loop.push_back({stage.server, stage.socket});
  if (ServingOf(manifest).socket != nullptr) loop.push_back(ServingOf(manifest));
  for (size_t i = 0; i < loop.size() && loop.size() > 1; ++i) {
    const ServingSpec &from = loop[i], &to = loop[(i + 1) % loop.size()];
    if (i + 1 == loop.size() && ServingOf(manifest).socket == nullptr) break;
    try {
      ChooseTransport(LinkOf(manifest, *from.socket), LinkOf(manifest, *to.socket),
                      from.server == to.server);
    } catch (const Error& error) {
      throw Error("{}: transport: link to socket \"{}\": {}",
                  AtSocket(manifest, *from.server, *from.socket), to.socket->name, error.what());
    }
  }
}

}  // namespace larder::pipeline::manifest
