#include "model/pretokenizer/pretokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/check.h"
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
  for (const char* name : {"llama-bpe", "llama3", "falcon3", "glm4", "qwen2", "qwen35", "grok-2"}) {
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

TEST(PreTokenizer, Gpt2KeepsSpacesWithWords) {
  EXPECT_EQ(Split("gpt-2", "I'll DON'T 1234  x\n\ny!?"),
            (Words{"I", "'ll", " DON", "'", "T", " 1234", " ", " x", "\n", "\n", "y", "!?"}));
  EXPECT_EQ(Split("smollm", "a 123  b"), (Words{"a", " ", "1", "2", "3", " ", " b"}));
  EXPECT_EQ(Split("command-r", " ½Ⅷ"), (Words{" ", "½", "Ⅷ"}));
}

TEST(PreTokenizer, Qwen35KeepsMarksWithLetters) {
  EXPECT_EQ(Split("qwen2", "हिन्दी"), (Words{"ह", "िन", "्द", "ी"}));
  EXPECT_EQ(Split("qwen35", "हिन्दी 12"), (Words{"हिन्दी", " ", "1", "2"}));
}

TEST(PreTokenizer, Gpt4oCutsWordsByCase) {
  EXPECT_EQ(Split("gpt-4o", "XMLHttpRequest's camelCaseX"),
            (Words{"XMLHttp", "Request's", " camel", "Case", "X"}));
  EXPECT_EQ(Split("gpt-4o", "1234 a//\n/b"), (Words{"123", "4", " a", "//\n/", "b"}));
  EXPECT_EQ(Split("gpt-4o", "'ABC 中ABC中A'LL"), (Words{"'ABC", " 中ABC中", "A'LL"}));
  EXPECT_EQ(Split("tekken", "Don't 12"), (Words{"Don", "'t", " ", "1", "2"}));
  EXPECT_EQ(Split("kimi-k2", "我想在apple工作Abc"), (Words{"我想在", "apple", "工作", "Abc"}));
  EXPECT_EQ(Split("youtu", "한국어東京、ㄅa1"), (Words{"한국어", "東京", "、", "ㄅ", "a", "1"}));
}

TEST(PreTokenizer, DeepSeekCutsScriptsFirst) {
  EXPECT_EQ(Split("deepseek-v3", "x.foo 1234東京タワーand\r\n\n b"),
            (Words{"x", ".foo", " ", "123", "4", "東京タワー", "and", "\r\n\n", " b"}));
  EXPECT_EQ(Split("deepseek-coder", "if (x)\n\ty=12"),
            (Words{"if", " (", "x", ")", "\n", "\ty", "=", "1", "2"}));
  EXPECT_EQ(Split("deepseek-llm", "a 12 中文 b  "),
            (Words{"a", " ", "12", " ", "中文", " b", "  "}));
  EXPECT_EQ(Split("spark2_5", "a.\n\n"), (Words{"a", ".", "\n", "\n"}));
}

TEST(PreTokenizer, GroupsDigitsFromTheRight) {
  EXPECT_EQ(Split("tiny_aya", "1234567 12345a 12"),
            (Words{"1", "234", "567", " ", "123", "45", "a", " ", "12"}));
  EXPECT_EQ(Split("afmoe", "1234a"), (Words{"1", "234", "a"}));
  EXPECT_EQ(Split("superbpe", "of the 12345, and 123"),
            (Words{"of the ", "12", "345", ", and ", "123"}));
}

TEST(PreTokenizer, HasTheRulesOfTheRest) {
  EXPECT_EQ(Split("falcon", "a <=b> 12345"), (Words{"a", " ", "<=", "b", ">", " ", "123", "45"}));
  EXPECT_EQ(Split("bloom", "Hi there, you. 12"), (Words{"Hi", " there", ",", " you", ".", " 12"}));
  EXPECT_EQ(Split("viking", "a 12"), (Words{"a", " ", "1", "2"}));
  EXPECT_EQ(Split("exaone-moe", "to be or  not"), (Words{"to be or", " ", " not"}));
  EXPECT_EQ(Split("jais-2", std::string(12, ' ') + "x"),
            (Words{std::string(8, ' '), "  ", " ", " x"}));
  EXPECT_EQ(Split("seed-coder", "!\n"), (Words{"!", "\n"}));
  EXPECT_EQ(Split("minicpm5", "1234"), (Words{"123", "4"}));
  EXPECT_EQ(Split("laguna", "!\n\n x"), (Words{"!", "\n\n", " x"}));
  EXPECT_EQ(Split("ufakzeka", "Ankara're"), (Words{"Ankara", "'re"}));
  EXPECT_EQ(Split("chameleon", "<sentinel:12>IMGIMGABZ  a"),
            (Words{"<", "sentinel", ":", "1", "2", ">", "IMGIMGABZ", "  ", "a"}));
}

// What a quadratic rule would take minutes for.
TEST(PreTokenizer, EveryFamilyKeepsEveryByteInLinearTime) {
  const char* parts[] = {" ",  "\n", "A",  "中",         "中A", "1", "'",   "'l", "!\n",
                         "a ", "́",   "½1", "<sentinel:", "< ",  "/", "IMG", " !", "\xFF"};
  std::vector<const Stage*> tried;
  for (const Family& family : Families()) {
    if (std::find(tried.begin(), tried.end(), family.stages.data()) != tried.end()) continue;
    tried.push_back(family.stages.data());
    const PreTokenizer cutter(family.name, "test");
    for (const std::string part : parts) {
      std::string text;
      while (text.size() < 200'000) text += part;
      text += "xA";
      const char* at = text.data();
      cutter.Split(text, [&](std::string_view word) {
        LARDER_CHECK(word.data() == at && !word.empty());
        at += word.size();
      });
      ASSERT_EQ(at, text.data() + text.size()) << family.name;
    }
  }
}

TEST(PreTokenizer, NamesWhatItSupports) {
  try {
    PreTokenizer("gpt-17", "model.gguf");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what())
                  .rfind("model.gguf: key 'tokenizer.ggml.pre' is 'gpt-17', a pre-tokenizer that "
                         "Larder does not know; convert the model again with one of: default, ",
                         0),
              0u);
  }
}

}  // namespace
}  // namespace larder::model::pretokenizer
