// Nemotron-H and Nemotron 3, dense and with experts (NVIDIA; transformers' NemotronHForCausalLM,
// read 2026-11).
//
// Traps: each block of the file is attention, a state space of Mamba-2 or an FFN, with a norm that
// is called attn_norm; here an FFN belongs to the layer of the block before it, and some layers
// have none. feed_forward_length and attention.head_count_kv say what a block is. Nothing rotates.
// FFNs, experts and the shared one have no gate: up becomes the square of its positive part. The
// class makes a state's steps at least its time_step_min, of which files have no key: its default,
// which the published configurations have.
#include "base/error.h"
#include "model/families/state_keys.h"

namespace larder::model::inline families {
namespace {

constexpr size_t kMixerOps = 4;  // of kPreNorm and its like: up to O
constexpr double kLeastStep = 0.001;

void ReadNemotronH(const FamilyKeys& keys, KeysOfModel& model) {
  StateKeys states = ReadMamba2Keys(keys);
  states.recurrence.least_step = kLeastStep;
  std::vector<KeysOfModel::Layer> layers;
  for (size_t i = 0; i < model.layers.size(); ++i) {
    KeysOfModel::Layer& block = model.layers[i];
    block.rotary = RotarySpec();
    if (block.sizes.ffn == 0) {
      block.ops = std::span(kPreNorm).first(kMixerOps);
      if (block.sizes.kv_heads == 0)
        states.Apply(block, std::span(kPreNormMamba2).first(kMixerOps));
      layers.push_back(block);
      continue;
    }
    if (block.sizes.kv_heads != 0 || layers.empty() || layers.back().sizes.ffn != 0) {
      throw Error("{} says that block {} is an FFN, expected one without, {}",
                  keys.Name("feed_forward_length"), i,
                  block.sizes.kv_heads != 0 ? "since it has KV heads"
                                            : "since the block before it is none of attention or "
                                              "a state");
    }
    KeysOfModel::Layer& layer = layers.back();
    layer.sizes.ffn = block.sizes.ffn;
    layer.experts = block.experts;
    layer.blocks = 2;
    layer.ops = layer.recurrence.any() ? std::span<const LayerOp>(kPreNormMamba2) : kPreNorm;
  }
  if (layers.empty())
    throw Error("{} says that all blocks are FFNs", keys.Name("feed_forward_length"));
  model.layers = std::move(layers);
}

constexpr Family::Sample::Value kMoeValues[] = {{"expert_weights_scale", 2.5f}};

}  // namespace

constexpr Family kNemotronH = {.name = "nemotron_h",
                               .number = 63,
                               .pairing = RopePairing::kHalves,
                               .qkv_bias = Family::QkvBias::kWhereInFile,
                               .qk_norm = QkNorm::kNone,
                               .ops = kPreNorm,
                               .gate = GateKind::kSquaredRelu,
                               .states_without_kv_heads = true,
                               .ffn_apart = true,
                               .group_norm = true,
                               .read = ReadNemotronH,
                               .sample = {.state = StateKind::kMamba2, .attention_every = 2}};

const Family kNemotronHMoe =
    WithExperts(kNemotronH, "nemotron_h_moe", 64,
                FamilyExperts{.gating = ExpertGating::kSigmoid, .shared = true, .bias = true},
                {.values = kMoeValues,
                 .state = StateKind::kMamba2,
                 .attention_every = 2,
                 .experts = 6,
                 .experts_used = 2,
                 .shared_ffn = true,
                 .router_bias = true});

}  // namespace larder::model::families
