// Gemma 2 (Google; arXiv 2408.00118; transformers' Gemma2ForCausalLM, read 2026-11).
//
// Traps: those of gemma, and norms behind attention and FFN as well as before. Even layers have
// windows, from layer 0 on. Scores and logits are capped by tanh; files from before these keys and
// that of windows mean the published values. The 27B model, which is known by its 46 layers,
// divides scores by the root of dim / heads, not of the head's size, and no key says so.
#include <cmath>

#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr size_t kGemma2LayersOf27B = 46;
constexpr std::string_view kGemma2Keys[] = {"attn_logit_softcapping", "final_logit_softcapping"};
// Published models have 50 and 30, which scores of random weights hardly feel.
constexpr Family::Sample::Value kGemma2Sample[] = {{"attn_logit_softcapping", 2.0f},
                                                   {"final_logit_softcapping", 3.0f}};

void ReadGemma2(const FamilyKeys& keys, KeysOfModel& model) {
  const LayerSizes& sizes = model.layers[0].sizes;
  model.scales.embedding = std::sqrt(static_cast<double>(sizes.dim));
  model.scales.logit_cap = keys.PositiveOrNone("final_logit_softcapping", 30.0);
  const double cap = keys.PositiveOrNone("attn_logit_softcapping", 50.0);
  for (KeysOfModel::Layer& layer : model.layers) {
    layer.score_cap = cap;
    if (model.layers.size() == kGemma2LayersOf27B)
      layer.attention_divisor = DimPerHeadDivisor(sizes);
  }
}
}  // namespace

const Family kGemma2 = {.name = "gemma2",
                        .number = 15,
                        .pairing = RopePairing::kHalves,
                        .qkv_bias = Family::QkvBias::kWhereInFile,
                        .qk_norm = QkNorm::kNone,
                        .ops = kPreAndPostNorm,
                        .gate = GateKind::kGeluTanh,
                        .full_every = 2,
                        .always_windows = true,
                        .window = 4096,
                        .keys = kGemma2Keys,
                        .read = ReadGemma2,
                        .sample = {.values = kGemma2Sample}};

}  // namespace larder::model::families
