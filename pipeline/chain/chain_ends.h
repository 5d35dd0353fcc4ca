// ChainEnds: the serving socket's side of a chain: embeds a micro-batch and sends it to the first stage;
// receives it from the last, with the residuals of the rows whose logits are wanted, and computes those. One
// thread: the one that made the Stage.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/error.h"
#include "pipeline/chain/chain_plan.h"
#include "pipeline/chain/link_watch.h"
#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage.h"
#include "rdma/link/frame_link.h"

namespace larder::pipeline {

// A socket or a link of the pipeline was lost. Nothing is in flight any more and every slot is empty: what
// was asked for must be asked again from the start, or refused.
class PipelineLost : public Error {
 public:
  using Error::Error;
};

class ChainEnds {
 public:
  // `ends`: the Stage of EndsOf(config). Connects to stages that run, or will within connect_timeout_ms.
  // on_lost: called from another thread when a stage or link is lost, at once, though nothing may be in
  // flight; may be empty. status: outlives this object; a frame that is lost counts as finished.
  // frame_limit_ms: as StageOptions has it; a frame for which no stage raises its hand is a fault here a
  // little later.
  ChainEnds(const ChainPlan& chain, Stage& ends, const sync::WaitPolicy& wait, int connect_timeout_ms,
            int frame_limit_ms, std::function<void(const LostPeer&)> on_lost, SocketStatus& status);
  ~ChainEnds();  // stops the chain: its stages wait for the next one
  ChainEnds(const ChainEnds&) = delete;
  ChainEnds& operator=(const ChainEnds&) = delete;

  // Throws PipelineLost if a stage or a link is lost, though nobody has sent since; if one was lost before,
  // tries to connect again, for a second or two. Send does so by itself.
  void MakeWhole();
  // At most chain.in_flight micro-batches between Send and Receive. frame: as Stage::Execute's. Throws
  // PipelineLost.
  void Send(model::BatchRows& frame, uint32_t first_half);
  // The oldest micro-batch; the logits of its logit rows are then the Stage's.
  void Receive();

  // What the stages have reported, the latest frame's; any thread. attention: of the stage's attention
  // sockets, if it has any.
  const SocketStatus& stage_status(size_t stage) const { return shown_[stage * shape_.reports_a_stage()]; }
  const SocketStatus& attention_status(size_t stage, size_t attention) const {
    return shown_[stage * shape_.reports_a_stage() + 1 + attention];
  }
  const ChainPlan& chain() const { return chain_; }

 private:
  void Connect(int timeout_ms);
  void CheckFirstLink();
  void HangUp();
  [[noreturn]] void Lost();
  void Disconnect();
  void ShowReports(const StationReport* reports, uint64_t came_ns);
  void SetStates(SocketState of_stages);
  bool SendFrame(StageFrameHeader header, model::BatchRows* frame);
  bool ReceiveFrame(const char** wrong);

  struct InFlight {
    uint32_t rows, logit_rows;
  };
  const ChainPlan chain_;
  const StageFrameShape shape_;
  FrameCopy frame_;  // the one that came last
  Stage& ends_;
  const sync::WaitPolicy wait_;
  const int frame_limit_ms_;
  SocketStatus& status_;
  std::unique_ptr<SocketStatus[]> shown_;  // of each report of a frame
  uint64_t alone_since_ns_ = 0;            // when the only frame in flight left; 0: there are others
  rdma::LinkListener listener_;
  const std::function<void(const LostPeer&)> on_lost_;
  // Of the links that are there or being made; 0: none. The last stage connects with the session that came
  // round the chain from here, so that what is left of an earlier one is not taken for the present one.
  uint64_t session_ = 0;
  rdma::FrameLink out_, in_;
  std::unique_ptr<LinkWatch> watch_;  // while connected; after the links, which it uses
  bool connected_ = false;
  int attempts_ = 0;  // to connect again
  uint64_t sent_ = 0, received_ = 0;
  std::vector<InFlight> in_flight_;  // [step % in_flight]
  std::vector<uint32_t> logit_row_;  // 0, 1, 2, ...
};

}  // namespace larder::pipeline
