// Set-up of FrameLinks, shared by the transports: the control connection and its hello. Used by
// frame_link.cc and the transports' *_setup.cc only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/descriptor.h"
#include "rdma/control/control_channel.h"
#include "rdma/control/control_message.h"
#include "rdma/link/frame_link.h"
#include "rdma/link/link_ends.h"
#include "rdma/proof/link_gate.h"
#include "rdma/proof/link_key.h"
#include "rdma/proof/link_proof.h"
#include "rdma/proof/link_wire.h"

namespace larder::rdma::inline link {

// A link that is set up, before it becomes a FrameLink.
template <typename End>
struct MadeLink {
  std::unique_ptr<End> end;
  uint64_t session = 0;
  std::string peer;
  std::string description;
};

// A control connection on which both proofs and both hellos succeeded.
struct Handshake {
  Descriptor control;
  WireHello theirs;
  SessionKey session;
  std::string peer;  // "socket stage1 (10.0.0.2:40112)"
};

// Where a listener waits, and the key that it demands.
struct Door {
  const Descriptor& listener;
  const LinkKey& key;
  int stop_fd = -1;  // the wait ends when it becomes readable
};

std::string What(const LinkEndpoint& endpoint);  // "link to socket stage1 at 10.0.0.2:7000"
// Throws Error if a name is too long.
WireHello MakeHello(const LinkEndpoint& endpoint, const LinkShape& shape,
                    const LinkIdentity& identity);

// The set-up of a gate at a TCP listener. It admits the neighbour's address only, if that is known.
LinkGate::Setup GateSetup(const Door& door, const LinkEndpoint& endpoint, ConnectionKind kind);

// One attempt of a connector. nullopt: it failed, *why says why; try again. Throws Error if a
// listener that knows the key refused.
std::optional<Handshake> ConnectControl(const LinkEndpoint& endpoint, const WireHello& mine,
                                        const LinkKey& key, int64_t deadline_ns, std::string* why);
// The next connector of the session whose proof and hello are right. Others are refused; one that
// knows the key is told what it disagrees about. Throws Error at the deadline, with the reason of
// the last refusal, or when the listener is stopped.
Handshake AcceptControl(const Door& door, const LinkEndpoint& endpoint, const WireHello& mine,
                        int64_t deadline_ns);

MadeLink<ShmEnd> ConnectShm(const LinkEndpoint& endpoint, const LinkShape& shape,
                            const LinkIdentity& identity, int timeout_ms);
MadeLink<ShmEnd> AcceptShm(ControlListener& listener, const LinkEndpoint& endpoint,
                           const LinkShape& shape, const LinkIdentity& identity, int timeout_ms,
                           int stop_fd);
std::string ShmName(const LinkEndpoint& endpoint);

// One attempt, as with ConnectControl: nullopt and *why if it failed.
std::optional<MadeLink<TcpEnd>> TryConnectTcpLink(const LinkEndpoint& endpoint,
                                                  const LinkShape& shape, const WireHello& mine,
                                                  const LinkKey& key, int64_t deadline_ns,
                                                  std::string* why);
MadeLink<TcpEnd> AcceptTcpLink(const Door& door, const LinkEndpoint& endpoint,
                               const LinkShape& shape, const WireHello& mine, int64_t deadline_ns);

// Listens for queue pairs on an address that belongs to an RDMA device.
class VerbsListener {
 public:
  explicit VerbsListener(const LinkEndpoint& endpoint);  // Error: no device, wrong device, wrong
                                                         // GID
  ~VerbsListener();
  uint16_t port() const;
  MadeLink<VerbsEnd> Accept(const Door& door, const LinkShape& shape, WireHello mine,
                            int64_t deadline_ns);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::optional<MadeLink<VerbsEnd>> TryConnectVerbs(const LinkEndpoint& endpoint,
                                                  const LinkShape& shape, const WireHello& mine,
                                                  const LinkKey& key, int64_t deadline_ns,
                                                  std::string* why);

}  // namespace larder::rdma::link
