// The proofs and hellos of a control connection.
#include "rdma/link/link_setup.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <utility>

#include "base/error.h"
#include "rdma/proof/link_gate.h"
#include "rdma/proof/link_warning.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline link {
namespace {

template <size_t kSize>
void SetName(char (&field)[kSize], const char* what, const std::string& name) {
  if (name.size() >= kSize) {
    throw Error("{} name \"{}\": {} bytes, at most {} are allowed; shorten it in the manifest",
                what, name, name.size(), kSize - 1);
  }
  SetText(field, name);
}

ConnectionKind KindOf(const LinkEndpoint& endpoint) {
  return endpoint.transport == Transport::kVerbs ? ConnectionKind::kVerbs : ConnectionKind::kTcp;
}

}  // namespace

std::string What(const LinkEndpoint& endpoint) {
  if (endpoint.transport == Transport::kSharedMemory)
    return fmt::format("link to socket {}", endpoint.name);
  return fmt::format("link to socket {} at {}:{}", endpoint.name,
                     endpoint.host.empty() ? "*" : endpoint.host, endpoint.port);
}

WireHello MakeHello(const LinkEndpoint& endpoint, const LinkShape& shape,
                    const LinkIdentity& identity) {
  shape.Check();
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
                                        const LinkKey& key, int64_t deadline_ns, std::string* why) {
  Handshake made;
  made.control = TryConnectTcp(endpoint.host, endpoint.port, endpoint.own_host, deadline_ns, why);
  if (!made.control) return std::nullopt;
  // A failure before the listener's proof may be caused by a stranger, so the connector tries
  // again.
  const auto failed = [&](std::string reason) {
    *why = std::move(reason);
    return std::nullopt;
  };
  Prover prover(key, KindOf(endpoint));
  Challenge challenge;
  // The listener may be busy, for example loading its weights, so there is no shorter deadline.
  if (!SendAll(made.control, &prover.greeting(), sizeof(Greeting), deadline_ns) ||
      !ReceiveAll(made.control, &challenge, sizeof(challenge), deadline_ns)) {
    return failed(LeftMs(deadline_ns) == 0
                      ? "it took the connection and sent no answer"
                      : "it closed the connection (it may be another build, or may not expect this "
                        "server: its log says)");
  }
  if (const std::string wrong = prover.Meet(challenge); !wrong.empty())
    return failed("cannot connect to what answers there: " + wrong);
  Mac proof;
  if (!SendAll(made.control, prover.proof().data(), kMacBytes, deadline_ns) ||
      !ReceiveAll(made.control, proof.data(), kMacBytes, deadline_ns)) {
    return failed(fmt::format(
        "it did not accept the proof of the cluster's key, of which this process has {}: both need "
        "the same link.key, or neither may have one",
        key.open() ? "none" : "one"));
  }
  if (!prover.Believes(proof))
    return failed("what answers there does not know the cluster's key: it is an impostor");
  made.session = prover.session();
  WireHello hello = mine;
  made.session.Seal(kConnectorHello, hello);
  if (!SendAll(made.control, &hello, sizeof(hello), deadline_ns) ||
      !ReceiveAll(made.control, &made.theirs, sizeof(made.theirs), deadline_ns)) {
    return failed("it closed the connection");
  }
  if (!made.session.Sealed(kListenerHello, &made.theirs, sizeof(made.theirs)))
    return failed("its hello was changed on the way");
  if (made.theirs.kind == HelloKind::kRefused)
    throw Error("{}: refused: {}", What(endpoint), Text(made.theirs.text));
  if (const std::string disagreement = Disagreement(mine, made.theirs); !disagreement.empty())
    throw Error("{}: {}", What(endpoint), disagreement);
  if (made.theirs.kind != HelloKind::kAccepted)
    throw Error("{}: it does not answer as a listener: install one build on all servers",
                What(endpoint));
  made.peer = fmt::format("socket {} ({})", Text(made.theirs.name), PeerAddress(made.control));
  return made;
}

LinkGate::Setup GateSetup(const Door& door, const LinkEndpoint& endpoint, ConnectionKind kind) {
  LinkGate::Setup setup;
  setup.listener = door.listener.get();
  setup.what = What(endpoint);
  setup.kind = kind;
  setup.key = &door.key;
  setup.stop_fd = door.stop_fd;
  setup.admit = [expected = AddressesOf(endpoint.peer_host), host = endpoint.peer_host](
                    const Descriptor& connection, std::string* who) -> std::string {
    SetLinkOptions(connection);
    *who = PeerAddress(connection);
    if (expected.empty() ||
        std::find(expected.begin(), expected.end(), PeerBytes(connection)) != expected.end())
      return {};
    return fmt::format("is not {}, where the manifest has the socket that sends to this one", host);
  };
  return setup;
}

Handshake AcceptControl(const Door& door, const LinkEndpoint& endpoint, const WireHello& mine,
                        int64_t deadline_ns) {
  LinkGate::Setup setup = GateSetup(door, endpoint, KindOf(endpoint));
  setup.hello_bytes = sizeof(WireHello);
  LinkGate gate(std::move(setup));
  std::string last;  // the last refusal of a peer that knows the key
  for (;;) {
    std::optional<Guest> guest = gate.Next(deadline_ns);
    if (!guest) {
      if (gate.stopped())
        throw Error("{}: stopped{}{}", What(endpoint), last.empty() ? "" : "; last: ", last);
      if (!last.empty()) throw Error("{}: {}", What(endpoint), last);
      throw Error(
          "{}: no socket of this cluster connected in time{}: start the socket that sends to it, "
          "or check its manifest and the firewall",
          What(endpoint),
          gate.last().empty() ? "" : fmt::format(" (last refused: {})", gate.last()));
    }
    Handshake made;
    made.control = std::move(guest->connection);
    made.session = guest->session;
    std::memcpy(static_cast<void*>(&made.theirs), guest->hello.data(), sizeof(made.theirs));
    made.peer = fmt::format("socket {} ({})", Text(made.theirs.name), guest->who);
    if (HasLeft(made.control.get())) continue;  // it left before this Accept()
    // The peer has proven that it knows the key, if there is one.
    const auto answer = [&](WireHello hello) {
      made.session.Seal(kListenerHello, hello);
      return SendAll(made.control, &hello, sizeof(hello), 0);
    };
    std::string refusal = Refusal(mine, made.theirs);
    if (!refusal.empty()) {
      last = Disagreement(mine, made.theirs);
      WarnOfLink(LinkWarning::kDisagreement,
                 fmt::format("{}: {}: {}", What(endpoint), made.peer, last));
    } else if (made.theirs.kind != HelloKind::kControl) {
      continue;
    } else if (mine.session != 0 && made.theirs.session != mine.session) {
      refusal = kOtherSession;
    }
    WireHello hello;
    if (!refusal.empty()) {
      hello.kind = HelloKind::kRefused;
      SetText(hello.text, refusal);
      answer(hello);
      continue;
    }
    hello = mine;
    hello.session = made.theirs.session;
    hello.kind = HelloKind::kAccepted;
    if (answer(hello)) return made;
  }
}

}  // namespace larder::rdma::link
