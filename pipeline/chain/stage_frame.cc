#include "pipeline/chain/stage_frame.h"

namespace larder::pipeline::inline chain {

FrameCopy::FrameCopy(const StageFrameShape& shape)
    : shape_(shape),
      bytes_(shape.residual_offset()),
      rows_({.max_rows = shape.max_batch_tokens,
             .slots = shape.slots,
             .context = shape.context,
             .slot_chunks = shape.slot_chunks,
             .slot_ends = shape.slot_ends,
             .chunk_ends = shape.chunk_ends}) {}

}  // namespace larder::pipeline::chain
