// OLMoE (Ai2; Muennighoff 2024, arXiv 2409.02060).
//
// Traps: q and k are each normalised over all heads together, as in olmo2, but norms precede
// attention and experts. The weights of experts are not divided by their sum.
#include "model/families/family.h"

namespace larder::model::inline families {

const Family kOlmoe = {.name = "olmoe",
                       .number = 41,
                       .pairing = RopePairing::kHalves,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kRow,
                       .ops = kPreNorm,
                       .experts = FamilyExperts{.normalise = false},
                       .sample = {.experts = 6, .experts_used = 2}};

}  // namespace larder::model::families
