#include "pipeline/chain/link_watch.h"

#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "base/clock.h"
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
                     std::function<void(uint32_t, const std::string&)> on_lost, FrameLimit frames)
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

std::string LinkWatch::Lost(uint32_t* rank) {
  std::unique_lock lock(mutex_);
  bool first = false;
  if (text_.empty()) {
    // A fault that a neighbour passes on names the lost socket; any other fault is the neighbour's
    // own.
    auto look = [&](rdma::FrameLink& link, uint32_t neighbour, rdma::FrameLink& other) {
      const sync::Fault fault = link.fault();
      if (!fault) return false;
      if (fault.code == sync::FaultCode::kTimeout) {
        rank_ = HungAt::Of(fault.detail).rank;
        text_ = TextOf(HungAt::Of(fault.detail));
        other.Fail(fault.code, fault.detail);
        return true;
      }
      rank_ = fault.code == sync::FaultCode::kRankLost ? fault.detail : neighbour;
      text_ = link.FaultText();
      other.Fail(sync::FaultCode::kRankLost, rank_);
      return true;
    };
    first = look(in_, before_, out_) || look(out_, next_, in_);
  }
  if (rank != nullptr) *rank = rank_;
  lock.unlock();  // neither is written again
  if (first && on_lost_) on_lost_(rank_, text_);
  return text_;
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
    if (!Lost().empty()) return;
    lock.lock();
  }
}

}  // namespace larder::pipeline::chain
