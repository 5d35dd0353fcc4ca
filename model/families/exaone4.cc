// EXAONE 4 (LG AI Research; transformers' Exaone4ForCausalLM, read 2026-11).
//
// Traps: norms as in olmo2, but q and k are normalised head by head. The 1.2B model has no sliding
// windows, and all its layers rotate; in the 32B model the fourth layers, without windows, do not.
// The key of windows decides, not the number of layers.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
void ReadExaone4(const FamilyKeys&, KeysOfModel& model) {
  if (model.window == 0) return;
  for (KeysOfModel::Layer& layer : model.layers) {
    if (layer.window == 0) layer.rotary = RotarySpec();
  }
}
}  // namespace

const Family kExaone4 = {.name = "exaone4",
                         .number = 10,
                         .pairing = RopePairing::kHalves,
                         .qkv_bias = Family::QkvBias::kWhereInFile,
                         .qk_norm = QkNorm::kHead,
                         .ops = kPostNorm,
                         .full_every = 4,
                         .read = ReadExaone4};

}  // namespace larder::model::families
