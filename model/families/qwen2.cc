// Qwen2 and Qwen2.5 (Yang 2024, arXiv 2407.10671).
//
// Traps: biases of q, k and v are part of the family; single ones of K are a hundred times as large
// as others (model/config/key_bias.h).
#include "model/families/family.h"

namespace larder::model::inline families {

const Family kQwen2 = {.name = "qwen2",
                       .number = 1,
                       .pairing = RopePairing::kHalves,
                       .qkv_bias = Family::QkvBias::kAlways,
                       .qk_norm = QkNorm::kNone,
                       .ops = kPreNorm};

}  // namespace larder::model::families
