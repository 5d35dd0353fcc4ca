// Set-up of a TCP link: the control connection, then the connection of the frames, which proves
// that it belongs to the same session.
#include <algorithm>
#include <optional>
#include <utility>

#include "base/error.h"
#include "rdma/link/link_setup.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline link {
namespace {

constexpr int kSecondConnectionMs = 5000;

MadeLink<TcpEnd> Make(Handshake control, Descriptor data, const LinkShape& shape, LinkSide side) {
  MadeLink<TcpEnd> made;
  made.end = std::make_unique<TcpEnd>(std::move(control.control), std::move(data), shape, side);
  made.session = control.theirs.session;
  made.peer = std::move(control.peer);
  made.description = fmt::format("tcp, {} slots of {} bytes, {}", shape.slots, shape.frame_bytes,
                                 made.end->link.memory().Describe());
  return made;
}

// The second connection of this session; none if it did not come or the control connection closed.
Descriptor AcceptData(const Door& door, const LinkEndpoint& endpoint, const Handshake& control,
                      int64_t deadline_ns) {
  LinkGate::Setup setup = GateSetup(door, endpoint, ConnectionKind::kData);
  setup.session = &control.session;
  setup.leave_fd = control.control.get();
  LinkGate gate(std::move(setup));
  std::optional<Guest> guest = gate.Next(deadline_ns);
  if (gate.stopped()) throw Error("{}: stopped", What(endpoint));
  return guest ? std::move(guest->connection) : Descriptor();
}

}  // namespace

std::optional<MadeLink<TcpEnd>> TryConnectTcpLink(const LinkEndpoint& endpoint,
                                                  const LinkShape& shape, const WireHello& mine,
                                                  const LinkKey& key, int64_t deadline_ns,
                                                  std::string* why) {
  std::optional<Handshake> control = ConnectControl(endpoint, mine, key, deadline_ns, why);
  if (!control) return std::nullopt;
  Descriptor data =
      TryConnectTcp(endpoint.host, endpoint.port, endpoint.own_host, deadline_ns, why);
  if (!data) return std::nullopt;
  const Greeting greeting = DataGreeting(control->session);
  if (!SendAll(data, &greeting, sizeof(greeting), deadline_ns)) {
    *why = "it closed the second connection";
    return std::nullopt;
  }
  return Make(std::move(*control), std::move(data), shape, LinkSide::kSend);
}

MadeLink<TcpEnd> AcceptTcpLink(const Door& door, const LinkEndpoint& endpoint,
                               const LinkShape& shape, const WireHello& mine, int64_t deadline_ns) {
  for (;;) {
    Handshake control = AcceptControl(door, endpoint, mine, deadline_ns);
    Descriptor data =
        AcceptData(door, endpoint, control, std::min(deadline_ns, DeadlineNs(kSecondConnectionMs)));
    if (data) return Make(std::move(control), std::move(data), shape, LinkSide::kReceive);
  }
}

}  // namespace larder::rdma::link
