// The options of a chain, of each of its stages, and of the engine that drives it, besides the
// Plan.
#pragma once

#include <fmt/format.h>

#include <functional>
#include <string>

#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage_options.h"

namespace larder::pipeline::inline chain {

// Another socket of the cluster that is gone.
struct LostPeer {
  std::string socket;  // its name
  std::string reason;
  bool stopped = false;  // stopped by somebody: not an error
};
// "lost socket NAME: REASON", or "socket NAME was stopped".
inline std::string Describe(const LostPeer& peer) {
  return peer.stopped ? fmt::format("socket {} was stopped", peer.socket)
                      : fmt::format("lost socket {}: {}", peer.socket, peer.reason);
}

struct ChainOptions : StageOptions {
  // If a stage computes a micro-batch for longer, the chain fails and names the stage. 0: no limit.
  int frame_limit_ms = 10000;
  std::function<void(const LostPeer&)> on_lost;  // for the serving socket; see ChainClient
  // Where an Engine counts its micro-batches; must outlive it. Null: the Engine has its own.
  SocketStatus* status = nullptr;
};

}  // namespace larder::pipeline::chain
