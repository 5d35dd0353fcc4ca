#include "serving/sampling/dry.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <random>

#include "model/tokenizer/tokenizer_data.h"

namespace larder::serving::inline sampling {
namespace {

using Found = std::map<TokenId, float>;

SamplingParams Params() {
  SamplingParams p;
  p.dry_multiplier = 1;
  p.dry_base = 2;
  p.dry_allowed_length = 2;
  return p;
}

Found After(const SamplingParams& p, const std::vector<TokenId>& tokens,
            const model::Tokenizer* tokenizer = nullptr) {
  Dry dry(p, tokenizer);
  for (const TokenId token : tokens) dry.Accept(token);
  const auto& found = dry.Find();
  return {found.begin(), found.end()};
}

TEST(Dry, PenalizesWhatWouldContinueARepetition) {
  EXPECT_EQ(After(Params(), {}), Found{});
  EXPECT_EQ(After(Params(), {1}), Found{});
  EXPECT_EQ(After(Params(), {1, 2, 3, 1}), Found{});  // one token is allowed
  EXPECT_EQ(After(Params(), {1, 2, 3, 1, 2}), (Found{{3, 1}}));
  EXPECT_EQ(After(Params(), {1, 2, 3, 4, 1, 2, 3}), (Found{{4, 2}}));
  EXPECT_EQ(After(Params(), {9, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2}), (Found{{3, 2}, {4, 1}}));
  EXPECT_EQ(After(Params(), {5, 5, 5, 5}), (Found{{5, 2}}));  // three fives were followed by a five
}

TEST(Dry, LooksAtTheLastTokensOnly) {
  SamplingParams p = Params();
  p.dry_penalty_last_n = 4;
  EXPECT_EQ(After(p, {1, 2, 3, 1, 2}), Found{});  // only one of the first two is in sight
  p.dry_penalty_last_n = 5;
  EXPECT_EQ(After(p, {7, 7, 7, 7, 7, 7, 1, 2, 3, 1, 2}), (Found{{3, 1}}));
}

TEST(Dry, ThePenaltyStaysFinite) {
  SamplingParams p = Params();
  p.dry_base = 1e6f;
  const Found found = After(p, std::vector<TokenId>(1000, 3));
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(std::isfinite(found.at(3))) << found.at(3);
}

// The definition by trying all pairs of ends.
Found Slow(const SamplingParams& p, std::vector<TokenId> tokens, size_t unbroken) {
  if (p.dry_penalty_last_n >= 0 && tokens.size() > static_cast<size_t>(p.dry_penalty_last_n))
    tokens.erase(tokens.begin(), tokens.end() - p.dry_penalty_last_n);
  Found found;
  const size_t n = tokens.size(), allowed = static_cast<size_t>(p.dry_allowed_length);
  for (size_t end = 0; end + 1 < n; ++end) {
    size_t length = 0;
    while (length <= end && tokens[end - length] == tokens[n - 1 - length]) ++length;
    length = std::min(length, unbroken);
    if (length < allowed) continue;
    const auto penalty = static_cast<float>(std::min(
        1e30, p.dry_multiplier * std::pow(static_cast<double>(p.dry_base), length - allowed)));
    float& most = found[tokens[end + 1]];
    most = std::max(most, penalty);
  }
  return found;
}

// Tokens 0 to 7 are texts.
std::shared_ptr<const model::Tokenizer> Texts() {
  model::TokenizerData data;
  data.source = "a test";
  data.model = "llama";
  data.tokens = {"<unk>", "a", "b\n", "x:y", "st", "op", "b", "stop"};
  for (int byte = 0; byte < 256; ++byte) data.tokens.push_back(fmt::format("<0x{:02X}>", byte));
  data.types.assign(data.tokens.size(), model::TokenType::kByte);
  for (size_t i = 0; i < 8; ++i) data.types[i] = model::TokenType::kNormal;
  data.types[0] = model::TokenType::kUnknown;
  data.scores.assign(data.tokens.size(), 0);
  data.unk = 0;
  return model::Tokenizer::FromData(data);
}

TEST(Dry, BreakersAreFoundInTheText) {
  const auto tokenizer = Texts();
  SamplingParams p = Params();
  // Behind the line end only one token is repeated.
  EXPECT_EQ(After(p, {2, 1, 6, 2, 1}, tokenizer.get()), Found{});
  EXPECT_EQ(After(p, {1, 6, 6, 3, 1, 6}, tokenizer.get()), (Found{{6, 1}}));
  p.dry_sequence_breakers = {"stop"};
  EXPECT_EQ(After(p, {2, 1, 6, 2, 1}, tokenizer.get()), (Found{{6, 1}}));
  // In one token or in two, but not only begun.
  EXPECT_EQ(After(p, {7, 1, 6, 7, 1}, tokenizer.get()), Found{});
  EXPECT_EQ(After(p, {4, 5, 1, 6, 4, 5, 1}, tokenizer.get()), Found{});
  EXPECT_EQ(After(p, {4, 1, 6, 4, 1}, tokenizer.get()), (Found{{6, 1}}));
  p.dry_sequence_breakers = {};
  EXPECT_EQ(After(p, {7, 1, 6, 7, 1}, tokenizer.get()), (Found{{6, 1}}));
}

TEST(Dry, EqualsTheDefinition) {
  std::mt19937_64 random(1);
  const auto tokenizer = Texts();
  for (int i = 0; i < 3000; ++i) {
    SamplingParams p = Params();
    p.dry_allowed_length = static_cast<int>(random() % 5);
    p.dry_penalty_last_n = std::array{-1, 1, 7, 30}[random() % 4];
    p.dry_base = std::array{1.0f, 1.75f, 2.0f}[random() % 3];
    const bool breaks = random() % 2 == 0;
    p.dry_sequence_breakers = {":"};
    std::vector<TokenId> tokens(random() % 60);
    size_t unbroken = 0;
    const auto kinds = 1 + random() % 3;
    for (TokenId& token : tokens) {
      token = static_cast<TokenId>(1 + random() % kinds);
      if (breaks && random() % 12 == 0) token = 3;
      unbroken = breaks && token == 3 ? 0 : unbroken + 1;
    }
    const Found got = After(p, tokens, breaks ? tokenizer.get() : nullptr),
                want = Slow(p, tokens, unbroken);
    ASSERT_EQ(got.size(), want.size()) << i;
    for (const auto& [token, penalty] : want)
      ASSERT_NEAR(got.at(token), penalty, penalty * 1e-6) << i;
  }
}

}  // namespace
}  // namespace larder::serving::sampling
