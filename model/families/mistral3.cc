// Ministral 3 and what converters write as `mistral3` (Mistral; transformers'
// Ministral3ForCausalLM, read 2026-11).
//
// Traps: YaRN with yarn_log_multiplier 1 leaves sines and cosines as large as they are. Queries
// grow with their position, which counts from 0, by rope.scaling.original_context_length.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr std::string_view kMistral3Keys[] = {"rope.scaling.yarn_log_multiplier",
                                              "attention.temperature_scale"};
constexpr Family::Sample::Value kMistral3Sample[] = {{"rope.scaling.yarn_log_multiplier", 1.0f},
                                                     {"attention.temperature_scale", 0.25f}};

void ReadMistral3(const FamilyKeys& keys, KeysOfModel& model) {
  for (KeysOfModel::Layer& layer : model.layers) {
    if (layer.rotary.scaling == RopeScaling::kYarn &&
        keys.Float("rope.scaling.yarn_log_multiplier").value_or(0.0) != 0.0)
      layer.rotary.yarn_log_multiplier = keys.Positive("rope.scaling.yarn_log_multiplier", 1.0);
    if (keys.Float("attention.temperature_scale").value_or(0.0) == 0.0) continue;
    layer.temperature = {.beta = keys.Positive("attention.temperature_scale", 0.0),
                         .length = layer.rotary.original_context};
  }
}
}  // namespace

const Family kMistral3 = {
    .name = "mistral3",
    .number = 8,
    .pairing = RopePairing::kInterleaved,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kNone,
    .ops = kPreNorm,
    .keys = kMistral3Keys,
    .read = ReadMistral3,
    .sample = {.values = kMistral3Sample, .yarn_factor = 16.0, .original_context = 64}};

}  // namespace larder::model::families
