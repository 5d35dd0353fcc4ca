// Gemma 3, text (Google; arXiv 2503.19786; transformers' Gemma3ForCausalLM, read 2026-11).
//
// Traps: those of gemma2, without caps; q and k are normalised head by head. Five layers of six
// have windows and turn with a base of 10,000, whatever the others have, whose linear factor is not
// theirs. The 27B model (62 layers) divides scores as that of gemma2 does. The vocabulary is SPM
// without a space before the text.
#include <cmath>

#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr size_t kGemma3LayersOf27B = 62;
constexpr std::string_view kGemma3Keys[] = {"final_logit_softcapping"};

void ReadGemma3(const FamilyKeys& keys, KeysOfModel& model) {
  const LayerSizes& sizes = model.layers[0].sizes;
  model.scales.embedding = std::sqrt(static_cast<double>(sizes.dim));
  model.scales.logit_cap = keys.PositiveOrNone("final_logit_softcapping", 0.0);
  for (KeysOfModel::Layer& layer : model.layers) {
    if (model.layers.size() == kGemma3LayersOf27B)
      layer.attention_divisor = DimPerHeadDivisor(sizes);
    if (layer.window == 0) continue;
    layer.rotary.scaling = RopeScaling::kNone;
    layer.rotary.scale_factor = 1.0;
  }
}
}  // namespace

const Family kGemma3 = {.name = "gemma3",
                        .number = 16,
                        .pairing = RopePairing::kHalves,
                        .qkv_bias = Family::QkvBias::kWhereInFile,
                        .qk_norm = QkNorm::kHead,
                        .ops = kPreAndPostNorm,
                        .gate = GateKind::kGeluTanh,
                        .full_every = 6,
                        .always_windows = true,
                        .window_base = 10000.0,
                        .keys = kGemma3Keys,
                        .read = ReadGemma3};

}  // namespace larder::model::families
