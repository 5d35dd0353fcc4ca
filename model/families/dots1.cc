// dots.llm1 (rednote; transformers' Dots1ForCausalLM, read 2026-11).
//
// Traps: experts are chosen by a sigmoid plus a bias, and weigh without it; the first layers have
// none, and expert_weights_scale multiplies what the chosen ones give.
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr Family::Sample::Count kDots1Counts[] = {{"leading_dense_block_count", 1}};
constexpr Family::Sample::Value kDots1Values[] = {{"expert_weights_scale", 2.5f}};
}  // namespace

const Family kDots1 = {
    .name = "dots1",
    .number = 47,
    .pairing = RopePairing::kHalves,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kHead,
    .ops = kPreNorm,
    .experts = FamilyExperts{.gating = ExpertGating::kSigmoid, .shared = true, .bias = true},
    .sample = {.values = kDots1Values,
               .counts = kDots1Counts,
               .experts = 6,
               .experts_used = 2,
               .shared_ffn = true,
               .router_bias = true}};

}  // namespace larder::model::families
