#include "serving/fields/json_fields.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>

namespace larder::serving::inline fields {
namespace {

std::string Refusal(const std::function<void()>& read) {
  try {
    read();
  } catch (const Refused& refused) {
    return std::string(refused.param()) + "|" + refused.what();
  }
  return "accepted";
}

TEST(JsonFieldsTest, FieldsHaveTheirTypesOrTheDefault) {
  const Json object = ParseJson(R"({"b":true,"i":7,"whole":3.0,"n":0.5,"s":"x","null":null})");
  const JsonFields fields(object);
  EXPECT_TRUE(fields.Bool("b", false));
  EXPECT_EQ(fields.Integer("i", 0, 0, 10), 7);
  EXPECT_EQ(fields.Integer("whole", 0, 0, 10), 3);
  EXPECT_EQ(fields.Number("n", 0), 0.5f);
  EXPECT_EQ(fields.String("s", ""), "x");
  EXPECT_FALSE(fields.Has("null"));
  EXPECT_EQ(fields.Integer("null", 5, 0, 10), 5);
  EXPECT_EQ(fields.String("absent", "default"), "default");
}

TEST(JsonFieldsTest, WrongOnesAreRefusedByName) {
  const Json object = ParseJson(R"({"b":1,"i":"7","part":3.5,"large":11,"n":1e300,"s":[1]})");
  const JsonFields fields(object);
  for (const auto& [name, read] :
       std::initializer_list<std::pair<const char*, std::function<void()>>>{
           {"b", [&] { fields.Bool("b", false); }},
           {"i", [&] { fields.Integer("i", 0, 0, 10); }},
           {"part", [&] { fields.Integer("part", 0, 0, 10); }},
           {"large", [&] { fields.Integer("large", 0, 0, 10); }},
           {"n", [&] { fields.Number("n", 0); }},
           {"s", [&] { fields.String("s", ""); }}}) {
    const std::string refusal = Refusal(read);
    EXPECT_EQ(refusal.rfind(std::string(name) + "|" + name + " is ", 0), 0u) << refusal;
    EXPECT_NE(refusal.find("expected"), std::string::npos) << refusal;
  }
  EXPECT_NE(Refusal([] {
              const Json list = Json::array();
              JsonFields{list, "the tool"};
            }),
            "accepted");
}

TEST(JsonFieldsTest, FieldsThatNobodyAskedForAreCounted) {
  const Json object = ParseJson(R"({"a":1,"b":2,"c":3,"d":null})");
  const JsonFields fields(object);
  EXPECT_EQ(fields.ignored(), 3u);
  fields.Integer("a", 0, 0, 9);
  fields.Ignore({"b", "x"});
  EXPECT_EQ(fields.ignored(), 1u);
}

TEST(JsonFieldsTest, ItKnowsWhatIsReadWhatIsIgnoredAndWhatIsRefused) {
  const Json object = ParseJson(R"({"a":1,"b":2,"new":3,"e":"","o":{"p":1,"q":2,"r":3},"n":null})");
  const JsonFields fields(object);
  fields.Integer("a", 0, 0, 9);
  fields.Ignore({"b", "a"});
  fields.Refuse("e", "none");
  fields.Refuse("n", "none");
  const JsonFields inner(*fields.Find("o"), "o");
  inner.Has("p");
  inner.Ignore({"q"});
  fields.Include("o", inner);
  FieldNames names;
  fields.AddNames(names);
  EXPECT_EQ(names.used, (std::set<std::string>{"a", "o", "o.p"}));
  EXPECT_EQ(names.ignored, (std::set<std::string>{"b", "o.q"}));
  EXPECT_EQ(names.refused, (std::set<std::string>{"e", "n"}));
  EXPECT_EQ(fields.ignored(), 2u) << "new and o.r";
  EXPECT_EQ(fields.LeftOut(9), (std::vector<std::string>{"new", "b", "o.r", "o.q"}));
  EXPECT_EQ(fields.LeftOut(2), (std::vector<std::string>{"new", "b"}));
  EXPECT_NE(Refusal([&] { fields.Refuse("b", "none"); }).find("b|b is 2: expected none"),
            std::string::npos);
}

TEST(ParseJsonTest, RefusesWhatIsNoJson) {
  for (const char* text : {"", "{", "{} x", "nul", "\"\xff\""})
    EXPECT_NE(Refusal([&] { ParseJson(text); }), "accepted") << text;
}

}  // namespace
}  // namespace larder::serving::fields
