// Set-up of FrameLinks, shared by the transports: the control connection and its hello. Used by frame_link.cc
// and the transports' *_setup.cc only.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "rdma/control_channel.h"
#include "rdma/descriptor.h"
#include "rdma/frame_link.h"
#include "rdma/link_ends.h"
#include "rdma/link_wire.h"

namespace larder::rdma::internal {

// What a connector of another session is told.
inline constexpr const char* kOtherSession = "it has given up that attempt to connect and begun another";

// A link that is made, not yet wrapped.
template <typename End>
struct MadeLink {
  std::unique_ptr<End> end;
  uint64_t session = 0;
  std::string peer;
  std::string description;
};

// A control connection on which both hellos went well.
struct Handshake {
  Descriptor control;
  WireHello theirs;
  uint64_t token = 0;
  std::string peer;  // "socket stage1 (10.0.0.2:40112)"
};

bool HasLeft(int connection);  // the other end has closed it; what it sent before may still be unread
std::string What(const LinkEndpoint& endpoint);  // "link to socket stage1 at 10.0.0.2:7000"
// Error if a name is too long.
WireHello MakeHello(const LinkEndpoint& endpoint, const LinkShape& shape, const LinkIdentity& identity);

// One attempt of a connector; none: *why is set, try again. Error if the listener refused.
std::optional<Handshake> ConnectControl(const LinkEndpoint& endpoint, const WireHello& mine,
                                        int64_t deadline_ns, std::string* why);
// The next connector of the session whose hello is right. Error if the time is over or a connector disagrees.
Handshake AcceptControl(const Descriptor& listener, const LinkEndpoint& endpoint, const WireHello& mine,
                        int64_t deadline_ns);

MadeLink<ShmEnd> ConnectShm(const LinkEndpoint& endpoint, const LinkShape& shape,
                            const LinkIdentity& identity, int timeout_ms);
MadeLink<ShmEnd> AcceptShm(ControlListener& listener, const LinkEndpoint& endpoint, const LinkShape& shape,
                           const LinkIdentity& identity, int timeout_ms);
std::string ShmName(const LinkEndpoint& endpoint);

// Its attempts, too, say why and are repeated.
std::optional<MadeLink<TcpEnd>> TryConnectTcpLink(const LinkEndpoint& endpoint, const LinkShape& shape,
                                                  const WireHello& mine, int64_t deadline_ns,
                                                  std::string* why);
MadeLink<TcpEnd> AcceptTcpLink(const Descriptor& listener, const LinkEndpoint& endpoint,
                               const LinkShape& shape, const WireHello& mine, int64_t deadline_ns);

// Listens for queue pairs on an address that leads to a device.
class VerbsListener {
 public:
  explicit VerbsListener(const LinkEndpoint& endpoint);  // Error: no device, wrong device, wrong GID
  ~VerbsListener();
  uint16_t port() const;
  MadeLink<VerbsEnd> Accept(const Descriptor& control_listener, const LinkShape& shape, WireHello mine,
                            int64_t deadline_ns);

 private:
  struct State;
  std::unique_ptr<State> state_;
};
std::optional<MadeLink<VerbsEnd>> TryConnectVerbs(const LinkEndpoint& endpoint, const LinkShape& shape,
                                                  const WireHello& mine, int64_t deadline_ns,
                                                  std::string* why);

}  // namespace larder::rdma::internal
