#include "serving/scheduling/compute_side.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>

#include "base/error_testing.h"
#include "model/gguf/gguf.h"

namespace larder::serving::inline scheduling {
namespace {

// The definition, in double precision with a full sort.
TokenLogprobs Slowly(const std::vector<float>& logits, TokenId token, size_t top) {
  double sum = 0, max = -INFINITY;
  for (const float logit : logits) max = std::max(max, static_cast<double>(logit));
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - max);
  const auto of = [&](TokenId id) {
    return static_cast<float>(static_cast<double>(logits[static_cast<size_t>(id)]) - max -
                              std::log(sum));
  };
  std::vector<TokenId> ids(logits.size());
  std::iota(ids.begin(), ids.end(), 0);
  std::stable_sort(ids.begin(), ids.end(), [&](TokenId a, TokenId b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  TokenLogprobs result{.token = token, .logprob = of(token), .top = {}};
  for (size_t i = 0; i < std::min(top, ids.size()); ++i)
    result.top.emplace_back(ids[i], of(ids[i]));
  return result;
}

TEST(LogprobsOf, IsTheDefinition) {
  std::mt19937 random(1);
  for (const size_t vocab : {1u, 2u, 15u, 16u, 511u, 512u, 513u, 32003u}) {
    for (const float spread : {0.0f, 1.0f, 20.0f, 300.0f}) {
      std::vector<float> logits(vocab);
      for (float& logit : logits)  // coarse, so that some are equal
        logit = spread * static_cast<float>(static_cast<int>(random() % 1000) - 500) / 500;
      logits[random() % vocab] = 1.5f * spread + 1;
      if (vocab > 15) logits[random() % vocab] = -std::numeric_limits<float>::infinity();
      const auto token = static_cast<TokenId>(random() % vocab);
      for (const size_t top : {0u, 1u, 5u, 20u}) {
        const TokenLogprobs want = Slowly(logits, token, top), got = LogprobsOf(logits, token, top);
        const auto near = [](float a, float b) {
          return a == b || std::fabs(a - b) <= 1e-5f + 1e-6f * std::fabs(b);
        };
        EXPECT_TRUE(near(got.logprob, want.logprob))
            << got.logprob << " " << want.logprob << " of " << vocab;
        ASSERT_EQ(got.top.size(), want.top.size());
        for (size_t i = 0; i < got.top.size(); ++i) {
          EXPECT_EQ(got.top[i].first, want.top[i].first) << i << " of " << vocab;
          EXPECT_TRUE(near(got.top[i].second, want.top[i].second));
        }
      }
    }
  }
}

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

}  // namespace
}  // namespace larder::serving::scheduling
