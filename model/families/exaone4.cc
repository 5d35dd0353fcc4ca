// EXAONE 4 (LG AI Research; transformers' Exaone4ForCausalLM, read 2026-11).
//
// Traps: norms as in olmo2, but q and k are normalised head by head. The 1.2B model has no sliding
// windows, and all its layers rotate; in the 32B model layers without windows do not.
#include "model/families/family.h"

namespace larder::model::inline families {
const Family kExaone4 = {.name = "exaone4",
                         .number = 10,
                         .pairing = RopePairing::kHalves,
                         .qkv_bias = Family::QkvBias::kWhereInFile,
                         .qk_norm = QkNorm::kHead,
                         .ops = kPostNorm,
                         .other_with_windows = true};

}  // namespace larder::model::families
