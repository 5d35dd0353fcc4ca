// LFM2, dense and with experts (Liquid AI; transformers' Lfm2ForCausalLM and Lfm2MoeForCausalLM,
// read 2026-11): most layers have a gated short convolution instead of attention.
//
// Traps: the layers with attention are those for which attention.head_count_kv has KV heads.
// in_proj's thirds are B, C and x, in this order. There is no SiLU behind the convolution. The
// output norm is called token_embd_norm. Experts are chosen by a sigmoid plus a bias, and weigh
// without it; the first layers have none.
#include "base/error.h"
#include "model/families/family.h"

namespace larder::model::inline families {
namespace {

void ReadLfm2(const FamilyKeys& keys, KeysOfModel& model) {
  const size_t taps = keys.Count("shortconv.l_cache", 0, 8);
  for (KeysOfModel::Layer& layer : model.layers) {
    if (layer.sizes.kv_heads != 0) continue;
    if (layer.sizes.dim % layer.sizes.heads != 0) {
      throw Error("{} is {}, expected a divisor of embedding_length, which is {}",
                  keys.Name("attention.head_count"), layer.sizes.heads, layer.sizes.dim);
    }
    layer.sizes.kv_heads = layer.sizes.heads;
    layer.sizes.head_size = layer.sizes.dim / layer.sizes.heads;
    layer.rotary = RotarySpec();
    layer.ops = kPreNormConvolution;
    layer.recurrence = {.kind = StateKind::kConvolution, .taps = taps};
  }
}

constexpr Family::Sample::Count kLfm2Counts[] = {{"shortconv.l_cache", 3}};
constexpr Family::Sample::Count kLfm2MoeCounts[] = {{"shortconv.l_cache", 3},
                                                    {"leading_dense_block_count", 1}};

}  // namespace

constexpr Family kLfm2 = {.name = "lfm2",
                          .number = 30,
                          .pairing = RopePairing::kHalves,
                          .qkv_bias = Family::QkvBias::kWhereInFile,
                          .qk_norm = QkNorm::kHead,
                          .ops = kPreNorm,
                          .states_without_kv_heads = true,
                          .output_norm = "token_embd_norm.weight",
                          .read = ReadLfm2,
                          .sample = {.counts = kLfm2Counts, .attention_every = 2}};

const Family kLfm2Moe =
    WithExperts(kLfm2, "lfm2moe", 33, FamilyExperts{.gating = ExpertGating::kSigmoid, .bias = true},
                {.counts = kLfm2MoeCounts,
                 .attention_every = 2,
                 .experts = 6,
                 .experts_used = 2,
                 .router_bias = true});

}  // namespace larder::model::families
