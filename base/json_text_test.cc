#include "base/json_text.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>

#include "base/error_testing.h"
#include "base/work.h"

namespace larder {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

template <typename Json>
std::string Why(std::string_view text, const JsonLimits& limits = {}) {
  try {
    ParseJsonText<Json>(text, limits);
    return "";
  } catch (const JsonError& error) {
    return error.what();
  }
}

TEST(JsonText, IsWhatTheLibraryReads) {
  for (const char* text :
       {"null", "true", "-7", "18446744073709551615", "1.5e3", R"("\u00e9\n")", "[]", "{}",
        R"([1,[2,{"a":[]}],"x"])", R"({"b":1,"a":{"c":null,"b":[{}]},"c":[]})"}) {
    EXPECT_EQ(ParseJsonText<json>(text), json::parse(text)) << text;
    EXPECT_EQ(ParseJsonText<ordered_json>(text).dump(), ordered_json::parse(text).dump()) << text;
  }
  for (const char* text : {"", "{", "[1,]", "{\"a\"}", "nul", "\"\xff\"", "[1] 2", "1e999"}) {
    EXPECT_EQ(Why<json>(text).substr(0, 12), "is not JSON:") << text;
    EXPECT_EQ(Why<ordered_json>(text), Why<json>(text)) << text;
    EXPECT_EQ(TryParseJsonText<json>(text), std::nullopt) << text;
  }
}

TEST(JsonText, OfEqualNamesTheLastValueCountsInTheFirstPlace) {
  const std::string text = R"({"a":1,"b":2,"a":{"x":1,"x":2},"c":3,"a":4,"b":5})";
  EXPECT_EQ(ParseJsonText<ordered_json>(text).dump(), R"({"a":4,"b":5,"c":3})");
  EXPECT_EQ(ParseJsonText<ordered_json>(text).dump(), ordered_json::parse(text).dump());
  EXPECT_EQ(ParseJsonText<json>(text), json::parse(text));
}

TEST(JsonText, DepthIsBounded) {
  const auto nested = [](const std::string& open, const std::string& inside, size_t depth,
                         const std::string& close) {
    std::string text;
    for (size_t i = 0; i < depth; ++i) text += open;
    text += inside;
    for (size_t i = 0; i < depth; ++i) text += close;
    return text;
  };
  for (const auto& [open, inside, close] :
       {std::tuple{"[", "", "]"}, std::tuple{"{\"a\":", "1", "}"},
        std::tuple{"[{\"\":", "0", "}]"}}) {
    const size_t each = std::string_view(open).starts_with("[{") ? 2 : 1;
    EXPECT_EQ(Why<ordered_json>(nested(open, inside, 64 / each, close)), "");
    for (const size_t depth : {65u, 200'000u}) {
      EXPECT_EQ(Why<ordered_json>(nested(open, inside, depth, close)),
                "is nested more than 64 deep");
      EXPECT_EQ(Why<json>(nested(open, inside, depth, "")), "is nested more than 64 deep");
    }
  }
  EXPECT_EQ(Why<json>("[[]]", {.depth = 1}), "is nested more than 1 deep");
}

TEST(JsonText, FieldsAreBoundedAndReadInLinearTime) {
  const auto object = [](size_t fields) {
    std::string text = "{";
    for (size_t i = 0; i < fields; ++i) text += fmt::format("{}\"k{}\":0", i > 0 ? "," : "", i);
    return text + "}";
  };
  EXPECT_EQ(ParseJsonText<ordered_json>(object(4096)).size(), 4096u);
  EXPECT_EQ(Why<ordered_json>(object(4097)), "has an object of more than 4096 fields");
  const auto steps = [&](size_t fields) {
    const Work work;
    ParseJsonText<ordered_json>(object(fields));
    return work.spent();
  };
  EXPECT_LE(steps(4000), 4 * steps(1000) + 10);
}

TEST(JsonText, FindsATextOfTheOutermostObjectOnly) {
  EXPECT_EQ(FindTextField(R"({"a":[{"api_key":"no"}],"api_key":"yes","b":)", "api_key"), "yes");
  for (const char* none : {"", "x", "{", R"({"api_key":5,"b":"c")", R"({"a":{"api_key":"no"}})",
                           R"(["api_key","no"])", R"({"b":"api_key)", R"({"api_key":"ye)"})
    EXPECT_EQ(FindTextField(none, "api_key"), std::nullopt) << none;
}

TEST(WorkTest, EndsWhatTakesTooMuch) {
  {
    Work work({.steps = 10, .bytes = 100});
    SpendWork(10);
    EXPECT_EQ(work.spent(), 10u);
    EXPECT_THROW(SpendWork(1), TooMuchWork);
    EXPECT_THROW(SpendWork(1), TooMuchWork) << "it stays spent";
    EXPECT_THROW(HoldWork(101), TooMuchWork);
    Work inner({.steps = 1, .may_take_long = false});
    EXPECT_THROW(SpendWork(2), TakesLong);
  }
  EXPECT_EQ(Work::Current(), nullptr);
  SpendWork(UINT64_MAX);  // nobody counts
  std::atomic<bool> wanted{true};
  Work work({.wanted = &wanted});
  SpendWork(1);
  wanted = false;
  EXPECT_THROW(SpendWork(0), NotWanted);
}

TEST(JsonText, WhatIsWrongWithAFileNamesIt) {
  const auto why = [](std::string_view text) {
    return ErrorOf([&] {
      try {
        if (ParseJsonText<json>(text).at("version").get<int>() != 1) throw Error("another version");
      } catch (...) {
        RethrowOfFile("a/file", "damaged");
      }
    });
  };
  EXPECT_EQ(why(R"({"version":1})"), "no error");
  EXPECT_EQ(why(R"({"version":2})"), "another version");
  EXPECT_EQ(why("{}"), "a/file: damaged: key 'version' not found");
  EXPECT_EQ(why(R"({"version":"1"})"), "a/file: damaged: type must be number, but is string");
  EXPECT_TRUE(why("{").starts_with("a/file: damaged: it is not JSON: parse error")) << why("{");
}

// Clients can't take back what a model wrote.
TEST(JsonText, HalfOfAPairThatStandsAloneIsReplaced) {
  const auto text = [](std::string_view from) {
    return ParseJsonText<nlohmann::json>(from).at(0).get<std::string>();
  };
  EXPECT_EQ(text("[\"a\\\\ud83d\"]"), "a\\ud83d") << "an escaped backslash, and letters";
  EXPECT_EQ(text("[\"a\\ud83d\"]"), "a\xef\xbf\xbd");
  EXPECT_EQ(text("[\"\\ud83dx\\ude00\\ud83d\\ude00\"]"),
            "\xef\xbf\xbdx\xef\xbf\xbd\xf0\x9f\x98\x80");
  EXPECT_EQ(text("[\"\\ud83d\\ud83d\\ude00\"]"), "\xef\xbf\xbd\xf0\x9f\x98\x80");
  EXPECT_THROW(text("[\"\\ud83\"]"), JsonError);
}

}  // namespace
}  // namespace larder
