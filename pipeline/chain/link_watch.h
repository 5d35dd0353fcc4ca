// LinkWatch: a thread that watches the two links of a socket of a chain, whether frames are in
// flight or not. When one link has a fault, it fails the other with the rank of the lost socket
// (ChainPlan::socket_of_rank), so that the fault travels around the chain even if no socket sends.
// In the same way it reports a frame of its own socket that does not end, since the computing
// thread cannot do so. The thread sleeps between checks; the data path is not involved.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "pipeline/stage/progress_watch.h"
#include "rdma/link/frame_link.h"

namespace larder::pipeline::inline chain {

// The socket that holds a frame that does not end: the detail of a sync::FaultCode::kTimeout, which
// is passed around the chain.
struct HungAt {
  uint32_t rank = 0;       // rank of a stage; 0: no stage reports that it has the frame
  uint32_t attention = 0;  // one of its attention sockets, from 1; 0: the stage itself
  uint32_t detail() const { return attention << 16 | rank; }
  static HungAt Of(uint32_t detail) { return {detail & 0xffff, detail >> 16}; }
};

// A socket of the chain that is lost.
struct Loss {
  uint32_t rank = 0;  // ChainPlan::socket_of_rank
  std::string why;
  bool stopped = false;  // stopped by somebody: not an error
};

// When a socket's frames count as hung.
struct FrameLimit {
  const SocketStatus* status = nullptr;  // the socket's counters; null: never
  int64_t limit_ns = 0;                  // time without a frame started or finished; 0: never
  std::function<HungAt()> holder;        // called when the limit is exceeded
};

class LinkWatch {
 public:
  // before, next: the ranks of the neighbours in the chain. on_lost may be empty; it is called
  // once, with what Lost() finds, on the thread that is the first to find a link lost. The links
  // and frames.status must outlive this object.
  LinkWatch(rdma::FrameLink& in, uint32_t before, rdma::FrameLink& out, uint32_t next,
            std::function<void(const Loss&)> on_lost, FrameLimit frames = {});
  ~LinkWatch();
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // Checks the links now. nullopt: nothing is lost.
  std::optional<Loss> Lost();

 private:
  void Watch();
  void LookAtFrames(ProgressWatch& progress);

  rdma::FrameLink &in_, &out_;
  const uint32_t before_, next_;
  const std::function<void(const Loss&)> on_lost_;
  const FrameLimit frames_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::optional<Loss> loss_;  // written once
  std::thread thread_;        // last: it uses the other members
};

}  // namespace larder::pipeline::chain
