#include "pipeline/chain/link_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/clock.h"
#include "rdma/common/fault_signal.h"
#include "rdma/common/helper_thread.h"

namespace larder::pipeline::inline chain {
namespace {

constexpr auto kInterval = std::chrono::milliseconds(200);

std::string TextOf(const HungAt& hung) {
  if (hung.rank == 0)
    return "a frame did not come back in time and no stage reports holding it: a link lost it";
  const std::string who =
      hung.attention == 0 ? "it" : fmt::format("its attention socket number {}", hung.attention);
  return fmt::format(
      "{} has not finished a frame in time: it hangs, or is too slow for --frame-timeout", who);
}

}  // namespace

LinkWatch::LinkWatch(rdma::FrameLink& in, uint32_t before, rdma::FrameLink& out, uint32_t next,
                     std::function<void(const Loss&)> on_lost, FrameLimit frames)
    : in_(in),
      out_(out),
      before_(before),
      next_(next),
      on_lost_(std::move(on_lost)),
      frames_(std::move(frames)),
      thread_(rdma::StartHelper([this] { Watch(); })) {}

LinkWatch::~LinkWatch() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

std::optional<Loss> LinkWatch::Lost() {
  std::unique_lock lock(mutex_);
  bool first = false;
  if (!loss_) {
    // A fault that a neighbour passes on names the lost socket; any other fault is the neighbour's
    // own.
    auto look = [&](rdma::FrameLink& link, uint32_t neighbour, rdma::FrameLink& other) {
      const sync::Fault fault = link.fault();
      if (!fault) return false;
      if (fault.code == sync::FaultCode::kTimeout) {
        const HungAt hung = HungAt::Of(fault.detail);
        loss_ = {hung.rank, TextOf(hung)};
        other.Fail(fault.code, fault.detail);
        return true;
      }
      loss_ = {fault.names_rank() ? fault.detail : neighbour, link.FaultText(),
               rdma::WasStopped(fault)};
      other.Fail(loss_->stopped ? sync::FaultCode::kRankStopped : sync::FaultCode::kRankLost,
                 loss_->rank);
      return true;
    };
    first = look(in_, before_, out_) || look(out_, next_, in_);
  }
  lock.unlock();  // it is not written again
  if (first && on_lost_) on_lost_(*loss_);
  return loss_;
}

void LinkWatch::LookAtFrames(ProgressWatch& progress) {
  if (frames_.status == nullptr || progress.Alive(*frames_.status, NowNs())) return;
  in_.Fail(sync::FaultCode::kTimeout, (frames_.holder ? frames_.holder() : HungAt{}).detail());
}

void LinkWatch::Watch() {
  ProgressWatch progress(frames_.limit_ns);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    wake_.wait_for(lock, kInterval, [this] { return stop_; });
    if (stop_) return;
    lock.unlock();
    LookAtFrames(progress);
    if (Lost()) return;
    lock.lock();
  }
}

}  // namespace larder::pipeline::chain
