#include "rdma/control/control_message.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "base/clock.h"

namespace larder::rdma::inline control {

void Message::SetText(std::string_view what) {
  const size_t length = std::min(what.size(), sizeof(text) - 1);
  std::memcpy(text, what.data(), length);
  text[length] = 0;
}

void SendRefusal(int fd, std::string_view why) {
  Message message;
  message.kind = MessageKind::kRefused;
  message.SetText(why);
  SendMessage(fd, message);
}

bool SendBytes(int fd, const void* bytes, size_t count) {
  for (;;) {
    if (send(fd, bytes, count, MSG_NOSIGNAL | MSG_DONTWAIT) == static_cast<ssize_t>(count))
      return true;
    if (errno != EINTR) return false;
  }
}

bool SendMessage(int fd, const Message& message, int passed_fd) {
  iovec part = {const_cast<Message*>(&message), sizeof(message)};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  if (passed_fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(item), &passed_fd, sizeof(int));
  }
  for (;;) {
    // never waits: the few messages of a set-up fit the socket's buffer
    if (sendmsg(fd, &header, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return true;
    if (errno != EINTR) return false;
  }
}

bool WaitReadable(int fd, int timeout_ms) {
  const int64_t deadline_ns = NowNs() + int64_t{timeout_ms} * 1'000'000;
  for (int left_ms = timeout_ms;;) {
    pollfd watched = {fd, POLLIN, 0};
    const int ready = poll(&watched, 1, left_ms);
    if (ready > 0) return true;
    if (ready == 0) return false;
    if (timeout_ms != kNoTimeout) {
      left_ms = static_cast<int>(std::max<int64_t>(0, (deadline_ns - NowNs()) / 1'000'000));
    }
  }
}

Answer ReceiveAnswer(int fd, void* answer, size_t count, Message* message, int timeout_ms) {
  std::array<std::byte, 2 * sizeof(Message)> packet;
  for (int attempt = 0; attempt < 2;) {  // as in ReceiveMessage()
    if (!WaitReadable(fd, timeout_ms)) return Answer::kTimeout;
    const ssize_t bytes = recv(fd, packet.data(), packet.size(), MSG_DONTWAIT);
    if (bytes < 0) {
      if (errno != EINTR && errno != EAGAIN) ++attempt;
      continue;
    }
    if (bytes == 0) return Answer::kEnded;
    if (static_cast<size_t>(bytes) == count) {
      std::memcpy(answer, packet.data(), count);
      return Answer::kAnswer;
    }
    if (bytes != sizeof(Message)) return Answer::kForeign;
    std::memcpy(static_cast<void*>(message), packet.data(), sizeof(Message));
    message->text[sizeof(message->text) - 1] = 0;
    return message->magic == kHelloMagic ? Answer::kMessage : Answer::kForeign;
  }
  return Answer::kEnded;
}

Received ReceiveMessage(int fd, Message* message, Descriptor* passed, int timeout_ms) {
  // At most twice: a peer that closed while a message of ours was unread causes one ECONNRESET
  // before the messages that it sent, and its last message (why it refused) is the one that
  // matters.
  for (int attempt = 0; attempt < 2;) {
    if (!WaitReadable(fd, timeout_ms)) return Received::kTimeout;
    iovec part = {message, sizeof(*message)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr header = {};
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control;
    header.msg_controllen = sizeof(control);
    const ssize_t bytes = recvmsg(fd, &header, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (bytes < 0) {
      if (errno != EINTR && errno != EAGAIN) ++attempt;
      continue;
    }
    if (bytes == 0) return Received::kEnded;
    for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr;
         item = CMSG_NXTHDR(&header, item)) {
      if (item->cmsg_level != SOL_SOCKET || item->cmsg_type != SCM_RIGHTS) continue;
      int received_fd = -1;  // the buffer has room for one; the kernel closes what does not fit
      std::memcpy(&received_fd, CMSG_DATA(item), sizeof(int));
      *passed = Descriptor(received_fd);
    }
    const bool ours = bytes == sizeof(*message) &&
                      (header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) == 0 &&
                      message->magic == kHelloMagic;
    message->text[sizeof(message->text) - 1] = 0;
    return ours ? Received::kMessage : Received::kForeign;
  }
  return Received::kEnded;
}

}  // namespace larder::rdma::control
