// The real vocabularies: published texts and their ids must match exactly. The files are read from
// LARDER_TEST_DATA (by default ../shared/data beside the repository); without them the tests are
// skipped. Tests that need no published results are in tokenizer_test.cc.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "base/test_data_testing.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline tokenizer {
namespace {

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

std::vector<std::string> SplitAt(std::string_view text, std::string_view mark) {
  std::vector<std::string> parts;
  size_t done = 0;
  for (size_t at; (at = text.find(mark, done)) != std::string_view::npos; done = at + mark.size()) {
    parts.emplace_back(text.substr(done, at - done));
  }
  parts.emplace_back(text.substr(done));
  return parts;
}

std::vector<TokenId> Ids(const std::string& line) {
  std::istringstream stream(line);
  return {std::istream_iterator<TokenId>(stream), {}};
}

void ExpectPublishedIds(const Tokenizer& tokenizer, const std::string& base) {
  const std::vector<std::string> texts =
      SplitAt(ReadFile(base + ".inp"), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = SplitAt(ReadFile(base + ".out"), "\n");
  ASSERT_GT(texts.size(), 40u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer.Encode(texts[i], false, false), Ids(lines[i]))
        << "text " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer.Decode(Ids(lines[i])), texts[i]);
  }
}

void ExpectEveryByteBack(const Tokenizer& tokenizer) {
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  for (int i = 0; i < 256; ++i) text += std::string(1, static_cast<char>(i)) + " x\n\xE2\x82\xAC";
  EXPECT_EQ(tokenizer.Decode(tokenizer.Encode(text, true, false)), text);
}

void ExpectStreamsWhatItDecodes(const std::shared_ptr<const Tokenizer>& tokenizer) {
  const std::string text = "Hello,  wörld 🦙👩‍🚀 東京\n\t'tis <|eot_id|> 12345";
  StreamDecoder decoder(tokenizer);
  std::string streamed;
  for (const TokenId id : tokenizer->Encode(text, true, false)) streamed += decoder.Add(id);
  EXPECT_EQ(streamed + decoder.Finish(), text);
}

void ExpectItKnowsTheEnd(const Tokenizer& tokenizer) {
  EXPECT_GT(tokenizer.size(), 30000u);
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(tokenizer.eos()));
  EXPECT_FALSE(tokenizer.IsEndOfGeneration(tokenizer.Encode("a", false, false)[0]));
  EXPECT_EQ(tokenizer.Find("no such token"), -1);
}

void ExpectLlama3ChatTokens(const Tokenizer& tokenizer) {
  EXPECT_EQ(
      tokenizer.Encode("<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", true, true),
      (std::vector<TokenId>{128000, 128006, 882, 128007, 271, 13347, 128009}));
  EXPECT_TRUE(tokenizer.wants_bos());
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(128001));
  EXPECT_TRUE(tokenizer.IsEndOfGeneration(128008));
}

class TokenizerVocab : public testing::TestWithParam<const char*> {};

TEST_P(TokenizerVocab, MatchesThePublishedIds) {
  const std::string name = GetParam(), base = TestData("tokenizers/" + name);
  LARDER_NEEDS_TEST_DATA(base + ".gguf");
  const auto tokenizer = Tokenizer::FromGguf(*GgufFile::Open(base + ".gguf"));
  ExpectPublishedIds(*tokenizer, base);
  // These have no tokens for bytes that are not of characters.
  const bool of_text =
      name == "vocab-starcoder" || name == "vocab-refact" || name == "vocab-deepseek-llm";
  if (!of_text) ExpectEveryByteBack(*tokenizer);
  ExpectStreamsWhatItDecodes(tokenizer);
  ExpectItKnowsTheEnd(*tokenizer);
  if (name == "vocab-llama3") ExpectLlama3ChatTokens(*tokenizer);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVocab,
                         testing::Values("vocab-llama-spm", "vocab-phi3", "vocab-llama3",
                                         "vocab-qwen2", "vocab-gpt-2", "vocab-starcoder",
                                         "vocab-refact", "vocab-deepseek-llm"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace larder::model::tokenizer
