// The second half of ReadModelConfig: checks a file's tensors against its keys. Private to model/.
#pragma once

#include "model/config/config.h"

namespace larder::model::inline config {

// Fills vocab, tied_embeddings, types, kinds and kind_of of `config`, whose other fields come from
// the keys. Throws Error for a tensor that is missing, has the wrong shape, has an unsupported
// type, or belongs to no model of this architecture.
void ReadTensors(const GgufFile& file, const KeysOfModel& keys, ModelConfig& config);

}  // namespace larder::model::config
