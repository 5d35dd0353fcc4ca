// Test support: a client of a server on this machine, over a socket. Included by tests only.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <cstdint>
#include <string>
#include <string_view>

namespace larder::serving::inline net {

inline constexpr double kLongS = 120;  // limit for a hang, not a timing

class Client {
 public:
  explicit Client(int port, const char* host = "127.0.0.1")
      : fd_(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const timeval limit{static_cast<time_t>(kLongS), 0};
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<uint16_t>(port));
    inet_pton(AF_INET, host, &to.sin_addr);
    connected_ = connect(fd_, reinterpret_cast<const sockaddr*>(&to), sizeof to) == 0;
  }
  ~Client() { close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  bool connected() const { return connected_; }
  void End() { shutdown(fd_, SHUT_WR); }  // shuts down the sending side
  bool Send(std::string_view bytes) {
    return send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL) ==
           static_cast<ssize_t>(bytes.size());
  }
  // Reads at most that many bytes; fewer at the end.
  std::string Read(size_t bytes) {
    std::string all(bytes, '\0');
    const ssize_t n = recv(fd_, all.data(), bytes, MSG_WAITALL);
    all.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return all;
  }
  // Receives until the text contains `mark`, or to the end.
  std::string ReadTo(std::string_view mark) {
    std::string all;
    char buffer[4096];
    while (all.find(mark) == std::string::npos) {
      const ssize_t n = recv(fd_, buffer, sizeof buffer, 0);
      if (n <= 0) break;
      all.append(buffer, static_cast<size_t>(n));
    }
    return all;
  }

 private:
  int fd_;
  bool connected_ = false;
};

}  // namespace larder::serving::net
