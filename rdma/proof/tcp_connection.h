// TCP connections for the set-up of links: listen, connect, send and receive whole messages until a
// deadline. Every one is non-blocking, closes on exec, and has the options of links. Set-up only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "base/descriptor.h"

namespace larder::rdma::inline proof {

// An empty host means every address of this server, port 0 any free port. `what` begins the Error:
// "link to x".
Descriptor ListenTcp(const std::string& host, uint16_t port, const std::string& what);
int PortOf(const Descriptor& socket);

// One attempt, which ends at the deadline. Returns no descriptor if it fails; *why is then the
// system's reason. from: the local address to connect from, used if it is one and has a route
// there; empty: the route decides.
Descriptor TryConnectTcp(const std::string& host, uint16_t port, const std::string& from,
                         int64_t deadline_ns, std::string* why);
// Sets TCP_NODELAY and keepalive; keepalive detects an idle connection whose packets are lost
// (rdma/tcp/link_monitor.h). TCP_USER_TIMEOUT is not set, because it also ends a connection whose
// receiver is alive but slow to read (a window of 0 for that long; tried on Linux 6.18), such as a
// stage that computes a long prompt.
void SetLinkOptions(const Descriptor& socket);

bool HasLeft(int connection);  // the other end has closed it; bytes sent before may still be unread
// Both return false if the other end closed the connection, an error occurred, or the deadline has
// passed.
bool SendAll(const Descriptor& socket, const void* bytes, size_t count, int64_t deadline_ns);
bool ReceiveAll(const Descriptor& socket, void* bytes, size_t count, int64_t deadline_ns);

// Addresses as 16 bytes of IPv6, with IPv4 mapped. AddressesOf gives none for an empty or unknown
// host.
using AddressBytes = std::array<uint8_t, 16>;
std::vector<AddressBytes> AddressesOf(const std::string& host);
bool IsLoopbackAddress(const AddressBytes& address);
AddressBytes PeerBytes(const Descriptor& socket);
std::string PeerAddress(const Descriptor& socket);  // "10.0.0.2:7000"
int64_t DeadlineNs(int timeout_ms);
int LeftMs(int64_t deadline_ns);  // never negative

}  // namespace larder::rdma::proof
