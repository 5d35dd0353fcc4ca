// Set-up of a shared-memory link: the receiver makes the region and hands it over.
#include <algorithm>
#include <utility>

#include "base/error.h"
#include "rdma/link/link_setup.h"
#include "rdma/proof/link_warning.h"
#include "rdma/proof/tcp_connection.h"

namespace larder::rdma::inline link {
namespace {

LinkDown LinkDownOf(PeerEnd how) {
  switch (how) {
    case PeerEnd::kGoodbye:
      return LinkDown::kEnded;
    case PeerEnd::kGone:
      return LinkDown::kClosed;
    case PeerEnd::kSilent:
      return LinkDown::kSilent;
    case PeerEnd::kStopped:
      return LinkDown::kStopped;
  }
  return LinkDown::kUnknown;
}

}  // namespace

ShmEnd::ShmEnd(ControlChannel the_channel, SharedMemory the_memory, const LinkShape& shape,
               LinkSide side)
    : channel(std::move(the_channel)),
      memory(std::move(the_memory)),
      link(memory.span(), shape, side),
      monitor(channel, [this](pid_t, PeerEnd how) {
        link.Fail(sync::FaultCode::kLinkDown, static_cast<uint32_t>(LinkDownOf(how)));
      }) {}

ShmEnd::~ShmEnd() { channel.Bye(); }

namespace {

// After the hellos neither end does other work, so an end that takes longer than this is stopped or
// has ended.
constexpr int kMakeMs = 10'000;

Hello ShmHello(const LinkShape& shape, const LinkIdentity& identity) {
  Hello hello;
  hello.plan_hash = identity.plan_hash;
  hello.memory_bytes = ShmLink::RegionBytes(shape);
  hello.session = identity.session;
  hello.SetSocketName(identity.name);
  return hello;
}

MadeLink<ShmEnd> Make(ControlChannel channel, SharedMemory memory, const LinkShape& shape,
                      LinkSide side, uint64_t session, int timeout_ms) {
  MadeLink<ShmEnd> made;
  made.session = session;
  made.peer = channel.peer();
  made.description = fmt::format("shm, {} slots of {} bytes, {}", shape.slots, shape.frame_bytes,
                                 topology::BackingName(memory.backing()));
  if (!memory.notes().empty()) made.description += " (" + memory.notes() + ")";
  channel.Ready();
  channel.WaitReady(timeout_ms);
  made.end = std::make_unique<ShmEnd>(std::move(channel), std::move(memory), shape, side);
  return made;
}

}  // namespace

std::string ShmName(const LinkEndpoint& endpoint) { return "larder-link-" + endpoint.name; }

MadeLink<ShmEnd> ConnectShm(const LinkEndpoint& endpoint, const LinkShape& shape,
                            const LinkIdentity& identity, int timeout_ms) {
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  const Hello hello = ShmHello(shape, identity);
  ControlChannel channel =
      ConnectHello(ShmName(endpoint), hello, timeout_ms, LinkKey::Of(identity.key));
  const int left_ms = std::min(kMakeMs, LeftMs(deadline_ns));
  SharedMemory memory = channel.ReceiveMemory(ShmLink::RegionBytes(shape), left_ms);
  return Make(std::move(channel), std::move(memory), shape, LinkSide::kSend, identity.session,
              left_ms);
}

MadeLink<ShmEnd> AcceptShm(ControlListener& listener, const LinkEndpoint& endpoint,
                           const LinkShape& shape, const LinkIdentity& identity, int timeout_ms,
                           int stop_fd) {
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  const Hello hello = ShmHello(shape, identity);
  const std::string label = "larder link " + endpoint.name;
  for (;;) {
    uint64_t session = identity.session;
    ControlChannel channel =
        listener.AcceptHello(hello, timeout_ms < 0 ? kNoTimeout : LeftMs(deadline_ns),
                             LinkKey::Of(identity.key), &session, stop_fd);
    SharedMemory memory = SharedMemory::Create(ShmLink::RegionBytes(shape), label.c_str());
    ShmLink::Format(memory.span(), shape);
    try {
      channel.SendMemory(memory);
      return Make(std::move(channel), std::move(memory), shape, LinkSide::kReceive, session,
                  std::min(kMakeMs, LeftMs(deadline_ns)));
    } catch (const Error& error) {  // the peer ended or is stopped: wait for the next one
      if (LeftMs(deadline_ns) == 0) throw;
      WarnOfLink(LinkWarning::kDisagreement, fmt::format("{}: {}", What(endpoint), error.what()));
    }
  }
}

}  // namespace larder::rdma::link
