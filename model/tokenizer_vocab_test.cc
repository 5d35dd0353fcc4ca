// The real vocabularies: published texts and their ids must match exactly. The files are read where they are
// at hand (LARDER_TEST_DATA, by default ../shared/data beside the repository); without them the tests say so
// and are skipped.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "model/tokenizer.h"

namespace larder::model {
namespace {

std::filesystem::path DataFolder() {
  const char* folder = std::getenv("LARDER_TEST_DATA");
  return folder != nullptr ? folder : LARDER_SOURCE_DIR "/../shared/data";
}

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

class TokenizerVocab : public testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    base_ = DataFolder() / "tokenizers" / GetParam();
    if (!std::filesystem::exists(Path(".gguf"))) {
      GTEST_SKIP() << Path(".gguf") << " is missing: set LARDER_TEST_DATA to the folder with the test data";
    }
    tokenizer_ = Tokenizer::FromGguf(*GgufFile::Open(Path(".gguf")));
  }

  std::string Path(const char* suffix) const { return base_.string() + suffix; }

  std::filesystem::path base_;
  std::shared_ptr<const Tokenizer> tokenizer_;
};

TEST_P(TokenizerVocab, MatchesThePublishedIds) {
  const std::vector<std::string> texts = SplitAt(ReadFile(Path(".inp")), "\n__ggml_vocab_test__\n");
  const std::vector<std::string> lines = SplitAt(ReadFile(Path(".out")), "\n");
  ASSERT_GT(texts.size(), 40u);
  ASSERT_GE(lines.size(), texts.size());
  for (size_t i = 0; i < texts.size(); ++i) {
    EXPECT_EQ(tokenizer_->Encode(texts[i], false, false), Ids(lines[i])) << "text " << i << ": " << texts[i];
    EXPECT_EQ(tokenizer_->Decode(Ids(lines[i])), texts[i]);
  }
}

TEST_P(TokenizerVocab, DecodesEveryByteItEncodes) {
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  for (int i = 0; i < 256; ++i) text += std::string(1, static_cast<char>(i)) + " x\n\xE2\x82\xAC";
  EXPECT_EQ(tokenizer_->Decode(tokenizer_->Encode(text, true, false)), text);
}

TEST_P(TokenizerVocab, StreamsWhatItDecodes) {
  const std::string text = "Hello,  wörld 🦙👩‍🚀 東京\n\t'tis <|eot_id|> 12345";
  StreamDecoder decoder(tokenizer_);
  std::string streamed;
  for (const TokenId id : tokenizer_->Encode(text, true, false)) streamed += decoder.Add(id);
  EXPECT_EQ(streamed + decoder.Finish(), text);
}

TEST_P(TokenizerVocab, KnowsWhatEndsAGeneration) {
  EXPECT_GT(tokenizer_->size(), 30000u);
  EXPECT_TRUE(tokenizer_->IsEndOfGeneration(tokenizer_->eos()));
  EXPECT_FALSE(tokenizer_->IsEndOfGeneration(tokenizer_->Encode("a", false, false)[0]));
  EXPECT_EQ(tokenizer_->Find("no such token"), -1);
}

INSTANTIATE_TEST_SUITE_P(All, TokenizerVocab,
                         testing::Values("vocab-llama-spm", "vocab-phi3", "vocab-llama3", "vocab-qwen2"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

TEST(TokenizerVocabSpecials, Llama3ChatTokens) {
  const std::string path = DataFolder() / "tokenizers/vocab-llama3.gguf";
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing: set LARDER_TEST_DATA";
  const auto tokenizer = Tokenizer::FromGguf(*GgufFile::Open(path));
  EXPECT_EQ(tokenizer->Encode("<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>", true, true),
            (std::vector<TokenId>{128000, 128006, 882, 128007, 271, 13347, 128009}));
  EXPECT_TRUE(tokenizer->wants_bos());
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(128001));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(128008));
}

}  // namespace
}  // namespace larder::model
