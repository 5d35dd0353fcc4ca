// Ends: what the serving socket of a chain computes: the embedding of a micro-batch, which goes to
// the first stage, and the lm_head for those rows that return from the last stage and want logits.
#pragma once

#include "model/gguf/gguf.h"
#include "model/step/batch_rows.h"
#include "pipeline/plan/stage_plan.h"
#include "pipeline/stage/packed_weights.h"
#include "pipeline/stage/stage_options.h"

namespace larder::pipeline::inline stage {

class Ends {
 public:
  // The plan is for the part without layers (model::EndsOf). Loads and packs the weights. The
  // constructing thread becomes thread 0 of the pool; only it may call Embed and Head. Throws
  // Error.
  Ends(const StagePlan&, const model::GgufFile&, const StageOptions&);

  // Writes the embeddings of a micro-batch's 1 to max_batch_tokens() tokens to batch.sending.
  void Embed(model::BatchRows& batch);
  // Computes the logits of the residuals at batch.received, all of whose rows (1 to
  // max_logit_rows()) are logit rows. They are at packed().logits(i) until the next call.
  void Head(model::BatchRows& batch);

  PackedWeights& packed() { return packed_; }
  const PackedWeights& packed() const { return packed_; }

 private:
  PackedWeights packed_;
  ThreadPrograms embed_, head_[2];  // head_: [weight_node::ProgramForm]
};

}  // namespace larder::pipeline::stage
