// From a GGUF file's keys to a tokenizer: which keys are read, which defaults hold for missing
// keys, and what is refused.
#include <gtest/gtest.h>

#include <functional>
#include <limits>

#include "base/error.h"
#include "base/temporary_folder_testing.h"
#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::model::inline tokenizer {
namespace {

using Change = std::function<void(GgufWriter&)>;

class TokenizerGguf : public testing::Test {
 protected:
  // TinySpm's vocabulary as a file, with the additions of `change`.
  std::string Write(const Change& change, bool with_scores = true) {
    const TokenizerData data = TinySpm();
    std::vector<int32_t> types;
    for (const TokenType type : data.types) types.push_back(static_cast<int32_t>(type));
    GgufWriter writer;
    writer.Add("tokenizer.ggml.model", "llama");
    writer.Add("tokenizer.ggml.tokens", data.tokens);
    writer.Add("tokenizer.ggml.token_type", types);
    if (with_scores) writer.Add("tokenizer.ggml.scores", data.scores);
    change(writer);
    const std::string path = folder_ / "vocabulary.gguf";
    writer.Write(path);
    return path;
  }

  std::shared_ptr<const Tokenizer> Load(const Change& change) {
    return Tokenizer::FromGguf(*GgufFile::Open(Write(change)));
  }

 private:
  TemporaryFolder folder_;
};

std::string ErrorOf(const std::string& path) {
  try {
    Tokenizer::FromGguf(*GgufFile::Open(path));
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST_F(TokenizerGguf, ReadsTheKeys) {
  const auto tokenizer = Load([](GgufWriter& writer) {
    writer.Add("tokenizer.ggml.bos_token_id", uint32_t{2});
    writer.Add("tokenizer.ggml.eos_token_id", uint32_t{1});
    writer.Add("tokenizer.ggml.eot_token_id", uint32_t{7});
    writer.Add("tokenizer.ggml.add_bos_token", false);
    writer.Add("tokenizer.ggml.add_space_prefix", false);
    writer.Add("tokenizer.chat_template", "a template");
  });
  EXPECT_EQ(tokenizer->bos(), 2);
  EXPECT_EQ(tokenizer->eos(), 1);
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(7));
  EXPECT_FALSE(tokenizer->wants_bos());
  EXPECT_FALSE(tokenizer->drops_leading_space());
  EXPECT_EQ(tokenizer->chat_template(), "a template");
}

TEST_F(TokenizerGguf, FindsFillInTheMiddleTokensByKeyThenByName) {
  const auto tokenizer = Load([](GgufWriter& writer) {
    writer.Add("tokenizer.ggml.fim_pre_token_id", uint32_t{7});
    writer.Add("tokenizer.ggml.suffix_token_id", uint32_t{8});
  });
  EXPECT_EQ(tokenizer->fim().prefix, 7);
  EXPECT_EQ(tokenizer->fim().suffix, 8);
  EXPECT_EQ(tokenizer->fim().middle, -1);
  TokenizerData data = TinySpm();
  data.fim.prefix = 9;
  AddToken(data, "<fim_prefix>", TokenType::kControl);
  const TokenId middle = AddToken(data, "<fim_middle>", TokenType::kControl);
  const auto named = Tokenizer::FromData(data);
  EXPECT_EQ(named->fim().prefix, 9);
  EXPECT_EQ(named->fim().middle, middle);
  data.fim.prefix = 100'000;
  EXPECT_THROW(Tokenizer::FromData(data), Error);
}

TEST_F(TokenizerGguf, AssumesSentencePiecesIds) {
  const auto tokenizer = Load([](GgufWriter& writer) {
    writer.Add("tokenizer.ggml.eos_token_id",
               std::numeric_limits<uint32_t>::max());  // "none", as some converters write it
  });
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->wants_bos());
  EXPECT_TRUE(tokenizer->drops_leading_space());
  EXPECT_EQ(tokenizer->chat_template(), "");
  EXPECT_EQ(tokenizer->Decode(tokenizer->Encode("hello", true, false)), "hello");
}

TEST_F(TokenizerGguf, RefusesIdsOutsideTheVocabulary) {
  for (const uint32_t id : {5000u, 3000000000u}) {
    const std::string path =
        Write([&](GgufWriter& writer) { writer.Add("tokenizer.ggml.bos_token_id", id); });
    EXPECT_NE(ErrorOf(path).find("'tokenizer.ggml.bos_token_id' is " + std::to_string(id)),
              std::string::npos)
        << ErrorOf(path);
    EXPECT_EQ(ErrorOf(path).rfind(path, 0), 0u);
  }
}

TEST_F(TokenizerGguf, RefusesAFileWithoutScores) {
  const std::string path = Write([](GgufWriter&) {}, false);
  EXPECT_NE(ErrorOf(path).find("'tokenizer.ggml.scores' has 0 entries"), std::string::npos)
      << ErrorOf(path);
}

}  // namespace
}  // namespace larder::model::tokenizer
