// Stage: one socket's weights, KV cache, threads and Programs: the Run of a Plan. Built once, then executes
// frames. Colocated: attention steps stand between the weight steps on the same threads.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "attention_node/attention_node.h"
#include "model/gguf.h"
#include "pipeline/plan.h"
#include "threadpool/frame.h"
#include "threadpool/pool.h"
#include "weight_node/weight_node.h"

namespace larder::pipeline {

// What a thread's shard re-reads at, against the machine's bandwidths.
struct ShardResidency {
  int thread = 0;
  uint64_t bytes = 0;
  double reread_gbps = 0;
};

struct StageOptions {
  sync::WaitPolicy wait;
  // Called on the constructing thread now and then while weights load: bytes packed so far, bytes in all. May
  // be empty.
  std::function<void(uint64_t, uint64_t)> progress;
};

class Stage {
 public:
  // Loads and packs. The constructing thread becomes thread 0 of the pool and the only one to call Execute.
  // Throws Error.
  Stage(const Plan&, const model::GgufFile&, const StageOptions&);

  // Runs one frame (1 .. prefill_rows rows). The logits of its logit rows are then at logits(i), until the
  // next frame.
  void Execute(threadpool::FrameRows& frame);
  std::span<const float> logits(size_t i) const;
  size_t max_rows() const;
  size_t max_logit_rows() const;

  // Every thread re-reads its shard, all at once, for about `budget_s`.
  std::vector<ShardResidency> ProbeResidency(double budget_s);

  threadpool::Pool& pool() { return *pool_; }
  weight_node::WeightNode& weights() { return *weights_; }
  attention_node::AttentionNode& attention() { return *attention_; }
  // The steps of a thread, for inspection.
  std::span<const threadpool::Step> steps(weight_node::Phase phase, size_t thread) const;

 private:
  void Load(const model::GgufFile&, const StageOptions&);
  void BuildPrograms();

  Plan plan_;
  std::unique_ptr<threadpool::Pool> pool_;
  std::unique_ptr<weight_node::WeightNode> weights_;
  std::unique_ptr<attention_node::AttentionNode> attention_;
  std::unique_ptr<sync::EpochFlag[]>
      projected_;  // [thread][kv_head]: the thread's part of the head's q, k, v rows is there
  std::unique_ptr<sync::EpochFlag[]> appended_;  // [kv_head]: keys and values are in the KV region
  std::vector<std::vector<std::vector<sync::EpochFlag*>>>
      waits_;                                            // [thread][kv_head]: flags of the other threads
  std::vector<std::vector<threadpool::Step>> steps_[2];  // [phase][thread]
  std::vector<threadpool::Program> programs_[2];
};

}  // namespace larder::pipeline
