// CpuStage: the Stage that the threads of a weight or colocated socket compute: the weights,
// threads and Programs of a StagePlan, built once. Colocated: attention steps come between the
// weight steps, on the same threads. Separated: in their place the threads wait for the heads that
// attention sockets return. Of a micro-batch in two halves the attention sockets compute one while
// the weight socket computes the other.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention_node/attention_node.h"
#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "model/step/kept_rows.h"
#include "pipeline/kv/kv_order.h"
#include "pipeline/kv_store/kv_part.h"
#include "pipeline/plan/socket_waits.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/attention_client.h"
#include "pipeline/stage/packed_weights.h"
#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage.h"
#include "pipeline/stage/stage_options.h"
#include "threadpool/program_builder.h"
#include "weight_node/weight_node.h"

namespace larder::pipeline::inline stage {

class CpuStage final : public Stage {
 public:
  // Loads and packs the weights. The constructing thread becomes thread 0 of the pool. last: see
  // MakeStage. Throws Error.
  CpuStage(const StagePlan&, const model::GgufFile&, const StageOptions&, bool last = false);

  // For inspection: the CpuStage that `stage` must be.
  static const CpuStage& Of(const Stage& stage) { return dynamic_cast<const CpuStage&>(stage); }

  // Kernels that were not checked against the reference are not used, and the order of all sums is
  // defined.
  bool exact() const override { return true; }
  void Execute(model::BatchRows& batch, uint32_t first_half) override;
  PackedWeights& packed() override { return packed_; }
  const PackedWeights& packed() const override { return packed_; }
  const SocketStatus& attention_status(AttentionId socket) const override {
    return sockets_->status(socket);
  }
  std::optional<AttentionId> HungAttention() const override {
    return sockets_ ? sockets_->Hung() : std::optional<AttentionId>();
  }
  void Order(std::span<const KvOrder> orders) override;
  void AbandonOrders() override;
  KvReport kv_report(AttentionId socket) const override;
  topology::ScatteredBytes KvMemory(uint32_t chunk) override;

  // The steps of a thread for micro-batches of one or two halves, for inspection.
  std::span<const threadpool::Step> steps(weight_node::ProgramForm form, size_t thread,
                                          size_t halves = 1) const;

 private:
  friend struct StageTesting;
  void PlaceAttention(const model::GgufFile&);
  void LinkAttentionSockets();
  void BuildPrograms();
  void RefreshFlags();
  std::vector<threadpool::Step> BuildSteps(size_t thread, weight_node::ProgramForm, size_t halves);
  void AddAttention(size_t thread, size_t layer, size_t half, threadpool::ProgramBuilder&);
  // Only the logit rows' residual leaves this stage: the others are dropped behind the attention of
  // the last layer that stores something.
  bool keeps_logit_rows() const { return plan().config.ends || last_; }

  // Which rows of a micro-batch a step gets: all or those of a half; kKept: of these, those whose
  // logits are wanted.
  enum Part : uint8_t {
    kWhole,
    kFirstHalf,
    kKept = kFirstHalf + kHalves,
    kKeptFirstHalf,
    kParts = kKeptFirstHalf + kHalves
  };
  static Part PartOf(size_t half, size_t halves, bool kept) {
    const size_t part = halves == 1 ? size_t{kWhole} : kFirstHalf + half;
    return static_cast<Part>(kept ? kKept + part : part);
  }

  const std::vector<CpuId> cpus_;  // CPUs of the constructing thread, before the pool pins it
  PackedWeights packed_;
  model::KeptRows kept_rows_;
  const bool last_;
  const SocketWaits waits_of_sockets_;
  FlagRefresh refresh_;
  std::unique_ptr<attention_node::AttentionNode> attention_;
  std::unique_ptr<KvPart> kv_part_;           // colocated
  std::unique_ptr<AttentionClient> sockets_;  // separated
  std::unique_ptr<sync::EpochFlag[]> flags_;  // colocated: `head_flags_` point to them
  // The flags of the layers of one kind.
  struct HeadFlags {
    // [half][thread][kv_head]: the flag by which the thread announces its part of the head's q, k,
    // v rows; null: no other thread needs that part
    std::vector<std::vector<sync::EpochFlag*>> signals[kHalves];
    // Colocated, [thread][kv_head]: flags of the other threads.
    std::vector<std::vector<std::vector<sync::EpochFlag*>>> waits;
  };
  std::vector<sync::EpochFlag*> attended_[kHalves];  // separated: what O waits for
  std::vector<HeadFlags> head_flags_;  // [kind of layer], for the kinds that occur here
  const HeadFlags& FlagsOf(size_t layer) const { return head_flags_[plan().config.KindOf(layer)]; }
  ThreadPrograms programs_[2][kHalves];  // [form][halves - 1]
};

}  // namespace larder::pipeline::stage
