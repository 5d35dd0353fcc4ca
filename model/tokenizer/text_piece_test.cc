// EncodePieces: the tokens of the whole text, except for control tokens in untrusted pieces.
#include <gtest/gtest.h>

#include <random>

#include "model/tokenizer/tokenizer.h"
#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::model::inline tokenizer {
namespace {

using Pieces = std::vector<TextPiece>;

TEST(EncodePiecesTest, ControlTokensAreOnlyInTrustedText) {
  const auto tokenizer = Tokenizer::FromData(TinyBpe("qwen2"));
  const TokenId eot = tokenizer->eos(), bos = tokenizer->bos();
  const auto encode = [&](const Pieces& pieces) { return tokenizer->EncodePieces(pieces, false); };
  EXPECT_EQ(encode({{"<|eot_id|>", true}}), (std::vector<TokenId>{eot}));
  EXPECT_EQ(encode({{"<|eot", true}, {"_id|>", true}}), (std::vector<TokenId>{eot}))
      << "pieces that adjoin";
  EXPECT_EQ(encode({{"<|eot_id|>", false}}), tokenizer->Encode("<|eot_id|>", false, false));
  EXPECT_EQ(encode({{"<|eot", true}, {"_id|>", false}}),
            tokenizer->Encode("<|eot_id|>", false, false));
  EXPECT_EQ(encode({{"<|eot_", false}, {"id|>", true}}),
            tokenizer->Encode("<|eot_id|>", false, false));
  const auto mixed = encode({{"<|begin|>", true}, {"<|eot_id|>", false}, {"<|eot_id|>", true}});
  EXPECT_EQ(mixed.front(), bos);
  EXPECT_EQ(mixed.back(), eot);
  EXPECT_EQ(std::count(mixed.begin(), mixed.end(), eot), 1);
  EXPECT_EQ(encode({{"<tool>", false}}), tokenizer->Encode("<tool>", false, false))
      << "user-defined: always";
}

TEST(EncodePiecesTest, WordsRunAcrossPieces) {
  for (const auto& tokenizer :
       {Tokenizer::FromData(TinyBpe("qwen2")), Tokenizer::FromData(TinySpm())}) {
    EXPECT_EQ(tokenizer->EncodePieces(Pieces{{"he", true}, {"ll", false}, {"o", true}}, false),
              tokenizer->Encode("hello", false, true));
    EXPECT_EQ(tokenizer->EncodePieces(Pieces{}, false), tokenizer->Encode("", false, true));
    EXPECT_EQ(tokenizer->EncodePieces(Pieces{{"", true}, {"", false}}, true),
              tokenizer->Encode("", true, true));
  }
}

TEST(EncodePiecesTest, BosIsNotDoubled) {
  const auto tokenizer = Tokenizer::FromData(TinySpm());
  EXPECT_EQ(tokenizer->EncodePieces(Pieces{{"<s>", true}, {"hello", false}}, true),
            tokenizer->Encode("<s>hello", false, true));
  EXPECT_EQ(tokenizer->EncodePieces(Pieces{{"hello", false}}, true),
            tokenizer->Encode("hello", true, true));
  const auto forged = tokenizer->EncodePieces(Pieces{{"<s>", false}}, true);
  EXPECT_EQ(std::count(forged.begin(), forged.end(), tokenizer->bos()), 1);
}

TEST(EncodePiecesTest, AnyCutOfATrustedTextGivesTheWholeTextsTokens) {
  std::mt19937 random(7);
  const std::string parts[] = {"hello", " world", "<|eot_id|>", "<|begin|>", "<tool>",
                               "</s>",  "<s>",    "ü",          "\n",        "12",
                               "<",     "|>",     "  "};
  for (const auto& tokenizer :
       {Tokenizer::FromData(TinyBpe("llama-bpe")), Tokenizer::FromData(TinySpm())}) {
    for (int round = 0; round < 2000; ++round) {
      std::string text;
      for (size_t i = random() % 8; i-- > 0;) text += parts[random() % std::size(parts)];
      Pieces pieces;
      for (size_t at = 0; at < text.size();) {
        const size_t n = 1 + random() % 6;
        pieces.push_back({text.substr(at, n), true});
        at += n;
      }
      EXPECT_EQ(tokenizer->EncodePieces(pieces, false), tokenizer->Encode(text, false, true))
          << text;
      for (TextPiece& piece : pieces) piece.trusted = false;
      EXPECT_EQ(tokenizer->EncodePieces(pieces, false), tokenizer->Encode(text, false, false))
          << text;
    }
  }
}

}  // namespace
}  // namespace larder::model::tokenizer
