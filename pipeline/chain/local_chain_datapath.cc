#include <algorithm>
#include <array>

#include "base/clock.h"
#include "pipeline/chain/local_chain.h"

namespace larder::pipeline::inline chain {

void LocalChain::Submit(model::BatchRows& batch, uint32_t first_half) {
  batch_ = batch;
  first_half_ = first_half;
}

void LocalChain::Poll() {
  Order();
  SeeOrders();
}

void LocalChain::Order() {
  ++step_;
  std::array<KvOrder, kKvOrderPlaces> orders;
  stage_->Order({orders.data(), orders_->Send(step_, orders.data())});
}

void LocalChain::SeeOrders() {
  for (size_t i = 0; i < stage_->plan().attention.size(); ++i) {
    const AttentionId socket(static_cast<int32_t>(i));
    const KvReport report = stage_->kv_report(socket);
    orders_->See(step_, socket, {&report, 1});
  }
}

void LocalChain::Collect() {
  if (orders_ && orders_->waits()) Order();
  const uint64_t began_ns = CounterNs(), waited_ns = stage_->waited_ns();
  SocketStatus::Add(status_.frames_started, 1);
  stage_->Execute(batch_, first_half_);
  SocketStatus::Add(status_.frames_finished, 1);
  status_.live_resident_bytes.store(stage_->packed().live_resident_bytes(),
                                    std::memory_order_relaxed);
  if (orders_) SeeOrders();
  const uint64_t last_ended_ns = ended_ns_;
  ended_ns_ = CounterNs();
  const uint64_t took_ns = ended_ns_ - began_ns;
  const uint64_t inside_ns = std::min(stage_->waited_ns() - waited_ns, took_ns);
  SocketStatus::Add(status_.rows, batch_.rows);
  SocketStatus::Add(status_.step_ns, took_ns - inside_ns);
  SocketStatus::Add(status_.wait_ns,
                    inside_ns + (last_ended_ns != 0 ? began_ns - last_ended_ns : 0));
}

}  // namespace larder::pipeline::chain
