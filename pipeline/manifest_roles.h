// Roles and slots of a manifest's sockets, decided by its text alone. Used by the manifest's files only.
#pragma once

#include <string>

#include "pipeline/manifest.h"

namespace larder::pipeline {

// Error for combinations of roles that can never work; what is sound but not there yet is NotYetSupported's.
void CheckRoles(const Manifest& manifest);

struct RoleChoice {
  Role role = Role::kColocated;
  std::string reason;
};

RoleChoice DecideRole(const Manifest& manifest, const ServerSpec& server, const SocketSpec& socket);

// Slots of each of the server's sockets, in order. Error if the model's slots and the sockets' own do not
// agree.
std::vector<size_t> DecideSlots(const Manifest& manifest, const ServerSpec& server);

// Sockets of all servers that hold weights: the layers are shared out among them.
size_t CountWeightSockets(const Manifest& manifest);

// All of a lone server's sockets are of role auto and there are several: Resolve may make one of them.
bool MayJoin(const Manifest& manifest);

}  // namespace larder::pipeline
