// Making a shared-memory link: the receiver makes the region and hands it over.
#include "base/error.h"
#include "rdma/link_setup.h"
#include "rdma/tcp_socket.h"

namespace larder::rdma {
namespace {

LinkDown LinkDownOf(PeerEnd how) {
  switch (how) {
    case PeerEnd::kGoodbye:
      return LinkDown::kEnded;
    case PeerEnd::kGone:
      return LinkDown::kClosed;
    case PeerEnd::kSilent:
      return LinkDown::kSilent;
  }
  return LinkDown::kUnknown;
}

}  // namespace

ShmEnd::ShmEnd(ControlChannel the_channel, SharedMemory the_memory, const ShmLinkShape& shape, LinkSide side)
    : channel(std::move(the_channel)),
      memory(std::move(the_memory)),
      link(memory.span(), shape, side),
      monitor(channel, [this](pid_t, PeerEnd how) {
        link.Fail(sync::FaultCode::kLinkDown, static_cast<uint32_t>(LinkDownOf(how)));
      }) {}

ShmEnd::~ShmEnd() { channel.Bye(); }

namespace internal {
namespace {

Hello ShmHello(const ShmLinkShape& shape, const LinkIdentity& identity) {
  Hello hello;
  hello.plan_hash = identity.plan_hash;
  hello.memory_bytes = shape.bytes();
  hello.session = identity.session;
  hello.SetSocketName(identity.name);
  return hello;
}

MadeLink<ShmEnd> Make(ControlChannel channel, SharedMemory memory, const ShmLinkShape& shape, LinkSide side,
                      uint64_t session, int64_t deadline_ns) {
  MadeLink<ShmEnd> made;
  made.session = session;
  made.peer = channel.peer();
  made.description = fmt::format("shm, {} slots of {} bytes, {}", shape.slots, shape.frame_bytes,
                                 topology::BackingName(memory.backing()));
  if (!memory.notes().empty()) made.description += " (" + memory.notes() + ")";
  channel.Ready();
  channel.WaitReady(LeftMs(deadline_ns));
  made.end = std::make_unique<ShmEnd>(std::move(channel), std::move(memory), shape, side);
  return made;
}

}  // namespace

std::string ShmName(const LinkEndpoint& endpoint) { return "larder-link-" + endpoint.name; }

MadeLink<ShmEnd> ConnectShm(const LinkEndpoint& endpoint, const LinkShape& shape,
                            const LinkIdentity& identity, int timeout_ms) {
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  const ShmLinkShape region{shape.frame_bytes, shape.slots};
  const Hello hello = ShmHello(region, identity);
  ControlChannel channel = Connect(ShmName(endpoint), timeout_ms);
  channel.ExchangeHello(hello, LeftMs(deadline_ns));
  SharedMemory memory = channel.ReceiveMemory(region.bytes(), LeftMs(deadline_ns));
  return Make(std::move(channel), std::move(memory), region, LinkSide::kSend, identity.session, deadline_ns);
}

MadeLink<ShmEnd> AcceptShm(ControlListener& listener, const LinkEndpoint& endpoint, const LinkShape& shape,
                           const LinkIdentity& identity, int timeout_ms) {
  const int64_t deadline_ns = DeadlineNs(timeout_ms);
  const ShmLinkShape region{shape.frame_bytes, shape.slots};
  const Hello hello = ShmHello(region, identity);
  const std::string label = "larder link " + endpoint.name;
  for (;;) {
    ControlChannel channel = listener.Accept(timeout_ms < 0 ? kNoTimeout : LeftMs(deadline_ns));
    if (HasLeft(channel.fd())) continue;  // it gave up while nobody accepted
    const uint64_t session = channel.ExchangeHello(hello, LeftMs(deadline_ns)).session;
    if (identity.session != 0 && session != identity.session) {
      channel.Refuse(kOtherSession);
      continue;
    }
    SharedMemory memory = SharedMemory::Create(region.bytes(), label.c_str());
    ShmLink::Format(memory.span(), region);
    channel.SendMemory(memory);
    return Make(std::move(channel), std::move(memory), region, LinkSide::kReceive, session, deadline_ns);
  }
}

}  // namespace internal
}  // namespace larder::rdma
