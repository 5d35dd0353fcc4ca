// No field of a model's description is forgotten.
#include "model/config/description.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <set>
#include <utility>
#include <vector>

#include "base/fnv.h"
#include "model/families/family.h"
#include "model/gguf/gguf_testing.h"

namespace larder::model::inline config {
namespace {

ModelConfig Config() {
  ModelConfig config;
  config.architecture_name = "llama";
  config.name = "a model";
  config.layers = 2;
  config.dim = 64;
  config.vocab = 37;
  config.trained_context = 1024;
  config.kinds = {
      MakeLayerSpec(FamilyOf("llama"),
                    {.sizes = {.dim = 64, .ffn = 96, .heads = 4, .kv_heads = 2, .head_size = 16},
                     .rotary = {.dim = 16, .freq_factors = {1, 2}}},
                    1e-5f, {})};
  config.kind_of = {0, 0};
  config.types.layers.resize(2);
  for (TensorTypes::OfLayer& types : config.types.layers) types.fill(TensorType::kQ8_0);
  return config;
}

const std::vector<LayerOp> kOtherOps = {{OpKind::kQkv}, {OpKind::kAttention}};

// One for each field that a computation depends on.
const std::vector<std::pair<const char*, std::function<void(ModelConfig&)>>> kChanges = {
    {"architecture_name", [](ModelConfig& c) { c.architecture_name = "qwen2"; }},
    {"layers", [](ModelConfig& c) { ++c.layers; }},
    {"first_layer", [](ModelConfig& c) { ++c.first_layer; }},
    {"ends", [](ModelConfig& c) { c.ends = false; }},
    {"dim", [](ModelConfig& c) { ++c.dim; }},
    {"a kind more", [](ModelConfig& c) { c.kinds.push_back(c.kinds[0]); }},
    {"kind_of", [](ModelConfig& c) { c.kind_of[1] = 1; }},
    {"a layer's dim", [](ModelConfig& c) { ++c.kinds[0].sizes.dim; }},
    {"a layer's norm_epsilon", [](ModelConfig& c) { c.kinds[0].norm_epsilon = 1e-6f; }},
    {"ffn", [](ModelConfig& c) { ++c.kinds[0].sizes.ffn; }},
    {"heads", [](ModelConfig& c) { ++c.kinds[0].sizes.heads; }},
    {"kv_heads", [](ModelConfig& c) { ++c.kinds[0].sizes.kv_heads; }},
    {"head_size", [](ModelConfig& c) { ++c.kinds[0].sizes.head_size; }},
    {"experts", [](ModelConfig& c) { c.kinds[0].experts = {.count = 4, .used = 2}; }},
    {"experts used", [](ModelConfig& c) { c.kinds[0].experts = {.count = 4, .used = 1}; }},
    {"the shared expert",
     [](ModelConfig& c) { c.kinds[0].experts = {.count = 4, .used = 2, .shared_ffn = 32}; }},
    {"gating",
     [](ModelConfig& c) {
       c.kinds[0].experts = {.count = 4, .used = 2, .gating = ExpertGating::kSigmoid};
     }},
    {"weights that are not normalised",
     [](ModelConfig& c) { c.kinds[0].experts = {.count = 4, .used = 2, .normalise = false}; }},
    {"groups of experts",
     [](ModelConfig& c) { c.kinds[0].experts = {.count = 4, .used = 2, .groups = 2}; }},
    {"groups of experts that are used",
     [](ModelConfig& c) {
       c.kinds[0].experts = {.count = 4, .used = 2, .groups = 2, .groups_used = 2};
     }},
    {"the scale of experts",
     [](ModelConfig& c) { c.kinds[0].experts = {.count = 4, .used = 2, .scale = 2.5}; }},
    {"vocab", [](ModelConfig& c) { ++c.vocab; }},
    {"trained_context", [](ModelConfig& c) { ++c.trained_context; }},
    // The next number: it is written exactly.
    {"norm_epsilon", [](ModelConfig& c) { c.norm_epsilon = std::nextafterf(c.norm_epsilon, 1); }},
    {"tied_embeddings", [](ModelConfig& c) { c.tied_embeddings = true; }},
    {"a tensor more", [](ModelConfig& c) { c.kinds[0].tensors.push_back(c.kinds[0].tensors[0]); }},
    {"a tensor's role", [](ModelConfig& c) { c.kinds[0].tensors[0].role = TensorRole::kQNorm; }},
    {"a tensor's kind", [](ModelConfig& c) { c.kinds[0].tensors[0].kind = TensorKind::kBias; }},
    {"a tensor's suffix", [](ModelConfig& c) { c.kinds[0].tensors[0].suffix = "other"; }},
    {"a tensor's rows", [](ModelConfig& c) { ++c.kinds[0].tensors[1].rows; }},
    {"a tensor's columns", [](ModelConfig& c) { ++c.kinds[0].tensors[1].cols; }},
    {"a tensor's runs", [](ModelConfig& c) { c.kinds[0].tensors[1].run = 2; }},
    {"the distance of a tensor's runs",
     [](ModelConfig& c) {
       c.kinds[0].tensors[1].run = 2;
       c.kinds[0].tensors[1].step = 4;
     }},
    {"tensors for one", [](ModelConfig& c) { c.kinds[0].tensors[1].each = 2; }},
    {"operations",
     [](ModelConfig& c) { c.kinds[0].ops.assign(std::begin(kOtherOps), std::end(kOtherOps)); }},
    {"one operation less", [](ModelConfig& c) { c.kinds[0].ops.resize(3); }},
    {"attention_divisor", [](ModelConfig& c) { c.kinds[0].attention_divisor = 2; }},
    {"an operation's norm behind",
     [](ModelConfig& c) { c.kinds[0].ops[3].post_norm = TensorRole::kPostAttnNorm; }},
    {"qk_norm", [](ModelConfig& c) { c.kinds[0].qk_norm = QkNorm::kRow; }},
    {"qk_norm of each head", [](ModelConfig& c) { c.kinds[0].qk_norm = QkNorm::kEachHead; }},
    {"qk_norm after rotation", [](ModelConfig& c) { c.kinds[0].qk_norm = QkNorm::kHeadAfterRope; }},
    {"temperature", [](ModelConfig& c) { c.kinds[0].temperature.beta = 0.5; }},
    {"temperature's length",
     [](ModelConfig& c) {
       c.kinds[0].temperature = {0.5, 7};
     }},
    {"window", [](ModelConfig& c) { c.kinds[0].window = 7; }},
    {"output norm", [](ModelConfig& c) { c.norm = NormKind::kLayer; }},
    {"a layer's norm", [](ModelConfig& c) { c.kinds[0].norm = NormKind::kLayer; }},
    {"gate", [](ModelConfig& c) { c.kinds[0].gate = GateKind::kGeluTanh; }},
    {"rope.yarn_whole_pairs", [](ModelConfig& c) { c.kinds[0].rotary.yarn_whole_pairs = false; }},
    {"latent attention",
     [](ModelConfig& c) {
       c.kinds[0].latent = {8, 4, 6, 7};
     }},
    {"norm of values", [](ModelConfig& c) { c.kinds[0].value_norm = true; }},
    {"output scale",
     [](ModelConfig& c) { c.kinds[0].ops.back().output_scale = TensorRole::kOutputScale; }},
    {"a shared tensor", [](ModelConfig& c) { c.kinds[0].tensors[1].shared = true; }},
    {"a state", [](ModelConfig& c) { c.kinds[0].recurrence.kind = StateKind::kDeltaRule; }},
    {"another state", [](ModelConfig& c) { c.kinds[0].recurrence.kind = StateKind::kConvolution; }},
    {"a state beside attention",
     [](ModelConfig& c) {
       c.kinds[0].recurrence = {.kind = StateKind::kMamba2, .heads = 2, .key_heads = 1};
     }},
    {"the size of its heads",
     [](ModelConfig& c) {
       c.kinds[0].recurrence = {
           .kind = StateKind::kMamba2, .heads = 2, .key_heads = 1, .head_size = 8};
     }},
    {"a state's taps",
     [](ModelConfig& c) { c.kinds[0].recurrence = {.kind = StateKind::kConvolution, .taps = 3}; }},
    {"cap of scores", [](ModelConfig& c) { c.kinds[0].score_cap = 50; }},
    {"cap of logits", [](ModelConfig& c) { c.scales.logit_cap = 30; }},
    {"embedding's scale", [](ModelConfig& c) { c.scales.embedding = 2; }},
    {"residual's scale", [](ModelConfig& c) { c.scales.residual = 2; }},
    {"logits' scale", [](ModelConfig& c) { c.scales.logits = 2; }},
    {"a tensor that is a part", [](ModelConfig& c) { c.kinds[0].tensors[1].of = 99; }},
    {"YaRN's multiplier", [](ModelConfig& c) { c.kinds[0].rotary.yarn_log_multiplier = 1; }},
    {"long factors",
     [](ModelConfig& c) {
       c.kinds[0].rotary.long_factors = {3, 4};
     }},
    {"magnitude", [](ModelConfig& c) { c.kinds[0].rotary.magnitude = 2; }},
    {"pairing", [](ModelConfig& c) { c.kinds[0].rotary.pairing = RopePairing::kHalves; }},
    {"rotary dim", [](ModelConfig& c) { c.kinds[0].rotary.dim = 8; }},
    {"base", [](ModelConfig& c) { c.kinds[0].rotary.base = std::nextafter(10000.0, 1e6); }},
    {"scaling", [](ModelConfig& c) { c.kinds[0].rotary.scaling = RopeScaling::kYarn; }},
    {"scale_factor", [](ModelConfig& c) { c.kinds[0].rotary.scale_factor = 2; }},
    {"original_context", [](ModelConfig& c) { ++c.kinds[0].rotary.original_context; }},
    {"yarn_ext_factor", [](ModelConfig& c) { c.kinds[0].rotary.yarn_ext_factor = 0.5; }},
    {"yarn_attn_factor", [](ModelConfig& c) { c.kinds[0].rotary.yarn_attn_factor = 0.5; }},
    {"yarn_beta_fast", [](ModelConfig& c) { c.kinds[0].rotary.yarn_beta_fast = 16; }},
    {"yarn_beta_slow", [](ModelConfig& c) { c.kinds[0].rotary.yarn_beta_slow = 2; }},
    {"a factor", [](ModelConfig& c) { c.kinds[0].rotary.freq_factors[1] = 3; }},
    {"a factor more", [](ModelConfig& c) { c.kinds[0].rotary.freq_factors.push_back(3); }},
    {"embedding's type", [](ModelConfig& c) { c.types.embedding = TensorType::kF16; }},
    {"head's type", [](ModelConfig& c) { c.types.head = TensorType::kF16; }},
    {"a layer's type", [](ModelConfig& c) { c.types.layers[1][3] = TensorType::kF16; }},
    {"types of fewer layers", [](ModelConfig& c) { c.types.layers.pop_back(); }},
};

TEST(Description, EachFieldChangesIt) {
  const std::string same = DescriptionOf(Config());
  EXPECT_EQ(DescriptionOf(Config()), same);
  std::set<std::string> all = {same};
  for (const auto& [what, change] : kChanges) {
    ModelConfig config = Config();
    change(config);
    const std::string text = DescriptionOf(config);
    EXPECT_TRUE(all.insert(text).second) << what;
    EXPECT_NE(DescriptionDifference(text, same), "") << what;
  }
}

// What is stored belongs to the text: it never changes for a model that was there before.
TEST(Description, IsTheSameAsEver) {
  const auto hash = [](const char* architecture) {
    const testing::TempFile file(testing::GoodModel(architecture).Bytes());
    return Fnv1a(DescriptionOf(ReadModelConfig(*GgufFile::Open(file.path()))));
  };
  EXPECT_EQ(hash("llama"), 0x28b772763e38b3eau);
  EXPECT_EQ(hash("qwen2"), 0x27ad3b446de1f219u);
  EXPECT_EQ(hash("qwen3"), 0x7b4000211c05441au);
}

TEST(Description, AModelsNameAndTheFilesPartAreNotInIt) {
  ModelConfig config = Config();
  config.name = "another name";
  config.part = {.kind = ModelPart::Kind::kStage, .count = 2, .layers = 1, .fingerprint = 7};
  EXPECT_EQ(DescriptionOf(config), DescriptionOf(Config()));
}

TEST(Description, ADifferenceIsOneLineOfEach) {
  ModelConfig config = Config();
  config.kinds[0].rotary.base = 20000;
  const std::string is = DescriptionOf(config), expected = DescriptionOf(Config());
  EXPECT_EQ(DescriptionDifference(is, expected), "'rope.base 20000', not 'rope.base 10000'");
  EXPECT_EQ(DescriptionDifference(is, is), "");
  EXPECT_EQ(DescriptionDifference("a\n", ""), "'a', not ''");
  EXPECT_EQ(DescriptionDifference("a\n", "a"), "another text");
}

}  // namespace
}  // namespace larder::model::config
