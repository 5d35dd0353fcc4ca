// DeepSeek-V2-Lite, V3 and R1, Kimi K2, GLM-4.7-Flash (DeepSeek-AI 2024, arXiv 2405.04434, and
// 2412.19437; transformers' DeepseekV2ForCausalLM, DeepseekV3ForCausalLM and
// Glm4MoeLiteForCausalLM, read 2026-11).
//
// Traps: key_length and value_length are those of the latent attention's one KV head; what heads
// have is key_length_mla and value_length_mla. attn_k_b is transposed: for each head kv_lora_rank
// rows. Scores are divided by the root of key_length_mla and, where the file has YaRN's multiplier,
// which is a tenth of mscale_all_dim here, multiplied by the square of 1 + multiplier * ln(factor);
// rotations then have a magnitude of 1. Experts are chosen by softmax without normalisation (V2),
// or by sigmoid plus a bias among groups (V3). The norms of latents have the others' epsilon, in
// the published files.
#include <cmath>

#include "base/error.h"
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr std::string_view kDeepseek2Keys[] = {"rope.scaling.yarn_log_multiplier"};
constexpr Family::Sample::Value kDeepseek2Values[] = {{"rope.scaling.yarn_log_multiplier", 0.1f},
                                                      {"expert_weights_scale", 2.5f}};
constexpr Family::Sample::Count kDeepseek2Counts[] = {{"leading_dense_block_count", 1}};

void ReadLatent(const FamilyKeys& keys, KeysOfModel::Layer& layer) {
  const LayerSizes& sizes = layer.sizes;
  if (!keys.Unsigned("attention.key_length_mla")) {
    throw Error(
        "{} is missing, as in files from before it, which have attn_kv_b: convert the model "
        "again",
        keys.Name("attention.key_length_mla"));
  }
  if (sizes.kv_heads != 1) {
    throw Error("{} is {}, expected 1: that of the latents", keys.Name("attention.head_count_kv"),
                sizes.kv_heads);
  }
  const size_t rank = keys.Count("attention.kv_lora_rank", 0, kMaxHeadSize);
  if (rank + layer.rotary.dim != sizes.head_size) {
    throw Error(
        "{} is {}, expected 'attention.kv_lora_rank' + 'rope.dimension_count', which are {} "
        "and {}",
        keys.Name("attention.key_length"), sizes.head_size, rank, layer.rotary.dim);
  }
  if (keys.Unsigned("attention.value_length").value_or(0) != rank) {
    throw Error("{} is {}, expected 'attention.kv_lora_rank', which is {}",
                keys.Name("attention.value_length"),
                keys.Unsigned("attention.value_length").value_or(0), rank);
  }
  const size_t key_length = keys.Count("attention.key_length_mla", 0, kMaxHeadSize);
  if (key_length <= layer.rotary.dim) {
    throw Error("{} is {}, expected more than 'rope.dimension_count', which is {}",
                keys.Name("attention.key_length_mla"), key_length, layer.rotary.dim);
  }
  constexpr size_t kMostQueryRank = 1 << 16;
  const bool has_query_rank = keys.Unsigned("attention.q_lora_rank").value_or(0) != 0;
  layer.latent = {
      .rank = rank,
      .query_rank = has_query_rank ? keys.Count("attention.q_lora_rank", 0, kMostQueryRank) : 0,
      .key_size = key_length - layer.rotary.dim,
      .value_size = keys.Count("attention.value_length_mla", 0, kMaxHeadSize)};
  layer.attention_divisor = std::sqrt(static_cast<double>(key_length));
}

void ReadDeepseek2(const FamilyKeys& keys, KeysOfModel& model) {
  const double multiplier = keys.PositiveOrNone("rope.scaling.yarn_log_multiplier", 0.0);
  for (KeysOfModel::Layer& layer : model.layers) {
    ReadLatent(keys, layer);
    if (layer.rotary.scaling == RopeScaling::kYarn && multiplier != 0.0) {
      const double growth = 1.0 + multiplier * std::log(layer.rotary.scale_factor);
      layer.attention_divisor /= growth * growth;
      layer.rotary.yarn_log_multiplier = 1.0;
    }
    if (layer.experts.groups > 1 && layer.experts.gating == ExpertGating::kSoftmax) {
      throw Error("{} is {}: Larder chooses among groups of experts by sigmoid only",
                  keys.Name("expert_group_count"), layer.experts.groups);
    }
  }
}
}  // namespace

const Family kDeepseek2 = {
    .name = "deepseek2",
    .number = 57,
    .pairing = RopePairing::kInterleaved,
    .qkv_bias = Family::QkvBias::kWhereInFile,
    .qk_norm = QkNorm::kNone,
    .ops = kPreNorm,
    .latent = true,
    .experts = FamilyExperts{.normalise = false, .optional = true, .shared = true, .bias = true},
    .keys = kDeepseek2Keys,
    .read = ReadDeepseek2,
    .sample = {.values = kDeepseek2Values,
               .counts = kDeepseek2Counts,
               .yarn_factor = 4.0,
               .original_context = 32,
               .rotated = 0.5,
               .experts = 6,
               .experts_used = 2,
               .shared_ffn = true,
               .router_bias = true}};

}  // namespace larder::model::families
