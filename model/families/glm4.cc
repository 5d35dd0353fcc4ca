// GLM-4, dense (Zhipu; transformers' Glm4ForCausalLM, read 2026-11).
//
// Traps: norms before and after attention and FFN; half of each head turns, in neighbouring pairs;
// gate and up are one tensor, under the name of up.
#include "model/families/family.h"

namespace larder::model::inline families {
const Family kGlm4 = {.name = "glm4",
                      .number = 12,
                      .pairing = RopePairing::kInterleaved,
                      .qkv_bias = Family::QkvBias::kWhereInFile,
                      .qk_norm = QkNorm::kNone,
                      .ops = kPreAndPostNorm,
                      .sample = {.rotated = 0.5, .qkv_bias = true, .fused_gate_up = true}};

}  // namespace larder::model::families
