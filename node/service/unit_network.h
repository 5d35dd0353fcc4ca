// The network endpoints of a manifest's socket, for the address filters in its unit. They come from
// the manifest alone, since every server's manifest has all addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/manifest/manifest.h"

namespace larder::node::inline service {

struct NetworkFacts {
  // Addresses of the sockets before and after this one, of those that it shares attention with over
  // links, and its own server's, sorted; without localhost.
  std::vector<std::string> peers;
  std::vector<std::string> names;  // peers that are names, not IP addresses, and so can't be
                                   // filtered
  std::string clients_host;  // a serving socket's host for clients, if other servers can reach it
  uint16_t link_port = 0;    // where it listens for the socket before it, or its weight socket; 0:
                             // nowhere
  std::vector<uint16_t> ports;  // all ports that it listens on, link_port included; sorted
  bool any_port = false;        // it also listens on a port that the system chooses
  double drain_s = 0;           // drain timeout of a serving socket; 0: it has no clients
};

// Error if `larder serve` would refuse the options of a serving socket.
NetworkFacts NetworkOf(const pipeline::Manifest& manifest, const std::string& socket,
                       pipeline::Role role);

// The lines of a drop-in.
std::string NetworkLines(const NetworkFacts& facts);

}  // namespace larder::node::service
