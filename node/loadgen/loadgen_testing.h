// For tests of loadgen: a server whose replies the test chooses, and parts of such replies.
#pragma once

#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "node/loadgen/client_connection.h"

namespace larder::node::inline loadgen {

inline std::string Sse(const nlohmann::json& event) {
  return fmt::format("data: {}\n\n", event.dump());
}
inline std::string Chunk(const std::string& text) {
  return fmt::format("{:x}\r\n{}\r\n", text.size(), text);
}
inline const std::string kHead =
    "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

// A server that accepts on one thread and answers each connection on a thread of its own. `answer`
// gets the request's bytes (headers and body) and a function that sends; it returns whether to keep
// the connection open.
class Server {
 public:
  using Send = std::function<void(const std::string&)>;
  using Answer = std::function<bool(const std::string& request, const Send& send)>;

  explicit Server(Answer answer)
      : answer_(std::move(answer)), listener_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    auto* const any = reinterpret_cast<sockaddr*>(&address);
    if (bind(listener_.get(), any, length) != 0 || listen(listener_.get(), 128) != 0) std::abort();
    getsockname(listener_.get(), any, &length);
    port_ = ntohs(address.sin_port);
    acceptor_ = std::thread([this] { Accept(); });
  }
  ~Server() {
    stop_ = true;
    shutdown(listener_.get(), SHUT_RDWR);
    acceptor_.join();
    for (std::thread& thread : threads_) thread.join();
  }
  uint16_t port() const { return port_; }
  size_t connections() const { return connections_; }

 private:
  void Accept() {
    while (!stop_) {
      const int fd = accept(listener_.get(), nullptr, nullptr);
      if (fd < 0) continue;
      ++connections_;
      threads_.emplace_back([this, fd] { Talk(Descriptor(fd)); });
    }
  }
  void Talk(Descriptor fd) {
    std::string got;
    while (!stop_) {
      pollfd wait = {.fd = fd.get(), .events = POLLIN};
      if (poll(&wait, 1, 20) == 0) continue;
      char bytes[4096];
      const ssize_t n = recv(fd.get(), bytes, sizeof bytes, 0);
      if (n <= 0) return;
      got.append(bytes, static_cast<size_t>(n));
      const size_t head = got.find("\r\n\r\n");
      if (head == std::string::npos) continue;
      const size_t at = got.find("Content-Length: ");
      const size_t length = at < head ? std::stoul(got.substr(at + 16)) : 0;
      if (got.size() < head + 4 + length) continue;
      const Send send = [&](const std::string& text) {
        ::send(fd.get(), text.data(), text.size(), MSG_NOSIGNAL);
      };
      if (!answer_(got, send)) return;
      got.clear();
    }
  }

  Answer answer_;
  Descriptor listener_;
  uint16_t port_ = 0;
  std::atomic<bool> stop_{false};
  std::atomic<size_t> connections_{0};
  std::thread acceptor_;
  std::vector<std::thread> threads_;  // used only by the accepting thread until that ends
};

}  // namespace larder::node::loadgen
