// TCP for the set-up of links: listen, connect with patience, send and receive whole messages until a
// deadline. Every socket is non-blocking, closes on exec, and has TCP_NODELAY. Set-up only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rdma/descriptor.h"

namespace larder::rdma::internal {

// host empty: every address of this server. port 0: one that is free. what: for the Error, "link to x".
Descriptor ListenTcp(const std::string& host, uint16_t port, const std::string& what);
int PortOf(const Descriptor& socket);

// The next connection, or none when the time is over.
Descriptor AcceptTcp(const Descriptor& listener, int64_t deadline_ns);
// One attempt that ends at the deadline. No descriptor: *why says what the system said.
Descriptor TryConnectTcp(const std::string& host, uint16_t port, int64_t deadline_ns, std::string* why);

// False if the other end closed, an error occurred, or the time is over.
bool SendAll(const Descriptor& socket, const void* bytes, size_t count, int64_t deadline_ns);
bool ReceiveAll(const Descriptor& socket, void* bytes, size_t count, int64_t deadline_ns);

std::string PeerAddress(const Descriptor& socket);  // "10.0.0.2:7000"
int64_t DeadlineNs(int timeout_ms);
int LeftMs(int64_t deadline_ns);  // never negative

}  // namespace larder::rdma::internal
