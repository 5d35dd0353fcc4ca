// A TCP client's side of a connection, for `larder bench-serve`.
#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>

#include "base/descriptor.h"

namespace larder::node::inline loadgen {

struct Address {
  sockaddr_storage storage{};
  socklen_t length = 0;
};
// Throws Error if the name has no address.
Address Resolve(const std::string& host, uint16_t port);

// A non-blocking connection in progress (EPOLLOUT reports when it is made), with TCP_NODELAY.
// Throws Error.
Descriptor Connect(const Address& address);
// A blocking connection; timeout_s limits this call and each later send and recv. Throws Error if
// it fails.
Descriptor ConnectAndWait(const Address& address, double timeout_s);

}  // namespace larder::node::loadgen
