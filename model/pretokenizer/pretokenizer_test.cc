#include "model/pretokenizer/pretokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/error.h"

namespace larder::model::inline pretokenizer {
namespace {

using Words = std::vector<std::string>;

Words Split(std::string_view name, std::string_view text) {
  Words words;
  PreTokenizer(name, "test").Split(text, [&](std::string_view word) { words.emplace_back(word); });
  return words;
}

TEST(PreTokenizer, CutsWordsAndSpaces) {
  for (const char* name : {"llama-bpe", "llama3", "llama-v3", "qwen2", "deepseek-r1-qwen"}) {
    EXPECT_EQ(Split(name, "Hello, world  !"), (Words{"Hello", ",", " world", " ", " !"}));
    EXPECT_EQ(Split(name, "I'll don'T y'all"), (Words{"I", "'ll", " don", "'T", " y", "'all"}));
    EXPECT_EQ(Split(name, "a\n\n  b \n"), (Words{"a", "\n\n", " ", " b", " \n"}));
    EXPECT_EQ(Split(name, "x = {};\n\ty"), (Words{"x", " =", " {};\n", "\ty"}));
    EXPECT_EQ(Split(name, "   "), (Words{"   "}));
    EXPECT_EQ(Split(name, ""), Words{});
  }
}

TEST(PreTokenizer, CutsNumbersByFamily) {
  EXPECT_EQ(Split("llama-bpe", "a12345"), (Words{"a", "123", "45"}));
  EXPECT_EQ(Split("qwen2", "a123"), (Words{"a", "1", "2", "3"}));
  EXPECT_TRUE(PreTokenizer("llama-bpe", "").ignore_merges());
  EXPECT_FALSE(PreTokenizer("qwen2", "").ignore_merges());
}

TEST(PreTokenizer, KnowsUnicode) {
  EXPECT_EQ(Split("qwen2", "Führer 東京 ½Ⅷ"), (Words{"Führer", " 東京", " ", "½", "Ⅷ"}));
  EXPECT_EQ(Split("qwen2", "a\u00A0b\u3000\u3000c"), (Words{"a", "\u00A0b", "\u3000", "\u3000c"}));
  EXPECT_EQ(Split("qwen2", "!\u0085\u2028!"), (Words{"!", "\u0085", "\u2028", "!"}));
  EXPECT_EQ(Split("qwen2", "!\u180E!"), (Words{"!\u180E!"}));  // no white space since Unicode 6.3
}

TEST(PreTokenizer, KeepsInvalidBytesTogether) {
  EXPECT_EQ(Split("qwen2", "ab\xFF\xC3 cd"), (Words{"ab", "\xFF\xC3", " cd"}));
  EXPECT_EQ(Split("qwen2", "ab \xED\xA0\x80"), (Words{"ab", " ", "\xED\xA0\x80"}));  // a surrogate
  EXPECT_EQ(Split("qwen2", "\xF0\x9F\x98"), (Words{"\xF0\x9F\x98"}));
}

TEST(PreTokenizer, TakesLongRuns) {
  const std::string spaces(8 << 20, ' ');
  EXPECT_EQ(Split("llama-bpe", spaces), (Words{spaces}));
  const std::string lines = std::string(1 << 20, '\n') + "x";
  EXPECT_EQ(Split("llama-bpe", lines).size(), 2u);
}

TEST(PreTokenizer, NamesWhatItSupports) {
  try {
    PreTokenizer("gpt-2", "model.gguf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(
        std::string(error.what())
            .find("model.gguf: key 'tokenizer.ggml.pre' is 'gpt-2', supported are 'llama-bpe'"),
        std::string::npos);
  }
}

}  // namespace
}  // namespace larder::model::pretokenizer
