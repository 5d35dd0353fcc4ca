#include "rdma/tcp/link_monitor.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/error.h"
#include "rdma/common/helper_thread.h"

namespace larder::rdma::inline tcp {

namespace {

// A limit, so that a peer that sends without end does not keep this thread from its stop or its own
// beats.
constexpr int kReadsPerTurn = 32;

}  // namespace

LinkMonitor::LinkMonitor(Descriptor connection, FaultSignal& signal, int data_fd)
    : connection_(std::move(connection)),
      signal_(signal),
      stop_(eventfd(0, EFD_CLOEXEC)),
      data_fd_(data_fd),
      farewell_([this] {
        said_farewell_.store(true, std::memory_order_release);
        SendFault({sync::FaultCode::kLinkDown, static_cast<uint32_t>(LinkDown::kStopped)});
      }) {
  if (!stop_)
    throw Error("link: no eventfd: {}: raise the limit of open files", std::strerror(errno));
  thread_ = StartHelper([this] { Run(); });
}

LinkMonitor::~LinkMonitor() {
  eventfd_write(stop_.get(), 1);
  thread_.join();
}

// Never waits. If the buffer is full of beats, the other end does not read; its silence will end
// the link.
void LinkMonitor::Send(const WireBeat& beat) {
  send(connection_.get(), &beat, sizeof(beat), MSG_NOSIGNAL | MSG_DONTWAIT);
}

void LinkMonitor::SendFault(const sync::Fault& fault) {
  Send({.kind = BeatKind::kFault,
        .code = static_cast<uint32_t>(fault.code),
        .detail = fault.detail});
}

// Two looks must agree, since one look may fall between a probe and its acknowledgement.
void LinkMonitor::LookAtData() {
  tcp_info info = {};
  socklen_t bytes = sizeof(info);
  if (data_fd_ < 0 || getsockopt(data_fd_, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return;
  const bool waits = info.tcpi_retransmits > 0 || info.tcpi_probes > 0;
  lost_looks_ = waits && info.tcpi_last_ack_recv >= kLostMs ? lost_looks_ + 1 : 0;
  if (lost_looks_ == 2) signal_.Raise(LinkDown::kDataLost);
}

bool LinkMonitor::ReadBeats() {
  for (int i = 0; i < kReadsPerTurn; ++i) {
    auto* bytes = reinterpret_cast<std::byte*>(&partial_);
    const ssize_t received = recv(connection_.get(), bytes + partial_bytes_,
                                  sizeof(partial_) - partial_bytes_, MSG_DONTWAIT);
    if (received < 0 && errno == EINTR) continue;
    if (received < 0 && errno == EAGAIN) return true;
    if (received <= 0) {
      signal_.Raise(LinkDown::kClosed);
      return false;
    }
    heard_ns_ = NowNs();
    partial_bytes_ += static_cast<size_t>(received);
    if (partial_bytes_ < sizeof(partial_)) continue;
    partial_bytes_ = 0;
    if (!IsBeat(partial_)) {
      signal_.Raise(sync::FaultCode::kMalformed, partial_.magic);
      return false;
    }
    if (partial_.kind == BeatKind::kBye) {
      signal_.Raise(LinkDown::kEnded);
      return false;
    }
    if (partial_.kind == BeatKind::kFault) {
      const sync::Fault fault = FaultOf(partial_);
      signal_.Raise(fault.code, fault.detail);
    }
  }
  return true;
}

// Beats are read before silence is judged. A process that was itself stopped for a while first
// finds the beats that came meanwhile, and then whether the other end took it for dead.
void LinkMonitor::Run() {
  constexpr int64_t kMsNs = 1'000'000;
  heard_ns_ = NowNs();
  int64_t next_beat_ns = heard_ns_;
  bool told = false, over = false;
  for (;;) {
    const int64_t now_ns = NowNs();
    if (!over && now_ns >= next_beat_ns) {
      Send({});
      LookAtData();
      next_beat_ns = now_ns + kBeatMs * kMsNs;
    }
    const int64_t until_ns = std::min(next_beat_ns, heard_ns_ + kSilentMs * kMsNs);
    const int sleep_ms =
        over ? -1 : static_cast<int>(std::max<int64_t>(0, (until_ns - now_ns) / kMsNs + 1));
    // poll() ignores a descriptor of -1
    pollfd watched[3] = {{stop_.get(), POLLIN, 0},
                         {told ? -1 : signal_.fd(), POLLIN, 0},
                         {over ? -1 : connection_.get(), POLLIN, 0}};
    if (poll(watched, 3, sleep_ms) < 0) continue;  // EINTR, or no memory for a moment
    // This process is about to end; a peer that ends meanwhile does so because of it.
    if (said_farewell_.load(std::memory_order_acquire)) over = true;
    if (watched[2].revents != 0) over = !ReadBeats();
    if (!over && NowNs() - heard_ns_ > kSilentMs * kMsNs) signal_.Raise(LinkDown::kSilent);
    if (!told && signal_.raised()) {
      SendFault(signal_.Read());
      told = over = true;  // nothing that arrives from now on matters
    }
    if (watched[0].revents != 0) {
      if (!told) Send({.kind = BeatKind::kBye});
      return;
    }
  }
}

}  // namespace larder::rdma::tcp
