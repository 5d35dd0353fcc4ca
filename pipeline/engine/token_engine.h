// TokenEngine: what a Scheduler drives: micro-batches of rows in, logits out. It is an Engine or,
// in tests and simulations, something that behaves like one. Only one thread may use it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/pulse.h"
#include "model/step/capacity.h"
#include "pipeline/kv/kv_channel.h"
#include "pipeline/kv/kv_chunks.h"

namespace larder::pipeline::inline engine {

// One token to process, at `position` of `slot`'s sequence. logits: whether its next-token logits
// are wanted; hidden: whether its hidden state is, the final norm's output that logits are made
// from.
struct TokenRow {
  int32_t token = 0;
  SlotId slot{0};
  uint32_t position = 0;
  bool logits = false;
  bool hidden = false;
  bool wanted() const { return logits || hidden; }
};

struct EngineLimits {
  model::Capacity capacity;
  size_t vocab = 0;
  size_t max_logits = 0;  // most wanted() rows of a micro-batch
  // Where the slots of each attention socket end; empty: attention is colocated.
  std::vector<SlotId> attention_slot_ends;
  bool can_be_lost = false;  // it includes other threads or processes, which can be lost and come
                             // back
};

class TokenEngine {
 public:
  virtual ~TokenEngine() = default;
  virtual const EngineLimits& limits() const = 0;  // constant

  // Submits a micro-batch of 1 to max_batch_tokens rows. At most max_in_flight micro-batches may
  // await their Collect. Rows of one slot must be adjacent and in ascending, gapless positions that
  // continue the slot's sequence, or rewrite its end: the sequence is cut there. Two micro-batches
  // in flight may continue the same slot (a long prompt). Throws ChainLostError, as Collect does;
  // then nothing is in flight, every slot is empty, and the next Submit tries to connect again.
  virtual void Submit(std::span<const TokenRow> rows) = 0;
  // Completes the oldest micro-batch. A row whose output is not finite gets a fault(); that is not
  // an exception.
  virtual void Collect() = 0;
  // Which KV chunks the slots list. The caller reserves what the rows of a Submit need; Submit
  // reserves what is missing, and throws Error if there is no chunk. It is empty after a
  // ChainLostError.
  virtual KvChunks& kv() = 0;
  // The channel to the keys and values of these chunks, or to the sockets that have them.
  virtual KvChannel& kv_channel() = 0;
  // What Submit does first, for a caller with nothing to submit: throws ChainLostError if the chain
  // has been lost; after that, tries to connect again, for a second or two.
  virtual void Reconnect() = 0;

  // Logits, [vocab], of the i-th wanted() row of the last collected micro-batch, if it wanted
  // logits; valid until the next one.
  virtual std::span<const float> logits(size_t i) const = 0;
  // The hidden state, [dim], of the same row; valid until the next call.
  virtual std::span<const float> hidden(size_t i) = 0;
  // Calls fn(context, i) once for each i < count, on all threads that compute nothing between two
  // calls of this engine, several at a time; returns when all are done. fn may not throw. Here: one
  // after the other.
  virtual void Spread(size_t count, void (*fn)(void* context, size_t i), void* context) {
    for (size_t i = 0; i < count; ++i) fn(context, i);
  }
  // Why the same row's output is meaningless; empty: it is good.
  virtual const std::string& fault(size_t i) const = 0;
  // The pulse of the calling thread: its loop beats it, and rests it where it waits between calls.
  virtual Pulse& pulse() = 0;
};

}  // namespace larder::pipeline::engine
