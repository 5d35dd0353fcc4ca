// LocalChain: one stage with the whole model, on a weight socket of this process and, if it is
// separated, its attention sockets. One micro-batch at a time, since the next tokens of its
// sequences depend on its logits.
#pragma once

#include <memory>

#include "pipeline/chain/chain.h"
#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage.h"

namespace larder::pipeline::inline chain {

class LocalChain final : public Chain, private KvChannel {
 public:
  // `status` must outlive it.
  LocalChain(std::unique_ptr<Stage> stage, SocketStatus& status);

  void Submit(model::BatchRows& batch, uint32_t first_half) override;
  // Computes the micro-batch; the calling thread is one of the pool's.
  void Collect() override;
  void Reconnect() override {}
  size_t max_in_flight() const override { return 1; }
  bool can_be_lost() const override { return false; }
  std::optional<AttentionId> HungAttention() const override { return stage_->HungAttention(); }
  KvChannel& kv() override { return *this; }
  std::vector<ExpertCounts> expert_counts() const override {
    return stage_->packed().weights().expert_counters().Read();
  }
  void FetchExpertCounts() override {}
  PackedWeights& packed() override { return stage_->packed(); }

  Stage& stage() { return *stage_; }
  const Stage& stage() const { return *stage_; }

 private:
  topology::ScatteredBytes Memory(uint32_t chunk) override { return stage_->KvMemory(chunk); }
  KvOrderBook* orders() override { return orders_ ? &*orders_ : nullptr; }
  void Poll() override;
  void Lose(const char*) override {}

  void Order();
  void SeeOrders();

  SocketStatus& status_;
  const std::unique_ptr<Stage> stage_;
  std::optional<KvOrderBook> orders_;  // if the attention sockets are processes
  uint64_t step_ = 0;
  model::BatchRows batch_;  // submitted and not collected
  uint32_t first_half_ = 0;
  uint64_t ended_ns_ = 0;  // when the last micro-batch ended; 0: none yet
};

}  // namespace larder::pipeline::chain
