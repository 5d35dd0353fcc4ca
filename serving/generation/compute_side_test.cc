#include "serving/generation/compute_side.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error_testing.h"
#include "model/gguf/gguf.h"
#include "serving/generation/logprobs.h"

namespace larder::serving::inline generation {
namespace {

// What Next makes of logits does not depend on whether Prepare has chosen before.
class PreparedTest : public testing::Test {
 protected:
  struct Events : ComputeSide::Sink {
    void Emit(GenerationEvent event) override { all.push_back(std::move(event)); }
    std::vector<GenerationEvent> all;
  };
  static constexpr size_t kVocab = 300;

  std::unique_ptr<ComputeSide> Make(Events& events, int64_t max_tokens) {
    GenerationSpec spec;
    spec.prompt = {1, 2};
    spec.max_tokens = max_tokens;
    spec.sampling.seed = 7;
    spec.logprobs = 2;
    return Make(events, spec);
  }
  std::unique_ptr<ComputeSide> Make(Events& events, GenerationSpec spec) {
    auto generation =
        std::make_shared<Generation>(std::move(spec), tokenizer_, Protocol::kHttp, nullptr);
    auto side = std::make_unique<ComputeSide>(generation, *tokenizer_, kVocab, events);
    side->Admitted(0);
    return side;
  }
  std::vector<float> Logits(uint32_t step) {
    std::mt19937 random(step);
    std::vector<float> logits(kVocab);
    for (float& logit : logits) logit = static_cast<float>(random() % 1000) * 0.01f;
    return logits;
  }
  const std::shared_ptr<const model::Tokenizer> tokenizer_ = model::Tokenizer::FromGguf(
      *model::GgufFile::Open(LARDER_SOURCE_DIR "/model/demo/larder-stories.gguf"));
};

TEST_F(PreparedTest, TokensAndLogprobsAreThoseOfNextAlone) {
  Events alone, prepared;
  const auto a = Make(alone, 50), b = Make(prepared, 50);
  for (uint32_t step = 0; step < 40; ++step) {
    const std::vector<float> logits = Logits(step);
    if (step % 3 != 0) b->Prepare(logits);
    const auto next = a->Next(logits);
    EXPECT_EQ(b->Next(logits), next) << step;
    if (!next) break;
  }
  ASSERT_GT(alone.all.size(), 10u);
  ASSERT_EQ(alone.all.size(), prepared.all.size());
  for (size_t i = 0; i < alone.all.size(); ++i) {
    EXPECT_EQ(alone.all[i].token, prepared.all[i].token);
    EXPECT_EQ(alone.all[i].logprobs.logprob, prepared.all[i].logprobs.logprob);
    EXPECT_EQ(alone.all[i].logprobs.top, prepared.all[i].logprobs.top);
  }
}

TEST_F(PreparedTest, BrokenLogitsAreNextsError) {
  Events events;
  const auto side = Make(events, 50);
  std::vector<float> logits = Logits(1);
  logits[17] = std::numeric_limits<float>::quiet_NaN();
  side->Prepare(logits);
  EXPECT_NE(ErrorOf([&] { side->Next(logits); }).find("token 17"), std::string::npos);
}

TEST_F(PreparedTest, APromptWithoutAnswerChoosesNothing) {
  Events events;
  const auto side = Make(events, 0);
  const std::vector<float> logits = Logits(1);
  side->Prepare(logits);
  EXPECT_EQ(side->Next(logits), std::nullopt);
  EXPECT_EQ(events.all.size(), 1u) << "admitted, and nothing else";
}

// In any order and in two admissions, as a sequence that loses its slot gets them.
TEST_F(PreparedTest, APromptsLogprobsComeBeforeTheFirstToken) {
  Events events;
  GenerationSpec spec;
  spec.prompt = {1, 270, 7, 265};
  spec.max_tokens = 0;
  spec.prompt_logprobs = 3;
  const auto side = Make(events, spec);
  EXPECT_EQ(side->wanted(), pipeline::Wanted::kPromptLogits);
  side->PromptLogits(1, Logits(1));
  side->Admitted(0);
  side->PromptLogits(2, Logits(2));
  side->PromptLogits(0, Logits(0));
  EXPECT_EQ(side->Next(Logits(9)), std::nullopt);
  ASSERT_EQ(events.all.size(), 3u) << "admitted twice, and the prompt";
  const GenerationEvent& event = events.all.back();
  EXPECT_EQ(event.kind, GenerationEvent::Kind::kPrompt);
  ASSERT_EQ(event.prompt->size(), 4u);
  EXPECT_EQ((*event.prompt)[0].token, 1);
  EXPECT_TRUE(std::isnan((*event.prompt)[0].logprob));
  for (uint32_t i = 1; i < 4; ++i) {
    const TokenLogprobs& got = (*event.prompt)[i];
    const TokenLogprobs want = LogprobsOf(Logits(i - 1), spec.prompt[i], 3);
    EXPECT_EQ(got.token, spec.prompt[i]);
    EXPECT_EQ(got.logprob, want.logprob);
    EXPECT_EQ(got.top, want.top);
    EXPECT_EQ(got.rank, RankOf(Logits(i - 1), spec.prompt[i]));
  }
}

TEST_F(PreparedTest, TheEndTokensLogprobIsShownIfAllAre) {
  for (const bool every : {false, true}) {
    Events events;
    GenerationSpec spec;
    spec.prompt = {1, 2};
    spec.sampling.temperature = 0;
    spec.logprobs = 0;
    spec.every_logprob = every;
    const auto side = Make(events, spec);
    std::vector<float> logits = Logits(1);
    const auto end = tokenizer_->eos();
    logits[static_cast<size_t>(end)] = 50;
    EXPECT_EQ(side->Next(logits), std::nullopt);
    ASSERT_EQ(events.all.size(), every ? 2u : 1u);
    if (!every) continue;
    EXPECT_EQ(events.all[1].kind, GenerationEvent::Kind::kEndToken);
    EXPECT_EQ(events.all[1].logprobs.token, end);
  }
}

}  // namespace
}  // namespace larder::serving::generation
