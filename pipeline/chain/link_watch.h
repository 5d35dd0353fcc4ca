// LinkWatch: looks after the two links of a station of a chain while frames run, or none do. When one has a
// fault, it fails the other with the number of the station that was lost, so that the news goes round the
// chain even when nobody sends. It also sees when this station's own frame does not end, and says so the same
// way: the thread that computes can't. A thread that sleeps; the data path takes no part in it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "pipeline/stage/progress_watch.h"
#include "rdma/link/frame_link.h"

namespace larder::pipeline {

// Who holds a frame that does not end: the detail of a sync::FaultCode::kTimeout that goes round a chain.
struct HungAt {
  uint32_t station = 0;    // a stage, from 1; 0: no stage has it, or none says so
  uint32_t attention = 0;  // of its attention sockets, from 1; 0: itself
  uint32_t detail() const { return attention << 16 | station; }
  static HungAt Of(uint32_t detail) { return {detail & 0xffff, detail >> 16}; }
};

// When a station's frames count as hung.
struct FrameLimit {
  const SocketStatus* status = nullptr;  // of its frames; null: never
  int64_t limit_ns = 0;                  // without a frame started or finished; 0: never
  std::function<HungAt()> holder;        // asked when the limit is over
};

class LinkWatch {
 public:
  // before, next: numbers of the neighbours in the chain, stages from 1, 0 for the serving socket. on_lost
  // may be empty; called at most once, on the watching thread, with what Lost() says. The links outlive this
  // object, and so does what `frames` names.
  LinkWatch(rdma::FrameLink& in, uint32_t before, rdma::FrameLink& out, uint32_t next,
            std::function<void(uint32_t stage, const std::string& why)> on_lost, FrameLimit frames = {});
  ~LinkWatch();
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // Looks now. What was lost and why; empty: nothing. *stage, if not null: its number.
  std::string Lost(uint32_t* stage = nullptr);

 private:
  void Watch();
  void LookAtFrames(ProgressWatch& progress);

  rdma::FrameLink &in_, &out_;
  const uint32_t before_, next_;
  const std::function<void(uint32_t, const std::string&)> on_lost_;
  const FrameLimit frames_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::string text_;
  uint32_t stage_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace larder::pipeline
