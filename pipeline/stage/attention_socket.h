// AttentionSocket: a running attention socket: its pool, its KV slots and Programs that consist of
// attention steps only. It reads no weight matrix. One thread constructs it, calls Serve() and
// becomes thread 0 of its pool: a std::thread of the weight socket's Stage if both are in one
// process, else the main thread of `larder node`.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <vector>

#include "attention_node/attention_node.h"
#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "model/step/kept_rows.h"
#include "pipeline/kv/kv_order.h"
#include "pipeline/kv_store/kv_part.h"
#include "pipeline/plan/socket_waits.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/exchange.h"
#include "pipeline/stage/rows_copy.h"
#include "pipeline/stage/socket_status.h"
#include "rdma/shm/shm_link.h"
#include "sync/wait.h"
#include "threadpool/pool.h"

namespace larder::pipeline::inline stage {

class AttentionSocket {
 public:
  // index: into plan.attention. `plan`, `exchange`, `frames` and `report` must outlive this object.
  // Only q/k norms are read from the file. kv_files: for its part of KV chunks. Throws Error.
  AttentionSocket(const StagePlan& plan, AttentionId index, const model::GgufFile& file,
                  const Exchange& exchange, rdma::ShmLink& frames, AttentionReport& report,
                  const SocketWaits& waits, const KvPartOptions& kv_files);

  // Executes frames until a stop message comes, and counts them in *status and in the report. This
  // is the data path. Throws Error if a message is invalid or out of step.
  void Serve(SocketStatus* status);
  void Serve() { Serve(&own_status_); }

  // For a micro-batch that does not end: whether the others wait for this socket. Any thread.
  bool Hangs() const;
  const threadpool::Pool& pool() const { return *pool_; }

  const attention_node::KvRegion& kv() const { return node_->kv(); }
  std::span<const threadpool::Step> steps(size_t thread, size_t halves = 1) const {
    return steps_[halves - 1][thread];
  }

 private:
  friend struct StageTesting;
  void BuildPrograms(const Exchange& exchange, size_t halves);
  // The step in which a thread says that it has attended to its part of a layer, for the first one
  // of its L3 group to wait for and to tell the weight socket.
  threadpool::Step Attended(const Exchange& exchange, size_t thread, size_t layer,
                            size_t half) const;
  // Returns null after a stop message, else what was wrong with the last message.
  const char* Run(SocketStatus& status);
  const char* TakeOrders(const std::byte* message);
  void ReportKv();
  // parts: the halves, then the rows of each that are kept.
  const char* TakeFrame(const std::byte* message, model::BatchRows (&parts)[2 * kHalves],
                        uint32_t* rows);

  const StagePlan& plan_;
  const AttentionId index_;
  rdma::ShmLink& frames_;
  AttentionReport& report_;
  const SocketWaits waits_;
  const sync::WaitPolicy wait_;  // this socket's own policy
  FlagRefresh refresh_;
  std::vector<sync::EpochFlag*> second_half_;  // signalled only for micro-batches that are cut
  SocketStatus own_status_;
  // The current message, copied out of memory that the weight socket's process can write at any
  // time.
  FrameMessage message_{};
  RowsCopy rows_;
  model::KeptRows kept_rows_;
  const Exchange& exchange_;
  // State of the current micro-batch, for Hangs(); relaxed. Written once a micro-batch, read once a
  // second by the watch.
  std::atomic<uint32_t> base_epoch_{0}, halves_{1};
  std::unique_ptr<threadpool::Pool> pool_;
  std::unique_ptr<attention_node::AttentionNode> node_;
  std::unique_ptr<KvPart> kv_part_;
  // [half][kind of layer][kv_head]: flags of the weight threads that project the head.
  std::vector<std::vector<std::vector<sync::EpochFlag*>>> projected_[kHalves];
  std::unique_ptr<sync::EpochFlag[]> attended_[kHalves];  // [thread]: read by the first of its
                                                          // group
  // [half][L3 group]: the flags of its threads but the first one.
  std::vector<std::vector<sync::EpochFlag*>> members_[kHalves];
  std::vector<size_t> first_of_group_;                         // [L3 group]
  std::vector<std::vector<threadpool::Step>> steps_[kHalves];  // [halves - 1][thread]
  std::vector<threadpool::Program> programs_[kHalves];
};

// The weight threads that project rows of each KV head of layers of a kind: [kv_head][...].
std::vector<std::vector<size_t>> Projectors(const StagePlan&, size_t kind);
// Their flags in one half: [kind of layer][kv_head][...].
std::vector<std::vector<std::vector<sync::EpochFlag*>>> ProjectedFlags(const StagePlan&,
                                                                       const Exchange&,
                                                                       size_t half);
// The most heads that a weight thread projects rows of in a layer, those between its first and its
// last one.
size_t ThreadHeads(const StagePlan&);
// AttentionIo::group_stride and state_stride.
std::vector<size_t> GroupStrides(const model::ModelConfig&);
std::vector<size_t> StateStrides(const model::ModelConfig&);

// For a micro-batch that does not end and whose flags no longer move: the attention socket that all
// others wait for, or nullopt if they wait for the weight socket. Any thread of either side.
std::optional<AttentionId> HungAttention(const StagePlan& plan, const Exchange& exchange,
                                         uint32_t base_epoch, uint32_t halves);

}  // namespace larder::pipeline::stage
