// Qwen3, dense (Yang 2025, arXiv 2505.09388).
//
// Traps: each head of q and k is normalised before it is rotated; heads * head size is not the
// embedding length.
#include "model/families/family.h"

namespace larder::model::inline families {

const Family kQwen3 = {.name = "qwen3",
                       .number = 2,
                       .pairing = RopePairing::kHalves,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kHead,
                       .ops = kPreNorm};

}  // namespace larder::model::families
