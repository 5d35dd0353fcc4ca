// Command R7B and Command A (Cohere; transformers' Cohere2ForCausalLM, read 2026-11).
//
// Traps: those of command-r. Three layers of four have windows, and only these rotate. The epsilon
// is that of LayerNorm; files have the key of the other norm, too.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr std::string_view kCohere2Keys[] = {"logit_scale"};
constexpr Family::Sample::Value kCohere2Sample[] = {{"logit_scale", 0.25f}};

void ReadCohere2(const FamilyKeys& keys, KeysOfModel& model) {
  model.scales.logits = keys.Positive("logit_scale", 1.0);
  for (KeysOfModel::Layer& layer : model.layers)
    if (layer.window == 0) layer.rotary = RotarySpec();
}
}  // namespace

const Family kCohere2 = {.name = "cohere2",
                         .number = 17,
                         .pairing = RopePairing::kInterleaved,
                         .qkv_bias = Family::QkvBias::kWhereInFile,
                         .qk_norm = QkNorm::kNone,
                         .ops = kParallel,
                         .norm = NormKind::kLayer,
                         .full_every = 4,
                         .always_windows = true,
                         .keys = kCohere2Keys,
                         .read = ReadCohere2,
                         .sample = {.values = kCohere2Sample}};

}  // namespace larder::model::families
