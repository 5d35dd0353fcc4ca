// One sequence after another on the demo model: where a text ends, what is kept between texts, what
// is said.
#include "node/tasks/generate.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "pipeline/engine/engine_testing.h"

namespace larder::node::inline tasks {
namespace {

using model::TokenId;
using serving::FinishReason;

class GeneratorTest : public testing::Test {
 protected:
  static constexpr size_t kContext = 48;

  GeneratorTest()
      : file_(model::GgufFile::Open(LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf")),
        engine_(pipeline::MakeEngine(file_, {.context = kContext})),
        tokenizer_(model::Tokenizer::FromGguf(*file_)),
        generator_(*engine_, tokenizer_, Greedy()) {}

  static serving::SamplingParams Greedy() {
    serving::SamplingParams params;
    params.temperature = 0;
    return params;
  }
  std::vector<TokenId> Tokens(const std::string& text) const {
    return tokenizer_->Encode(text, tokenizer_->wants_bos(), true);
  }
  GeneratorStats Run(const std::vector<TokenId>& prompt, const GenerateOptions& options) {
    text_.clear();
    return generator_.Run(prompt, options, [this](std::string_view piece) { text_ += piece; });
  }

  std::shared_ptr<const model::GgufFile> file_;
  std::unique_ptr<pipeline::Engine> engine_;
  std::shared_ptr<const model::Tokenizer> tokenizer_;
  Generator generator_;
  std::string text_;
};

TEST_F(GeneratorTest, EndsAfterAsManyTokensAsAskedFor) {
  const auto prompt = Tokens("Once upon a time");
  const GeneratorStats stats = Run(prompt, {.max_tokens = 5, .continues = true});
  EXPECT_EQ(stats.reason, FinishReason::kLength);
  EXPECT_EQ(stats.prompt_tokens, prompt.size());
  EXPECT_EQ(stats.cached_tokens, 0u);
  EXPECT_EQ(stats.generated_tokens, 5u);
  EXPECT_EQ(stats.decode_steps, 4u) << "the first token comes from the prompt's last row";
  EXPECT_FALSE(text_.empty());
  EXPECT_NE(Describe(stats, kContext).find("as many tokens as asked for"), std::string::npos);
}

TEST_F(GeneratorTest, NoTokensOnlyReadThePrompt) {
  const GeneratorStats stats = Run(Tokens("Once upon a time"), {.max_tokens = 0});
  EXPECT_EQ(stats.generated_tokens, 0u);
  EXPECT_GT(stats.prefill_s, 0);
  EXPECT_EQ(text_, "");
  EXPECT_EQ(Describe(stats, kContext).find("TTFT"), std::string::npos)
      << "there was no first token";
}

TEST_F(GeneratorTest, EndsWhenTheContextIsFull) {
  auto prompt = Tokens("Once upon a time there was a little");
  serving::SamplingParams params = Greedy();
  for (size_t id = 0; id < tokenizer_->size(); ++id) {
    if (tokenizer_->IsEndOfGeneration(static_cast<TokenId>(id)))
      params.logit_bias.emplace_back(static_cast<TokenId>(id),
                                     -std::numeric_limits<float>::infinity());
  }
  Generator endless(*engine_, tokenizer_, params);
  const GeneratorStats stats = endless.Run(prompt, {}, [](std::string_view) {});
  EXPECT_EQ(stats.reason, FinishReason::kContextFull);
  EXPECT_EQ(prompt.size() + stats.generated_tokens, kContext);
  EXPECT_NE(Describe(stats, kContext).find("larger -c"), std::string::npos);
}

TEST_F(GeneratorTest, AStopStringIsNotPartOfTheText) {
  const auto prompt = Tokens("Once upon a time");
  Run(prompt, {.max_tokens = 12, .continues = true});
  const std::string whole = text_;
  ASSERT_GT(whole.size(), 8u);
  const std::string stop = whole.substr(5, 3);
  generator_.Clear();
  const GeneratorStats stats =
      Run(prompt, {.max_tokens = 12, .continues = true, .stops = {"@@", stop}});
  EXPECT_EQ(stats.reason, FinishReason::kStopString);
  EXPECT_EQ(stats.stop_string, stop);
  EXPECT_EQ(text_, whole.substr(0, whole.find(stop)));
}

TEST_F(GeneratorTest, ASecondTextReusesTheFirstOnesBeginningAndHasTheSameTokens) {
  const auto prompt = Tokens("Once upon a time there was a little girl");
  Run(prompt, {.max_tokens = 6, .continues = true});
  const std::string first = text_;
  const GeneratorStats again = Run(prompt, {.max_tokens = 6, .continues = true});
  EXPECT_EQ(again.cached_tokens, prompt.size() - 1) << "the last token is run for its logits";
  EXPECT_EQ(text_, first);
  EXPECT_NE(Describe(again, kContext).find("in the KV cache)"), std::string::npos);
  generator_.Clear();
  EXPECT_EQ(Run(prompt, {.max_tokens = 6, .continues = true}).cached_tokens, 0u);
  EXPECT_EQ(text_, first);
}

TEST_F(GeneratorTest, PromptsThatCannotRunAreErrors) {
  EXPECT_THROW(Run({}, {}), Error);
  EXPECT_THROW(Run(std::vector<TokenId>(kContext + 1, 5), {}), Error);
  EXPECT_NO_THROW(Run(Tokens("Once"), {.max_tokens = 1})) << "the generator is as before";
}

TEST(GeneratorStatsTest, SpeedsAreOfWhatRan) {
  const GeneratorStats stats = {.prompt_tokens = 30,
                                .cached_tokens = 10,
                                .generated_tokens = 5,
                                .decode_steps = 4,
                                .prefill_s = 0.5,
                                .ttft_s = 0.5,
                                .decode_s = 0.2};
  EXPECT_DOUBLE_EQ(stats.prompt_tokens_per_s(), 40);
  EXPECT_DOUBLE_EQ(stats.decode_tokens_per_s(), 20);
  EXPECT_DOUBLE_EQ(stats.tpot_ms(), 50);
  EXPECT_DOUBLE_EQ(GeneratorStats().tpot_ms(), 0);
  EXPECT_DOUBLE_EQ(GeneratorStats().prompt_tokens_per_s(), 0);
}

}  // namespace
}  // namespace larder::node::tasks
