// StreamDecoder returns only whole characters, wherever the tokens are cut.
#include <gtest/gtest.h>

#include <random>

#include "model/pretokenizer/utf8.h"
#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::model::inline tokenizer {
namespace {

bool IsUtf8(std::string_view text) {
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    if (step.kind != Utf8Kind::kCharacter) return false;
    text.remove_prefix(step.bytes);
  }
  return true;
}

// One token per byte.
std::vector<TokenId> Bytes(std::string_view text) {
  std::vector<TokenId> ids;
  for (const char c : text) ids.push_back(static_cast<uint8_t>(c));
  return ids;
}

std::string Stream(std::shared_ptr<const Tokenizer> tokenizer, const std::vector<TokenId>& ids,
                   bool special = false) {
  StreamDecoder decoder(std::move(tokenizer), special);
  std::string text;
  for (const TokenId id : ids) {
    const std::string part = decoder.Add(id);
    EXPECT_TRUE(IsUtf8(part));
    text += part;
  }
  return text + decoder.Finish();
}

TEST(StreamDecoder, HoldsACharacterUntilItIsWhole) {
  StreamDecoder decoder(Tokenizer::FromData(TinyBpe("qwen2")));
  EXPECT_EQ(decoder.Add(0xF0), "");
  EXPECT_EQ(decoder.Add(0x9F), "");
  EXPECT_EQ(decoder.Add(0x98), "");
  EXPECT_EQ(decoder.Add(0x81), "😁");
  EXPECT_EQ(decoder.Add('a'), "a");
  EXPECT_EQ(decoder.Finish(), "");
}

TEST(StreamDecoder, ReplacesWhatCannotBecomeACharacter) {
  const auto bpe = Tokenizer::FromData(TinyBpe("qwen2"));
  EXPECT_EQ(Stream(bpe, Bytes("\xFFx")), "\uFFFDx");
  EXPECT_EQ(Stream(bpe, Bytes("\xE2\x82x")), "\uFFFDx");  // one for the whole start of a character
  EXPECT_EQ(Stream(bpe, Bytes("\xC0\x80")), "\uFFFD\uFFFD");
  EXPECT_EQ(Stream(bpe, Bytes("\xED\xA0\x80")), "\uFFFD\uFFFD\uFFFD");
  EXPECT_EQ(Stream(bpe, Bytes("a\xF0\x9F\x98")), "a\uFFFD");  // Finish
}

TEST(StreamDecoder, AnyCutOfATextGivesTheText) {
  const std::string text = "Grüße, 東京! 👩‍🚀🦙 x²\n";
  std::mt19937 random(6);
  for (int i = 0; i < 200; ++i) {
    // A vocabulary of random parts of the text.
    TokenizerData data = TinyBpe("qwen2");
    std::vector<TokenId> ids;
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 6;
      ids.push_back(AddToken(data, AlphabetFromBytes(std::string_view(text).substr(at, size))));
      at += size;
    }
    data.scores.clear();
    EXPECT_EQ(Stream(Tokenizer::FromData(data), ids), text);
  }
}

TEST(StreamDecoder, RandomBytesComeOutAsUtf8) {
  const auto bpe = Tokenizer::FromData(TinyBpe("qwen2"));
  std::mt19937 random(7);
  for (int i = 0; i < 200; ++i) {
    std::vector<TokenId> ids;
    for (int j = 0; j < 50; ++j) ids.push_back(static_cast<TokenId>(0x80 + random() % 0x80));
    EXPECT_TRUE(IsUtf8(Stream(bpe, ids)));
  }
}

TEST(StreamDecoder, DropsTheFirstSpaceOfSpmOnly) {
  const auto spm = Tokenizer::FromData(TinySpm());
  const auto bpe = Tokenizer::FromData(TinyBpe("qwen2"));
  const TokenId word = spm->Find("▁hello");
  EXPECT_EQ(Stream(spm, {word, word}), "hello hello");
  EXPECT_EQ(Stream(spm, {spm->bos(), word, word}), "hello hello");
  EXPECT_EQ(Stream(spm, {spm->bos(), word}, true), "<s>hello");
  EXPECT_EQ(Stream(spm, {spm->Find("h"), word}), "h hello");
  EXPECT_EQ(Stream(spm, {spm->Find("▁▁"), word}), "  hello");
  EXPECT_EQ(Stream(bpe, {bpe->Find("Ġhello")}), " hello");
  StreamDecoder continued(spm, false, true);
  EXPECT_EQ(continued.Add(word), " hello");
}

TEST(StreamDecoder, SpmByteTokensBuildEmoji) {
  const auto spm = Tokenizer::FromData(TinySpm());
  EXPECT_EQ(Stream(spm, spm->Encode("hello 🦙", true, false)), "hello 🦙");
}

}  // namespace
}  // namespace larder::model::tokenizer
