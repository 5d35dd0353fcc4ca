#include "node/remote/server_connection.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "base/error.h"

namespace larder::node::inline remote {
namespace {

// A host that has vanished is noticed after about 30 s, though a request may be computed for hours.
void NoticeLoss(int fd) {
  const auto set = [fd](int level, int option, int value) {
    setsockopt(fd, level, option, &value, sizeof value);
  };
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
  set(IPPROTO_TCP, TCP_KEEPIDLE, 15);
  set(IPPROTO_TCP, TCP_KEEPINTVL, 5);
  set(IPPROTO_TCP, TCP_KEEPCNT, 3);
  set(IPPROTO_TCP, TCP_USER_TIMEOUT, 30'000);
}

}  // namespace

void ServerConnection::Send(const Address& address, std::string request) {
  out_ = std::move(request);
  sent_ = 0;
  reply_.Reset();
  body_.clear();
  busy_ = true;
  try {
    if (!fd_) {
      fd_ = Connect(address);
      NoticeLoss(fd_.get());
      waits_for_ = 0;
      WaitFor(EPOLLIN | EPOLLOUT);  // EPOLLOUT: it is connected
    } else {
      Write();
    }
  } catch (const Error&) {
    Close();
    throw;
  }
}

void ServerConnection::WaitFor(uint32_t events) {
  if (events == waits_for_) return;
  epoll_event event{.events = events, .data = {.u64 = tag_}};
  epoll_ctl(epoll_, waits_for_ == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, fd_.get(), &event);
  waits_for_ = events;
}

void ServerConnection::Write() {
  while (sent_ < out_.size()) {
    const ssize_t n = send(fd_.get(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return WaitFor(EPOLLIN | EPOLLOUT);
    if (n < 0) throw Error("can't send: {}", std::strerror(errno));
    sent_ += static_cast<size_t>(n);
  }
  WaitFor(EPOLLIN);
}

bool ServerConnection::Advance() {
  if (!fd_) return false;
  try {
    if (busy_ && sent_ < out_.size()) {
      int error = 0;
      socklen_t length = sizeof error;
      getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length);
      if (error != 0) throw Error("{}", std::strerror(error));
      Write();
    }
    for (;;) {
      char bytes[16 << 10];
      const ssize_t n = recv(fd_.get(), bytes, sizeof bytes, 0);
      if (n < 0 && errno == EINTR) continue;
      if (n < 0 && (errno == EAGAIN || errno == ENOTCONN)) return false;
      if (!busy_) {  // closed as it was idle, or a server that speaks unasked
        Close();
        return false;
      }
      if (n < 0) throw Error("can't read: {}", std::strerror(errno));
      n > 0 ? reply_.Feed({bytes, static_cast<size_t>(n)}, body_) : reply_.Close();
      if (body_.size() > kMostReplyBytes)
        throw Error("its reply has more than {} bytes", kMostReplyBytes);
      if (!reply_.done()) continue;
      busy_ = false;
      if (!reply_.keep_alive() || sent_ < out_.size()) fd_.Reset();
      return true;
    }
  } catch (const Error&) {
    Close();
    throw;
  }
}

void ServerConnection::Close() {
  fd_.Reset();
  busy_ = false;
}

}  // namespace larder::node::remote
