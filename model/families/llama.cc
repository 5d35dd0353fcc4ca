// Llama 1 to 3 and Mistral (Touvron 2023, arXiv 2302.13971), Mixtral (Jiang 2024, arXiv
// 2401.04088), and what converters write as `llama`.
//
// Traps: a window (Mistral 7B v0.1) is one of all layers. The rows of q and k are permuted in the
// file, so that pairs are neighbours. Llama 3.1's scaling is a tensor, rope_freqs. Some fine-tunes
// have biases of q, k and v. In old files of Mixtral each expert's matrices are tensors of their
// own.
#include "model/families/family.h"

namespace larder::model::inline families {

const Family kLlama = {.name = "llama",
                       .number = 0,
                       .pairing = RopePairing::kInterleaved,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kNone,
                       .ops = kPreNorm,
                       .full_every = 0,
                       .experts = FamilyExperts{.optional = true}};

}  // namespace larder::model::families
