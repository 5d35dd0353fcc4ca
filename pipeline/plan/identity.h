// The identity of a computation: two processes, or a process and a file, that have the same one get
// the same bits for the same tokens. Everything that is stored or exchanged for a model is bound to
// it: KV files, saved slots, resumed batches, and the links of a chain.
#pragma once

#include <cstdint>

#include "kernels/formats/numerics.h"
#include "model/config/config.h"

namespace larder::pipeline::inline plan {

// A hash of the weights (model::Fingerprint), of the whole description of the model, or of the
// layers of it that `config` has (model::DescriptionOf), of the version of the arithmetic, and of
// the type of the KV cache. Nothing else that a run chooses (threads, slots, context, micro-batch,
// instruction set, tuning) changes a bit. No protection: someone who writes a model's file can give
// it the identity of another one.
uint64_t IdentityOf(uint64_t fingerprint, const model::ModelConfig& config,
                    uint32_t arithmetic = kernels::kArithmeticVersion);

}  // namespace larder::pipeline::plan
