// Ling 2 and Ring 2 (inclusionAI; their own BailingMoeV2ForCausalLM, read 2026-11).
//
// Traps: q, k and v are one tensor. Experts are chosen by a sigmoid plus a bias, and weigh without
// it, among those of the best groups; the first layers have none, and expert_weights_scale
// multiplies what the chosen ones give. expert_shared_feed_forward_length is that of all shared
// ones together.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr Family::Sample::Count kCounts[] = {
    {"leading_dense_block_count", 1}, {"expert_group_count", 3}, {"expert_group_used_count", 2}};
constexpr Family::Sample::Value kValues[] = {{"expert_weights_scale", 2.5f}};
}  // namespace

const Family kBailingMoe2 = {
    .name = "bailingmoe2",
    .number = 61,
    .pairing = RopePairing::kHalves,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kHead,
    .ops = kPreNorm,
    .experts = FamilyExperts{.gating = ExpertGating::kSigmoid, .shared = true, .bias = true},
    .sample = {.values = kValues,
               .counts = kCounts,
               .rotated = 0.5,
               .fused_qkv = true,
               .experts = 6,
               .experts_used = 2,
               .shared_ffn = true,
               .router_bias = true}};

}  // namespace larder::model::families
