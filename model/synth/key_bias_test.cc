#include "model/config/key_bias.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/temporary_folder_testing.h"
#include "model/synth/synth.h"

namespace larder::model::inline synth {
namespace {

constexpr size_t kLayer = 1;

struct Given {
  std::shared_ptr<const GgufFile> file;
  ModelConfig config;
  std::vector<float> bias;
};

Given Make(const TemporaryFolder& folder, std::string_view architecture, bool qkv_bias) {
  SynthOptions options;
  options.shape = {.architecture = architecture,
                   .dim = 128,
                   .ffn = 64,
                   .heads = 4,
                   .kv_heads = 2,
                   .head_size = 64,
                   .vocab = 300,
                   .qkv_bias = qkv_bias};
  WriteSynth(options, folder / "model.gguf");
  Given given{.file = GgufFile::Open(folder / "model.gguf")};
  given.config = ReadModelConfig(*given.file);
  if (given.config.kinds[0].Has(TensorRole::kKBias)) {
    given.bias.resize(given.config.kinds[0].sizes.kv_rows());
    given.file->ReadRowsF32(given.file->Tensor(given.config.TensorName(kLayer, TensorRole::kKBias)),
                            0, 1, given.bias.data());
  }
  return given;
}

// A synthetic qwen2 has outliers, as the trained ones have. Pairs are halves of a head apart; in
// files of llama they are neighbours.
TEST(KeyBias, WhatIsApartAndWhatIsInKeysIsTheBias) {
  for (const bool interleaved : {false, true}) {
    const TemporaryFolder folder;
    Given given = Make(folder, "qwen2", true);
    if (interleaved) given.config.kinds[0].rotary.pairing = RopePairing::kInterleaved;
    const KeyBias split = ReadKeyBias(*given.file, given.config, kLayer);
    std::vector<float> sum = split.in_keys;
    size_t pairs = 0;
    ASSERT_EQ(split.apart.size(), 2u);
    for (size_t head = 0; head < split.apart.size(); ++head) {
      float* const b = sum.data() + head * 64;
      uint32_t next = 0;
      for (const KeyBias::Pair& pair : split.apart[head]) {
        EXPECT_GE(pair.index, next);
        next = pair.index + 1;
        EXPECT_GT(pair.first * pair.first + pair.second * pair.second,
                  kLargeKeyBias * kLargeKeyBias);
        float& first = b[interleaved ? 2 * pair.index : pair.index];
        float& second = b[interleaved ? 2 * pair.index + 1 : pair.index + 32];
        EXPECT_EQ(first, 0);
        EXPECT_EQ(second, 0);
        first = pair.first;
        second = pair.second;
        ++pairs;
      }
    }
    EXPECT_EQ(sum, given.bias);
    EXPECT_GE(pairs, 4u);
    EXPECT_LE(pairs, 32u);
    for (const float left : split.in_keys) EXPECT_LE(std::abs(left), kLargeKeyBias);
  }
}

// What the keys' pairs are multiplied with, the queries' are divided by: the root of how much the
// largest bias of the heads that share them is above the limit.
TEST(KeyBias, LargeBiasesOfQueriesAreBalanced) {
  const TemporaryFolder folder;
  const Given given = Make(folder, "qwen2", true);
  std::vector<float> q(given.config.kinds[0].sizes.q_rows());
  given.file->ReadRowsF32(given.file->Tensor(given.config.TensorName(kLayer, TensorRole::kQBias)),
                          0, 1, q.data());
  const KeyBias split = ReadKeyBias(*given.file, given.config, kLayer);
  ASSERT_EQ(split.balance.size(), 2u);
  size_t balanced = 0;
  for (size_t head = 0; head < 2; ++head) {
    ASSERT_EQ(split.balance[head].size(), 32u);
    for (size_t i = 0; i < 32; ++i) {
      double largest = 0;
      for (size_t of = 2 * head; of < 2 * head + 2; ++of)
        largest = std::max<double>(largest, std::hypot(q[of * 64 + i], q[of * 64 + i + 32]));
      balanced += largest > kLargeQueryBias;
      EXPECT_NEAR(split.balance[head][i], std::sqrt(std::max(1.0, largest / kLargeQueryBias)),
                  1e-5);
    }
  }
  EXPECT_GE(balanced, 4u);
  EXPECT_LE(balanced, 48u);
}

// They would add the same to all scores of a query.
TEST(KeyBias, ElementsThatDoNotRotateHaveNone) {
  const TemporaryFolder folder;
  Given given = Make(folder, "qwen2", true);
  given.config.kinds[0].rotary.dim = 16;
  const KeyBias split = ReadKeyBias(*given.file, given.config, kLayer);
  for (size_t head = 0; head < 2; ++head) {
    for (size_t i = 16; i < 64; ++i) EXPECT_EQ(split.in_keys[head * 64 + i], 0);
    for (const KeyBias::Pair& pair : split.apart[head]) EXPECT_LT(pair.index, 8u);
  }
}

// Keys that are normed after their bias have all of it: a norm is no sum.
TEST(KeyBias, IsWholeBeforeANorm) {
  const TemporaryFolder folder;
  const Given given = Make(folder, "qwen3", true);
  ASSERT_FALSE(given.bias.empty());
  const KeyBias split = ReadKeyBias(*given.file, given.config, kLayer);
  EXPECT_EQ(split.in_keys, given.bias);
  for (const auto& head : split.apart) EXPECT_TRUE(head.empty());
  for (const auto& head : split.balance) EXPECT_TRUE(head.empty());
}

TEST(KeyBias, NoneIsNone) {
  const TemporaryFolder folder;
  const Given given = Make(folder, "llama", false);
  const KeyBias split = ReadKeyBias(*given.file, given.config, kLayer);
  EXPECT_TRUE(split.in_keys.empty());
  EXPECT_TRUE(split.apart.empty());
}

}  // namespace
}  // namespace larder::model::synth
