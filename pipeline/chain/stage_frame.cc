#include "pipeline/chain/stage_frame.h"

namespace larder::pipeline::inline chain {

FrameCopy::FrameCopy(const StageFrameShape& shape)
    : shape_(shape),
      bytes_(shape.residual_offset()),
      kv_update_(shape.max_kv_updates()),
      kv_order_(kKvOrderPlaces) {}

}  // namespace larder::pipeline::chain
