// gpt-oss (OpenAI; transformers' GptOssForCausalLM, read 2026-11).
//
// Traps: post_attention_norm is the norm before the FFN. Even layers have windows, from layer 0 on,
// and turn as the others do. The ends of YaRN's ramp are not rounded (truncate is false in the
// published configuration), and no key says so. A router's weights are a softmax over the chosen
// experts alone; its biases decide, too. Rows of gate and up, which alternate in the published
// weights, are two tensors in the file.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr LayerTraits::Renamed kGptOssNames[] = {
    {TensorRole::kFfnNorm, "post_attention_norm.weight"}};

void ReadGptOss(const FamilyKeys&, KeysOfModel& model) {
  for (KeysOfModel::Layer& layer : model.layers) layer.rotary.yarn_whole_pairs = false;
}
}  // namespace

const Family kGptOss = {.name = "gpt-oss",
                        .number = 56,
                        .pairing = RopePairing::kHalves,
                        .qkv_bias = Family::QkvBias::kAlways,
                        .qk_norm = QkNorm::kNone,
                        .ops = kPreNorm,
                        .renamed = kGptOssNames,
                        .gate = GateKind::kClamped,
                        .sinks = true,
                        .full_every = 2,
                        .always_windows = true,
                        .experts = FamilyExperts{.biases = true},
                        .read = ReadGptOss,
                        .sample = {.yarn_factor = 4.0,
                                   .original_context = 4096,
                                   .qkv_bias = true,
                                   .output_bias = true,
                                   .experts = 8,
                                   .experts_used = 4}};

}  // namespace larder::model::families
