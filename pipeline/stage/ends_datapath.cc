#include "base/check.h"
#include "pipeline/stage/ends.h"

namespace larder::pipeline::inline stage {

void Ends::Embed(model::BatchRows& batch) {
  LARDER_CHECK(batch.rows >= 1 && batch.rows <= packed_.max_batch_tokens());
  packed_.pool().Execute(embed_.programs, &batch, 0);
}

void Ends::Head(model::BatchRows& batch) {
  LARDER_CHECK(batch.rows == batch.logit_rows && batch.rows >= 1 &&
               batch.rows <= packed_.max_logit_rows());
  packed_.KeepLogitRows(batch);
  packed_.live().Begin(threadpool::ReadTicks());
  packed_.pool().Execute(head_[static_cast<size_t>(packed_.FormOf(batch.rows))].programs, &batch,
                         0);
  packed_.live().End(threadpool::ReadTicks());
}

}  // namespace larder::pipeline::stage
