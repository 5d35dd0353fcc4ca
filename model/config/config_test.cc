#include "model/config/config.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/test_data_testing.h"
#include "model/gguf/gguf_testing.h"

namespace larder::model::inline config {
namespace {

using testing::GoodModel;
using testing::RawArray;
using testing::RawGguf;
using testing::TempFile;
using Type = GgufValueType;

ModelConfig Read(const RawGguf& raw) {
  return ReadModelConfig(*GgufFile::Open(TempFile(raw.Bytes()).path()));
}

TEST(Config, ReadsALlama) {
  const ModelConfig config = Read(GoodModel());
  EXPECT_EQ(config.architecture_name, "llama");
  EXPECT_EQ(config.name, "good");
  EXPECT_EQ(config.layers, 1u);
  EXPECT_EQ(config.dim, 4u);
  EXPECT_EQ(config.kinds[0].sizes.ffn, 32u);
  EXPECT_EQ(config.kinds[0].sizes.heads, 2u);
  EXPECT_EQ(config.kinds[0].sizes.kv_heads, 1u);
  EXPECT_EQ(config.kinds[0].sizes.head_size, 2u);
  EXPECT_EQ(config.vocab, 3u);
  EXPECT_EQ(config.trained_context, 64u);
  EXPECT_EQ(config.norm_epsilon, 1e-5f);
  EXPECT_FALSE(config.kinds[0].Has(TensorRole::kQBias));
  EXPECT_FALSE(config.kinds[0].Has(TensorRole::kQNorm));
  EXPECT_FALSE(config.tied_embeddings);
  EXPECT_EQ(config.kinds[0].rotary.pairing, RopePairing::kInterleaved);
  EXPECT_EQ(config.kinds[0].rotary.dim, 2u);
  EXPECT_EQ(config.kinds[0].rotary.base, 10000.0);
  EXPECT_EQ(config.kinds[0].rotary.scaling, RopeScaling::kNone);
  EXPECT_EQ(config.kinds[0].rotary.original_context, 64u);
  EXPECT_TRUE(config.kinds[0].rotary.freq_factors.empty());
  EXPECT_EQ(config.kinds[0].sizes.group(), 2u);
}

TEST(Config, ParametersCountEveryWeight) {
  for (const char* arch : {"llama", "qwen2", "qwen3"}) {
    const RawGguf raw = GoodModel(arch);
    uint64_t weights = 0;
    for (const auto& tensor : raw.tensors) {
      uint64_t n = 1;
      for (const uint64_t dim : tensor.dims) n *= dim;
      weights += n;
    }
    EXPECT_EQ(Read(raw).parameters(), weights) << arch;
  }
  RawGguf tied = GoodModel();
  tied.EraseTensor("output.weight");
  EXPECT_EQ(Read(tied).parameters(), Read(GoodModel()).parameters() - 12);
}

TEST(Config, TheOtherArchitectures) {
  const ModelConfig qwen2 = Read(GoodModel("qwen2"));
  EXPECT_EQ(qwen2.architecture_name, "qwen2");
  EXPECT_TRUE(qwen2.layer(0).Has(TensorRole::kQBias));
  EXPECT_FALSE(qwen2.layer(0).Has(TensorRole::kQNorm));
  EXPECT_EQ(qwen2.layer(0).rotary.pairing, RopePairing::kHalves);
  const ModelConfig qwen3 = Read(GoodModel("qwen3"));
  EXPECT_EQ(qwen3.architecture_name, "qwen3");
  EXPECT_FALSE(qwen3.layer(0).Has(TensorRole::kQBias));
  EXPECT_TRUE(qwen3.layer(0).Has(TensorRole::kQNorm));
}

TEST(Config, LlamaWithBiasesAndTiedEmbeddings) {
  RawGguf raw = GoodModel();
  raw.AddF32("blk.0.attn_q.bias", {4});
  raw.AddF32("blk.0.attn_k.bias", {2});
  raw.AddF32("blk.0.attn_v.bias", {2});
  raw.EraseTensor("output.weight");
  const ModelConfig config = Read(raw);
  EXPECT_TRUE(config.kinds[0].Has(TensorRole::kQBias));
  EXPECT_TRUE(config.tied_embeddings);
}

TEST(Config, Defaults) {
  RawGguf raw = GoodModel();
  raw.EraseKey("general.name");
  raw.EraseKey("llama.rope.dimension_count");
  raw.EraseKey("llama.rope.freq_base");
  raw.SetU32("llama.attention.head_count", 1);  // the default number of KV heads is the same
  raw.EraseKey("llama.attention.head_count_kv");
  raw.SetU32("llama.attention.key_length", 2);
  raw.SetU32("llama.attention.value_length", 2);
  raw.Find("blk.0.attn_q.weight").dims = {4, 2};
  raw.Find("blk.0.attn_output.weight").dims = {2, 4};
  const TempFile temp(raw.Bytes());
  const ModelConfig config = ReadModelConfig(*GgufFile::Open(temp.path()));
  EXPECT_EQ(config.name, temp.path().substr(temp.path().rfind('/') + 1));
  EXPECT_EQ(config.kinds[0].sizes.kv_heads, 1u);
  EXPECT_EQ(config.kinds[0].sizes.head_size, 2u);  // explicit, not dim / heads = 4
  EXPECT_EQ(config.kinds[0].sizes.q_rows(), 2u);
  EXPECT_EQ(config.kinds[0].rotary.dim, 2u);
  EXPECT_EQ(config.kinds[0].rotary.base, 10000.0);
}

TEST(Config, RopeScaling) {
  RawGguf linear = GoodModel();
  linear.SetText("llama.rope.scaling.type", "linear");
  linear.SetF32("llama.rope.scaling.factor", 2.5f);
  EXPECT_EQ(Read(linear).layer(0).rotary.scaling, RopeScaling::kLinear);
  EXPECT_EQ(Read(linear).layer(0).rotary.scale_factor, 2.5);
  linear.EraseKey("llama.rope.scaling.type");  // a factor without a type is linear
  EXPECT_EQ(Read(linear).layer(0).rotary.scaling, RopeScaling::kLinear);
  linear.SetText("llama.rope.scaling.type", "none");
  EXPECT_EQ(Read(linear).layer(0).rotary.scaling, RopeScaling::kNone);
  EXPECT_EQ(Read(linear).layer(0).rotary.scale_factor, 1.0);

  RawGguf old = GoodModel();
  old.SetF32("llama.rope.scale_linear", 4.0f);
  EXPECT_EQ(Read(old).layer(0).rotary.scaling, RopeScaling::kLinear);
  EXPECT_EQ(Read(old).layer(0).rotary.scale_factor, 4.0);

  RawGguf yarn = GoodModel();
  yarn.SetText("llama.rope.scaling.type", "yarn");
  yarn.SetF32("llama.rope.scaling.factor", 4.0f);
  EXPECT_EQ(Read(yarn).layer(0).rotary.original_context, 64u);  // the context, by default
  yarn.SetU32("llama.rope.scaling.original_context_length", 16);
  ModelConfig config = Read(yarn);
  EXPECT_EQ(config.kinds[0].rotary.scaling, RopeScaling::kYarn);
  EXPECT_EQ(config.kinds[0].rotary.scale_factor, 4.0);
  EXPECT_EQ(config.kinds[0].rotary.original_context, 16u);
  EXPECT_EQ(config.kinds[0].rotary.yarn_ext_factor, 1.0);
  EXPECT_EQ(config.kinds[0].rotary.yarn_attn_factor, 1.0);
  EXPECT_EQ(config.kinds[0].rotary.yarn_beta_fast, 32.0);
  EXPECT_EQ(config.kinds[0].rotary.yarn_beta_slow, 1.0);
  yarn.SetF32("llama.rope.scaling.yarn_ext_factor", 0.5f);
  yarn.SetF32("llama.rope.scaling.attn_factor", 1.25f);
  yarn.SetF32("llama.rope.scaling.yarn_beta_fast", 16.0f);
  yarn.SetF32("llama.rope.scaling.yarn_beta_slow", 2.0f);
  config = Read(yarn);
  EXPECT_EQ(config.kinds[0].rotary.yarn_ext_factor, 0.5);
  EXPECT_EQ(config.kinds[0].rotary.yarn_attn_factor, 1.25);
  EXPECT_EQ(config.kinds[0].rotary.yarn_beta_fast, 16.0);
  EXPECT_EQ(config.kinds[0].rotary.yarn_beta_slow, 2.0);

  RawGguf llama3 = GoodModel();
  llama3.AddF32("rope_freqs.weight", {1}, 8.0f);
  EXPECT_EQ(Read(llama3).layer(0).rotary.freq_factors, std::vector<float>{8.0f});
}

TEST(Config, HarmlessKeysAndTensorsAreAccepted) {
  RawGguf raw = GoodModel();
  raw.SetU32("llama.attention.sliding_window", 64);  // as long as the context: it hides nothing
  raw.SetU32("llama.expert_count", 0);
  raw.SetU32("llama.vocab_size", 2);
  raw.AddF32("blk.0.attn_rot_embd.weight", {1});
  EXPECT_EQ(Read(raw).layers, 1u);
  EXPECT_EQ(Read(raw).layer(0).window, 0u);
}

TEST(Config, WindowsAreOfTheLayersThatTheFileSays) {
  RawGguf raw = GoodModel();
  raw.SetU32("llama.attention.sliding_window", 63);
  EXPECT_EQ(Read(raw).layer(0).window, 63u);
  raw.SetF32("llama.rope.freq_base_swa", 500.0f);
  EXPECT_EQ(Read(raw).layer(0).rotary.base, 500.0);
  raw.SetU32("llama.attention.sliding_window_pattern", 2);  // each second layer has none
  EXPECT_EQ(Read(raw).layer(0).window, 63u);
  raw.Set("llama.attention.sliding_window_pattern", Type::kArray, RawArray(Type::kBool, 1, "\x01"));
  EXPECT_EQ(Read(raw).layer(0).window, 63u);
}

TEST(Config, TheDemoModel) {
  const ModelConfig config =
      ReadModelConfig(*GgufFile::Open(LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf"));
  EXPECT_EQ(config.layers, 5u);
  EXPECT_EQ(config.dim, 192u);
  EXPECT_EQ(config.kinds[0].sizes.ffn, 512u);
  EXPECT_EQ(config.kinds[0].sizes.heads, 6u);
  EXPECT_EQ(config.kinds[0].sizes.kv_heads, 2u);
  EXPECT_EQ(config.kinds[0].sizes.head_size, 32u);
  EXPECT_EQ(config.vocab, 2048u);
}

TEST(Config, RealFile) {
  const std::string path = TestData("models/stories260K.gguf");
  LARDER_NEEDS_TEST_DATA(path);
  const ModelConfig config = ReadModelConfig(*GgufFile::Open(path));
  EXPECT_EQ(config.layers, 5u);
  EXPECT_EQ(config.dim, 64u);
  EXPECT_EQ(config.kinds[0].sizes.ffn, 172u);
  EXPECT_EQ(config.kinds[0].sizes.heads, 8u);
  EXPECT_EQ(config.kinds[0].sizes.kv_heads, 4u);
  EXPECT_EQ(config.kinds[0].sizes.head_size, 8u);
  EXPECT_EQ(config.vocab, 512u);
}

}  // namespace
}  // namespace larder::model::config
