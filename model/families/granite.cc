// Granite 3 and 4, dense (IBM; transformers' GraniteForCausalLM, read 2026-11).
//
// Traps: logit_scale divides; residual_scale is of what is added to the residual, not of the
// residual; rope.scaling.finetuned false means that no layer rotates.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr std::string_view kGraniteKeys[] = {"embedding_scale", "residual_scale", "attention.scale",
                                             "logit_scale"};
constexpr Family::Sample::Value kGraniteSample[] = {{"embedding_scale", 6.0f},
                                                    {"residual_scale", 0.375f},
                                                    {"attention.scale", 0.09375f},
                                                    {"logit_scale", 3.0f}};

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
}  // namespace

const Family kGranite = {.name = "granite",
                         .number = 6,
                         .pairing = RopePairing::kInterleaved,
                         .qkv_bias = Family::QkvBias::kWhereInFile,
                         .qk_norm = QkNorm::kNone,
                         .ops = kPreNorm,
                         .keys = kGraniteKeys,
                         .read = ReadGranite,
                         .sample = {.values = kGraniteSample}};

}  // namespace larder::model::families
