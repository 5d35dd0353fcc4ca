// FrameLink: a link of two stages or sockets over whatever joins them: shared memory on one server, TCP or
// verbs between servers. One direction: the connector sends, the listener receives. Both ends name the same
// endpoint and shape, check that they run the same Plan, and allocate and register everything before the
// first frame. A satisfied contract of sync/link.h; used from one thread at a time, but for Fail(), fault()
// and what describes it, which any thread may call. Movable while no other thread uses it.
//
// The other end's end is a fault here, within 3 seconds however it comes (exit, kill -9, SIGSTOP, power,
// cable), and so is a fault there: waits return false on both ends. Frames in flight are lost then. After a
// fault the link is of no more use: destroy it, then Accept() or ConnectLink() a new one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <variant>

#include "rdma/proof/link_key.h"
#include "sync/fault.h"
#include "sync/link.h"
#include "sync/wait.h"

namespace larder::rdma {

enum class Transport : uint32_t { kSharedMemory, kTcp, kVerbs };
const char* TransportName(Transport transport);  // as in the manifest: "shm", "tcp", "verbs"
// Whether all addresses of a host, which may be a name, are this server's own and nobody else's to reach.
bool IsLoopback(const std::string& host);

struct LinkShape {
  size_t frame_bytes = 0;  // the largest frame, 1 byte to 1 GiB
  size_t slots = 0;        // frames in flight, 1..65536
};

struct LinkEndpoint {
  Transport transport = Transport::kSharedMemory;
  // The listening socket's name: in messages, and of shared memory's abstract Unix socket, which the caller
  // makes unique on the server (cluster and socket).
  std::string name;
  // TCP, and the control connection of verbs. Empty host: the listener takes every address.
  std::string host;
  uint16_t port = 0;
  // Verbs, this end's own: empty, -1: chosen by the route to the host and shown by description(). With a
  // device the listener tells the connector its address: host may be any address of the server.
  std::string device;
  int device_port = 1;
  int gid_index = -1;
  // Bytes of a packet at most: 256, 512, 1024, 2048 or 4096; 0: what the path takes. The two ends use the
  // smaller one.
  int mtu = 0;
  // TCP and verbs, from the manifest. Of a listener: the host that its connector comes from; connections from
  // others are closed before a byte of them is read. Empty, or a name that nobody knows: from anywhere.
  std::string peer_host;
  // Of a connector: its own host, for a server of several addresses to come from the one that the listener
  // expects. Empty: as the route says.
  std::string own_host;
};

struct LinkIdentity {
  uint64_t plan_hash = 0;  // must be equal
  std::string name;        // this socket's, up to 63 bytes
  std::string cluster;     // must be equal, up to 63 bytes
  // A listener that names one takes no connector of another, whose link has been given up elsewhere before it
  // was made here: that one is refused and the listener goes on. 0: any.
  uint64_t session = 0;
  // The cluster's: the two ends prove to each other that they have it before either says who it is
  // (rdma/proof/link_proof.h). Null: none, which must be so at both ends.
  std::shared_ptr<const LinkKey> key;
};

// An IPv4 address of this server that belongs to an RDMA device (RoCE), of this name if one is given. Empty:
// verbs can't be used, or IP over InfiniBand knows more.
std::string RdmaAddress(const std::string& device = {});

namespace internal {
template <typename End>
struct MadeLink;
}
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

  // Return when a slot is free, when a frame has come: the next BeginSend(), BeginReceive() gives it, unless
  // somebody called Fail() in between: look at what they return. False: the link has a fault.
  bool WaitSend(const sync::WaitPolicy& policy);
  bool WaitReceive(const sync::WaitPolicy& policy);

  // Any thread: raises the fault (the first one wins) here and at the other end, and ends the waits of both.
  void Fail(sync::FaultCode code, uint32_t detail = 0);
  sync::Fault fault() const;

  uint64_t session() const { return session_; }      // the connector's
  const std::string& peer() const { return peer_; }  // "socket stage1 (10.0.0.2:40112)"
  // For the log, when the link is made: "tcp, 4 slots of 12288 bytes, ..." with device, GID and MTU of verbs.
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
  FrameLink(Transport transport, const LinkShape& shape, internal::MadeLink<OneEnd> made);
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

// Receives the connectors of one endpoint, one after the other: when a link has died, destroy it and Accept()
// the next. A connector that comes while nobody accepts waits.
class LinkListener {
 public:
  // Error if the address, the name or the device can't be had: says why.
  explicit LinkListener(const LinkEndpoint& endpoint);
  ~LinkListener();
  LinkListener(LinkListener&&) noexcept;
  LinkListener& operator=(LinkListener&&) noexcept;

  // Error if nobody came in time (kNoTimeout: for ever): it says what was wrong with the last one who came
  // and was sent away. Whoever proves that he knows the key and runs another Plan or shape is told so; nobody
  // else is told anything, and none of them keeps the right one from getting in (rdma/proof/link_gate.h).
  FrameLink Accept(const LinkShape& shape, const LinkIdentity& identity, int timeout_ms);
  void Stop();       // any thread: ends an Accept() that waits, and all later ones, with an Error
  int port() const;  // of TCP and verbs, also if 0 was asked for

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Tries until the listener takes the connection or the time is over: the Error says what to start or check.
// A listener that knows the key and disagrees (another Plan) is an Error at once.
FrameLink ConnectLink(const LinkEndpoint& endpoint, const LinkShape& shape, const LinkIdentity& identity,
                      int timeout_ms);

}  // namespace larder::rdma
