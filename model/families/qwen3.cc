// Qwen3, dense and with experts (Yang 2025, arXiv 2505.09388).
//
// Traps: each head of q and k is normalised before it is rotated; heads * head size is not the
// embedding length. feed_forward_length of files with experts is of no layer.
#include "model/families/family.h"

namespace larder::model::inline families {

const Family kQwen3 = {.name = "qwen3",
                       .number = 2,
                       .pairing = RopePairing::kHalves,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kHead,
                       .ops = kPreNorm};

const Family kQwen3Moe = {.name = "qwen3moe",
                          .number = 40,
                          .pairing = RopePairing::kHalves,
                          .qkv_bias = Family::QkvBias::kWhereInFile,
                          .qk_norm = QkNorm::kHead,
                          .ops = kPreNorm,
                          .experts = FamilyExperts{.length_of_used = true},
                          .sample = {.experts = 6, .experts_used = 2}};

}  // namespace larder::model::families
