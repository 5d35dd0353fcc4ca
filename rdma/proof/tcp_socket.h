// TCP for the set-up of links: listen, connect with patience, send and receive whole messages until a
// deadline. Every socket is non-blocking, closes on exec, and has the options of links. Set-up only.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rdma/ipc/descriptor.h"

namespace larder::rdma::internal {

// host empty: every address of this server. port 0: one that is free. what: for the Error, "link to x".
Descriptor ListenTcp(const std::string& host, uint16_t port, const std::string& what);
int PortOf(const Descriptor& socket);

// One attempt that ends at the deadline. No descriptor: *why says what the system said. from: the address of
// this server to come from, if it is one and leads there; empty: as the route says.
Descriptor TryConnectTcp(const std::string& host, uint16_t port, const std::string& from, int64_t deadline_ns,
                         std::string* why);
// TCP_NODELAY; and keepalive, so that an idle connection whose packets are lost is found out
// (rdma/tcp/link_monitor.h). Not TCP_USER_TIMEOUT: it also ends a connection whose receiver lives and is slow
// to read (window 0 for so long; tried on Linux 6.18), as a stage that computes a long prompt is.
void SetLinkOptions(const Descriptor& socket);

bool HasLeft(int connection);  // the other end has closed it; what it sent before may still be unread
// False if the other end closed, an error occurred, or the time is over.
bool SendAll(const Descriptor& socket, const void* bytes, size_t count, int64_t deadline_ns);
bool ReceiveAll(const Descriptor& socket, void* bytes, size_t count, int64_t deadline_ns);

// As in an IPv6 address, IPv4 mapped. Of a name or literal: none if it is empty or unknown.
using AddressBytes = std::array<uint8_t, 16>;
std::vector<AddressBytes> AddressesOf(const std::string& host);
bool IsLoopbackAddress(const AddressBytes& address);
AddressBytes PeerBytes(const Descriptor& socket);
std::string PeerAddress(const Descriptor& socket);  // "10.0.0.2:7000"
int64_t DeadlineNs(int timeout_ms);
int LeftMs(int64_t deadline_ns);  // never negative

}  // namespace larder::rdma::internal
