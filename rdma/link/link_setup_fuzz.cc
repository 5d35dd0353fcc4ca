// A peer in the set-up of a link over TCP. What it sends to a listener, or answers to a connector,
// leads to an agreed link or to an Error of one line, or is ignored. An input has a byte for the
// side and one for how far the peer gets: a stranger, which sends arbitrary bytes at once, or a
// peer that proves that it knows the key (here that of links without one) and then sends a hello.
// For the hello the input has places and new bytes of a right one, which is sealed like the right
// one. The rest of the input is sent after it.
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "base/error.h"
#include "rdma/link/frame_link.h"
#include "rdma/link/link_setup.h"
#include "rdma/proof/link_proof.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline link {
namespace {

constexpr LinkShape kShape = {100, 2};
const LinkIdentity kOurs = {.plan_hash = 1, .name = "ours", .cluster = "fuzz"};
const LinkIdentity kTheirs = {.plan_hash = 1, .name = "theirs", .cluster = "fuzz"};

LinkEndpoint Endpoint(int port) {
  LinkEndpoint endpoint;
  endpoint.transport = Transport::kTcp;
  endpoint.name = "fuzz";
  endpoint.host = "127.0.0.1";
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

constexpr uint8_t kStranger = 0x80;
bool IsStranger(std::string_view input) { return input.empty() || (input[0] & kStranger) != 0; }

// A right hello with some bytes changed, sealed, followed by the rest of the input.
std::string Hello(std::string_view input, HelloKind kind, const SessionKey& session,
                  std::string_view label) {
  const auto how = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  WireHello hello = MakeHello(Endpoint(1), kShape, kTheirs);
  hello.kind = kind;
  auto* bytes = reinterpret_cast<char*>(&hello);
  for (size_t i = how % 16; i > 0 && input.size() >= 3; --i, input.remove_prefix(3)) {
    const size_t at = static_cast<uint8_t>(input[0]) | size_t{static_cast<uint8_t>(input[1])} << 8;
    bytes[at % sizeof(hello)] = input[2];
  }
  session.Seal(label, hello);
  return std::string(bytes, sizeof(hello)).append(input);
}

void CheckLine(const char* line) {
  LARDER_CHECK(*line != '\0');
  for (; *line != '\0'; ++line)
    LARDER_CHECK(*line >= 0x20 && *line < 0x7f, "a line of printable text");
}

// Any failure ends it; the listener then has gone on.
void VisitListener(int port, std::string_view input) {
  const int64_t deadline_ns = DeadlineNs(1000);
  std::string why;
  const Descriptor socket =
      TryConnectTcp("127.0.0.1", static_cast<uint16_t>(port), "", deadline_ns, &why);
  LARDER_CHECK(bool(socket), "{}", why);
  if (IsStranger(input)) {
    SendAll(socket, input.data(), input.size(), deadline_ns);
    shutdown(socket.get(), SHUT_WR);  // it reads the answer, but sends no more
    return;
  }
  Prover prover(LinkKey::Open(), ConnectionKind::kTcp);
  Challenge challenge;
  Mac proof;
  if (!SendAll(socket, &prover.greeting(), sizeof(Greeting), deadline_ns) ||
      !ReceiveAll(socket, &challenge, sizeof(challenge), deadline_ns) ||
      !prover.Meet(challenge).empty() ||
      !SendAll(socket, prover.proof().data(), kMacBytes, deadline_ns) ||
      !ReceiveAll(socket, proof.data(), kMacBytes, deadline_ns)) {
    return;
  }
  LARDER_CHECK(prover.Believes(proof));
  const std::string words = Hello(input, HelloKind::kControl, prover.session(), kConnectorHello);
  SendAll(socket, words.data(), words.size(), deadline_ns);
  shutdown(socket.get(), SHUT_WR);
}

void FuzzListener(std::string_view input) {
  static LinkListener& listener = *new LinkListener(Endpoint(0));
  std::thread visitor([&, port = listener.port()] { VisitListener(port, input); });
  try {
    const FrameLink link = listener.Accept(kShape, kOurs, 5);
    LARDER_CHECK(false, "a link without a second connection");
  } catch (const Error& error) {
    CheckLine(error.what());
  }
  visitor.join();
}

// Answers each connector as the current input says; lives as long as the process.
class Answerer {
 public:
  Answerer() : listener_(ListenTcp("127.0.0.1", 0, "fuzz")) {
    std::thread([this] { Run(); }).detach();
  }
  int port() const { return PortOf(listener_); }
  std::atomic<const std::string*> input{nullptr};

 private:
  void Run() {
    for (;;) {
      pollfd watched = {listener_.get(), POLLIN, 0};
      poll(&watched, 1, 1000);
      const Descriptor connection(
          accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!connection) continue;
      const std::string* what = input.exchange(nullptr);  // the second connection gets no answer
      if (what == nullptr) continue;
      Answer(connection, *what);
      delete what;
    }
  }

  static void Answer(const Descriptor& connection, std::string_view what) {
    const int64_t deadline_ns = DeadlineNs(100);
    Greeting greeting;
    if (!ReceiveAll(connection, &greeting, sizeof(greeting), deadline_ns)) return;
    if (IsStranger(what)) {
      SendAll(connection, what.data(), what.size(), deadline_ns);
      return;
    }
    if (greeting.kind == ConnectionKind::kData)
      return;  // on a busy machine: from the previous input
    Verifier verifier;
    Mac proof;
    WireHello hello;
    LARDER_CHECK(verifier.Meet(LinkKey::Open(), greeting, ConnectionKind::kTcp).empty());
    if (!SendAll(connection, &verifier.challenge(), sizeof(Challenge), deadline_ns) ||
        !ReceiveAll(connection, proof.data(), kMacBytes, deadline_ns)) {
      return;
    }
    LARDER_CHECK(verifier.Believes(proof));
    if (!SendAll(connection, verifier.proof().data(), kMacBytes, deadline_ns) ||
        !ReceiveAll(connection, &hello, sizeof(hello), deadline_ns)) {
      return;
    }
    const std::string words = Hello(what, HelloKind::kAccepted, verifier.session(), kListenerHello);
    SendAll(connection, words.data(), words.size(), deadline_ns);
  }

  Descriptor listener_;
};

void FuzzConnector(std::string_view input) {
  static Answerer& answerer = *new Answerer;
  delete answerer.input.exchange(new std::string(input));
  try {
    // It retries until its time is over; later attempts are closed without an answer.
    const FrameLink link = ConnectLink(Endpoint(answerer.port()), kShape, kOurs, 5);
    CheckLine(link.peer().c_str());
    CheckLine(link.description().c_str());
  } catch (const Error& error) {
    CheckLine(error.what());
  }
}

}  // namespace
}  // namespace larder::rdma::link

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] & 1 ? larder::rdma::FuzzConnector(input) : larder::rdma::FuzzListener(input);
  return 0;
}
