// The tokenizers on made-up vocabularies: the effect of each rule, and every way a vocabulary can
// be wrong.
#include "model/tokenizer/tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <random>

#include "base/error.h"
#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::model::inline tokenizer {
namespace {

using Texts = std::vector<std::string>;

std::shared_ptr<const Tokenizer> Spm() { return Tokenizer::FromData(TinySpm()); }
std::shared_ptr<const Tokenizer> Bpe(std::string pre) {
  return Tokenizer::FromData(TinyBpe(std::move(pre)));
}

// The tokens as the vocabulary writes them.
Texts Split(const Tokenizer& tokenizer, const TokenizerData& data, std::string_view text,
            bool parse_special = false, bool add_bos = false) {
  Texts texts;
  for (const TokenId id : tokenizer.Encode(text, add_bos, parse_special))
    texts.push_back(data.tokens[id]);
  return texts;
}
Texts SplitSpm(std::string_view text, bool parse_special = false, bool add_bos = false) {
  return Split(*Spm(), TinySpm(), text, parse_special, add_bos);
}
Texts SplitBpe(std::string_view text, std::string pre = "llama-bpe", bool parse_special = false) {
  return Split(*Bpe(pre), TinyBpe(pre), text, parse_special);
}

std::string ErrorOf(TokenizerData data) {
  try {
    Tokenizer::FromData(std::move(data));
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

std::string RandomBytes(std::mt19937& random, size_t size) {
  std::string text(size, '\0');
  for (char& c : text) c = static_cast<char>(random());
  return text;
}

TEST(TokenizerSpm, MergesByScore) {
  EXPECT_EQ(SplitSpm("hello"), (Texts{"▁hello"}));
  EXPECT_EQ(SplitSpm("hello hello"), (Texts{"▁hello", "▁hello"}));
  EXPECT_EQ(SplitSpm("hell"), (Texts{"▁", "hell"}));
  // "world" is known, but no two of its parts are adjacent
  EXPECT_EQ(SplitSpm("world"), (Texts{"▁w", "or", "ld"}));
  EXPECT_EQ(SplitSpm("  hello"), (Texts{"▁▁", "▁hello"}));
  EXPECT_EQ(SplitSpm(""), Texts{});
}

TEST(TokenizerSpm, FallsBackToBytes) {
  EXPECT_EQ(SplitSpm("ö"), (Texts{"▁", "<0xC3>", "<0xB6>"}));
  EXPECT_EQ(SplitSpm("ü"), (Texts{"▁", "ü"}));
  EXPECT_EQ(SplitSpm("\xC3h\xFF"), (Texts{"▁", "<0xC3>", "h", "<0xFF>"}));
  EXPECT_EQ(SplitSpm(std::string_view("\0", 1)), (Texts{"▁", "<0x00>"}));
}

TEST(TokenizerSpm, PutsASpaceBeforeTextAndAfterSpecialTokens) {
  EXPECT_EQ(SplitSpm("hello</s>hello", true), (Texts{"▁hello", "</s>", "▁hello"}));
  EXPECT_EQ(SplitSpm("<s>hello", true), (Texts{"<s>", "▁hello"}));
  EXPECT_EQ(SplitSpm("hello", false, true), (Texts{"<s>", "▁hello"}));
  EXPECT_EQ(SplitSpm("", false, true), (Texts{"<s>"}));
  TokenizerData data = TinySpm();
  data.add_space_prefix = false;
  const auto tokenizer = Tokenizer::FromData(data);
  EXPECT_EQ(Split(*tokenizer, data, "hello</s>hello", true), (Texts{"hello", "</s>", "hello"}));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(" hello", true, false)), " hello");
}

TEST(TokenizerSpm, PlainTextNeverBecomesAControlToken) {
  EXPECT_EQ(SplitSpm("<s>"), (Texts{"▁", "<", "s>"}));
  EXPECT_EQ(SplitSpm("<s>", true), (Texts{"<s>"}));
  EXPECT_EQ(SplitSpm("<tool>"), (Texts{"<tool>"}));  // user-defined: always
  EXPECT_EQ(SplitSpm("<0x41>").back(), ">");
}

TEST(TokenizerSpm, DecodesWhatItEncodes) {
  const auto tokenizer = Spm();
  std::mt19937 random(1);
  for (int i = 0; i < 300; ++i) {
    const std::string text =
        i % 2 ? RandomBytes(random, i) : std::string(i, ' ') + "hello ü" + std::string(i % 7, ' ');
    EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, true, false)), text);
  }
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("<s>hello", false, true), true), "<s>hello");
}

TEST(TokenizerSpm, PiecesAndKinds) {
  const auto tokenizer = Spm();
  const TokenId eot = tokenizer->Find("<|eot_id|>");
  EXPECT_EQ(tokenizer->Piece(tokenizer->Find("▁hello")), " hello");
  EXPECT_EQ(tokenizer->Piece(tokenizer->Find("<0x0A>")), "\n");
  EXPECT_EQ(tokenizer->Piece(1), "");
  EXPECT_EQ(tokenizer->Piece(1, true), "<s>");
  EXPECT_EQ(tokenizer->Piece(-1), "");
  EXPECT_EQ(tokenizer->Piece(1 << 30), "");
  EXPECT_EQ(tokenizer->Find("nonsense"), -1);
  EXPECT_TRUE(tokenizer->IsControl(eot));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(eot));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(2));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(1));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(-1));
  EXPECT_TRUE(tokenizer->wants_bos());
  EXPECT_EQ(tokenizer->size(), TinySpm().tokens.size());
  EXPECT_EQ(tokenizer->model_name(), "llama");
}

TEST(TokenizerSpm, Gemma4MergesByRank) {
  const TokenizerData data = TinySpmByRank();
  const auto tokenizer = Tokenizer::FromData(data);
  const auto split = [&](std::string_view text) { return Split(*tokenizer, data, text); };
  EXPECT_EQ(split("hello hello"), (Texts{"hello", "▁hello"}));
  EXPECT_EQ(split("lll"), (Texts{"ll", "l"}));
  // A token without merges is not made, and no space comes before the text.
  EXPECT_EQ(split("world"), (Texts{"w", "or", "ld"}));
  EXPECT_EQ(split(" world"), (Texts{"▁w", "or", "ld"}));
  EXPECT_EQ(split("   "), (Texts{"▁▁", "▁"}));
  EXPECT_EQ(split("ü"), (Texts{"ü"}));
  EXPECT_EQ(split("é\n"), (Texts{"<0xC3>", "<0xA9>", "<0x0A>"}));
  EXPECT_EQ(tokenizer->bos(), 2);
  EXPECT_TRUE(tokenizer->wants_bos());
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(tokenizer->Find("<turn|>")));
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(" a  b\nc", false, false)), " a  b\nc");
  EXPECT_EQ(tokenizer->model_name(), "gemma4");
  for (const char* merge : {"he", "he ", "he xyz", "h l", "xyz he"}) {
    TokenizerData bad = data;
    bad.merges.push_back(merge);
    try {
      Tokenizer::FromData(bad);
      ADD_FAILURE() << merge;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find("has '" + std::string(merge) + "' at 9, expected"),
                std::string::npos)
          << error.what();
    }
  }
}

TEST(TokenizerSpm, AddsEosIfTheFileSaysSo) {
  TokenizerData data = TinySpm();
  data.add_eos = true;
  const auto tokenizer = Tokenizer::FromData(data);
  EXPECT_EQ(tokenizer->Encode("", true, false), (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(tokenizer->Encode("", false, false), (std::vector<TokenId>{}));
}

TEST(TokenizerBpe, MergesByRankWithinWords) {
  EXPECT_EQ(SplitBpe("hello hello"), (Texts{"hello", "Ġhello"}));
  EXPECT_EQ(SplitBpe("hellohello"), (Texts{"hello", "hello"}));
  EXPECT_EQ(SplitBpe("lll"), (Texts{"ll", "l"}));
  EXPECT_EQ(SplitBpe("  hello"), (Texts{"Ġ", "Ġhello"}));
  EXPECT_EQ(SplitBpe("1212"), (Texts{"12", "1", "2"}));   // llama-bpe: up to three digits per word
  EXPECT_EQ(SplitBpe("12", "qwen2"), (Texts{"1", "2"}));  // qwen2: one
  EXPECT_EQ(SplitBpe("é"), (Texts{"Ã", "©"}));
}

TEST(TokenizerBpe, Llama3TakesWholeWordsWithoutMerges) {
  EXPECT_EQ(SplitBpe("world", "llama-bpe"), (Texts{"world"}));
  EXPECT_EQ(SplitBpe("world", "llama-v3"), (Texts{"world"}));
  EXPECT_EQ(SplitBpe("world", "qwen2"), (Texts{"w", "o", "r", "l", "d"}));
}

TEST(TokenizerBpe, SpecialTokens) {
  EXPECT_EQ(SplitBpe("hello<|eot_id|>hello", "qwen2", true),
            (Texts{"hello", "<|eot_id|>", "hello"}));
  EXPECT_EQ(SplitBpe("<|eot_id|>").front(), "<");
  EXPECT_EQ(SplitBpe("a<tool>"), (Texts{"a", "<tool>"}));
  const auto tokenizer = Bpe("llama-bpe");
  EXPECT_TRUE(tokenizer->wants_bos());
  EXPECT_FALSE(Bpe("qwen2")->wants_bos());
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(tokenizer->eos()));
  EXPECT_EQ(tokenizer->Find("Ġhello"), 260);
  EXPECT_EQ(tokenizer->Piece(260), " hello");
  EXPECT_EQ(tokenizer->Encode("", true, false), (std::vector<TokenId>{tokenizer->bos()}));
}

TEST(TokenizerBpe, DecodesWhatItEncodesWhateverTheBytes) {
  std::mt19937 random(2);
  for (const char* pre : {"llama-bpe", "qwen2"}) {
    const auto tokenizer = Bpe(pre);
    for (int i = 0; i < 300; ++i) {
      const std::string text = RandomBytes(random, i);
      EXPECT_EQ(tokenizer->Decode(tokenizer->Encode(text, false, false)), text);
    }
    EXPECT_EQ(tokenizer->Encode("\xE2\x82", false, false), (std::vector<TokenId>{0xE2, 0x82}));
  }
}

TEST(TokenizerBpe, WritesBytesForMergedSymbolsThatAreNoTokens) {
  TokenizerData data = TinyBpe("qwen2");
  data.merges.push_back("x y");
  EXPECT_EQ(Split(*Tokenizer::FromData(data), data, "xy"), (Texts{"x", "y"}));
  data.merges.push_back("xy z");
  AddToken(data, "xyz");
  data.scores.clear();
  EXPECT_EQ(Split(*Tokenizer::FromData(data), data, "xyz"), (Texts{"xyz"}));
}

// The quadratic definition: join the pair that is first in order, the leftmost of equals, until
// there is none.
template <typename Order>
Texts JoinNaively(Texts symbols, Order&& order) {
  for (;;) {
    int best = -1;
    double best_order = 0;
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      const std::optional<double> now = order(symbols[i], symbols[i + 1]);
      if (now && (best < 0 || *now < best_order)) best = static_cast<int>(i), best_order = *now;
    }
    if (best < 0) return symbols;
    symbols[best] += symbols[best + 1];
    symbols.erase(symbols.begin() + best + 1);
  }
}

std::string RandomWord(std::mt19937& random, std::string_view letters, size_t size) {
  std::string word;
  while (word.size() < size) word += letters[random() % letters.size()];
  return word;
}

TEST(TokenizerSpm, EqualsTheQuadraticDefinition) {
  std::mt19937 random(3);
  for (int vocabulary = 0; vocabulary < 30; ++vocabulary) {
    TokenizerData data = TinySpm();
    data.add_space_prefix = false;
    for (const char* letter : {"a", "b", "c"}) AddToken(data, letter);
    for (int i = 0; i < 25; ++i) {
      const std::string word = RandomWord(random, "aabbc", 2 + random() % 4);
      if (std::count(data.tokens.begin(), data.tokens.end(), word) > 0) continue;
      // with equal scores
      AddToken(data, word, TokenType::kNormal, -static_cast<float>(random() % 8));
    }
    const auto tokenizer = Tokenizer::FromData(data);
    for (int i = 0; i < 40; ++i) {
      const std::string text = RandomWord(random, "abc", random() % 60);
      Texts letters;
      for (const char c : text) letters.emplace_back(1, c);
      EXPECT_EQ(Split(*tokenizer, data, text),
                JoinNaively(letters, [&](const auto& l, const auto& r) -> std::optional<double> {
                  const TokenId id = tokenizer->Find(l + r);
                  return id < 0 ? std::nullopt : std::optional<double>(-data.scores[id]);
                }));
    }
  }
}

TEST(TokenizerBpe, EqualsTheQuadraticDefinition) {
  std::mt19937 random(4);
  for (int vocabulary = 0; vocabulary < 30; ++vocabulary) {
    TokenizerData data = TinyBpe("qwen2");
    Texts known = {"a", "b", "c"};
    data.merges.clear();
    for (int i = 0; i < 25; ++i) {
      const std::string left = known[random() % known.size()],
                        right = known[random() % known.size()];
      if (std::count(known.begin(), known.end(), left + right) > 0) continue;
      known.push_back(left + right);
      data.merges.push_back(left + " " + right);
      AddToken(data, left + right);
    }
    data.scores.clear();
    const auto tokenizer = Tokenizer::FromData(data);
    for (int i = 0; i < 40; ++i) {
      const std::string text = RandomWord(random, "abc", random() % 60);
      Texts letters;
      for (const char c : text) letters.emplace_back(1, c);
      EXPECT_EQ(Split(*tokenizer, data, text),
                JoinNaively(letters, [&](const auto& l, const auto& r) -> std::optional<double> {
                  const auto at = std::find(data.merges.begin(), data.merges.end(), l + " " + r);
                  return at == data.merges.end() ? std::nullopt
                                                 : std::optional<double>(at - data.merges.begin());
                }));
    }
  }
}

// Quadratic merging would take many minutes here, and exceed the test's time limit.
TEST(Tokenizer, TakesLongWords) {
  const std::string text(1 << 20, 'l');
  EXPECT_EQ(Bpe("qwen2")->Encode(text, false, false).size(), text.size() / 2);
  EXPECT_EQ(Spm()->Encode(text, false, false).size(), text.size() / 2 + 1);
  const std::string spaces(1 << 20, ' ');
  EXPECT_EQ(Bpe("qwen2")->Encode(spaces, false, false).size(), spaces.size() / 2);
}

TEST(TokenizerErrors, NameTheFieldAndWhatWasExpected) {
  struct Case {
    const char* expected;
    void (*spoil)(TokenizerData&);
  };
  const Case spm_cases[] = {
      {"'tokenizer.ggml.model' is 't5'", [](TokenizerData& d) { d.model = "t5"; }},
      {"'tokenizer.ggml.tokens' has 0", [](TokenizerData& d) { d.tokens.clear(); }},
      {"'tokenizer.ggml.scores' has 3", [](TokenizerData& d) { d.scores.resize(3); }},
      {"'tokenizer.ggml.scores' is NaN for token 7", [](TokenizerData& d) { d.scores[7] = NAN; }},
      {"'tokenizer.ggml.token_type' has 2", [](TokenizerData& d) { d.types.resize(2); }},
      {"'tokenizer.ggml.token_type' is 9 for token 5",
       [](TokenizerData& d) { d.types[5] = static_cast<TokenType>(9); }},
      {"'tokenizer.ggml.bos_token_id' is 9999", [](TokenizerData& d) { d.bos = 9999; }},
      {"'tokenizer.ggml.eos_token_id' is -2", [](TokenizerData& d) { d.eos = -2; }},
      {"'tokenizer.ggml.unknown_token_id' is 284", [](TokenizerData& d) { d.unk = 284; }},
      {"byte token 3 is '<0xG0>'", [](TokenizerData& d) { d.tokens[3] = "<0xG0>"; }},
      {"no token '<0x01>'",
       [](TokenizerData& d) {
         d.tokens[4] = "<0x00>", d.types[0] = TokenType::kNormal, d.unk = -1;
       }},
  };
  for (const Case& c : spm_cases) {
    TokenizerData data = TinySpm();
    c.spoil(data);
    EXPECT_NE(ErrorOf(data).find(c.expected), std::string::npos)
        << c.expected << " is not in: " << ErrorOf(data);
    EXPECT_EQ(ErrorOf(data).rfind("tiny-spm: ", 0), 0u);
  }
  const Case bpe_cases[] = {
      {"'tokenizer.ggml.pre' is 'gpt-17', a pre-tokenizer that Larder does not know",
       [](TokenizerData& d) { d.pre = "gpt-17"; }},
      {"'tokenizer.ggml.pre' is ''", [](TokenizerData& d) { d.pre = ""; }},
      {"'tokenizer.ggml.merges' has 'ab' at 1", [](TokenizerData& d) { d.merges[1] = "ab"; }},
      {"'tokenizer.ggml.merges' has '' at 0", [](TokenizerData& d) { d.merges[0] = ""; }},
      {"'tokenizer.ggml.merges' has 'ab ' at 0", [](TokenizerData& d) { d.merges[0] = "ab "; }},
      {"no token 'Ā' for byte 0x00", [](TokenizerData& d) { d.tokens[0] = "zero"; }},
  };
  for (const Case& c : bpe_cases) {
    TokenizerData data = TinyBpe("qwen2");
    c.spoil(data);
    EXPECT_NE(ErrorOf(data).find(c.expected), std::string::npos)
        << c.expected << " is not in: " << ErrorOf(data);
  }
  EXPECT_EQ(ErrorOf(TinySpm()), "");
}

}  // namespace
}  // namespace larder::model::tokenizer
