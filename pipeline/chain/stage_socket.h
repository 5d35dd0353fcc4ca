// StageSocket: one stage of a chain: receives frames, computes its layers, and sends the frames on.
// One thread constructs it, calls Serve() and becomes thread 0 of its pool: a std::thread of the
// serving process, or the main thread of `larder node`. When a neighbour is lost, it tells the
// other neighbour and waits for a new chain, with its weights still loaded.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "model/gguf/gguf.h"
#include "pipeline/chain/chain_options.h"
#include "pipeline/chain/chain_plan.h"
#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage.h"
#include "rdma/link/frame_link.h"

namespace larder::pipeline::inline chain {

// The chain is lost: which socket of it, and why.
class PeerLostError : public Error {
 public:
  PeerLostError(const LostPeer& peer, const std::string& here)
      : Error("stage {}: {}", here, Describe(peer)), peer_(peer) {}
  const LostPeer& peer() const { return peer_; }

 private:
  LostPeer peer_;
};

class StageSocket {
 public:
  // Loads the weights and listens. All arguments must outlive it. Throws Error.
  StageSocket(const ChainPlan& chain, size_t index, const StagePlan& plan,
              const model::GgufFile& file, const ChainOptions& options, SocketStatus& status);
  // The same with a stage that this thread has made. Throws Error if it is not exact().
  StageSocket(const ChainPlan& chain, size_t index, std::unique_ptr<Stage> stage,
              const ChainOptions& options, SocketStatus& status);

  // Waits for the previous stage, connects to the next (for at most connect_timeout_ms), and
  // executes frames until the serving socket sends stop. Throws PeerLostError if a socket of the
  // chain is lost, Error if a connection is refused or a frame is invalid; the next call joins a
  // new chain. log: gets messages for the operator, one line each.
  void Serve(const std::function<void(const std::string&)>& log);

  // Makes a Serve() that waits for the previous stage, and all later calls, throw Error. Any
  // thread.
  void StopListening() { listener_.Stop(); }

  Stage& stage() { return *stage_; }
  const Stage& stage() const { return *stage_; }
  int port() const { return listener_.port(); }

 private:
  enum class Outcome { kStopped, kLost, kWrongFrame };
  // The data path, from the first frame to the stop message or a fault.
  Outcome Run(rdma::FrameLink& in, rdma::FrameLink& out, const char** wrong);
  void WriteReports(const StageFrameView<std::byte>& to, uint64_t here_ns);
  void WriteExpertReport(ExpertReport& report);
  rdma::FrameLink ConnectNext(rdma::FrameLink& in);
  void WaitForClose(rdma::FrameLink& in);

  const ChainPlan& chain_;
  const size_t index_;
  const StageFrameShape shape_;
  FrameCopy frame_;  // the frame that is being computed
  const sync::WaitPolicy wait_;
  const int connect_timeout_ms_, frame_limit_ms_;
  SocketStatus& status_;
  const std::unique_ptr<Stage> stage_;
  size_t next_expert_number_ = 0;  // where the next frame's ExpertReport begins
  rdma::LinkListener listener_;
};

}  // namespace larder::pipeline::chain
