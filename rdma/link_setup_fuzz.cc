// A stranger at the set-up of a link over TCP: what it sends to a listener, and what it answers a connector,
// is a link that was agreed on, an Error of one line, or is passed over. An input: a byte for the side, one
// for how the hello is made; then places and bytes of a right hello that are to be others, or the bytes
// themselves. The steps of a handshake after the hello are bytes as they come: what is left of the input.
#include <fcntl.h>
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
#include "rdma/frame_link.h"
#include "rdma/link_setup.h"
#include "rdma/tcp_socket.h"

namespace larder::rdma {
namespace {

using namespace internal;

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

// The stranger's words: a hello that is right but for some bytes, or any bytes.
std::string Words(std::string_view input, HelloKind kind) {
  if (input.empty()) return {};
  const auto how = static_cast<uint8_t>(input[0]);
  input.remove_prefix(1);
  if (how & 0x80) return std::string(input);
  WireHello hello = MakeHello(Endpoint(1), kShape, kTheirs);
  hello.kind = kind;
  std::string words(sizeof(hello), '\0');
  std::memcpy(words.data(), &hello, sizeof(hello));
  for (size_t i = how % 16; i > 0 && input.size() >= 3; --i, input.remove_prefix(3)) {
    const size_t at = static_cast<uint8_t>(input[0]) | size_t{static_cast<uint8_t>(input[1])} << 8;
    words[at % words.size()] = input[2];
  }
  return words.append(input);
}

void CheckLine(const char* line) {
  LARDER_CHECK(*line != '\0');
  for (; *line != '\0'; ++line) LARDER_CHECK(*line >= 0x20 && *line < 0x7f, "a line of printable text");
}

void FuzzListener(std::string_view input) {
  static LinkListener& listener = *new LinkListener(Endpoint(0));
  const std::string words = Words(input, HelloKind::kControl);
  std::string why;
  const Descriptor stranger =
      TryConnectTcp("127.0.0.1", static_cast<uint16_t>(listener.port()), DeadlineNs(1000), &why);
  LARDER_CHECK(bool(stranger), "{}", why);
  SendAll(stranger, words.data(), words.size(), DeadlineNs(100));
  // It hears its answer, but says no more.
  shutdown(stranger.get(), SHUT_WR);
  try {
    const FrameLink link = listener.Accept(kShape, kOurs, 2);
    LARDER_CHECK(false, "a link with a stranger");
  } catch (const Error& error) {
    CheckLine(error.what());
  }
}

// Answers each that connects with the words at hand; lives as long as the process.
class Answerer {
 public:
  Answerer() : listener_(ListenTcp("127.0.0.1", 0, "fuzz")) {
    std::thread([this] { Run(); }).detach();
  }
  int port() const { return PortOf(listener_); }
  std::atomic<const std::string*> words{nullptr};

 private:
  void Run() {
    for (;;) {
      const Descriptor connection = AcceptTcp(listener_, DeadlineNs(1000));
      if (!connection) continue;
      char hello[sizeof(WireHello)];
      ReceiveAll(connection, hello, sizeof(hello), DeadlineNs(100));
      const std::string* what = words.exchange(nullptr);  // the second connection hears nothing
      if (what == nullptr) continue;
      SendAll(connection, what->data(), what->size(), DeadlineNs(100));
      delete what;
    }
  }
  Descriptor listener_;
};

void FuzzConnector(std::string_view input) {
  static Answerer& answerer = *new Answerer;
  delete answerer.words.exchange(new std::string(Words(input, HelloKind::kAccepted)));
  try {
    // It tries again until its time is over; later attempts are closed without a word.
    const FrameLink link = ConnectLink(Endpoint(answerer.port()), kShape, kOurs, 3);
    CheckLine(link.peer().c_str());
    CheckLine(link.description().c_str());
  } catch (const Error& error) {
    CheckLine(error.what());
  }
}

}  // namespace
}  // namespace larder::rdma

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view input(reinterpret_cast<const char*>(data) + 1, size - 1);
  data[0] & 1 ? larder::rdma::FuzzConnector(input) : larder::rdma::FuzzListener(input);
  return 0;
}
