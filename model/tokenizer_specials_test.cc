#include "model/tokenizer_specials.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <list>
#include <random>

#include "model/tokenizer_fixture.h"

namespace larder::model {
namespace {

using Fragments = std::vector<std::pair<std::string, TokenId>>;

Fragments Split(const TokenizerData& data, std::string_view text, bool parse_special) {
  const SpecialTokens specials(data);
  Fragments fragments;
  for (const auto& fragment : specials.Split(text, parse_special))
    fragments.emplace_back(fragment.text, fragment.id);
  return fragments;
}

TokenizerData Data(std::initializer_list<std::pair<const char*, TokenType>> tokens) {
  TokenizerData data;
  for (const auto& [text, type] : tokens) AddToken(data, text, type);
  return data;
}

TEST(TokenizerSpecials, FindsTheLongestFirst) {
  const auto data =
      Data({{"<a>", TokenType::kControl}, {"<a><b>", TokenType::kControl}, {"x", TokenType::kNormal}});
  EXPECT_EQ(Split(data, "x<a><b>y<a>", true), (Fragments{{"x", -1}, {"<a><b>", 1}, {"y", -1}, {"<a>", 0}}));
  EXPECT_EQ(Split(data, "x<a><b>", false), (Fragments{{"x<a><b>", -1}}));
  EXPECT_EQ(Split(data, "", true), Fragments{});
}

TEST(TokenizerSpecials, UserDefinedTokensAreAlwaysFound) {
  const auto data = Data({{"<u>", TokenType::kUserDefined}, {"<unk>", TokenType::kUnknown}});
  EXPECT_EQ(Split(data, "<unk><u>", false), (Fragments{{"<unk>", -1}, {"<u>", 0}}));
  EXPECT_EQ(Split(data, "<unk><u>", true), (Fragments{{"<unk>", 1}, {"<u>", 0}}));
}

// The definition: token by token, longest first, each cutting the plain fragments that the ones before it
// have left.
Fragments SplitNaively(const TokenizerData& data, const std::string& text) {
  std::vector<TokenId> order(data.tokens.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<TokenId>(i);
  std::stable_sort(order.begin(), order.end(),
                   [&](TokenId a, TokenId b) { return data.tokens[a].size() > data.tokens[b].size(); });
  std::list<std::pair<std::string, TokenId>> fragments = {{text, -1}};
  for (const TokenId id : order) {
    for (auto it = fragments.begin(); it != fragments.end(); ++it) {
      const size_t at = it->second < 0 ? it->first.find(data.tokens[id]) : std::string::npos;
      if (at == std::string::npos) continue;
      const std::string after = it->first.substr(at + data.tokens[id].size());
      it->first.resize(at);
      it = fragments.insert(std::next(it), {data.tokens[id], id});
      fragments.insert(std::next(it), {after, -1});
    }
  }
  fragments.remove_if([](const auto& fragment) { return fragment.first.empty(); });
  return {fragments.begin(), fragments.end()};
}

TEST(TokenizerSpecials, EqualsCuttingTokenByToken) {
  std::mt19937 random(5);
  const auto word = [&](size_t size) {
    std::string text;
    while (text.size() < size) text += "ab\xFF"[random() % 3];
    return text;
  };
  for (int i = 0; i < 500; ++i) {
    TokenizerData data;
    for (int j = 0; j < 8; ++j) {
      const std::string text = word(1 + random() % 5);
      if (std::count(data.tokens.begin(), data.tokens.end(), text) == 0)
        AddToken(data, text, TokenType::kControl);
    }
    const std::string text = word(random() % 40);
    EXPECT_EQ(Split(data, text, true), SplitNaively(data, text));
  }
}

}  // namespace
}  // namespace larder::model
