#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "serving/constraint/constraint_testing.h"
#include "serving/grammar/grammar.h"

namespace larder::serving::inline constraint {
namespace {

using Json = nlohmann::ordered_json;

struct SchemaCase {
  const char* schema;
  std::vector<std::string> valid, invalid;
};

void Check(const std::vector<SchemaCase>& cases) {
  for (const SchemaCase& one : cases) {
    const auto grammar = Grammar::FromJsonSchema(Json::parse(one.schema));
    for (const std::string& text : one.valid) {
      EXPECT_TRUE(Accepts(grammar, text)) << one.schema << " with " << text;
      EXPECT_TRUE(AcceptsTokens(grammar, text, true)) << one.schema << " with " << text;
    }
    for (const std::string& text : one.invalid) {
      EXPECT_FALSE(Accepts(grammar, text)) << one.schema << " with " << text;
      EXPECT_FALSE(AcceptsTokens(grammar, text, true)) << one.schema << " with " << text;
    }
  }
}

TEST(Schema, Types) {
  Check({
      {"true",
       {"1", "\"a\"", "null", "[1, {\"a\":[]}]", "{}", "{\"a\": true,\n  \"b\":-1.5e10}"},
       {"", "{", "[1,]", "tru", "01", "1 "}},
      {R"({"type":"null"})", {"null"}, {"0"}},
      {R"({"type":"boolean"})", {"true", "false"}, {"True", "1"}},
      {R"({"type":"integer"})",
       {"0", "-1", "1234567890123456"},
       {"01", "1.0", "-", "12345678901234567", "1e5"}},
      {R"({"type":"number"})",
       {"0", "-1.5", "1e5", "1E-12", "0.25"},
       {".5", "1.", "+1", "1e", "1e999"}},
      {R"({"type":["string","null"]})", {"null", "\"\""}, {"1"}},
      {R"({"type":["integer","number"]})", {"1.5"}, {}},
      {R"({"type":"string","nullable":true})", {"null", "\"x\""}, {"0"}},
      {R"({"type":"object"})",
       {"{}", "{ \"a\":1}", "{\"a\":{\"b\":[]}, \"c\":null}"},
       {"[]", "{\"a\"}", "{a:1}"}},
      {R"({"type":"array"})", {"[]", "[1, \"a\"]"}, {"{}", "[,]"}},
  });
}

TEST(Schema, Strings) {
  const std::string long_text(300, 'x');
  Check({
      {R"({"type":"string"})",
       {"\"\"", "\"a b é 日本\"", R"("\n\u00e9\"\\\/")", "\"" + long_text + "\""},
       {"\"", "\"\n\"", R"("\x")", R"("\ud800")", "\"\xff\"", "\"a\"b"}},
      {R"({"type":"string","minLength":2,"maxLength":4})",
       {"\"ab\"", "\"日本日本\"", R"("\n\u00e9")"},
       {"\"a\"", "\"abcde\"", R"("\n")"}},
      {R"({"type":"string","maxLength":40})",
       {"\"the quick brown fox jumps over\"", "\"" + std::string(40, 'x') + "\""},
       {"\"" + std::string(41, 'x') + "\""}},
      {R"({"type":"string","minLength":70})",
       {"\"" + std::string(70, 'a') + "\"", "\"" + long_text + "\""},
       {"\"" + std::string(69, 'a') + "\""}},
      {R"({"type":"string","pattern":"^[a-z]+-\\d{3}$"})",
       {"\"ab-123\""},
       {"\"AB-123\"", "\"ab-12\"", "\"xab-1234\""}},
      {R"({"type":"string","pattern":"b+"})", {"\"b\"", "\"abba\"", R"("\nb")"}, {"\"a\"", "\"\""}},
      {R"({"type":"string","pattern":"^a|b$"})", {"\"ax\"", "\"xb\""}, {"\"xa\"", "\"bx\""}},
      {R"({"type":"string","pattern":"^\"\\\\\\t[^x]$"})",
       {R"("\"\\\t\n")", R"("\"\\\ty")"},
       {R"("\"\\\tx")", "\"\"\""}},
      {R"({"type":"string","pattern":"^[a-z][a-z0-9]*$","maxLength":5})",
       {"\"a\"", "\"abc12\""},
       {"\"abc123\"", "\"\""}},
      {R"({"type":"string","pattern":"^(ab|c)d?$","minLength":1})",
       {"\"ab\"", "\"cd\""},
       {"\"d\""}},
      // A format together with a length that several parts of it share.
      {R"({"type":"string","format":"email","maxLength":10})",
       {"\"a@b.c\"", "\"a.b@c.defg\"", "\"abcdef@g.h\""},
       {"\"abcdefg@h.i\"", "\"a.b@c.defgh\""}},
      {R"({"type":"string","format":"hostname","minLength":7,"maxLength":100})",
       {"\"a.b.c.d\"", "\"example.org\""},
       {"\"a.b.cd\"", "\"" + std::string(101, 'a') + "\""}},
      {R"({"type":"string","format":"uri","maxLength":64})",
       {"\"https://example.org/a\"",
        "\"http://a.org/" + std::string(51, 'x').replace(25, 1, "/") + "\""},
       {"\"http://a.org/" + std::string(52, 'x').replace(25, 1, "/") + "\"", "\"\""}},
      {R"({"type":"string","pattern":"^([a-z]+ )*[a-z]+$","minLength":5,"maxLength":8})",
       {"\"abcde\"", "\"a b c\"", "\"abcd efg\""},
       {"\"a b \"", "\"abcd\"", "\"abcd efgh\"", "\"a b c d e\""}},
      {R"({"type":"string","pattern":"^(\"|\\\\n|é)+x*$","minLength":2,"maxLength":3})",
       {R"("\"\"")", R"("éx")", R"("ééx")", R"("\"xx")"},
       {R"("\"")", R"("\"xxx")", R"("x")"}},
      {R"({"type":"string","pattern":"^(aaa|bb)+c?$","minLength":4})",
       {"\"bbbb\"", "\"aaac\"", "\"aaabbaaabbc\""},
       {"\"bbc\"", "\"aaa\"", "\"abbb\""}},
      {R"({"type":"string","format":"date"})",
       {"\"2024-02-28\"", "\"1999-12-31\""},
       {"\"2024-13-01\"", "\"2023-02-30\"", "\"2024-1-1\""}},
      {R"({"type":"string","format":"date-time"})",
       {"\"2024-02-28T23:59:59Z\"", "\"2024-02-28T00:00:00.25+01:00\""},
       {"\"2024-02-28\"", "\"2024-02-28T24:00:00Z\""}},
      {R"({"type":"string","format":"uuid"})",
       {"\"123e4567-e89b-12d3-a456-426614174000\""},
       {"\"123e4567\""}},
      {R"({"type":"string","format":"ipv4"})",
       {"\"0.0.0.0\"", "\"255.249.199.10\""},
       {"\"256.1.1.1\"", "\"1.1.1\""}},
      {R"({"type":"string","format":"uuid","pattern":"^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$"})",
       {"\"01234567-89ab-4def-8123-456789abcdef\""},
       {"\"01234567-89ab-cdef-0123-456789abcdef\""}},
      {R"({"type":"string","format":"email","pattern":"^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$"})",
       {"\"a.b@example.org\""},
       {"\"a..b@example.org\""}},
      {R"({"type":"string","format":"email"})",
       {"\"a.b@example.org\""},
       {"\"a@b\"", "\"@example.org\""}},
      {R"({"type":"string","format":"duration"})",
       {"\"P1DT2H\"", "\"PT5M\"", "\"P3W\""},
       {"\"P\"", "\"PT\"", "\"1D\""}},
      {R"({"type":"string","format":"uri"})",
       {"\"https://example.org/a?b=c#d\""},
       {"\"example.org\""}},
      {R"({"type":"string","format":"made-up"})", {"\"anything\""}, {}},
  });
}

TEST(Schema, Numbers) {
  struct Bounds {
    const char* schema;
    long low, high;
  };
  for (const Bounds& one : std::vector<Bounds>{
           {R"({"type":"integer","minimum":0,"maximum":150})", 0, 150},
           {R"({"type":"integer","minimum":-17,"maximum":23})", -17, 23},
           {R"({"type":"integer","exclusiveMinimum":-1,"exclusiveMaximum":100})", 0, 99},
           {R"({"type":"integer","minimum":97,"maximum":105})", 97, 105},
           {R"({"type":"integer","minimum":-120,"maximum":-99})", -120, -99},
           {R"({"type":"integer","minimum":0.5,"maximum":9.5})", 1, 9},
           {R"({"type":"integer","minimum":5,"exclusiveMinimum":true,"maximum":9})", 6, 9},
           {R"({"type":"integer","minimum":1e2,"maximum":120})", 100, 120}}) {
    const auto grammar = Grammar::FromJsonSchema(Json::parse(one.schema));
    for (long n = -1100; n <= 1100; ++n)
      EXPECT_EQ(Accepts(grammar, std::to_string(n)), one.low <= n && n <= one.high)
          << one.schema << " with " << n;
  }
  Check({
      {R"({"type":"integer","minimum":1})", {"1", "99999", "1234567890123456"}, {"0", "-1", "01"}},
      {R"({"type":"integer","maximum":-5})", {"-5", "-1000000"}, {"-4", "0", "5"}},
      {R"({"type":"number","minimum":0,"maximum":1})",
       {"0", "1", "0.5", "1.0", "0.000001"},
       {"-0.5", "1.01", "2", "1e0"}},
      {R"({"type":"number","exclusiveMinimum":0,"exclusiveMaximum":1})",
       {"0.1", "0.01", "0.99"},
       {"0", "1", "0.0", "1.0"}},
      {R"({"type":"number","minimum":-1.25,"maximum":2.5})",
       {"-1.25", "-1.2", "-0.5", "0", "2.5", "2.49", "1.99"},
       {"-1.26", "-2", "2.51", "3"}},
      {R"({"type":"number","minimum":10.25})",
       {"10.25", "10.3", "11", "999.5"},
       {"10.2", "10", "9.9", "-11"}},
      {R"({"type":"number","exclusiveMaximum":0})", {"-0.1", "-5"}, {"0", "-0", "-0.0", "1"}},
      {R"({"type":"number","minimum":3,"maximum":3})", {"3"}, {"3.1", "2"}},
      {R"({"type":"integer","multipleOf":1})", {"5"}, {}},
  });
}

TEST(Schema, EnumConst) {
  Check({
      {R"({"enum":["red","red wine",1,null,true,{"a":[1]}]})",
       {"\"red\"", "\"red wine\"", "1", "null", "true", "{\"a\":[1]}"},
       {"\"re\"", "2", "\"red \""}},
      {R"({"type":"string","enum":["a",1]})", {"\"a\""}, {"1"}},
      {R"({"const":"x\"y"})", {R"("x\"y")"}, {"\"x\""}},
      {R"({"type":"integer","enum":[1,5,9],"minimum":4})", {"5", "9"}, {"1"}},
  });
}

TEST(Schema, Objects) {
  Check({
      {R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"string"}},"required":["b","a"],"additionalProperties":false})",
       {"{\"b\":1,\"a\":\"x\"}", "{ \"b\": 1, \"a\": \"x\" }", "{\n  \"b\": 1,\n  \"a\": \"x\"\n}"},
       {"{\"a\":\"x\",\"b\":1}", "{\"b\":1}", "{}", "{\"b\":1,\"a\":\"x\",\"c\":1}",
        "{\"b\":1,\"a\":\"x\",}", "{  \"b\":1,\"a\":\"x\"}"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"},"c":{"type":"integer"}},"required":["b"]})",
       {"{\"b\":1}", "{\"a\":1,\"b\":2}", "{\"b\":1,\"c\":3}", "{\"a\":1,\"b\":2,\"c\":3}"},
       {"{}", "{\"a\":1}", "{\"a\":1,\"c\":2}", "{,\"b\":1}", "{\"x\":1,\"b\":1}"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"ab":{"type":"integer"}},"additionalProperties":{"type":"boolean"}})",
       {"{}", "{\"a\":1}", "{\"x\":true}", "{\"a\":1, \"b\":true, \"abc\":false}", "{\"\":true}",
        "{\"é\":true}"},
       {"{\"a\":true}", "{\"ab\":true}", "{\"x\":1}", R"({"\u0061":true})",
        "{\"x\":true,\"a\":1}"}},
      {R"({"type":"object","properties":{"é":{"type":"integer"}},"additionalProperties":true})",
       {"{\"é\":1}", "{\"è\":\"x\"}"},
       {"{\"é\":\"x\"}"}},
      {R"({"type":"object","additionalProperties":{"type":"integer"}})",
       {"{}", "{\"a\":1,\"b\":2}"},
       {"{\"a\":\"x\"}"}},
      {R"({"type":"object","additionalProperties":false})", {"{}", "{ }"}, {"{\"a\":1}"}},
      {R"({"type":"object","patternProperties":{"^x-":{"type":"integer"}},"additionalProperties":false})",
       {"{}", "{\"x-a\":1,\"x-b\":2}"},
       {"{\"a\":1}", "{\"x-a\":\"\"}"}},
      {R"({"properties":{"a":{}},"required":["a","z"]})",
       {"{\"a\":[1],\"z\":null}"},
       {"{\"a\":1}", "1"}},
      {R"({"type":"object","properties":{"a":false,"b":{"type":"null"}}})",
       {"{}", "{\"b\":null}"},
       {"{\"a\":1}"}},
      {R"({"type":"object","properties":{"o":{"type":"object","properties":{"n":{"type":"null"}},"required":["n"]}},"required":["o"]})",
       {"{\"o\":{\"n\":null}}"},
       {"{\"o\":{}}"}},
  });
}

TEST(Schema, Arrays) {
  Check({
      {R"({"type":"array","items":{"type":"integer"}})",
       {"[]", "[1]", "[1,2, 3]", "[ 1\n]"},
       {"[\"a\"]", "[1 2]", "[1,,2]"}},
      {R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})",
       {"[1,2]", "[1,2,3]"},
       {"[1]", "[]", "[1,2,3,4]"}},
      {R"({"type":"array","items":{"type":"string"},"maxItems":100})", {"[]", "[\"a\",\"b\"]"}, {}},
      {R"({"type":"array","maxItems":0})", {"[]"}, {"[1]"}},
      {R"({"type":"array","items":false})", {"[]"}, {"[1]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":false,"minItems":2})",
       {"[1,\"a\"]"},
       {"[1]", "[]", "[1,\"a\",2]", "[\"a\",1]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"items":{"type":"null"},"maxItems":4})",
       {"[]", "[1]", "[1,\"a\"]", "[1,\"a\",null,null]"},
       {"[\"a\"]", "[1,null]", "[1,\"a\",null,null,null]"}},
      {R"({"type":"array","items":[{"type":"integer"}],"additionalItems":false})",
       {"[]", "[1]"},
       {"[1,2]", "[\"a\"]"}},
      {R"({"type":"array","prefixItems":[{"type":"integer"}],"minItems":3})",
       {"[1,2,3]", "[1,\"a\",null,{}]"},
       {"[1,2]", "[\"a\",2,3]"}},
      {R"({"type":"array","items":{"type":"array","items":{"type":"boolean"},"minItems":1}})",
       {"[[true],[false,true]]"},
       {"[[]]"}},
  });
}

TEST(Schema, Combinations) {
  Check({
      {R"({"anyOf":[{"type":"integer"},{"type":"string","maxLength":2}]})",
       {"1", "\"ab\""},
       {"\"abc\"", "null"}},
      {R"({"oneOf":[{"type":"object","properties":{"k":{"const":"a"},"x":{"type":"integer"}},"required":["k","x"]},{"type":"object","properties":{"k":{"const":"b"},"y":{"type":"string"}},"required":["k","y"]}]})",
       {"{\"k\":\"a\",\"x\":1}", "{\"k\":\"b\",\"y\":\"s\"}"},
       {"{\"k\":\"a\",\"y\":\"s\"}"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}},"required":["b"]}]})",
       {"{\"a\":1,\"b\":null}"},
       {"{\"a\":1}", "{\"b\":null}"}},
      {R"({"type":"integer","allOf":[{"minimum":3},{"maximum":5},{"minimum":4}]})",
       {"4", "5"},
       {"3", "6"}},
      {R"({"type":"object","properties":{"a":{"type":"integer"},"b":{"type":"integer"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
       {"{\"a\":1}", "{\"b\":1}", "{\"a\":1,\"b\":1}"},
       {"{}"}},
      {R"({"allOf":[{"type":["integer","string"]},{"type":["string","null"]}]})",
       {"\"a\""},
       {"1", "null"}},
      {R"({"allOf":[{"enum":[1,2,3]},{"enum":[2,3,4]}]})", {"2", "3"}, {"1", "4"}},
      {R"({"allOf":[{"type":"object","properties":{"a":{"type":"number"}}},{"properties":{"a":{"minimum":5}}}],"required":["a"]})",
       {"{\"a\":5}"},
       {"{\"a\":4}"}},
  });
}

TEST(Schema, References) {
  Check({
      {R"({"$defs":{"n":{"type":"object","properties":{"v":{"type":"integer"},"next":{"anyOf":[{"$ref":"#/$defs/n"},{"type":"null"}]}},"required":["v","next"]}},"$ref":"#/$defs/n"})",
       {"{\"v\":1,\"next\":null}", "{\"v\":1,\"next\":{\"v\":2,\"next\":null}}"},
       {"{\"v\":1}", "{\"v\":1,\"next\":{}}"}},
      {R"({"type":"object","properties":{"children":{"type":"array","items":{"$ref":"#"}}},"required":["children"]})",
       {"{\"children\":[]}",
        "{\"children\":[{\"children\":[]},{\"children\":[{\"children\":[]}]}]}"},
       {"{\"children\":[1]}"}},
      {R"({"definitions":{"a/b":{"type":"integer"}},"type":"array","items":{"$ref":"#/definitions/a~1b","description":"x"}})",
       {"[1]"},
       {"[\"a\"]"}},
      {R"({"$defs":{"s":{"type":"string"}},"$ref":"#/$defs/s","maxLength":3})",
       {"\"abc\""},
       {"\"abcd\""}},
  });
}

TEST(Schema, NamesWhatIsNotSupported) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {R"({"type":"object","properties":{"age":{"type":"number","multipleOf":0.5}}})",
       "schema at /properties/age: multipleOf is not supported"},
      {R"({"anyOf":[{"type":"string"},{"not":{}}]})", "schema at /anyOf/1: not is not supported"},
      {R"({"items":{"$ref":"#/$defs/x"}})",
       "schema at /items: $ref: '#/$defs/x' is nowhere in the schema"},
      {R"({"$ref":"http://a.b/c"})",
       "schema at /: $ref: 'http://a.b/c' is not supported: expected # or #/..., a place in this "
       "schema"},
      {R"({"type":"array","uniqueItems":true})", "schema at /: uniqueItems is not supported"},
      {R"({"type":"array","minItems":-1})",
       "schema at /: minItems: expected a number of 0 or more"},
      {R"x({"type":"string","pattern":"(?=a)"})x",
       "schema at /: pattern: look-around or a flag is not supported at character 3 of the "
       "pattern"},
      {R"({"type":"frob"})",
       "schema at /: type: 'frob' is not a type: expected string, number, integer, boolean, null, "
       "array or object"},
      {R"([1])", "schema at /: expected an object, true or false"},
      {R"({"properties":{"a":3}})", "schema at /properties/a: expected an object, true or false"},
      {"false", "schema at /: it matches no text"},
      {R"({"type":"integer","minimum":5,"maximum":4})", "schema at /: it matches no text"},
      {R"({"type":"object","properties":{"a":false},"required":["a"]})",
       "schema at /properties/a: it matches no text"},
      {R"({"properties":{"o":false,"b":{"anyOf":[{"type":"null"},false]},
                         "a":{"items":{"minimum":5,"maximum":3},"minItems":1}},"required":["a","b"]})",
       "schema at /properties/a/items: it matches no text"},
      {R"({"properties":{"a":{"$ref":"#"}},"required":["a"]})",
       "schema at /properties/a: it matches no text"},
      {R"({"$ref":"#"})", "schema at /: $ref leads to itself"},
      {R"({"properties":{"a":{"anyOf":[{"$ref":"#/properties/a"},{"type":"null"}]}}})",
       "schema at /properties/a/anyOf/0: $ref leads to itself"},
      {R"({"$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}},"$ref":"#/$defs/a"})",
       "schema at /$defs/b: $ref leads to itself"},
      {R"({"allOf":[{"pattern":"a"},{"pattern":"b"}]})",
       "schema at /: two schemas that must both hold differ in pattern: not supported"},
  };
  for (const auto& [schema, message] : cases) {
    try {
      Grammar::FromJsonSchema(Json::parse(schema));
      ADD_FAILURE() << schema;
    } catch (const Error& error) {
      EXPECT_EQ(error.what(), message);
    }
  }
}

}  // namespace
}  // namespace larder::serving::constraint
