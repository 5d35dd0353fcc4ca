// OLMo 2 and 3 (Ai2; transformers' Olmo2ForCausalLM and Olmo3ForCausalLM, read 2026-11).
//
// Traps: post_attention_norm and post_ffw_norm are of what attention and FFN give, whose inputs are
// not normalised. q and k are each normalised over all heads together. OLMo 3 has the same name and
// sliding windows, in all but each fourth layer; YaRN, its magnitude included, is of the layers
// without windows alone.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
void ReadOlmo2(const FamilyKeys&, KeysOfModel& model) {
  for (KeysOfModel::Layer& layer : model.layers) {
    if (layer.window == 0) continue;
    layer.rotary = {.dim = layer.rotary.dim,
                    .base = layer.rotary.base,
                    .original_context = layer.rotary.original_context};
  }
}
}  // namespace

const Family kOlmo2 = {.name = "olmo2",
                       .number = 9,
                       .pairing = RopePairing::kHalves,
                       .qkv_bias = Family::QkvBias::kWhereInFile,
                       .qk_norm = QkNorm::kRow,
                       .ops = kPostNorm,
                       .full_every = 4,
                       .read = ReadOlmo2};

}  // namespace larder::model::families
