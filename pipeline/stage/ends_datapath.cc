#include "base/check.h"
#include "pipeline/stage/ends.h"

namespace larder::pipeline::inline stage {

void Ends::Embed(model::BatchRows& frame) {
  LARDER_CHECK(frame.rows >= 1 && frame.rows <= packed_.max_rows());
  packed_.pool().Execute(embed_.programs, &frame, 0);
}

void Ends::Head(model::BatchRows& frame) {
  LARDER_CHECK(frame.rows == frame.logit_rows && frame.rows >= 1 && frame.rows <= packed_.max_logit_rows());
  packed_.KeepLogitRows(frame);
  packed_.pool().Execute(head_[static_cast<size_t>(packed_.FormOf(frame.rows))].programs, &frame, 0);
}

}  // namespace larder::pipeline::stage
