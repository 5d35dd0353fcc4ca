// Phi-3, 3.5 and 4 (Microsoft; transformers' Phi3ForCausalLM, read 2026-11).
//
// Traps: q, k and v are one tensor, and so are gate and up, under the name of up. LongRoPE's choice
// of factors follows the context of a run, not the length of a sequence: cached keys stay what they
// are. Its magnitude is rope.scaling.attn_factor. Phi-4-mini turns a part of each head. A
// window is one of all layers; of 0 positions it is none.
#include "model/families/family.h"

namespace larder::model::inline families {
const Family kPhi3 = {
    .name = "phi3",
    .number = 11,
    .pairing = RopePairing::kHalves,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kNone,
    .ops = kPreNorm,
    .long_rope = true,
    .full_every = 0,
    .no_window_is_0 = true,
    .sample = {.original_context = 64, .rotated = 0.75, .fused_qkv = true, .fused_gate_up = true}};

}  // namespace larder::model::families
