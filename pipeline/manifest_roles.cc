// The rules for role "auto":
//  1. One server, all its sockets auto, several of them, and the model's shape and all L3 sizes known:
//  Resolve
//     separates them (rule 2) if the weights fit the first socket's L3 budget but weights and KV together
//     exceed the budget of all: that is when the KV cache would push the weights out. Otherwise they join to
//     one colocated socket of all their cores: nothing is gained that would pay for handing activations over.
//  2. Else by the text alone, so that every process of a cluster decides alike. On a server whose sockets
//  hold no
//     weights yet the first auto socket takes them: as weight if another socket of this server, or an
//     attention socket anywhere, can have the KV cache, else as colocated. All further ones are attention.
#include "pipeline/manifest_roles.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/error.h"
#include "pipeline/manifest_text.h"

namespace larder::pipeline {
namespace {

bool AnyOf(const ServerSpec& server, Role role) {
  return std::any_of(server.sockets.begin(), server.sockets.end(),
                     [&](const SocketSpec& socket) { return socket.role == role; });
}

bool AnyOf(const Manifest& manifest, Role role) {
  return std::any_of(manifest.servers.begin(), manifest.servers.end(),
                     [&](const ServerSpec& server) { return AnyOf(server, role); });
}

std::string Where(const ServerSpec& server, const SocketSpec& socket) {
  return fmt::format("server \"{}\", socket \"{}\"", server.name, socket.name);
}

}  // namespace

void CheckRoles(const Manifest& manifest) {
  const SocketSpec *weight = nullptr, *attention = nullptr, *serving = nullptr, *any_auto = nullptr;
  bool colocated_anywhere = false;
  for (const ServerSpec& server : manifest.servers) {
    const SocketSpec* colocated = nullptr;
    for (const SocketSpec& socket : server.sockets) {
      if (socket.role == Role::kWeight) weight = &socket;
      if (socket.role == Role::kAttention && attention == nullptr) attention = &socket;
      if (socket.role == Role::kAuto) any_auto = &socket;
      if (socket.role == Role::kColocated) colocated = &socket;
      if (socket.role == Role::kServing && serving != nullptr) {
        throw Error("{}: role = \"serving\": line {} has one already; expected one serving socket in all",
                    At(manifest.path, socket.line, fmt::format("socket \"{}\"", socket.name)), serving->line);
      }
      if (socket.role == Role::kServing) serving = &socket;
    }
    colocated_anywhere |= colocated != nullptr;
    for (const SocketSpec& socket : server.sockets) {
      if (colocated == nullptr || socket.role == Role::kColocated || socket.role == Role::kServing) continue;
      throw Error(
          "{}: role = \"{}\": socket \"{}\" of this server is colocated, so it has the weights and the KV "
          "cache; expected weight and attention sockets, or colocated ones only",
          At(manifest.path, socket.line, fmt::format("socket \"{}\"", socket.name)), RoleName(socket.role),
          colocated->name);
    }
  }
  if (attention != nullptr && weight == nullptr && any_auto == nullptr) {
    throw Error(
        "{}: role = \"attention\": no socket has the weights; expected one with role weight or auto, or "
        "colocated here",
        At(manifest.path, attention->line, fmt::format("socket \"{}\"", attention->name)));
  }
  if (weight != nullptr && attention == nullptr && any_auto == nullptr) {
    throw Error(
        "{}: role = \"weight\": no socket has the KV cache; expected one with role attention or auto, or "
        "colocated here",
        At(manifest.path, weight->line, fmt::format("socket \"{}\"", weight->name)));
  }
  if (serving != nullptr && weight == nullptr && !colocated_anywhere && any_auto == nullptr) {
    throw Error(
        "{}: role = \"serving\": no socket has the layers; expected weight and attention, colocated or auto "
        "sockets beside it",
        At(manifest.path, serving->line, fmt::format("socket \"{}\"", serving->name)));
  }
}

RoleChoice DecideRole(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket) {
  if (socket.role != Role::kAuto) return {socket.role, "as the manifest says"};
  if (AnyOf(server, Role::kWeight))
    return {Role::kAttention, "another socket of this server has the weights"};
  const auto first = std::find_if(server.sockets.begin(), server.sockets.end(),
                                  [](const SocketSpec& s) { return s.role == Role::kAuto; });
  if (&*first != &socket)
    return {Role::kAttention,
            fmt::format("socket \"{}\" is the first auto one and has the weights", first->name)};
  const bool others = std::any_of(server.sockets.begin(), server.sockets.end(), [&](const SocketSpec& s) {
    return &s != &socket && (s.role == Role::kAttention || s.role == Role::kAuto);
  });
  if (others) return {Role::kWeight, "the first auto socket of its server; the others have the KV cache"};
  if (AnyOf(manifest, Role::kAttention))
    return {Role::kWeight, "alone on its server; the attention sockets of other servers have the KV cache"};
  return {Role::kColocated, "alone on its server, and no socket is there for attention"};
}

std::vector<size_t> DecideSlots(const Manifest& manifest, const ServerSpec& server) {
  size_t given = 0, open = 0;
  for (const ServerSpec& s : manifest.servers) {
    for (const SocketSpec& socket : s.sockets) {
      if (!HoldsKv(DecideRole(manifest, s, socket).role)) continue;
      if (socket.slots) {
        given += *socket.slots;
      } else {
        ++open;
      }
    }
  }
  const size_t total = manifest.slots != 0 ? manifest.slots : given + open;
  if (total < given + open || (open == 0 && given != 0 && total != given)) {
    throw Error(
        "{}: slots = {}: the sockets with a KV cache ask for {}{}; expected {}",
        At(manifest.path, 0, "[model]"), total, given,
        open != 0 ? fmt::format(" and {} of them take the rest, at least one each", open) : std::string(),
        open != 0 ? fmt::format("at least {}", given + open) : fmt::format("{}", given));
  }
  // The rest in even shares, the first sockets one more.
  std::vector<size_t> slots;
  size_t index = 0;
  for (const ServerSpec& s : manifest.servers) {
    for (const SocketSpec& socket : s.sockets) {
      size_t mine = 0;
      if (HoldsKv(DecideRole(manifest, s, socket).role)) {
        const size_t rest = total - given;
        mine = socket.slots ? *socket.slots : rest / open + (index < rest % open ? 1 : 0);
        if (!socket.slots) ++index;
      }
      if (&s == &server) slots.push_back(mine);
    }
  }
  return slots;
}

size_t CountWeightSockets(const Manifest& manifest) {
  size_t count = 0;
  for (const ServerSpec& server : manifest.servers) {
    for (const SocketSpec& socket : server.sockets)
      count += HoldsWeights(DecideRole(manifest, server, socket).role) ? 1 : 0;
  }
  return count;
}

bool MayJoin(const Manifest& manifest) {
  if (manifest.servers.size() != 1 || manifest.servers[0].sockets.size() < 2) return false;
  const auto& sockets = manifest.servers[0].sockets;
  return std::all_of(sockets.begin(), sockets.end(),
                     [](const SocketSpec& s) { return s.role == Role::kAuto; });
}

std::vector<std::string> NotYetSupported(const Manifest& manifest) {
  std::vector<std::string> lines;
  std::vector<std::string> weights;
  for (const ServerSpec& server : manifest.servers) {
    bool weights_here = false;
    for (const SocketSpec& socket : server.sockets)
      weights_here |= HoldsWeights(DecideRole(manifest, server, socket).role);
    for (const SocketSpec& socket : server.sockets) {
      const Role role = DecideRole(manifest, server, socket).role;
      const std::string at = At(manifest.path, socket.line, Where(server, socket));
      if (HoldsWeights(role)) weights.push_back(socket.name);
      if (HoldsWeights(role) && weights.size() > 1) {
        lines.push_back(
            fmt::format("{}: role {}: a further stage after socket \"{}\"; this version runs one stage, so "
                        "expected one socket that holds weights",
                        at, RoleName(role), weights.front()));
      }
      if (role == Role::kAttention && !weights_here) {
        lines.push_back(
            fmt::format("{}: role attention: its weights are on another server; this version links "
                        "sockets of one server only",
                        at));
      }
      if (role == Role::kServing) {
        lines.push_back(
            fmt::format("{}: role serving: this version keeps embedding and head with the weights; leave "
                        "the socket out",
                        at));
      }
    }
  }
  return lines;
}

}  // namespace larder::pipeline
