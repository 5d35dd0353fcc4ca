// ERNIE 4.5, dense and with experts (Baidu; transformers' Ernie4_5ForCausalLM and
// Ernie4_5_MoeForCausalLM, read 2026-11).
//
// Traps: rope.dimension_sections of some files is for images, text turns as ever. Experts are
// chosen by their probability plus a bias, and weigh without it; the first layers have none.
#include "model/families/family.h"

namespace larder::model::inline families {
constexpr Family kErnie45 = {.name = "ernie4_5",
                             .number = 3,
                             .pairing = RopePairing::kInterleaved,
                             .qkv_bias = Family::QkvBias::kWhereInFile,
                             .qk_norm = QkNorm::kNone,
                             .ops = kPreNorm};

constexpr Family::Sample::Count kDenseFirst[] = {{"leading_dense_block_count", 1}};
const Family kErnie45Moe =
    WithExperts(kErnie45, "ernie4_5-moe", 44, FamilyExperts{.shared = true, .bias = true},
                {.counts = kDenseFirst,
                 .experts = 6,
                 .experts_used = 2,
                 .shared_ffn = true,
                 .router_bias = true});

}  // namespace larder::model::families
