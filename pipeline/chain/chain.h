// Chain: what an Engine drives: the stages that a micro-batch passes, one after the other, and the end that
// makes logits of what comes out. One thread uses it: the one that constructed it.
//
// Two kinds: a LocalChain is one stage with all of the model on this thread's own pool; a ChainClient sends
// micro-batches round stages that are other threads or processes. A lone stage needs no frame, link or second
// pool to be told what its own thread already has, so its micro-batches do not cross a loopback link.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "base/error.h"
#include "model/layer/batch_rows.h"
#include "pipeline/stage/packed_weights.h"

namespace larder::pipeline {

// A socket or a link of the pipeline was lost. Nothing is in flight any more and every slot is empty: what
// was asked for must be asked again from the start, or refused.
class PipelineLost : public Error {
 public:
  using Error::Error;
};

class Chain {
 public:
  virtual ~Chain() = default;

  // Hands over a micro-batch of 1 to packed().max_rows() rows; at most in_flight_limit() of them may wait for
  // their Collect. first_half: see Stage::Execute. Throws PipelineLost.
  virtual void Submit(model::BatchRows& batch, uint32_t first_half) = 0;
  // Ends the oldest micro-batch: the logits of its logit rows are at packed().logits(i) until the next
  // Collect or, in a LocalChain, Submit. Throws PipelineLost.
  virtual void Collect() = 0;
  // Throws PipelineLost if a stage or a link is lost, though nothing was submitted since; if one was lost
  // before, tries to connect again, for a second or two. Submit does so by itself.
  virtual void Reconnect() = 0;

  virtual size_t in_flight_limit() const = 0;
  // Whether another thread or process can be lost, and found again.
  virtual bool can_be_lost() const = 0;
  // Any thread, about a micro-batch that does not end: the attention socket of this process's stage that all
  // others wait for, if it is one.
  virtual std::optional<size_t> HungAttention() const = 0;
  // The threads and weights of the end that makes logits.
  virtual PackedWeights& packed() = 0;
};

}  // namespace larder::pipeline
