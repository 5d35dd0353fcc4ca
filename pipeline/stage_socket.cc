#include "pipeline/stage_socket.h"

#include "base/error.h"
#include "pipeline/link_watch.h"

namespace larder::pipeline {
namespace {

StageOptions ForChain(StageOptions options, bool last) {
  options.last = last;
  return options;
}

void SetState(SocketStatus& status, SocketState state) {
  status.state.store(static_cast<uint32_t>(state), std::memory_order_relaxed);
}

}  // namespace

StageSocket::StageSocket(const ChainPlan& chain, size_t index, const Plan& plan, const model::GgufFile& file,
                         StageOptions options, SocketStatus& status)
    : chain_(chain),
      index_(index),
      shape_(chain.frame_shape()),
      wait_(options.wait),
      connect_timeout_ms_(options.connect_timeout_ms),
      status_(status),
      stage_(plan, file, ForChain(options, index + 1 == chain.stages.size())),
      listener_(chain.stages.at(index).endpoint) {
  chain.CheckStage(plan);
  status_.weight_bytes.store(plan.weight_bytes, std::memory_order_relaxed);
  status_.resident_bytes.store(stage_.residency().resident_bytes(), std::memory_order_relaxed);
  threadpool::Pool::TicksPerSecond();  // measured on the first call: before there are frames
}

void StageSocket::Serve(const std::function<void(const std::string&)>& log) {
  const std::string& name = chain_.stages[index_].socket;
  const bool last = index_ + 1 == chain_.stages.size();
  const rdma::LinkShape shape = chain_.link_shape();
  SetState(status_, SocketState::kConnecting);
  rdma::FrameLink in = listener_.Accept(shape, chain_.identity(name), rdma::kNoTimeout);
  log(fmt::format("stage {}: receives from {} by {}", name, in.peer(), in.description()));
  rdma::FrameLink out;
  try {
    out = rdma::ConnectLink(chain_.stages[index_].next, shape, chain_.identity(name), connect_timeout_ms_);
  } catch (const Error&) {
    in.Fail(sync::FaultCode::kStation, static_cast<uint32_t>(last ? 0 : index_ + 2));
    throw;
  }
  log(fmt::format("stage {}: sends to {} by {}", name, out.peer(), out.description()));
  SetState(status_, SocketState::kServing);

  // Stages are numbered from 1 in what is passed on; 0 is the serving socket.
  const auto here = static_cast<uint32_t>(index_ + 1);
  LinkWatch watch(in, here - 1, out, last ? 0 : here + 1, nullptr);
  const char* wrong = nullptr;
  const Outcome outcome = Run(in, out, &wrong);
  SetState(status_, SocketState::kConnecting);
  if (outcome == Outcome::kStopped) {
    // The chain is taken apart from its beginning: what this stage has sent must be read before its link
    // goes.
    WaitForClose(in);
    return;
  }
  SocketStatus::Add(status_.reconnects, 1);
  if (outcome == Outcome::kWrongFrame) {
    in.Fail(sync::FaultCode::kMalformed, here);
    out.Fail(sync::FaultCode::kMalformed, here);
    throw Error("stage {}: {} sent a wrong frame: {}", name, in.peer(), wrong);
  }
  throw Error("stage {}: lost {}", name, watch.Lost());
}

void StageSocket::WaitForClose(rdma::FrameLink& in) {
  // Nothing follows a stop message, so any end of this wait is the other end's closing.
  in.WaitReceive(wait_);
}

}  // namespace larder::pipeline
