#include "base/error.h"

#include <gtest/gtest.h>

#include <string>

#include "base/check.h"

namespace larder {
namespace {

TEST(Error, IsOneLineThatATerminalShowsAsItIs) {
  EXPECT_STREQ(Error("{}: {} of {}", "a.gguf", 3, 4).what(), "a.gguf: 3 of 4");
  EXPECT_STREQ(Error("{}", "a\nb\x1b[2Jc\x7f").what(), "a\\x0ab\\x1b[2Jc\\x7f");
  EXPECT_STREQ(Error("{}", std::string("a\0b", 3)).what(), "a\\x00b");
  EXPECT_STREQ(Error("{}", "gr\u00fc\u00df").what(), "gr\u00fc\u00df");  // UTF-8 is text
}

TEST(CheckDeathTest, SaysWhereAndWhat) {
  const int n = 2;
  LARDER_CHECK(n == 2);
  LARDER_CHECK(n == 2, "never printed {}", n);
  EXPECT_DEATH(LARDER_CHECK(n == 3), "larder: bug: .*error_test.cc:[0-9]+: n == 3 is false\n");
  EXPECT_DEATH(LARDER_CHECK(n == 3, "n is {}", n), "n == 3 is false: n is 2");
}

}  // namespace
}  // namespace larder
