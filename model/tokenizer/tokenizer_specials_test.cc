#include "model/tokenizer/tokenizer_specials.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::model::inline tokenizer {
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
  const auto data = Data(
      {{"<a>", TokenType::kControl}, {"<a><b>", TokenType::kControl}, {"x", TokenType::kNormal}});
  EXPECT_EQ(Split(data, "x<a><b>y<a>", true),
            (Fragments{{"x", -1}, {"<a><b>", 1}, {"y", -1}, {"<a>", 0}}));
  EXPECT_EQ(Split(data, "x<a><b>", false), (Fragments{{"x<a><b>", -1}}));
  EXPECT_EQ(Split(data, "", true), Fragments{});
}

TEST(TokenizerSpecials, UserDefinedTokensAreAlwaysFound) {
  const auto data = Data({{"<u>", TokenType::kUserDefined}, {"<unk>", TokenType::kUnknown}});
  EXPECT_EQ(Split(data, "<unk><u>", false), (Fragments{{"<unk>", -1}, {"<u>", 0}}));
  EXPECT_EQ(Split(data, "<unk><u>", true), (Fragments{{"<unk>", 1}, {"<u>", 0}}));
}

// The definition: at each place the longest token that begins there, or a byte of plain text.
Fragments SplitNaively(const TokenizerData& data, const std::string& text, bool parse_special) {
  Fragments fragments;
  for (size_t at = 0; at < text.size();) {
    TokenId best = -1;
    for (size_t i = 0; i < data.tokens.size(); ++i) {
      const std::string& token = data.tokens[i];
      if (!parse_special && data.types[i] != TokenType::kUserDefined) continue;
      if (text.compare(at, token.size(), token) != 0) continue;
      if (best < 0 || token.size() > data.tokens[static_cast<size_t>(best)].size())
        best = static_cast<TokenId>(i);
    }
    if (best >= 0) {
      fragments.emplace_back(data.tokens[static_cast<size_t>(best)], best);
      at += fragments.back().first.size();
      continue;
    }
    if (fragments.empty() || fragments.back().second >= 0) fragments.emplace_back("", -1);
    fragments.back().first += text[at++];
  }
  return fragments;
}

TEST(TokenizerSpecials, EqualsCuttingPlaceByPlace) {
  std::mt19937 random(5);
  const auto word = [&](size_t size) {
    std::string text;
    while (text.size() < size) text += "ab\xFF"[random() % 3];
    return text;
  };
  for (int i = 0; i < 500; ++i) {
    TokenizerData data;
    for (int j = 0; j < 8; ++j) {
      const TokenType types[] = {TokenType::kControl, TokenType::kUserDefined, TokenType::kUnknown};
      AddToken(data, word(1 + random() % 5), types[random() % 3]);  // some of them twice
    }
    const std::string text = word(random() % 40);
    for (const bool parse_special : {false, true})
      EXPECT_EQ(Split(data, text, parse_special), SplitNaively(data, text, parse_special)) << text;
  }
}

// Runs of spaces as user-defined tokens, as Gemma's vocabulary has them: the longest first from the
// left.
TEST(TokenizerSpecials, RunsOfSpaces) {
  TokenizerData data;
  for (size_t n = 2; n <= 31; ++n) AddToken(data, std::string(n, ' '), TokenType::kUserDefined);
  EXPECT_EQ(Split(data, std::string(73, ' ') + "x ", false), (Fragments{{std::string(31, ' '), 29},
                                                                        {std::string(31, ' '), 29},
                                                                        {std::string(11, ' '), 9},
                                                                        {"x ", -1}}));
}

// A malicious model file: each place of the text begins a thousand tokens, or almost a token of a
// thousand bytes. Steps are counted, not seconds.
TEST(TokenizerSpecials, WorkIsLinearInTheText) {
  TokenizerData nested, nearly, both;
  for (size_t n = 1; n <= SpecialTokens::kMaxBytes; ++n)
    AddToken(nested, std::string(n, 'a'), TokenType::kUserDefined);
  AddToken(nearly, "b" + std::string(SpecialTokens::kMaxBytes - 1, 'a'), TokenType::kUserDefined);
  AddToken(nearly, std::string(SpecialTokens::kMaxBytes - 1, 'a') + "b", TokenType::kUserDefined);
  AddToken(nearly, std::string(500, 'a') + "b" + std::string(500, 'a'), TokenType::kUserDefined);
  both = nearly;
  AddToken(both, "a", TokenType::kUserDefined);
  std::string text(1 << 20, 'a'), with_b = text;
  for (size_t i = 400; i < with_b.size(); i += 700) with_b[i] = 'b';
  for (const TokenizerData* data : {&nested, &nearly, &both}) {
    const SpecialTokens specials(*data);
    for (const std::string& one : {text, with_b}) {
      size_t steps = 0, bytes = 0;
      for (const auto& fragment : specials.Split(one, false, &steps)) bytes += fragment.text.size();
      EXPECT_EQ(bytes, one.size());
      EXPECT_LE(steps, 3 * one.size());  // reading a byte, following a link, checking a match
    }
  }
}

TEST(TokenizerSpecials, TokensThatNoModelHasAreRefused) {
  const auto error = [](const TokenizerData& data) -> std::string {
    try {
      const SpecialTokens specials(data);
    } catch (const Error& why) {
      return why.what();
    }
    return "";
  };
  TokenizerData data;
  data.source = "bad.gguf";
  AddToken(data, std::string(SpecialTokens::kMaxBytes, 'a'), TokenType::kControl);
  AddToken(data, std::string(1 << 20, 'a'), TokenType::kNormal);  // is not a special token
  EXPECT_EQ(error(data), "");
  AddToken(data, std::string(SpecialTokens::kMaxBytes + 1, 'a'), TokenType::kControl);
  EXPECT_EQ(
      error(data),
      "bad.gguf: key 'tokenizer.ggml.tokens': special token 2 has 1025 bytes, with those before it "
      "2049; expected at most 1024 each and 4194304 in all");
  data.tokens.back().pop_back();
  EXPECT_EQ(error(data), "");
  while (data.tokens.size() < 4096 + 1) AddToken(data, data.tokens[0], TokenType::kUserDefined);
  EXPECT_EQ(error(data), "");
  AddToken(data, "b", TokenType::kUserDefined);
  EXPECT_NE(error(data).find("special token 4097 has 1 bytes, with those before it 4194305"),
            std::string::npos);
}

}  // namespace
}  // namespace larder::model::tokenizer
