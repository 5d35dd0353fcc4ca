#include "pipeline/chain/stage_socket.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/error.h"
#include "pipeline/chain/link_watch.h"
#include "rdma/common/fault_signal.h"
#include "rdma/control/control_channel.h"

namespace larder::pipeline::inline chain {
namespace {

void SetState(SocketStatus& status, SocketState state) {
  status.state.store(static_cast<uint32_t>(state), std::memory_order_relaxed);
}

}  // namespace

StageSocket::StageSocket(const ChainPlan& chain, size_t index, const StagePlan& plan,
                         const model::GgufFile& file, const ChainOptions& options,
                         SocketStatus& status)
    : StageSocket(chain, index, MakeStage(plan, file, options, index + 1 == chain.stages.size()),
                  options, status) {}

StageSocket::StageSocket(const ChainPlan& chain, size_t index, std::unique_ptr<Stage> stage,
                         const ChainOptions& options, SocketStatus& status)
    : chain_(chain),
      index_(index),
      shape_(chain.frame_shape()),
      frame_(shape_),
      wait_(options.wait),
      connect_timeout_ms_(options.connect_timeout_ms),
      frame_limit_ms_(options.frame_limit_ms),
      status_(status),
      stage_(std::move(stage)),
      listener_(chain.stages.at(index).endpoint) {
  // After a loss sequences are computed again and go on with the tokens that they have.
  if (!stage_->exact()) {
    throw Error(
        "stage {}: its results are not exact, and a chain, which may go on after a loss in the "
        "middle of a sequence, needs the same bits each time; run the whole model as one stage",
        chain.stages[index].socket);
  }
  const StagePlan& plan = stage_->plan();
  chain.CheckStage(plan);
  LARDER_CHECK(stage_->max_batch_tokens() >= shape_.rows.capacity.max_batch_tokens &&
               stage_->max_logit_rows() >= shape_.max_logit_rows);
  status_.weight_bytes.store(plan.weight_bytes, std::memory_order_relaxed);
  status_.resident_bytes.store(stage_->packed().residency().resident_bytes(),
                               std::memory_order_relaxed);
  threadpool::Pool::TicksPerSecond();  // the first call measures it, so it is made before there are
                                       // frames
}

void StageSocket::Serve(const std::function<void(const std::string&)>& log) {
  const std::string& name = chain_.stages[index_].socket;
  const bool last = index_ + 1 == chain_.stages.size();
  const rdma::LinkShape shape = chain_.link_shape();
  SetState(status_, SocketState::kConnecting);
  rdma::FrameLink in = listener_.Accept(shape, chain_.identity(name), rdma::kNoTimeout);
  log(fmt::format("stage {}: receives from {} by {}", name, in.peer(), in.description()));
  rdma::FrameLink out = ConnectNext(in);
  log(fmt::format("stage {}: sends to {} by {}", name, out.peer(), out.description()));
  stage_->AbandonOrders();  // orders of the chain before, whose chunks belong to others in this one
  SetState(status_, SocketState::kServing);

  const auto here_rank = static_cast<uint32_t>(index_ + 1);
  const auto on_lost = [&](const Loss& loss) {
    if (loss.rank == here_rank)
      log(fmt::format("stage {}: {}", name, loss.why));  // the thread that would throw it hangs
  };
  const auto holder = [&] {
    const auto attention = stage_->HungAttention();
    if (attention)
      log(fmt::format("stage {}: attention socket {} hangs", name,
                      stage_->plan().attention.at(attention->index()).name));
    return HungAt{here_rank, attention ? static_cast<uint32_t>(attention->index()) + 1 : 0};
  };
  LinkWatch watch(
      in, here_rank - 1, out, last ? 0 : here_rank + 1, on_lost,
      {.status = &status_, .limit_ns = int64_t{frame_limit_ms_} * 1'000'000, .holder = holder});
  const char* wrong = nullptr;
  const Outcome outcome = Run(in, out, &wrong);
  SetState(status_, SocketState::kConnecting);
  if (outcome == Outcome::kStopped) {
    // The chain is closed from its beginning: the next stage must read what this stage has sent
    // before the link closes.
    WaitForClose(in);
    return;
  }
  SocketStatus::Add(status_.reconnects, 1);
  if (outcome == Outcome::kWrongFrame) {
    in.Fail(sync::FaultCode::kMalformed, here_rank);
    out.Fail(sync::FaultCode::kMalformed, here_rank);
    throw Error("stage {}: {} sent a wrong frame: {}", name, in.peer(), wrong);
  }
  const Loss loss = watch.Lost().value_or(Loss{});
  throw PeerLostError({chain_.socket_of_rank(loss.rank), loss.why, loss.stopped}, name);
}

// The next stage may be absent for long. If the previous one gives up meanwhile, this stage must be
// listening when it connects again.
rdma::FrameLink StageSocket::ConnectNext(rdma::FrameLink& in) {
  const std::string& name = chain_.stages[index_].socket;
  const rdma::LinkEndpoint& next = chain_.stages[index_].next;
  const int attempt_ms = next.transport == rdma::Transport::kVerbs ? 2000 : 500;
  const auto before_is_there = [&] {
    if (const sync::Fault fault = in.fault())
      throw PeerLostError({chain_.socket_of_rank(static_cast<uint32_t>(index_)), in.FaultText(),
                           rdma::WasStopped(fault)},
                          name);
  };
  for (int left_ms = connect_timeout_ms_;; left_ms -= attempt_ms) {
    const int64_t began_ns = NowNs();
    try {
      rdma::FrameLink out =
          rdma::ConnectLink(next, chain_.link_shape(), chain_.identity(name, in.session()),
                            std::min(left_ms, attempt_ms));
      before_is_there();
      return out;
    } catch (const PeerLostError&) {
      throw;
    } catch (const Error&) {
      before_is_there();
      // If the next stage refused at once, for example because of another Plan, retrying is
      // useless.
      const bool refused = NowNs() - began_ns < int64_t{attempt_ms} * 1'000'000;
      if (left_ms > attempt_ms && !refused) continue;
      const bool last = index_ + 1 == chain_.stages.size();
      in.Fail(sync::FaultCode::kRankLost, static_cast<uint32_t>(last ? 0 : index_ + 2));
      throw;
    }
  }
}

void StageSocket::WaitForClose(rdma::FrameLink& in) {
  // Nothing follows a stop message, so this wait ends when the other end closes the link.
  in.WaitReceive(wait_);
}

}  // namespace larder::pipeline::chain
