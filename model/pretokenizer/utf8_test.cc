#include "model/pretokenizer/utf8.h"

#include <gtest/gtest.h>

namespace larder::model::inline pretokenizer {
namespace {

TEST(TokenizerUtf8, EveryCharacterGoesThereAndBack) {
  for (char32_t code = 0; code < 0x110000; ++code) {
    std::string text;
    AppendUtf8(text, code);
    const Utf8Step step = NextUtf8(text);
    const bool surrogate = code >= 0xD800 && code < 0xE000;
    ASSERT_EQ(step.kind, surrogate ? Utf8Kind::kInvalid : Utf8Kind::kCharacter)
        << static_cast<uint32_t>(code);
    if (surrogate) continue;
    ASSERT_EQ(step.code, code);
    ASSERT_EQ(step.bytes, text.size());
    for (size_t cut = 1; cut < text.size(); ++cut) {
      const Utf8Step part = NextUtf8(std::string_view(text).substr(0, cut));
      ASSERT_EQ(part.kind, Utf8Kind::kIncomplete);
      ASSERT_EQ(part.bytes, cut);
    }
  }
}

TEST(TokenizerUtf8, InvalidStartsAreAsLongAsTheyCouldHaveBeenACharacter) {
  const auto invalid = [](std::string_view text) {
    const Utf8Step step = NextUtf8(text);
    return step.kind == Utf8Kind::kInvalid ? step.bytes : 0;
  };
  EXPECT_EQ(invalid("\x80"), 1u);
  EXPECT_EQ(invalid("\xC1\x80"), 1u);
  EXPECT_EQ(invalid("\xE0\x9F\x80"), 1u);      // overlong
  EXPECT_EQ(invalid("\xF4\x90\x80\x80"), 1u);  // above U+10FFFF
  EXPECT_EQ(invalid("\xF5\x80\x80\x80"), 1u);
  EXPECT_EQ(invalid("\xE2\x82x"), 2u);
  EXPECT_EQ(invalid("\xF0\x9F\x98x"), 3u);
  EXPECT_EQ(invalid("x"), 0u);
}

}  // namespace
}  // namespace larder::model::pretokenizer
