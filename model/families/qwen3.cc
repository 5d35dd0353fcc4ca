// Qwen3, dense and with experts (Yang 2025, arXiv 2505.09388).
//
// Traps: each head of q and k is normalised before it is rotated; heads * head size is not the
// embedding length. feed_forward_length of files with experts is of no layer.
#include "model/families/family.h"

namespace larder::model::inline families {

constexpr Family kQwen3 = {.name = "qwen3",
                           .number = 2,
                           .pairing = RopePairing::kHalves,
                           .qkv_bias = Family::QkvBias::kWhereInFile,
                           .qk_norm = QkNorm::kHead,
                           .ops = kPreNorm};

const Family kQwen3Moe = WithExperts(kQwen3, "qwen3moe", 40, FamilyExperts{.length_of_used = true},
                                     {.experts = 6, .experts_used = 2});

}  // namespace larder::model::families
