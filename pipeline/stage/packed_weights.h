// PackedWeights: the threads of a weight, colocated or serving socket and the weights that they
// have packed: the common part of a Stage and the Ends of a chain. The constructing thread becomes
// thread 0 of the pool; only it may run Programs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/residency/live_residency.h"
#include "pipeline/residency/residency.h"
#include "pipeline/stage/stage_options.h"
#include "threadpool/pool.h"
#include "weight_node/weight_node.h"

namespace larder::pipeline::inline stage {

// The Program of each thread for a micro-batch.
struct ThreadPrograms {
  std::vector<std::vector<threadpool::Step>> steps;  // [thread]
  std::vector<threadpool::Program> programs;         // they point to `steps`

  ThreadPrograms() = default;
  ThreadPrograms(ThreadPrograms&&) = default;
  ThreadPrograms& operator=(ThreadPrograms&&) = default;
  template <typename StepsOf>
  ThreadPrograms(size_t threads, StepsOf steps_of) {
    for (size_t t = 0; t < threads; ++t) steps.push_back(steps_of(t));
    for (const auto& of_thread : steps)
      programs.push_back({of_thread.data(), static_cast<uint32_t>(of_thread.size())});
  }
};

class PackedWeights {
 public:
  // Starts the threads, pinned as the Plan says. Throws Error.
  PackedWeights(const StagePlan& plan, const StageOptions& options);

  // Every thread packs its share. shared_io: where attention sockets read and write; null:
  // colocated.
  void Load(const model::GgufFile& file, const StageOptions& options,
            const weight_node::AttentionIoRows* shared_io);
  // Measures what LiveResidency compares with, and the residency if options.baseline is set; then
  // each thread reads its panels once, in the order in which a micro-batch does. Called when the
  // Programs and all they point to are built.
  void Warm(const StageOptions& options);

  const StagePlan& plan() const { return plan_; }
  threadpool::Pool& pool() { return *pool_; }
  const threadpool::Pool& pool() const { return *pool_; }
  weight_node::WeightNode& weights() { return *weights_; }
  const weight_node::WeightNode& weights() const { return *weights_; }

  size_t max_batch_tokens() const { return plan_.options.capacity.max_batch_tokens; }
  size_t max_logit_rows() const { return weights_->activations().logit_rows; }
  weight_node::ProgramForm FormOf(size_t rows) const {
    return rows <= plan_.options.few_rows ? weight_node::ProgramForm::kFewRows
                                          : weight_node::ProgramForm::kManyRows;
  }

  // Notes the rows whose logits are being computed, for finite(). Data path.
  void KeepLogitRows(const model::BatchRows& batch);
  // The logits of the last micro-batch's i-th logit row, [vocab]; valid until the next one.
  std::span<const float> logits(size_t i) const;
  // The hidden state, [dim], of the same row: the final norm's output, from which lm_head makes
  // logits.
  void Hidden(size_t i, std::span<float> out) const;
  // Whether the residual behind the i-th logits is finite. (The logits are finite in any case:
  // quantising turns a NaN into a number.)
  bool finite(size_t i) const;

  const Residency& residency() const { return residency_; }  // measured right after packing
  // While micro-batches run. Its parts are the layers, then the ends.
  LiveResidency& live() { return *live_; }
  const LiveResidency& live() const { return *live_; }
  // The same as bytes of the socket's weights; SocketCounters::kNotMeasured: no figure yet.
  uint64_t live_resident_bytes() const;
  // Measures now: all threads re-read their shards at once, for about `budget_s` seconds.
  std::vector<ShardResidency> ProbeResidency(double budget_s);

 private:
  const StagePlan plan_;
  std::vector<uint32_t> logit_row_;  // logit rows of the last micro-batch, as rows of the residual
  Residency residency_;
  std::unique_ptr<threadpool::Pool> pool_;
  std::unique_ptr<weight_node::WeightNode> weights_;
  std::unique_ptr<LiveResidency> live_;
};

}  // namespace larder::pipeline::stage
