// Set-up of a TcpLink, and the thread that sends what the connection did not take at once.
#include "rdma/tcp/tcp_link.h"

#include <poll.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"
#include "rdma/common/helper_thread.h"

namespace larder::rdma::inline tcp {

TcpLink::TcpLink(Descriptor connection, const LinkShape& shape, LinkSide side, FaultSignal& fault)
    : shape_(shape),
      stride_(shape.SlotStride(kCacheLineBytes)),
      side_(side),
      fault_(fault),
      connection_(std::move(connection)),
      memory_((side == LinkSide::kSend ? shape.slots : 2) * stride_),
      usual_bytes_(sizeof(Header)) {
  static_assert(Apart(offsetof(TcpLink, credit_bytes_), offsetof(TcpLink, queued_)));
  // touched now, not by the first frames
  std::memset(memory_.data(), 0, (side == LinkSide::kSend ? shape.slots : 2) * stride_);
  if (side == LinkSide::kReceive) return;
  help_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  stop_ = Descriptor(eventfd(0, EFD_CLOEXEC));
  if (!help_ || !stop_) {
    throw Error("link: no eventfd: {}: raise the limit of open files", std::strerror(errno));
  }
  helper_ = StartHelper([this] { RunHelper(); });
}

TcpLink::~TcpLink() {
  if (!helper_.joinable()) return;
  eventfd_write(stop_.get(), 1);
  helper_.join();
}

// The helper thread sleeps, except while frames wait for room in the connection.
void TcpLink::RunHelper() {
  bool mine = false;  // this thread owns the writing
  for (;;) {
    pollfd watched[2] = {
        {stop_.get(), POLLIN, 0},
        {mine ? connection_.get() : help_.get(), static_cast<short>(mine ? POLLOUT : POLLIN), 0}};
    if (poll(watched, 2, -1) < 0) continue;  // EINTR, or no memory for a moment
    if (watched[0].revents != 0) return;
    eventfd_t ignored;
    if (!mine && eventfd_read(help_.get(), &ignored) != 0) continue;
    mine = true;
    if (!WriteQueued()) continue;
    mine = false;
    writing_.store(false, std::memory_order_seq_cst);
    Flush();  // what was queued since WriteQueued() looked; it may call for help again
  }
}

}  // namespace larder::rdma::tcp
