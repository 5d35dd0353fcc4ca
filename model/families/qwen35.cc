// Qwen3.5, dense and with experts, and Qwen3 Next (Alibaba; transformers' Qwen3_5ForCausalLM,
// Qwen3_5MoeForCausalLM and Qwen3NextForCausalLM, read 2026-11): three of four layers have the
// gated delta rule instead of attention.
//
// Traps: post_attention_norm precedes the FFN. Queries come with a gate each, head by head. Value
// head h belongs to key head h % group_count, since converters have put them in that order. Qwen3
// Next's have not: there it is h / (heads / group_count), and ssm_ba has for each key head its
// heads' betas, then their alphas; in older files ssm_in has q, k, v and output gates in that way,
// while the convolution's channels are all of q, then k, then v. ssm_a is -exp(A) already, and the
// norms of files have the definition's 1 added, but ssm_norm has none. rope.dimension_sections are
// for images: positions of text are the same in all of them. A norm of q and k by their lengths
// divides by sqrt(sum + 1e-6).
#include "model/families/state_keys.h"

namespace larder::model::inline families {
namespace {
constexpr size_t kFullAttentionInterval = 4;
constexpr LayerTraits::Renamed kQwen35Names[] = {
    {TensorRole::kFfnNorm, "post_attention_norm.weight"}};

void ReadDeltaRule(const FamilyKeys& keys, bool heads_in_turn, KeysOfModel& model) {
  const size_t interval = keys.Count("full_attention_interval", kFullAttentionInterval, 1024);
  StateKeys states = ReadStateKeys(keys, StateKind::kDeltaRule, 32);
  states.recurrence.heads_in_turn = heads_in_turn;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    KeysOfModel::Layer& layer = model.layers[i];
    layer.output_gate = (i + 1) % interval == 0;
    if (!layer.output_gate) states.Apply(layer, kPreNormDelta);
  }
}

void ReadQwen35(const FamilyKeys& keys, KeysOfModel& model) { ReadDeltaRule(keys, true, model); }
void ReadQwen3Next(const FamilyKeys& keys, KeysOfModel& model) {
  ReadDeltaRule(keys, false, model);
}

constexpr FamilyExperts kExperts = {.shared = true, .shared_gate = true};
}  // namespace

constexpr Family kQwen35 = {.name = "qwen35",
                            .number = 20,
                            .pairing = RopePairing::kHalves,
                            .qkv_bias = Family::QkvBias::kWhereInFile,
                            .qk_norm = QkNorm::kHead,
                            .ops = kPreNorm,
                            .renamed = kQwen35Names,
                            .read = ReadQwen35,
                            .sample = {.rotated = 0.25, .state = StateKind::kDeltaRule}};

const Family kQwen35Moe = WithExperts(kQwen35, "qwen35moe", 21, kExperts,
                                      {.rotated = 0.25,
                                       .state = StateKind::kDeltaRule,
                                       .experts = 6,
                                       .experts_used = 2,
                                       .shared_ffn = true,
                                       .shared_gate = true});

const Family kQwen3Next = [] {
  Family family = WithExperts(kQwen35, "qwen3next", 22, kExperts,
                              {.rotated = 0.25,
                               .state = StateKind::kDeltaRule,
                               .fused_rates = true,
                               .experts = 6,
                               .experts_used = 2,
                               .shared_ffn = true,
                               .shared_gate = true});
  family.read = ReadQwen3Next;
  return family;
}();

}  // namespace larder::model::families
