// Set-up of FrameLinks: the choice of transport, and retries until the timeout.
#include "rdma/link/frame_link.h"

#include <infiniband/verbs.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "rdma/common/retry.h"
#include "rdma/control/control_channel.h"
#include "rdma/link/link_ends.h"
#include "rdma/link/link_setup.h"
#include "rdma/proof/tcp_connection.h"
#include "rdma/verbs/verbs_resources.h"

namespace larder::rdma::inline link {
namespace {

constexpr int kFirstRetryMs = 20, kLongestRetryMs = 500;  // also between servers

// A text for the detail of a kLinkDown fault: "no sign of life for more than 2 s: it is stopped
// ...".
const char* LinkDownText(uint32_t detail) {
  if (detail >= VerbsFaultDetail(0)) {
    return ibv_wc_status_str(static_cast<ibv_wc_status>(detail - VerbsFaultDetail(0)));
  }
  switch (static_cast<LinkDown>(detail)) {
    case LinkDown::kEnded:
      return "it ended";
    case LinkDown::kClosed:
      return "its connection closed: it ended or crashed";
    case LinkDown::kSilent:
      return "no sign of life for more than 2 s: it is stopped or powered off, or the network "
             "between is cut";
    case LinkDown::kNetwork:
      return "the network or the device reported an error";
    case LinkDown::kDataLost:
      return "the connection of its frames is lost (nothing is acknowledged for more than 2 s) "
             "though it lives: check the firewall and the cables between";
    case LinkDown::kStopped:
      return "it was stopped";
    case LinkDown::kUnknown:
      break;
  }
  return "reason unknown";
}

}  // namespace

const char* TransportName(Transport transport) {
  switch (transport) {
    case Transport::kSharedMemory:
      return "shm";
    case Transport::kTcp:
      return "tcp";
    case Transport::kVerbs:
      return "verbs";
  }
  return "unknown";
}

std::string RdmaAddress(const std::string& device) { return VerbsAddress(device); }

bool IsLoopback(const std::string& host) {
  const std::vector<AddressBytes> addresses = AddressesOf(host);
  return !addresses.empty() && std::all_of(addresses.begin(), addresses.end(), IsLoopbackAddress);
}

uint64_t NewSession() {
  std::random_device random;  // unique among processes, too
  return (uint64_t{random()} << 32 | random()) | 1;
}

FrameLink::FrameLink() = default;
FrameLink::~FrameLink() = default;
FrameLink::FrameLink(FrameLink&& other) noexcept = default;
FrameLink& FrameLink::operator=(FrameLink&& other) noexcept = default;

template <typename OneEnd>
FrameLink::FrameLink(Transport transport, const LinkShape& shape, MadeLink<OneEnd> made)
    : transport_(transport),
      shape_(shape),
      end_(std::move(made.end)),
      session_(made.session),
      peer_(std::move(made.peer)),
      description_(std::move(made.description)) {}

std::string FrameLink::FaultText() const {
  const sync::Fault raised = fault();
  if (!raised) return {};
  const std::string detail = raised.code == sync::FaultCode::kLinkDown
                                 ? LinkDownText(raised.detail)
                                 : fmt::format("{}", raised.detail);
  return fmt::format("{}: {}: {}", peer_, sync::FaultName(raised.code), detail);
}

struct LinkListener::State {
  LinkEndpoint endpoint;
  std::unique_ptr<ControlListener> shm;
  Descriptor tcp;  // also for verbs' control connections
  std::unique_ptr<VerbsListener> verbs;
  Descriptor stop{eventfd(0, EFD_CLOEXEC)};  // readable: stopped
};

LinkListener::LinkListener(const LinkEndpoint& endpoint) : state_(std::make_unique<State>()) {
  state_->endpoint = endpoint;
  if (!state_->stop)
    throw Error("{}: no eventfd: {}: raise the limit of open files", What(endpoint),
                std::strerror(errno));
  if (endpoint.transport == Transport::kSharedMemory) {
    state_->shm = std::make_unique<ControlListener>(ShmName(endpoint), kAnyPeers);
    return;
  }
  if (endpoint.transport == Transport::kVerbs) {
    state_->verbs = std::make_unique<VerbsListener>(endpoint);
  }
  state_->tcp = ListenTcp(endpoint.host, endpoint.port, What(endpoint));
  state_->endpoint.port = static_cast<uint16_t>(port());
}

LinkListener::~LinkListener() = default;
LinkListener::LinkListener(LinkListener&&) noexcept = default;
LinkListener& LinkListener::operator=(LinkListener&&) noexcept = default;

int LinkListener::port() const { return state_->tcp ? PortOf(state_->tcp) : 0; }

void LinkListener::Stop() { eventfd_write(state_->stop.get(), 1); }

FrameLink LinkListener::Accept(const LinkShape& shape, const LinkIdentity& identity,
                               int timeout_ms) {
  const LinkEndpoint& endpoint = state_->endpoint;
  const Transport transport = endpoint.transport;
  if (transport == Transport::kSharedMemory)
    return {transport, shape,
            AcceptShm(*state_->shm, endpoint, shape, identity, timeout_ms, state_->stop.get())};
  const WireHello mine = MakeHello(endpoint, shape, identity);
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  const Door door{state_->tcp, LinkKey::Of(identity.key), state_->stop.get()};
  if (transport == Transport::kVerbs)
    return {transport, shape, state_->verbs->Accept(door, shape, mine, deadline_ns)};
  return {transport, shape, AcceptTcpLink(door, endpoint, shape, mine, deadline_ns)};
}

FrameLink ConnectLink(const LinkEndpoint& endpoint, const LinkShape& shape,
                      const LinkIdentity& identity, int timeout_ms) {
  const Transport transport = endpoint.transport;
  if (transport == Transport::kSharedMemory)
    return {transport, shape, ConnectShm(endpoint, shape, identity, timeout_ms)};
  const WireHello mine = MakeHello(endpoint, shape, identity);
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  const LinkKey& key = LinkKey::Of(identity.key);
  RetryPause pause(kFirstRetryMs, kLongestRetryMs);
  for (std::string why;;) {
    std::string now;
    if (transport == Transport::kVerbs) {
      auto made = TryConnectVerbs(endpoint, shape, mine, key, deadline_ns, &now);
      if (made) return {transport, shape, std::move(*made)};
    } else {
      auto made = TryConnectTcpLink(endpoint, shape, mine, key, deadline_ns, &now);
      if (made) return {transport, shape, std::move(*made)};
    }
    // An attempt that the deadline cut short has a worse reason than the one before it.
    const bool over = LeftMs(deadline_ns) == 0;
    if (!over || why.empty()) why = now;
    if (over) {
      throw Error(
          "{}: {} after {} ms: start that socket's process on its server, or check host and port "
          "in the manifest and the firewall",
          What(endpoint), why, timeout_ms);
    }
    pause.Sleep(LeftMs(deadline_ns));
  }
}

}  // namespace larder::rdma::link
