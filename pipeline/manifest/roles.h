// Roles and slots of a manifest's sockets, decided by its text alone. Used by the manifest's files only.
#pragma once

#include <string>

#include "pipeline/manifest/manifest.h"

namespace larder::pipeline {

// Error for combinations of roles that can never work; what is sound but not there yet is NotYetSupported's.
void CheckRoles(const Manifest& manifest);

struct RoleChoice {
  Role role = Role::kColocated;
  std::string reason;
};

RoleChoice DecideRole(const ServerSpec& server, const SocketSpec& socket);

// Error for `layers` keys that some stages lack or that leave a gap or overlap.
void CheckLayers(const Manifest& manifest);

// Slots of each of the server's sockets, in order. A sequence has its KV cache in every stage, so each
// stage's sockets have all slots between them. Error if the model's slots and the sockets' own do not agree.
std::vector<size_t> DecideSlots(const Manifest& manifest, const ServerSpec& server);

// All of a lone server's sockets are of role auto and there are several: Resolve may make one of them.
bool MayJoin(const Manifest& manifest);

}  // namespace larder::pipeline
