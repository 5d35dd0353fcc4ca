// LinkWatch: looks after the two links of a station of a chain while frames run, or none do. When one has a
// fault, it fails the other with the number of the station that was lost, so that the news goes round the
// chain even when nobody sends. A thread that sleeps; the data path takes no part in it.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

#include "rdma/frame_link.h"

namespace larder::pipeline {

class LinkWatch {
 public:
  // before, next: numbers of the neighbours in the chain, stages from 1, 0 for the serving socket. on_lost
  // may be empty; called at most once, on the watching thread, with what Lost() says. The links outlive this
  // object.
  LinkWatch(rdma::FrameLink& in, uint32_t before, rdma::FrameLink& out, uint32_t next,
            std::function<void(uint32_t stage, const std::string& why)> on_lost);
  ~LinkWatch();
  LinkWatch(const LinkWatch&) = delete;
  LinkWatch& operator=(const LinkWatch&) = delete;

  // Looks now. What was lost and why; empty: nothing. *stage, if not null: its number.
  std::string Lost(uint32_t* stage = nullptr);

 private:
  void Watch();

  rdma::FrameLink &in_, &out_;
  const uint32_t before_, next_;
  const std::function<void(uint32_t, const std::string&)> on_lost_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stop_ = false;
  std::string text_;
  uint32_t stage_ = 0;
  std::thread thread_;  // last: it uses the others
};

}  // namespace larder::pipeline
