// The control connection's hello.
#include "rdma/link_setup.h"

#include <poll.h>

#include <algorithm>
#include <random>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/tcp_socket.h"

namespace larder::rdma::internal {
namespace {

// Whoever connects sends its hello at once; a port scanner may not keep the listener from its real peer.
constexpr int kHelloMs = 2000;

template <size_t kSize>
void SetName(char (&field)[kSize], const char* what, const std::string& name) {
  if (name.size() >= kSize) {
    throw Error("{} name \"{}\": {} bytes, at most {} are allowed; shorten it in the manifest", what, name,
                name.size(), kSize - 1);
  }
  SetText(field, name);
}

uint64_t NewToken() {
  std::random_device random;
  return uint64_t{random()} << 32 | random();
}

}  // namespace

bool HasLeft(int connection) {
  pollfd watched = {connection, POLLRDHUP, 0};
  return poll(&watched, 1, 0) > 0;
}

std::string What(const LinkEndpoint& endpoint) {
  if (endpoint.transport == Transport::kSharedMemory) return fmt::format("link to socket {}", endpoint.name);
  return fmt::format("link to socket {} at {}:{}", endpoint.name, endpoint.host.empty() ? "*" : endpoint.host,
                     endpoint.port);
}

WireHello MakeHello(const LinkEndpoint& endpoint, const LinkShape& shape, const LinkIdentity& identity) {
  ShmLinkShape{shape.frame_bytes, shape.slots}.bytes();  // throws for impossible shapes
  WireHello hello;
  hello.transport = static_cast<uint32_t>(endpoint.transport);
  hello.plan_hash = identity.plan_hash;
  hello.frame_bytes = shape.frame_bytes;
  hello.slots = shape.slots;
  hello.session = identity.session;
  SetName(hello.name, "socket", identity.name);
  SetName(hello.cluster, "cluster", identity.cluster);
  return hello;
}

std::optional<Handshake> ConnectControl(const LinkEndpoint& endpoint, const WireHello& mine,
                                        int64_t deadline_ns, std::string* why) {
  Handshake made;
  made.control = TryConnectTcp(endpoint.host, endpoint.port, deadline_ns, why);
  if (!made.control) return std::nullopt;
  // The listener may be busy with something else, loading its weights; so there is no shorter deadline.
  if (!SendAll(made.control, &mine, sizeof(mine), deadline_ns) ||
      !ReceiveAll(made.control, &made.theirs, sizeof(made.theirs), deadline_ns)) {
    *why =
        LeftMs(deadline_ns) == 0 ? "it took the connection and sent no answer" : "it closed the connection";
    return std::nullopt;
  }
  if (!IsHello(made.theirs)) {
    throw Error("{}: what answers there is another program: check host and port in the manifest",
                What(endpoint));
  }
  if (made.theirs.kind == HelloKind::kRefused) {
    throw Error("{}: refused: {}", What(endpoint), Text(made.theirs.text));
  }
  if (const std::string disagreement = Disagreement(mine, made.theirs); !disagreement.empty()) {
    throw Error("{}: {}", What(endpoint), disagreement);
  }
  if (made.theirs.kind != HelloKind::kAccepted) {
    throw Error("{}: it does not answer as a listener: install one build on all servers", What(endpoint));
  }
  made.token = made.theirs.token;
  made.peer = fmt::format("socket {} ({})", Text(made.theirs.name), PeerAddress(made.control));
  return made;
}

Handshake AcceptControl(const Descriptor& listener, const LinkEndpoint& endpoint, const WireHello& mine,
                        int64_t deadline_ns) {
  for (;;) {
    Handshake made;
    made.control = AcceptTcp(listener, deadline_ns);
    if (!made.control) {
      throw Error(
          "{}: nobody connected in time: start the socket that sends to it, or check its manifest and "
          "the firewall",
          What(endpoint));
    }
    const int64_t hello_ns = std::min(deadline_ns, DeadlineNs(kHelloMs));
    if (!ReceiveAll(made.control, &made.theirs, sizeof(made.theirs), hello_ns)) continue;
    if (!IsHello(made.theirs)) continue;
    made.peer = fmt::format("socket {} ({})", Text(made.theirs.name), PeerAddress(made.control));
    WireHello answer = mine;
    if (const std::string disagreement = Disagreement(mine, made.theirs); !disagreement.empty()) {
      answer.kind = HelloKind::kRefused;
      SetText(answer.text, disagreement);
      SendAll(made.control, &answer, sizeof(answer), hello_ns);
      throw Error("{}: {}", What(endpoint), disagreement);
    }
    if (made.theirs.kind != HelloKind::kControl) continue;  // a data connection of a link that was given up
    if (HasLeft(made.control.get())) continue;              // while nobody accepted
    if (mine.session != 0 && made.theirs.session != mine.session) {
      answer.kind = HelloKind::kRefused;
      SetText(answer.text, kOtherSession);
      SendAll(made.control, &answer, sizeof(answer), hello_ns);
      continue;
    }
    answer.session = made.theirs.session;
    answer.kind = HelloKind::kAccepted;
    answer.token = made.token = NewToken();
    if (SendAll(made.control, &answer, sizeof(answer), hello_ns)) return made;
  }
}

}  // namespace larder::rdma::internal
