// ERNIE 4.5, dense (Baidu; transformers' Ernie4_5ForCausalLM, read 2026-11).
//
// Traps: rope.dimension_sections of some files is for images, text turns as ever.
#include "model/families/family.h"

namespace larder::model::inline families {
const Family kErnie45 = {.name = "ernie4_5",
                         .number = 3,
                         .pairing = RopePairing::kInterleaved,
                         .qkv_bias = Family::QkvBias::kWhereInFile,
                         .qk_norm = QkNorm::kNone,
                         .ops = kPreNorm};

}  // namespace larder::model::families
