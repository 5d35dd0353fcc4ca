// Roles and slots of a manifest's sockets, decided by its text alone. Used by
// pipeline/plan/resolve.cc, too.
#pragma once

#include <string>

#include "pipeline/manifest/manifest.h"

namespace larder::pipeline::inline manifest {

// Throws Error for combinations of roles that can never work.
void CheckRoles(const Manifest& manifest);

struct RoleChoice {
  Role role = Role::kColocated;
  std::string reason;
};

RoleChoice DecideRole(const ServerSpec& server, const SocketSpec& socket);

// Throws Error if only some stages have `layers` keys, or if the ranges leave a gap or overlap.
void CheckLayers(const Manifest& manifest);

// Slots of each of the server's sockets, in order. A sequence has its KV cache in every stage, so
// the sockets of each stage together have all slots. Throws Error if the model's slots and the
// sockets' own do not agree.
std::vector<size_t> DecideSlots(const Manifest& manifest, const ServerSpec& server);

// Whether Resolve may join the sockets into one: there is one server, with several sockets, all of
// role auto.
bool MayJoin(const Manifest& manifest);

}  // namespace larder::pipeline::manifest
