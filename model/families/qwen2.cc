// Qwen2 and Qwen2.5 (Yang 2024, arXiv 2407.10671), dense and with experts.
//
// Traps: biases of q, k and v are part of the family; single ones of K are a hundred times as large
// as others (model/config/key_bias.h). The weights of
// experts are not divided by their sum, and the shared expert has a sigmoid of its own.
#include "model/families/family.h"

namespace larder::model::inline families {

constexpr Family kQwen2 = {.name = "qwen2",
                           .number = 1,
                           .pairing = RopePairing::kHalves,
                           .qkv_bias = Family::QkvBias::kAlways,
                           .qk_norm = QkNorm::kNone,
                           .ops = kPreNorm};

const Family kQwen2Moe = WithExperts(
    kQwen2, "qwen2moe", 42,
    FamilyExperts{.normalise = false, .length_of_used = true, .shared = true, .shared_gate = true},
    {.experts = 6, .experts_used = 2, .shared_ffn = true, .shared_gate = true});

}  // namespace larder::model::families
