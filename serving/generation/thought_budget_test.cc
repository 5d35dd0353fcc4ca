#include "serving/generation/thought_budget.h"

#include <gtest/gtest.h>

#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::serving::inline generation {
namespace {

// The text that comes out where the model would choose the bytes of `text` one by one, and a token
// that the budget demands replaces the model's choice.
std::string Written(const ThoughtLimit& limit, const std::string& chosen) {
  const auto tokenizer = model::Tokenizer::FromData(model::TinyBpe("qwen2"));
  ThoughtLimit with = limit;
  with.begin = {"<think>", "<t>"};
  with.end = {"</think>"};
  for (const char c : std::string("#</think>")) with.closing.push_back(static_cast<uint8_t>(c));
  ThoughtBudget budget(with, *tokenizer);
  std::string text;
  for (size_t i = 0; i < chosen.size();) {
    const auto wanted = budget.Next();
    const TokenId token = wanted ? *wanted : static_cast<uint8_t>(chosen[i++]);
    budget.Accept(token);
    text += tokenizer->Piece(token, true);
  }
  return text;
}

TEST(ThoughtBudget, EndsAThoughtThatIsTooLong) {
  const std::string closing = "#</think>";
  EXPECT_EQ(Written({.tokens = 3}, "<think>abcdef"), "<think>abc" + closing + "def");
  EXPECT_EQ(Written({.tokens = 3}, " \n<t>abcdef"), " \n<t>abc" + closing + "def");
  EXPECT_EQ(Written({.tokens = 0}, "<think>ab"), "<think>" + closing + "ab");
  EXPECT_EQ(Written({.tokens = 2, .open = true}, "abcd"), "ab" + closing + "cd");
  EXPECT_EQ(Written({.tokens = 0, .open = true}, "ab"), closing + "ab");
  EXPECT_EQ(Written({.tokens = 1, .open = true}, "\xc3\xbcx"), "\xc3\xbc" + closing + "x")
      << "no character is cut";
  EXPECT_EQ(Written({.tokens = 3, .open = true}, "a</think>bcd"), "a</think>bcd")
      << "it may finish the end that it has begun";
  EXPECT_EQ(Written({.tokens = 3, .open = true}, "a</thingxy"), "a</thing" + closing + "xy");
}

TEST(ThoughtBudget, LeavesEverythingElseAlone) {
  for (const std::string text : {"abcdefghijkl", "a <think>abcdefghijkl", "<thinabcdefghijkl",
                                 "<think>a</think>bcdefghijkl <think>abcdefghijkl"})
    EXPECT_EQ(Written({.tokens = 10}, text), text);
  EXPECT_EQ(Written({.tokens = -1, .open = true}, "abcdef"), "abcdef");
}

}  // namespace
}  // namespace larder::serving::generation
