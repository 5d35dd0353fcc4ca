#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "serving/sampling/sampler.h"

namespace larder::serving::inline sampling {
namespace {

TEST(StopStrings, HoldsBackOnlyWhatMayBecomeAStop) {
  StopStrings stops({"###", "User:"});
  EXPECT_EQ(stops.Add("Hello #"), "Hello ");
  EXPECT_EQ(stops.Add("1 and ##"), "#1 and ");
  EXPECT_EQ(stops.Add("2 Us"), "##2 ");
  EXPECT_EQ(stops.Add("e the User"), "Use the ");
  EXPECT_FALSE(stops.stopped());
  EXPECT_EQ(stops.Add(": more"), "");
  EXPECT_TRUE(stops.stopped());
  EXPECT_EQ(stops.matched(), 1);
  EXPECT_EQ(stops.Add("even more"), "");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStrings, FinishGivesWhatWasHeld) {
  StopStrings stops({"</s>"});
  EXPECT_EQ(stops.Add("a </"), "a ");
  EXPECT_EQ(stops.Finish(), "</");
  EXPECT_EQ(stops.Finish(), "");
}

TEST(StopStrings, APrefixWithinAPrefixIsHeldToo) {
  StopStrings stops({"aab"});
  EXPECT_EQ(stops.Add("aaa"), "a");
  EXPECT_EQ(stops.Add("b!"), "");
  EXPECT_TRUE(stops.stopped());
}

TEST(StopStrings, FirstToBeCompleteWinsThenTheLonger) {
  StopStrings inner({"abcd", "c"});
  EXPECT_EQ(inner.Add("xabcd"), "xab");
  EXPECT_EQ(inner.matched(), 1);
  StopStrings longer({"cd", "bcd"});
  EXPECT_EQ(longer.Add("abcd"), "a");
  EXPECT_EQ(longer.matched(), 1);
}

TEST(StopStrings, NoneLetsEverythingThrough) {
  StopStrings stops({});
  EXPECT_EQ(stops.Add("text"), "text");
  EXPECT_FALSE(stops.stopped());
}

TEST(IndentLimit, EndsBeforeALineWithFewerBlanks) {
  // The pieces' cuts change nothing.
  const auto kept = [](std::string_view text, size_t least) {
    std::vector<std::string> all;
    for (size_t cut = 0; cut <= text.size(); ++cut) {
      IndentLimit limit(least);
      std::string out;
      for (const std::string_view piece : {text.substr(0, cut), text.substr(cut)})
        out += piece.substr(0, limit.Keep(piece));
      EXPECT_EQ(limit.stopped(), out != text) << cut;
      all.push_back(out);
    }
    for (const std::string& out : all) EXPECT_EQ(out, all[0]);
    return all[0];
  };
  EXPECT_EQ(kept("a\n  b\n\tc\nd\n    e", 0), "a\n  b\n\tc\nd\n    e");
  EXPECT_EQ(kept("a\n  b\n \tc\n d", 2), "a\n  b\n \tc\n ");
  EXPECT_EQ(kept("a\n\n  b", 2), "a\n") << "an empty line has no blanks";
  EXPECT_EQ(kept("a\n  ", 2), "a\n  ");
  EXPECT_EQ(kept("no lines", 4), "no lines");
}

TEST(StopStrings, EmptyIsAnError) { EXPECT_THROW(StopStrings({"a", ""}), Error); }

// Random texts of two letters, which have many near misses, cut at random: the result is the same
// as for the whole text, and as found by search.
TEST(StopStrings, TheCutsChangeNothing) {
  std::mt19937 random(1);
  int matches = 0;
  for (int i = 0; i < 2000; ++i) {
    const auto letters = [&](size_t most) {
      std::string s(1 + random() % most, ' ');
      for (char& c : s) c = "ab"[random() % 2];
      return s;
    };
    const std::vector<std::string> stops = {letters(6), letters(8)};
    const std::string text = letters(30);
    std::string expected = text;
    size_t end = std::string::npos;
    for (const std::string& stop : stops) {
      const size_t at = text.find(stop);
      if (at == std::string::npos || at + stop.size() > end) continue;
      if (at + stop.size() == end && at > expected.size()) continue;
      end = at + stop.size();
      expected = text.substr(0, at);
    }
    matches += end != std::string::npos;
    StopStrings cut(stops);
    std::string got;
    for (size_t at = 0; at < text.size();) {
      const size_t n = 1 + random() % 4;
      got += cut.Add(std::string_view(text).substr(at, n));
      at += n;
    }
    got += cut.Finish();
    ASSERT_EQ(got, expected) << text << " with " << stops[0] << ", " << stops[1];
    ASSERT_EQ(cut.stopped(), end != std::string::npos);
  }
  EXPECT_GT(matches, 500);
  EXPECT_LT(matches, 1900);
}

}  // namespace
}  // namespace larder::serving::sampling
