// Hidden states: what lm_head makes logits from, with the same bits in all modes, whether or not
// logits are wanted beside them.
#include <gtest/gtest.h>

#include <cmath>

#include "model/gguf/formats.h"
#include "pipeline/engine/chain_testing.h"

namespace larder::pipeline::inline engine {
namespace {

struct HiddenTest : testing::Test {
  static constexpr size_t kTokens = 90;
  HiddenTest() : model(FourLayers()), tokens(TestTokens(kTokens, 301)) {}

  // The hidden states of all positions, `chunk` rows at a time; every `logits_every`-th row wants
  // logits as well (0: none).
  std::vector<float> Run(Engine& engine, size_t chunk, size_t logits_every) const {
    std::vector<float> all;
    for (size_t begin = 0; begin < kTokens; begin += chunk) {
      std::vector<TokenRow> rows;
      for (size_t i = begin; i < std::min(begin + chunk, kTokens); ++i) {
        rows.push_back({tokens[i], SlotId(0), static_cast<uint32_t>(i),
                        logits_every != 0 && i % logits_every == 0, true});
      }
      engine.Submit(rows);
      engine.Collect();
      for (size_t i = 0; i < rows.size(); ++i) {
        EXPECT_EQ(engine.fault(i), "");
        const std::span<const float> hidden = engine.hidden(i);
        all.insert(all.end(), hidden.begin(), hidden.end());
      }
    }
    return all;
  }

  TestModel model;
  std::vector<int32_t> tokens;
};

// The error of a product of two vectors that are rounded to INT8 blocks of 32, each to half of its
// block's step of amax / 127; one percent more for the float sums and the scales' own rounding.
double MostError(std::span<const float> w, std::span<const float> x) {
  double most = 0;
  for (size_t begin = 0; begin < w.size(); begin += 32) {
    double w_sum = 0, x_sum = 0, w_most = 0, x_most = 0;
    for (size_t i = begin; i < std::min(begin + 32, w.size()); ++i) {
      w_sum += std::abs(w[i]);
      x_sum += std::abs(x[i]);
      w_most = std::max<double>(w_most, std::abs(w[i]));
      x_most = std::max<double>(x_most, std::abs(x[i]));
    }
    most += (w_sum * x_most + x_sum * w_most) / 254 + 32 * w_most * x_most / (254.0 * 254.0);
  }
  return 1.01 * most;
}

TEST_F(HiddenTest, AreWhatLmHeadMultiplies) {
  const auto engine = MakeEngine(model.file(), {});
  const model::TensorInfo& lm_head = model.file()->Tensor("token_embd.weight");  // tied
  ASSERT_EQ(lm_head.type, model::TensorType::kF32);
  constexpr size_t kDim = 120;
  std::vector<float> weights(301 * kDim);
  model.file()->ReadRowsF32(lm_head, 0, 301, weights.data());
  std::vector<TokenRow> rows;
  for (size_t i = 0; i < 20; ++i)
    rows.push_back({tokens[i], SlotId(0), static_cast<uint32_t>(i), true, i % 2 == 0});
  engine->Submit(rows);
  engine->Collect();
  for (size_t i = 0; i < rows.size(); i += 2) {
    const std::span<const float> hidden = engine->hidden(i);
    ASSERT_EQ(hidden.size(), kDim);
    for (size_t token = 0; token < 301; ++token) {
      const std::span<const float> row(weights.data() + token * kDim, kDim);
      double product = 0;
      for (size_t k = 0; k < kDim; ++k) product += double{row[k]} * double{hidden[k]};
      ASSERT_NEAR(product, engine->logits(i)[token], MostError(row, hidden)) << i << " " << token;
    }
  }
}

TEST_F(HiddenTest, SameBitsInAllModes) {
  const auto one = MakeEngine(model.file(), {});
  const std::vector<float> all = Run(*one, 30, 0);
  ASSERT_EQ(all.size(), kTokens * 120);
  for (const size_t every : {1, 2, 7}) {
    one->Reset(SlotId(0));
    EXPECT_EQ(FirstDifference(Run(*one, 25, every), all), "") << every;
  }
  one->Reset(SlotId(0));
  EXPECT_EQ(FirstDifference(Run(*one, 1, 0), all), "");

  TestEngineOptions threads;
  threads.threads = 3;
  EXPECT_EQ(FirstDifference(Run(*MakeEngine(model.file(), threads), 32, 0), all), "");
  TestEngineOptions separated;
  separated.attention = {{2, 1}};
  separated.slots = 1;
  EXPECT_EQ(FirstDifference(Run(*MakeEngine(model.file(), separated), 32, 3), all), "");
  EXPECT_EQ(FirstDifference(Run(*MakeEngine(model.file(), separated), 32, 0), all), "");

  const std::vector<std::vector<TestStage>> chains = {{{3}, {1}}, {{2, 1, {{1, 1}}}, {2}}};
  for (const auto& stages : chains) {
    const auto engine = MakeChainEngine(model.file(), MakeTestChain(*model.file(), stages, 1, 3));
    EXPECT_EQ(FirstDifference(Run(*engine, 32, 0), all), "");
    engine->Reset(SlotId(0));
    EXPECT_EQ(FirstDifference(Run(*engine, 20, 2), all), "");
  }
}

}  // namespace
}  // namespace larder::pipeline::engine
