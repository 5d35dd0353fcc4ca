// OLMo 2 (Ai2; transformers' Olmo2ForCausalLM, read 2026-11).
//
// Traps: post_attention_norm and post_ffw_norm are of what attention and FFN give, whose inputs are
// not normalised. q and k are each normalised over all heads together. OLMo 3 has the same name and
// sliding windows.
#include "model/families/family.h"

namespace larder::model::inline families {
const Family kOlmo2 = {.name = "olmo2",
                       .number = 9,
                       .pairing = RopePairing::kHalves,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kRow,
                       .ops = kPostNorm,
                       .other_with_windows = true};

}  // namespace larder::model::families
