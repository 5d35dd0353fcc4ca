// The stage of a cluster that `larder node` runs.
#pragma once

#include <memory>

#include "model/gguf/gguf.h"
#include "node/loading/load.h"
#include "node/options/model_options.h"

namespace larder::node::inline tasks {

// Loads the layers of stage `index` of the Plan and serves chains, one after the other, until the
// process ends. once: returns after the first chain, when its serving socket has ended; throws if
// that chain fails.
int RunStage(std::shared_ptr<const model::GgufFile> file, const PlannedModel& planned, size_t index,
             const ModelOptions& options, bool once);

}  // namespace larder::node::tasks
