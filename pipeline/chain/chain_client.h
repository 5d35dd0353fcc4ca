// ChainClient: the serving socket's side of a chain. It embeds a micro-batch and sends it to the
// first stage; it receives the residuals of the rows that want logits from the last stage and
// computes the logits.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "pipeline/chain/chain.h"
#include "pipeline/chain/chain_options.h"
#include "pipeline/chain/chain_plan.h"
#include "pipeline/chain/link_watch.h"
#include "pipeline/chain/stage_threads.h"
#include "pipeline/stage/ends.h"
#include "pipeline/stage/socket_status.h"
#include "rdma/link/frame_link.h"
#include "weight_node/routing/expert_counters.h"

namespace larder::pipeline::inline chain {

class ChainClient final : public Chain, private KvChannel {
 public:
  // stages: the Plans of the chain's stages if they are to be threads of this process; empty: they
  // are processes (`larder node`) that run, or will within options.connect_timeout_ms. ends: the
  // Plan of model::EndsOf. options.on_lost is called once, on any thread, as soon as a stage or
  // link is lost, even with nothing in flight. If a frame does not return and no stage reports
  // within options.frame_limit_ms that it holds it, the client reports a fault shortly afterwards.
  // `file` and `status` must outlive this object; a lost frame counts as finished. Throws Error.
  ChainClient(const ChainPlan& chain, const StagePlan& ends, std::vector<StagePlan> stages,
              const model::GgufFile& file, const ChainOptions& options, SocketStatus& status);
  ~ChainClient() override;  // stops the chain; its stages then wait for the next one

  void Submit(model::BatchRows& batch, uint32_t first_half) override;
  void Collect() override;
  void Reconnect() override;
  size_t max_in_flight() const override { return chain_.capacity.max_in_flight; }
  bool can_be_lost() const override { return true; }
  std::optional<AttentionId> HungAttention() const override { return std::nullopt; }
  KvChannel& kv() override { return *this; }
  std::vector<ExpertCounts> expert_counts() const override;
  void FetchExpertCounts() override;
  PackedWeights& packed() override { return ends_.packed(); }

  // The stages' reports from the latest frame. Any thread.
  size_t stages() const { return shape_.stages; }
  const SocketStatus& stage_status(size_t stage) const {
    return shown_[stage * shape_.reports_per_stage()];
  }
  const SocketStatus& attention_status(size_t stage, AttentionId attention) const {
    return shown_[stage * shape_.reports_per_stage() + 1 + attention.index()];
  }
  const ChainPlan& chain() const { return chain_; }
  const StageThreads* stage_threads() const { return threads_.get(); }  // null: processes

 private:
  topology::ScatteredBytes Memory(uint32_t) override { return {}; }
  KvOrderBook* orders() override { return &orders_; }
  void Poll() override;
  void Lose(const char* why) override;

  void Connect(int timeout_ms);
  void ConnectAgain();
  void CheckFirstLink();
  void CloseLinks();
  [[noreturn]] void Lost();
  void Tell(const LostPeer&);
  [[noreturn]] void Fail(sync::FaultCode code, uint32_t rank, const std::string& why);
  [[noreturn]] void WrongFrame(const char* wrong);
  void Disconnect();
  void SeeOrders();
  void ShowReports(const SocketReport* reports, uint64_t came_ns);
  void ShowExperts(const ExpertReport* reports);
  void SetStates(SocketState of_stages);
  bool SendFrame(StageFrameHeader header, model::BatchRows* batch);
  bool ReceiveFrame(const char** wrong);

  struct InFlight {
    uint32_t rows, logit_rows;
    bool lm_head;
  };
  const std::unique_ptr<StageThreads> threads_;  // destroyed after ~ChainClient() has stopped the
                                                 // chain
  const ChainPlan chain_;
  const StageFrameShape shape_;
  FrameCopy frame_;  // the frame received last
  Ends ends_;
  const sync::WaitPolicy wait_;
  const int frame_limit_ms_;
  SocketStatus& status_;
  std::unique_ptr<SocketStatus[]> shown_;             // [report of a frame]
  std::vector<weight_node::ExpertCounters> experts_;  // [stage]: copies of its counters; or none
  uint64_t alone_since_ns_ = 0;  // when the only frame in flight was sent; 0: several are in flight
  rdma::LinkListener listener_;
  const std::function<void(const LostPeer&)> on_lost_;
  std::atomic<bool> told_{true};  // on_lost_ was called for this connection
  // The session of the links that are connected or connecting; 0: none. It travels from here along
  // the chain, and the last stage connects with it, so that a remnant of an earlier chain is not
  // taken for the current one.
  uint64_t session_ = 0;
  rdma::FrameLink out_, in_;
  std::unique_ptr<LinkWatch> watch_;  // while connected; declared after the links, which it uses
  bool connected_ = false;
  int attempts_ = 0;  // attempts to reconnect
  uint64_t sent_ = 0, received_ = 0;
  KvOrderBook orders_;
  std::vector<KvReport> of_stages_;  // [stage]: the reports about one attention socket's chunks
  std::vector<InFlight> in_flight_;  // [step % max_in_flight]
  std::vector<uint32_t> logit_row_;  // 0, 1, 2, ...
};

}  // namespace larder::pipeline::chain
