// Chain: what an Engine drives: the stages that a micro-batch passes through, one after the other,
// and the end that computes logits from the result. Only the thread that constructed it may use it.
//
// There are two kinds. A LocalChain is one stage with the whole model on this thread's own pool; a
// ChainClient sends micro-batches around stages that run on other threads or in other processes.
// In a LocalChain nothing crosses a link: Submit keeps a micro-batch, Collect computes it in one
// Execute of the pool. As a chain of one over a loopback link it would take three, for embedding,
// layers and lm_head, and two frames with the rows. Measured without any arithmetic
// (bench_sync micro_batch/hand_over, family 6 model 167): 1.62 us instead of 0.55 with two threads,
// 4 % of a step of the demo model; 0.12 instead of 0.02 with one.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "base/error.h"
#include "base/expert_counts.h"
#include "model/step/batch_rows.h"
#include "pipeline/kv/kv_channel.h"
#include "pipeline/stage/packed_weights.h"

namespace larder::pipeline::inline chain {

// A socket or a link of the chain was lost. No micro-batch is in flight and every slot is empty:
// the caller must repeat its requests from the start, or refuse them.
class ChainLostError : public Error {
 public:
  using Error::Error;
};

class Chain {
 public:
  virtual ~Chain() = default;

  // Submits a micro-batch of 1 to packed().max_batch_tokens() rows, whose arrays stay as they are
  // until its Collect. At most max_in_flight() micro-batches may await theirs. first_half: see
  // Stage::Execute. Throws ChainLostError.
  virtual void Submit(model::BatchRows& batch, uint32_t first_half) = 0;
  // Completes the oldest micro-batch. The logits of its logit rows are at packed().logits(i) until
  // the next Collect. Throws ChainLostError.
  virtual void Collect() = 0;
  // Checks the chain while nothing is submitted: throws ChainLostError if a stage or a link has
  // been lost. If it was already reported lost, tries to connect again, for a second or two. Submit
  // does the same.
  virtual void Reconnect() = 0;

  virtual size_t max_in_flight() const = 0;
  // Whether the chain includes other threads or processes, which can be lost and come back.
  virtual bool can_be_lost() const = 0;
  // For a micro-batch that does not end: the attention socket of this process's stage that all
  // others wait for, if it is one. Any thread.
  virtual std::optional<AttentionId> HungAttention() const = 0;
  virtual KvChannel& kv() = 0;  // the channel to the KV of its stages
  // What the routers of its layers have chosen, of the layers that have experts, ascending; of
  // stages behind links as their frames have brought it, a few numbers each. Any thread.
  virtual std::vector<ExpertCounts> expert_counts() const = 0;
  // Has all of these brought, while nothing is submitted. Throws ChainLostError.
  virtual void FetchExpertCounts() = 0;
  // The threads and weights of the end that computes logits.
  virtual PackedWeights& packed() = 0;
};

}  // namespace larder::pipeline::chain
