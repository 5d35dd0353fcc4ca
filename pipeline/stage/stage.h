// Stage: what a chain holds of consecutive layers: it executes micro-batches and has the keys and
// values of its layers. A CpuStage is one that a socket's threads compute.
//
// A stage with the whole model (a Plan that is single()) turns tokens into logits. A stage of a
// chain has layers only: it reads rows at BatchRows::received and writes them to
// BatchRows::sending; embedding and lm_head belong to the Ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/ids.h"
#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "pipeline/kv/kv_order.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/packed_weights.h"
#include "pipeline/stage/socket_status.h"
#include "pipeline/stage/stage_options.h"
#include "topology/scattered_bytes.h"

namespace larder::pipeline::inline stage {

class Stage {
 public:
  virtual ~Stage() = default;

  // Whether its results, and the keys and values that it stores, are to the bit those that the
  // arithmetic's version defines (kernels/formats/numerics.h), however rows are put into
  // micro-batches. Then another exact stage can go on where this one ended. If not, no chain takes
  // it (StageSocket), and what it has stored is its own (Engine::identity).
  virtual bool exact() const = 0;

  // Runs a micro-batch of 1 to max_batch_tokens() rows, on the thread that made the stage. The
  // logits of its logit rows are then at packed().logits(i), until the next micro-batch.
  // first_half: the number of rows in the first of two halves, each in the order of attention
  // sockets (separated stages only); 0: not cut.
  virtual void Execute(model::BatchRows& batch, uint32_t first_half) = 0;

  // The threads of this process that compute it and the weights that they hold.
  virtual PackedWeights& packed() = 0;
  virtual const PackedWeights& packed() const = 0;
  const StagePlan& plan() const { return packed().plan(); }
  bool separated() const { return plan().separated(); }
  size_t max_batch_tokens() const { return packed().max_batch_tokens(); }
  size_t max_logit_rows() const { return packed().max_logit_rows(); }
  // By the thread that executes, inside micro-batches.
  uint64_t waited_ns() const { return packed().pool().waited_ns(); }

  // The status of an attention socket, by number; its round trip is that of the link to it.
  virtual const SocketStatus& attention_status(AttentionId socket) const = 0;
  // For a micro-batch that does not end: the attention socket that all others wait for, if it is
  // one. Any thread.
  virtual std::optional<AttentionId> HungAttention() const = 0;

  // Has the sockets that hold KV begin these orders, between two micro-batches and after everything
  // that came before. The chunks must exist.
  virtual void Order(std::span<const KvOrder> orders) = 0;
  // Makes all earlier orders void; none writes to a chunk afterwards.
  virtual void AbandonOrders() = 0;
  // The report of an attention socket or, if colocated, of this one, after the last micro-batch or
  // Order.
  virtual KvReport kv_report(AttentionId socket) const = 0;
  // The keys and values of a chunk; empty: its attention socket is another process.
  virtual topology::ScatteredBytes KvMemory(uint32_t chunk) = 0;
};

// The stage of a Plan. Loads its weights; only the calling thread may call Execute. last: it is the
// last stage of a chain and sends only rows that want logits. The file must outlive it. Throws
// Error.
std::unique_ptr<Stage> MakeStage(const StagePlan&, const model::GgufFile&, const StageOptions&,
                                 bool last = false);

}  // namespace larder::pipeline::stage
