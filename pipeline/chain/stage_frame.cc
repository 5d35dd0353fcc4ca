#include "pipeline/chain/stage_frame.h"

namespace larder::pipeline::inline chain {

FrameCopy::FrameCopy(const StageFrameShape& shape)
    : shape_(shape), bytes_(shape.residual_offset()), rows_(shape.rows) {}

}  // namespace larder::pipeline::chain
