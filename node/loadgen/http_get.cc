#include "node/loadgen/http_get.h"

#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "base/descriptor.h"
#include "node/loadgen/client_connection.h"
#include "node/loadgen/http_reply_parser.h"

namespace larder::node::inline loadgen {
namespace {

constexpr size_t kMostBytes = size_t{1} << 20;

}  // namespace

HttpAnswer HttpGet(const ServeTarget& target, std::string_view path, double timeout_s) {
  Descriptor connection;
  try {
    connection = ConnectAndWait(Resolve(target.host, target.port), timeout_s);
  } catch (const Error& error) {
    throw NoConnection("{}", error.what());
  }
  const std::string request = HttpBytes(target, "GET", path, "");
  // It may end while it is asked: then it is gone, too.
  const auto fail = [&target](const char* what) {
    const std::string text =
        fmt::format("{} {}:{}: {}", what, target.host, target.port, std::strerror(errno));
    if (errno == ECONNRESET || errno == EPIPE) throw NoConnection("{}", text);
    throw Error("{}", text);
  };
  if (send(connection.get(), request.data(), request.size(), MSG_NOSIGNAL) < 0)
    fail("can't send to");
  HttpReplyParser reply;
  HttpAnswer answer;
  while (!reply.done()) {
    char bytes[4096];
    const ssize_t n = recv(connection.get(), bytes, sizeof bytes, 0);
    if (n < 0) fail("no reply from");
    n > 0 ? reply.Feed({bytes, static_cast<size_t>(n)}, answer.body) : reply.Close();
    if (answer.body.size() > kMostBytes)
      throw Error("the answer of {}:{} to GET {} is too large: expected at most {} bytes",
                  target.host, target.port, path, kMostBytes);
  }
  answer.status = reply.status();
  return answer;
}

}  // namespace larder::node::loadgen
