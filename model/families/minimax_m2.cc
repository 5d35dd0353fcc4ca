// MiniMax-M2 (MiniMax; transformers' MiniMaxM2ForCausalLM, read 2026-11).
//
// Traps: q and k are each normalised over all heads together; half of a head rotates. Experts are
// chosen by a sigmoid plus a bias, and weigh without it; feed_forward_length is that of an expert.
#include "model/families/family.h"

namespace larder::model::inline families {

const Family kMinimaxM2 = {
    .name = "minimax-m2",
    .number = 45,
    .pairing = RopePairing::kHalves,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kRow,
    .ops = kPreNorm,
    .experts = FamilyExperts{.gating = ExpertGating::kSigmoid, .bias = true},
    .sample = {.rotated = 0.5, .experts = 6, .experts_used = 2, .router_bias = true}};

}  // namespace larder::model::families
