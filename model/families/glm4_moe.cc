// GLM-4.5 to 4.7 (Z.ai; transformers' Glm4MoeForCausalLM, read 2026-11).
//
// Traps: post_attention_norm precedes the FFN, unlike glm4's. Pairs of a rotation are halves,
// unlike glm4's. Only some sizes have norms of q and k. Experts are chosen by a sigmoid plus a
// bias, and weigh without it; the first layers have none, and expert_weights_scale multiplies what
// the chosen ones give. The last block (nextn_predict_layers) predicts further tokens.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr LayerTraits::Renamed kGlm4MoeNames[] = {
    {TensorRole::kFfnNorm, "post_attention_norm.weight"}};
constexpr Family::Sample::Count kGlm4MoeCounts[] = {{"leading_dense_block_count", 1}};
constexpr Family::Sample::Value kGlm4MoeValues[] = {{"expert_weights_scale", 2.5f}};
}  // namespace

const Family kGlm4Moe = {
    .name = "glm4moe",
    .number = 60,
    .pairing = RopePairing::kHalves,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kHead,
    .ops = kPreNorm,
    .renamed = kGlm4MoeNames,
    .qk_norm_where_in_file = true,
    .experts = FamilyExperts{.gating = ExpertGating::kSigmoid, .shared = true, .bias = true},
    .sample = {.values = kGlm4MoeValues,
               .counts = kGlm4MoeCounts,
               .rotated = 0.5,
               .qk_norm = true,
               .qkv_bias = true,
               .experts = 6,
               .experts_used = 2,
               .shared_ffn = true,
               .router_bias = true}};

}  // namespace larder::model::families
