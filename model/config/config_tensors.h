// The second half of ReadModelConfig: holds a file's tensors against the keys. Private to model/.
#pragma once

#include "model/config/config.h"

namespace larder::model {

// Fills vocab, tied_embeddings and the layer of `config`, whose other fields come
// from the keys. Throws Error for tensors that are missing, of another shape, of a type that Larder does not
// read, or that no model of this architecture has.
void ReadTensors(const GgufFile& file, ModelConfig& config);

}  // namespace larder::model
