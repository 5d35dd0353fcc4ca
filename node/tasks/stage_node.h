// `larder node` of a stage of a cluster.
#pragma once

#include <memory>

#include "model/gguf/gguf.h"
#include "node/options/load.h"
#include "node/options/model_options.h"

namespace larder::node {

// Loads the layers of the Plan's stage of that index and serves chains, one after the other, until the
// process ends; once: until the first has ended as its serving socket wished.
int RunStage(std::shared_ptr<const model::GgufFile> file, const PlannedModel& planned, size_t index,
             const ModelOptions& options, bool once);

}  // namespace larder::node
