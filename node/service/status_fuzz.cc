// Fuzzes the client of `larder status`: any bytes as the answer of a process that holds a status
// name give a socket's status or an error line. Fuzzes also the parser of /proc/net/unix, whose
// names other processes choose.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <thread>

#include "base/check.h"
#include "node/service/service_status.h"

namespace larder::node::inline service {
namespace {

// Answers each client with the current bytes, on a thread of its own; lives as long as the process.
class Answerer {
 public:
  Answerer() : name_(StatusName("fuzz", std::to_string(getpid()))) {
    sockaddr_un address = {};
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name_.data(), name_.size());
    const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name_.size());
    listener_ = Descriptor(socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    LARDER_CHECK(bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), bytes) == 0 &&
                 listen(listener_.get(), 4) == 0);
    std::thread([this] { Run(); }).detach();
  }
  const std::string& name() const { return name_; }
  void set_bytes(std::string_view bytes) { bytes_ = bytes; }  // call before a client connects

 private:
  void Run() const {
    for (;;) {
      const Descriptor client(accept(listener_.get(), nullptr, nullptr));
      const std::string bytes(bytes_);  // a client does not wait for the end of a long answer
      for (std::string_view rest = bytes; !rest.empty();) {
        const ssize_t sent = send(client.get(), rest.data(), rest.size(), MSG_NOSIGNAL);
        if (sent <= 0) break;  // the client has read enough
        rest.remove_prefix(static_cast<size_t>(sent));
      }
    }
  }

  std::string name_;
  Descriptor listener_;
  std::string_view bytes_;
};

void Check(std::string_view input) {
  static Answerer& answerer = *new Answerer;
  answerer.set_bytes(input);
  std::string problem;
  const auto status = AskStatus(answerer.name(), 5000, &problem);
  LARDER_CHECK(status.has_value() == problem.empty(), "a status or a reason");
  if (status) LARDER_CHECK(status->is_object() && (*status)["socket"].is_string());
  for (const std::string& name : StatusNames(std::string(input), ""))
    LARDER_CHECK(name.starts_with(kStatusPrefix) && name.find('\n') == name.npos);
}

}  // namespace
}  // namespace larder::node::service

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::node::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
