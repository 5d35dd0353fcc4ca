// The rules for role "auto":
//  1. There is one server with several sockets, all auto, and the model's shape and all L3 sizes
//     are known: Resolve separates them (rule 2) if the weights fit the first socket's L3 budget
//     but weights and KV together exceed the budget of all, since the KV cache would then evict the
//     weights. Otherwise it joins them to one colocated socket with all their cores, since
//     separation would gain too little to pay for exchanging activations.
//  2. Otherwise the text alone decides, so that all processes of a cluster agree. On a server whose
//     sockets hold no weights yet, the first auto socket takes them: as weight if another socket of
//     this server can hold the KV cache, else as colocated. All further ones are attention.
#include "pipeline/manifest/roles.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "pipeline/manifest/text.h"

namespace larder::pipeline::inline manifest {
namespace {

bool AnyOf(const ServerSpec& server, Role role) {
  return std::any_of(server.sockets.begin(), server.sockets.end(),
                     [&](const SocketSpec& socket) { return socket.role == role; });
}

std::string Where(const ServerSpec& server, const SocketSpec& socket) {
  return fmt::format("server \"{}\", socket \"{}\"", server.name, socket.name);
}

}  // namespace

namespace {

// Key `for`: the weight socket, of any server, that an attention socket serves; required unless its
// own server has exactly one.
void CheckFor(const Manifest& manifest, const ServerSpec& server) {
  std::vector<std::string> weights;
  std::string here, all;
  const auto add = [](std::string& names, const SocketSpec& socket) {
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", socket.name);
  };
  size_t of_server = 0;
  for (const ServerSpec& other : manifest.servers) {
    for (const SocketSpec& socket : other.sockets) {
      if (DecideRole(other, socket).role != Role::kWeight) continue;
      weights.push_back(socket.name);
      add(all, socket);
      if (&other != &server) continue;
      add(here, socket);
      ++of_server;
    }
  }
  for (const SocketSpec& socket : server.sockets) {
    const Role role = DecideRole(server, socket).role;
    const std::string at = At(manifest.path, socket.line, Where(server, socket));
    if (!socket.for_socket.empty()) {
      if (role != Role::kAttention) {
        throw Error(
            "{}: for = \"{}\": a {} socket has no KV cache of another; expected it only with role "
            "attention",
            at, Shown(socket.for_socket), RoleName(role));
      }
      if (std::ranges::find(weights, socket.for_socket) == weights.end()) {
        throw Error("{}: for = \"{}\": no weight socket; expected {}", at, Shown(socket.for_socket),
                    all.empty() ? "one with role weight" : all);
      }
    } else if (role == Role::kAttention && of_server > 1) {
      throw Error(
          "{}: role {}: several weight sockets share this server; expected for = with one of {}",
          at, RoleName(socket.role), here);
    } else if (role == Role::kAttention && of_server == 0) {
      throw Error("{}: role {}: no weight socket on its server; expected for = with {}", at,
                  RoleName(socket.role),
                  all.empty() ? "a socket of role weight of another" : "one of " + all);
    }
  }
}

void CheckWeightsHaveKv(const Manifest& manifest) {
  for (const StageSpec& stage : StagesOf(manifest)) {
    if (DecideRole(*stage.server, *stage.socket).role != Role::kWeight || !stage.attention.empty())
      continue;
    throw Error(
        "{}: role = \"{}\": no socket has the KV cache; expected one of its server with role "
        "attention or auto, one of another with for = and its name, or colocated here",
        At(manifest.path, stage.socket->line, Where(*stage.server, *stage.socket)),
        RoleName(stage.socket->role));
  }
}

}  // namespace

void CheckRoles(const Manifest& manifest) {
  const SocketSpec *serving = nullptr, *attention = nullptr;
  bool weights_anywhere = false;
  for (const ServerSpec& server : manifest.servers) {
    const SocketSpec *colocated = nullptr, *misfit = nullptr;
    const bool separated = AnyOf(server, Role::kWeight) && AnyOf(server, Role::kAttention);
    for (const SocketSpec& socket : server.sockets) {
      if (socket.role == Role::kColocated) colocated = &socket;
      if (socket.role == Role::kAttention && attention == nullptr) attention = &socket;
      weights_anywhere |= HoldsWeights(socket.role) || socket.role == Role::kAuto;
      const bool fits = socket.role == Role::kColocated || socket.role == Role::kServing ||
                        (separated && socket.role != Role::kAuto);
      if (!fits && misfit == nullptr) misfit = &socket;
      if (socket.role != Role::kServing) continue;
      if (serving != nullptr) {
        throw Error(
            "{}: role = \"serving\": line {} already has one; expected one serving socket in the "
            "manifest",
            At(manifest.path, socket.line, fmt::format("socket \"{}\"", socket.name)),
            serving->line);
      }
      serving = &socket;
    }
    if (colocated != nullptr && misfit != nullptr) {
      throw Error(
          "{}: role = \"{}\": socket \"{}\" of this server is colocated, so it has the weights and "
          "the KV cache; expected weight sockets with attention sockets of their own, or colocated "
          "ones only",
          At(manifest.path, misfit->line, fmt::format("socket \"{}\"", misfit->name)),
          RoleName(misfit->role), colocated->name);
    }
  }
  if (attention != nullptr && !weights_anywhere) {
    throw Error(
        "{}: role = \"attention\": no socket has the weights; expected one with role weight or "
        "auto, or colocated here",
        At(manifest.path, attention->line, fmt::format("socket \"{}\"", attention->name)));
  }
  if (serving != nullptr && !weights_anywhere) {
    throw Error(
        "{}: role = \"serving\": no socket has the layers; expected weight and attention, "
        "colocated or auto sockets beside it",
        At(manifest.path, serving->line, fmt::format("socket \"{}\"", serving->name)));
  }
  for (const ServerSpec& server : manifest.servers) CheckFor(manifest, server);
  CheckWeightsHaveKv(manifest);
}

RoleChoice DecideRole(const ServerSpec& server, const SocketSpec& socket) {
  if (socket.role != Role::kAuto) return {socket.role, "as the manifest says"};
  if (AnyOf(server, Role::kWeight))
    return {Role::kAttention, "another socket of this server has the weights"};
  const auto first = std::find_if(server.sockets.begin(), server.sockets.end(),
                                  [](const SocketSpec& s) { return s.role == Role::kAuto; });
  if (&*first != &socket)
    return {Role::kAttention,
            fmt::format("socket \"{}\" is the first auto one and has the weights", first->name)};
  const bool others =
      std::any_of(server.sockets.begin(), server.sockets.end(), [&](const SocketSpec& s) {
        return &s != &socket && (s.role == Role::kAttention || s.role == Role::kAuto);
      });
  if (others)
    return {Role::kWeight, "the first auto socket of its server; the others have the KV cache"};
  return {Role::kColocated, "alone on its server, and no socket is there for attention"};
}

bool MayJoin(const Manifest& manifest) {
  if (manifest.servers.size() != 1 || manifest.servers[0].sockets.size() < 2) return false;
  const auto& sockets = manifest.servers[0].sockets;
  return std::all_of(sockets.begin(), sockets.end(),
                     [](const SocketSpec& s) { return s.role == Role::kAuto; });
}

}  // namespace larder::pipeline::manifest
