// What a socket of a manifest does on the network, for the filters in its unit: by the text alone, since
// every server knows all addresses.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "pipeline/manifest/manifest.h"

namespace larder::node {

struct NetworkFacts {
  // Addresses of the sockets before and after it, and its own server's, sorted; localhost is not among them.
  std::vector<std::string> peers;
  std::vector<std::string> names;  // those that are no IP addresses and so can't be filtered
  std::string clients_host;     // what a serving socket takes clients on, if others than this server reach it
  uint16_t link_port = 0;       // where it listens for the socket before it
  std::vector<uint16_t> ports;  // that and clients': all it listens on; sorted
  bool any_port = false;        // on a port that the system chooses, too
  double drain_s = 0;           // a serving socket's; 0: it has no clients
};

// Error if the options of a serving socket are not what `larder serve` takes.
NetworkFacts NetworkOf(const pipeline::Manifest& manifest, const std::string& socket, pipeline::Role role);

// The lines of a drop-in.
std::string NetworkLines(const NetworkFacts& facts);

}  // namespace larder::node
