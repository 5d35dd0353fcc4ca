// Qwen3.5, dense (Alibaba; transformers' Qwen3_5ForCausalLM, read 2026-11): three of four layers
// have the gated delta rule instead of attention.
//
// Traps: post_attention_norm precedes the FFN. Queries come with a gate each, head by head. Value
// head h belongs to key head h % group_count, since converters have put them in that order (Qwen3
// Next's have not). ssm_a is -exp(A) already, and the norms of files have the definition's 1 added,
// but ssm_norm has none. rope.dimension_sections are for images: positions of text are the same in
// all of them. A norm of q and k by their lengths divides by sqrt(sum + 1e-6).
#include "base/error.h"
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {
constexpr size_t kFullAttentionInterval = 4;
constexpr size_t kMostHeads = 1024, kMostHeadSize = 1024;
constexpr LayerTraits::Renamed kQwen35Names[] = {
    {TensorRole::kFfnNorm, "post_attention_norm.weight"}};

void ReadQwen35(const FamilyKeys& keys, KeysOfModel& model) {
  const size_t interval = keys.Count("full_attention_interval", kFullAttentionInterval, 1024);
  const size_t heads = keys.Count("ssm.time_step_rank", 0, kMostHeads);
  const size_t key_heads = keys.Count("ssm.group_count", 0, kMostHeads);
  const size_t inner = keys.Count("ssm.inner_size", 0, kMostHeads * kMostHeadSize, heads);
  const Recurrence recurrence{.kind = StateKind::kDeltaRule,
                              .key_size = keys.Count("ssm.state_size", 0, kMostHeadSize, 16),
                              .taps = keys.Count("ssm.conv_kernel", 0, 8),
                              .heads_in_turn = true};
  if (heads % key_heads != 0) {
    throw Error("{} is {}, expected a divisor of ssm.time_step_rank, which is {}",
                keys.Name("ssm.group_count"), key_heads, heads);
  }
  if (inner / heads % 32 != 0 || inner / heads > kMostHeadSize) {
    throw Error("{} is {}, expected for each of {} heads a multiple of 32, up to {}",
                keys.Name("ssm.inner_size"), inner, heads, kMostHeadSize);
  }
  for (size_t i = 0; i < model.layers.size(); ++i) {
    KeysOfModel::Layer& layer = model.layers[i];
    layer.output_gate = (i + 1) % interval == 0;
    if (layer.output_gate) continue;
    layer.sizes.heads = heads;
    layer.sizes.kv_heads = key_heads;
    layer.sizes.head_size = inner / heads;
    layer.rotary = RotarySpec();
    layer.ops = kPreNormDelta;
    layer.recurrence = recurrence;
  }
}
}  // namespace

const Family kQwen35 = {.name = "qwen35",
                        .number = 20,
                        .pairing = RopePairing::kHalves,
                        .qkv_bias = Family::QkvBias::kWhereInFile,
                        .qk_norm = QkNorm::kHead,
                        .ops = kPreNorm,
                        .renamed = kQwen35Names,
                        .read = ReadQwen35,
                        .sample = {.rotated = 0.25, .delta = true}};

}  // namespace larder::model::families
