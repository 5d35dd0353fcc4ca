// Granite 3 and 4, dense and with experts (IBM; transformers' GraniteForCausalLM and
// GraniteMoeForCausalLM, read 2026-11).
//
// Traps: logit_scale divides; residual_scale is of what is added to the residual, not of the
// residual; rope.scaling.finetuned false means that no layer rotates.
#include "model/families/granite.h"

namespace larder::model::inline families {
void ReadGranite(const FamilyKeys& keys, KeysOfModel& model) {
  model.scales = {.embedding = keys.Positive("embedding_scale", 1.0),
                  .residual = keys.Positive("residual_scale", 1.0),
                  .logits = 1.0 / keys.Positive("logit_scale", 1.0)};
  const bool rotates = keys.Flag("rope.scaling.finetuned").value_or(true);
  const double divisor =
      keys.Float("attention.scale") ? 1.0 / keys.Positive("attention.scale", 1.0) : 0.0;
  for (KeysOfModel::Layer& layer : model.layers) {
    layer.attention_divisor = divisor;
    if (!rotates) layer.rotary = RotarySpec();
  }
}

constexpr Family kGranite = {.name = "granite",
                             .number = 6,
                             .pairing = RopePairing::kInterleaved,
                             .qkv_bias = Family::QkvBias::kWhereInFile,
                             .qk_norm = QkNorm::kNone,
                             .ops = kPreNorm,
                             .keys = kGraniteKeys,
                             .read = ReadGranite,
                             .sample = {.values = kGraniteSample}};

const Family kGraniteMoe =
    WithExperts(kGranite, "granitemoe", 43, FamilyExperts{.shared = true},
                {.values = kGraniteSample, .experts = 6, .experts_used = 2, .shared_ffn = true});

}  // namespace larder::model::families
