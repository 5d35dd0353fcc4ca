// FrameLink: a link between two stages or sockets, over shared memory on one server, over TCP or
// verbs between servers. It has one direction: the connector sends, the listener receives. Both
// ends name the same endpoint and shape, check that they run the same Plan, and allocate and
// register everything before the first frame. It satisfies sync/link.h. One thread at a time uses
// it, except that any thread may call Fail(), fault() and the functions that describe it. Movable
// while no other thread uses it.
//
// If the other end dies (exit, kill -9, SIGSTOP, power, cable) or has a fault, this end has a fault
// within 3 seconds: waits return false on both ends, and frames in flight are lost. A link with a
// fault cannot be used again: destroy it, then Accept() or ConnectLink() a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "rdma/common/link_shape.h"
#include "rdma/proof/link_key.h"
#include "sync/fault.h"
#include "sync/link.h"
#include "sync/wait.h"

namespace larder::rdma::inline link {

enum class Transport : uint32_t { kSharedMemory, kTcp, kVerbs };
const char* TransportName(Transport transport);  // as in the manifest: "shm", "tcp", "verbs"
// Whether all addresses of a host, which may be a name, are loopback addresses, which only this
// server reaches.
bool IsLoopback(const std::string& host);

struct LinkEndpoint {
  Transport transport = Transport::kSharedMemory;
  // The listening socket's name. It is used in messages and, with shared memory, as the name of a
  // Unix socket, which the caller makes unique on the server (cluster and socket).
  std::string name;
  // Address of TCP and of verbs' control connection. An empty host: the listener listens on every
  // address.
  std::string host;
  uint16_t port = 0;
  // Verbs, this end's device, port and GID index. Empty and -1: the route to the host chooses, and
  // description() shows the choice. A listener with a device tells the connector its address, so
  // `host` may be any address of the server.
  std::string device;
  int device_port = 1;
  int gid_index = -1;
  // Verbs, the most bytes per packet: 256, 512, 1024, 2048 or 4096; 0: what the path allows. The
  // two ends use the smaller of their values.
  int mtu = 0;
  // TCP and verbs, from the manifest. For a listener: the host that its connector comes from;
  // connections from other hosts are closed before a byte is read. Empty, or a name that cannot be
  // resolved: from anywhere.
  std::string peer_host;
  // For a connector: its own host, so that a server with several addresses connects from the one
  // that the listener expects. Empty: the route decides.
  std::string own_host;
};

struct LinkIdentity {
  uint64_t plan_hash = 0;  // must be equal
  std::string name;        // this socket's, up to 63 bytes
  std::string cluster;     // must be equal, up to 63 bytes
  // A listener with a session refuses connectors of other sessions (their chain was given up before
  // this link was made) and goes on listening. 0: any session.
  uint64_t session = 0;
  // The cluster's key. The two ends prove to each other that they have it before either says who it
  // is (rdma/proof/link_proof.h). Null: no key; then the other end may have none either.
  std::shared_ptr<const LinkKey> key;
};

// An IPv4 address of this server that belongs to an RDMA device (RoCE), to the one of this name if
// a name is given. Empty: verbs cannot be used, or the device is InfiniBand and its address that of
// IP over InfiniBand.
std::string RdmaAddress(const std::string& device = {});

// A number for LinkIdentity::session that no other process has.
uint64_t NewSession();

template <typename End>
struct MadeLink;
class TcpEnd;
class ShmEnd;
class VerbsEnd;

class FrameLink {
 public:
  FrameLink();  // no link
  ~FrameLink();
  FrameLink(FrameLink&& other) noexcept;
  FrameLink& operator=(FrameLink&& other) noexcept;

  size_t frame_bytes() const { return shape_.frame_bytes; }
  size_t slots() const { return shape_.slots; }
  Transport transport() const { return transport_; }

  sync::SendSlot BeginSend();
  void EndSend(size_t size_bytes = sync::kWholeFrame);
  sync::ReceivedFrame BeginReceive();
  void EndReceive();

  // WaitSend returns when a slot is free, WaitReceive when a frame has arrived. The next
  // BeginSend() or BeginReceive() gives it, unless Fail() was called in between, so check its
  // result too. Both return false if the link has a fault.
  bool WaitSend(const sync::WaitPolicy& policy);
  bool WaitReceive(const sync::WaitPolicy& policy);

  // Raises the fault (the first one wins) here and at the other end, and ends the waits of both.
  // Any thread.
  void Fail(sync::FaultCode code, uint32_t detail = 0);
  sync::Fault fault() const;

  uint64_t session() const { return session_; }      // the connector's
  const std::string& peer() const { return peer_; }  // "socket stage1 (10.0.0.2:40112)"
  // For the log of the set-up: "tcp, 4 slots of 12288 bytes, ...", with device, GID and MTU of
  // verbs.
  const std::string& description() const { return description_; }
  // "socket stage1 (10.0.0.2:40112): link down: silent for 2.5 s: ..."; empty without a fault.
  std::string FaultText() const;

 private:
  friend class LinkListener;
  friend FrameLink ConnectLink(const LinkEndpoint&, const LinkShape&, const LinkIdentity&, int);
  friend struct LinkTesting;
  using End = std::variant<std::monostate, std::unique_ptr<ShmEnd>, std::unique_ptr<TcpEnd>,
                           std::unique_ptr<VerbsEnd>>;
  template <typename OneEnd>
  FrameLink(Transport transport, const LinkShape& shape, MadeLink<OneEnd> made);
  template <typename Visitor>
  auto OnEnd(Visitor visit) const;

  Transport transport_ = Transport::kSharedMemory;
  LinkShape shape_;
  End end_;
  uint64_t session_ = 0;
  std::string peer_;
  std::string description_;
};
static_assert(sync::Link<FrameLink>);

// Accepts the connectors of one endpoint, one after the other: when a link has a fault, destroy it
// and Accept() the next. A connector that comes while no Accept() runs waits.
class LinkListener {
 public:
  // Throws Error, with the reason, if the address, the name or the device cannot be used.
  explicit LinkListener(const LinkEndpoint& endpoint);
  ~LinkListener();
  LinkListener(LinkListener&&) noexcept;
  LinkListener& operator=(LinkListener&&) noexcept;

  // Throws Error if no peer was accepted in time (kNoTimeout: waits for ever); it says what was
  // wrong with the last connection that was refused. A peer that proves that it knows the key but
  // runs another Plan or shape is told so; other connections are told nothing. None of them keeps
  // the right peer from getting in (rdma/proof/link_gate.h).
  FrameLink Accept(const LinkShape& shape, const LinkIdentity& identity, int timeout_ms);
  void Stop();       // any thread: the Accept() that waits, and all later ones, throw an Error
  int port() const;  // TCP and verbs: the port in use, also if 0 was asked for

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Retries until the listener takes the connection. At the timeout it throws an Error that says what
// to start or check. It throws at once if the listener knows the key and disagrees (another Plan).
FrameLink ConnectLink(const LinkEndpoint& endpoint, const LinkShape& shape,
                      const LinkIdentity& identity, int timeout_ms);

}  // namespace larder::rdma::link
