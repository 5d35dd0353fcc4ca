// Making a TCP link: the control connection, then the one for the frames, joined by a token.
#include <poll.h>

#include <algorithm>

#include "base/error.h"
#include "rdma/link_setup.h"
#include "rdma/tcp_socket.h"

namespace larder::rdma::internal {
namespace {

constexpr int kSecondConnectionMs = 5000;

MadeLink<TcpEnd> Make(Handshake control, Descriptor data, const LinkShape& shape, LinkSide side) {
  MadeLink<TcpEnd> made;
  made.end = std::make_unique<TcpEnd>(std::move(control.control), std::move(data),
                                      ShmLinkShape{shape.frame_bytes, shape.slots}, side);
  made.session = control.theirs.session;
  made.peer = std::move(control.peer);
  made.description = fmt::format("tcp, {} slots of {} bytes, {}", shape.slots, shape.frame_bytes,
                                 made.end->link.memory().Describe());
  return made;
}

// The connection that brings the token, or none if it did not come or the control connection closed.
Descriptor AcceptData(const Descriptor& listener, const Handshake& control, int64_t deadline_ns) {
  for (;;) {
    // not POLLIN: the connector's first sign of life may be there already
    pollfd watched[2] = {{listener.get(), POLLIN, 0}, {control.control.get(), POLLRDHUP, 0}};
    const int ready = poll(watched, 2, LeftMs(deadline_ns));
    if (ready < 0) continue;
    if (watched[1].revents != 0 || (ready == 0 && LeftMs(deadline_ns) == 0)) return {};
    if (watched[0].revents == 0) continue;
    Descriptor data = AcceptTcp(listener, deadline_ns);
    WireHello hello;
    if (data && ReceiveAll(data, &hello, sizeof(hello), deadline_ns) && IsHello(hello) &&
        hello.kind == HelloKind::kData && hello.token == control.token) {
      return data;
    }
  }
}

}  // namespace

std::optional<MadeLink<TcpEnd>> TryConnectTcpLink(const LinkEndpoint& endpoint, const LinkShape& shape,
                                                  const WireHello& mine, int64_t deadline_ns,
                                                  std::string* why) {
  std::optional<Handshake> control = ConnectControl(endpoint, mine, deadline_ns, why);
  if (!control) return std::nullopt;
  Descriptor data = TryConnectTcp(endpoint.host, endpoint.port, deadline_ns, why);
  if (!data) return std::nullopt;
  WireHello hello = mine;
  hello.kind = HelloKind::kData;
  hello.token = control->token;
  if (!SendAll(data, &hello, sizeof(hello), deadline_ns)) {
    *why = "it closed the second connection";
    return std::nullopt;
  }
  return Make(std::move(*control), std::move(data), shape, LinkSide::kSend);
}

MadeLink<TcpEnd> AcceptTcpLink(const Descriptor& listener, const LinkEndpoint& endpoint,
                               const LinkShape& shape, const WireHello& mine, int64_t deadline_ns) {
  for (;;) {
    Handshake control = AcceptControl(listener, endpoint, mine, deadline_ns);
    Descriptor data = AcceptData(listener, control, std::min(deadline_ns, DeadlineNs(kSecondConnectionMs)));
    if (data) return Make(std::move(control), std::move(data), shape, LinkSide::kReceive);
  }
}

}  // namespace larder::rdma::internal
