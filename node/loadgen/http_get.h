// One GET on a connection of its own, for what a client must know before it starts. Blocks.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"
#include "node/loadgen/serve_wire.h"

namespace larder::node::inline loadgen {

struct HttpAnswer {
  int status = 0;
  std::string body;
};

// No server answers.
class NoConnection : public Error {
  using Error::Error;
};

// timeout_s limits the attempt to connect, and each wait for bytes. Throws NoConnection, or Error
// if the answer is not HTTP.
HttpAnswer HttpGet(const ServeTarget& target, std::string_view path, double timeout_s);

}  // namespace larder::node::loadgen
