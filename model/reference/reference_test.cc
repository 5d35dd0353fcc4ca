#include "model/reference/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/test_data_testing.h"
#include "model/reference/divergence.h"
#include "model/reference/tiny_model_testing.h"

namespace larder::model::inline reference {
namespace {

ReferenceModel Open(const TinyModel& tiny, ReferenceOptions options = {}) {
  return ReferenceModel::Make(GgufFile::Open(tiny.path()), options);
}

std::vector<float> LogitsOf(const TinyModel& tiny, std::span<const TokenId> tokens,
                            ReferenceOptions options = {}) {
  return Open(tiny, options).TeacherForced(tokens);
}

const TinyShape kLlama = {"llama", 12, 20, 4, 2, 6, 4, 1e4f, false};
const TinyShape kQwen2 = {"qwen2", 12, 20, 3, 1, 4, 4, 1e4f, true};
const TinyShape kQwen3 = {"qwen3", 12, 20, 4, 4, 10, 10, 1e6f, true};
const std::vector<TokenId> kTokens = {1, 5, 3, 12, 0, 7};

// Expected values: printed by reference_golden.py to 6 places. 1e-5: a few float32 roundings of
// values below 8.
void ExpectLastRow(const std::vector<float>& logits, const std::vector<float>& expected) {
  ASSERT_EQ(logits.size(), expected.size() * kTokens.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_NEAR(logits[logits.size() - expected.size() + i], expected[i], 1e-5) << "logit " << i;
  }
}

TEST(Reference, LlamaEqualsTheGolden) {  // grouped heads, partial rotation, rope_freqs, separate
                                         // lm_head
  ExpectLastRow(LogitsOf(TinyModel(kLlama, TensorType::kF32, {1.0f, 2.5f}), kTokens),
                {-1.122523f, -1.143198f, 0.674788f, -0.645017f, -2.253985f, -2.487876f, -4.642059f,
                 2.042997f, -3.551308f, -2.679433f, -0.906044f, -1.777650f, 0.754994f});
}

TEST(Reference, Qwen2EqualsTheGolden) {  // biases, one key/value head, linear rope scaling, tied
                                         // embeddings
  ExpectLastRow(LogitsOf(TinyModel(kQwen2, TensorType::kF32, {}, 4), kTokens),
                {2.634534f, -0.801836f, -0.458276f, 2.181618f, -2.770606f, -0.358963f, 0.713293f,
                 -2.010589f, 0.172160f, 1.676209f, 0.788671f, -4.749719f, -1.206293f});
}

TEST(Reference, Qwen3EqualsTheGolden) {  // norms per head, heads * head_size != dim
  ExpectLastRow(LogitsOf(TinyModel(kQwen3), kTokens),
                {-3.722863f, -3.064761f, 1.679183f, -0.746587f, 0.012694f, -1.917000f, 0.932993f,
                 -1.661376f, -2.844086f, -0.114438f, 0.116494f, 0.926730f, 0.357614f});
}

TEST(Reference, RewindsAndResets) {
  ReferenceModel model = Open(TinyModel(kQwen3));
  const std::vector<float> all = model.TeacherForced(kTokens);
  model.Forward(9, 2);  // another token at position 2 replaces the rest of the sequence
  EXPECT_EQ(model.positions(), 3u);
  for (size_t i = 2; i < kTokens.size(); ++i) {
    const std::vector<float> row = model.Forward(kTokens[i], i);
    EXPECT_TRUE(
        std::equal(row.begin(), row.end(), all.begin() + static_cast<ptrdiff_t>(i * row.size())))
        << i;
  }
  EXPECT_EQ(model.TeacherForced(kTokens), all);
}

// The rotation table grows (at first it has 256 positions): the result is as if made at once.
TEST(Reference, LongSequencesGrowTheRotationTable) {
  const TinyModel tiny({"llama", 4, 4, 1, 1, 4, 4, 1e4f, true, 5, 1});
  std::vector<TokenId> tokens(600);
  for (size_t i = 0; i < tokens.size(); ++i) tokens[i] = static_cast<TokenId>(i * i % 5);
  ReferenceModel model = Open(tiny);
  const std::vector<float> grown = model.TeacherForced(tokens);
  EXPECT_EQ(model.TeacherForced(tokens), grown);
}

TEST(Reference, UnknownTokenIsAnError) {
  ReferenceModel model = Open(TinyModel(kLlama));
  EXPECT_THROW(model.Forward(13, 0), Error);
  EXPECT_THROW(model.Forward(-1, 0), Error);
}

TEST(RoundThroughQ8, RoundsToNearestEvenInUnitsOfTheLargest) {
  std::vector<float> x(40, 0);  // a whole block and a partial one
  x[0] = 127;
  x[1] = 0.5f, x[2] = 1.5f, x[3] = 2.5f, x[4] = -1.5f, x[5] = -0.4f;
  x[32] = -254, x[33] = 3.1f;  // d = 2
  RoundThroughQ8(x, Scale::kF32);
  EXPECT_EQ(x[0], 127);
  EXPECT_EQ((std::vector<float>(x.begin() + 1, x.begin() + 7)),
            (std::vector<float>{0, 2, 2, -2, 0, 0}));
  EXPECT_EQ(x[32], -254);
  EXPECT_EQ(x[33], 4);
}

TEST(RoundThroughQ8, F16ScaleIsRoundedAfterTheDivision) {
  std::vector<float> x = {127 * 1.0003f, 62.51f};  // d = 1.0003, in f16 1.0; 62.51 / d = 62.49
  RoundThroughQ8(x, Scale::kF16);
  EXPECT_EQ(x, (std::vector<float>{127, 62}));
}

// Rows of 32: a Q8_0 file, and the same file in F32 that is quantised when read.
TEST(Reference, WeightsAsQ8_0EqualAQ8_0File) {
  const TinyShape shape = {"llama", 32, 64, 4, 2, 8, 8, 1e4f, false};
  const TinyModel f32(shape), q8(shape, TensorType::kQ8_0);
  const std::vector<float> rounded = LogitsOf(f32, kTokens, {.weights_as_q8_0 = true});
  EXPECT_EQ(rounded, LogitsOf(q8, kTokens));
  EXPECT_EQ(rounded, LogitsOf(q8, kTokens, {.weights_as_q8_0 = true}));
  EXPECT_NE(rounded, LogitsOf(f32, kTokens));
}

std::string Stories260K() { return TestData("models/stories260K.gguf"); }

// Decoded with the vocabulary alone, in which U+2581 begins a word and <0x0A> ends a line.
std::string Text(const GgufFile& file, const std::vector<TokenId>& ids) {
  const auto tokens = *file.FindStrings("tokenizer.ggml.tokens");
  std::string text;
  for (const TokenId id : ids) {
    std::string_view token = tokens[static_cast<size_t>(id)];
    if (token == "<0x0A>") token = "\n";
    if (token.starts_with("\u2581")) {
      text += ' ';
      token.remove_prefix(3);
    }
    text += token;
  }
  return text;
}

std::vector<TokenId> Greedy(ReferenceModel& model, std::vector<TokenId> ids, size_t more,
                            TokenId eos = -1) {
  std::vector<float> logits = model.TeacherForced(ids);
  logits.erase(logits.begin(), logits.end() - static_cast<ptrdiff_t>(model.config().vocab));
  for (size_t i = 0; i < more; ++i) {
    ids.push_back(Top1(logits));
    if (ids.back() == eos) break;
    logits = model.Forward(ids.back(), ids.size() - 1);
  }
  return ids;
}

const std::vector<TokenId> kOnceUponATime = {1, 403, 407, 261, 378};  // BOS first

TEST(Reference, Stories260KTellsTheKnownStory) {
  LARDER_NEEDS_TEST_DATA(Stories260K());
  const auto file = GgufFile::Open(Stories260K());
  ReferenceModel model = ReferenceModel::Make(file);
  std::vector<TokenId> ids = Greedy(model, kOnceUponATime, 100);
  ids.erase(ids.begin());
  const std::string text = Text(*file, ids);
  // The greedy continuation that another engine made with the F32 model.
  EXPECT_EQ(text,
            " Once upon a time, there was a little girl named Lily. She loved to play outside in "
            "the park. One day, she saw a big, red ball. She wanted to play with it, but it was "
            "too high.\nLily's mom said, \"Lily, let's go to the park.\" Lily was sad and didn't "
            "know what to do");
}

// Each quantisation's share of the divergence from the unquantised computation, on a trained model.
// The bounds are about 3 times the known shares.
struct Shares {
  double weights, activations, kv, all;
};
Shares SharesOf(const std::string& path) {
  const auto file = GgufFile::Open(path);
  ReferenceModel exact = ReferenceModel::Make(file);
  const std::vector<TokenId> ids = Greedy(exact, kOnceUponATime, 115);
  const std::vector<float> truth = exact.TeacherForced(ids);
  const auto mean_kl = [&](ReferenceOptions options) {
    const auto logits = ReferenceModel::Make(file, options).TeacherForced(ids);
    return CompareLogits(truth, logits, exact.config().vocab).mean_kl;
  };
  const Shares shares = {mean_kl({.weights_as_q8_0 = true}), mean_kl({.activations_q8 = true}),
                         mean_kl({.kv_q8 = true}), mean_kl({true, true, true})};
  std::printf("mean KL over %zu tokens: weights %.6f, activations %.6f, KV %.6f, all %.6f\n",
              ids.size(), shares.weights, shares.activations, shares.kv, shares.all);
  return shares;
}

TEST(Reference, EachQuantisationCostsItsShare) {
  LARDER_NEEDS_TEST_DATA(Stories260K());
  const Shares of = SharesOf(Stories260K());
  for (const double share : {of.weights, of.activations, of.kv}) {
    EXPECT_GT(share, 1e-7);
    EXPECT_LT(share, of.all * 2);
  }
  EXPECT_LT(of.all, 0.004);
}

// The demo model's weights are in Q8_0 already.
TEST(Reference, EachQuantisationOfTheDemoModelCostsItsShare) {
  const Shares of = SharesOf(LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf");
  EXPECT_EQ(of.weights, 0);
  for (const double share : {of.activations, of.kv}) {
    EXPECT_GT(share, 1e-7);
    EXPECT_LT(share, of.all * 2);
  }
  EXPECT_LT(of.all, 0.004);
}

TEST(Reference, DemoModelTellsTheStoriesOfItsOwnChecker) {
  const std::string folder = LARDER_SOURCE_DIR "/model/demo/";
  const auto file = GgufFile::Open(folder + "larder-stories.gguf");
  ReferenceModel model = ReferenceModel::Make(file);
  const auto eos = static_cast<TokenId>(file->GetUnsigned("tokenizer.ggml.eos_token_id"));
  std::ifstream in(folder + "greedy.json");
  const auto stories = nlohmann::json::parse(in);
  ASSERT_FALSE(stories.empty());
  for (const auto& story : stories) {
    std::vector<TokenId> expected = story.at("prompt_ids");
    const auto prompt = expected;
    for (const auto& id : story.at("greedy_ids")) expected.push_back(id);
    EXPECT_EQ(Greedy(model, prompt, expected.size() - prompt.size(), eos), expected)
        << story.at("prompt");
  }
}

}  // namespace
}  // namespace larder::model::reference
