// Granite 4 hybrid, dense and with experts (IBM; transformers' GraniteMoeHybridForCausalLM, read
// 2026-11): most layers have a state space of Mamba-2 instead of attention.
//
// Traps: Granite's. The layers with attention are those for which attention.head_count_kv has KV
// heads; they do not rotate, as rope.scaling.finetuned says. ssm_a is -exp(A) already. The output
// is multiplied by its gate before it is normalised. ssm_in has z, x, B, C and dt in this order,
// the convolution x, B and C. With experts feed_forward_length is that of one of them.
#include "model/families/granite.h"
#include "model/families/state_keys.h"

namespace larder::model::inline families {
namespace {

void ReadGraniteHybrid(const FamilyKeys& keys, KeysOfModel& model) {
  ReadGranite(keys, model);
  const StateKeys states = ReadMamba2Keys(keys);
  for (KeysOfModel::Layer& layer : model.layers)
    if (layer.sizes.kv_heads == 0) states.Apply(layer, kPreNormMamba2);
}

}  // namespace

const Family kGraniteHybrid = {
    .name = "granitehybrid",
    .number = 31,
    .pairing = RopePairing::kInterleaved,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kNone,
    .ops = kPreNorm,
    .states_without_kv_heads = true,
    .group_norm = true,
    .experts = FamilyExperts{.optional = true, .shared = true},
    .keys = kGraniteKeys,
    .read = ReadGraniteHybrid,
    .sample = {.values = kGraniteSample, .state = StateKind::kMamba2, .attention_every = 2}};

}  // namespace larder::model::families
