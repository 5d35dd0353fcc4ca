// What requests ask of their text's form, field by field.
#include "serving/fields/constraints.h"

#include <gtest/gtest.h>

#include <string>

#include "base/work.h"
#include "serving/api/completion_request.h"

namespace larder::serving::inline api {
namespace {

std::shared_ptr<const Grammar> Form(const std::string& text) {
  const auto body = ParseJson(text);
  return ReadConstraint(JsonFields(body)).grammar;
}

TEST(ConstraintsTest, FieldsThatAskForAForm) {
  for (
      const char* text :
      {R"({"response_format":{"type":"json_object"}})",
       R"({"response_format":{"type":"json_object","schema":{"type":"integer"}}})",
       R"({"response_format":{"type":"json_schema","json_schema":{"name":"n","strict":true,"schema":{"type":"object"}}}})",
       R"({"response_format":{"type":"json_schema","json_schema":{"name":"n"}}})",
       R"({"json_schema":{"type":"integer"}})", R"({"grammar":"root ::= \"a\""})",
       R"({"guided_json":"{\"type\":\"integer\"}"})", R"({"guided_regex":"a+"})",
       R"({"guided_choice":["a","b\n"]})", R"({"guided_grammar":"root ::= \"a\""})",
       R"({"structured_outputs":{"choice":["a"]}})"})
    EXPECT_NE(Form(text), nullptr) << text;
  for (const char* text :
       {"{}", R"({"response_format":{"type":"text"}})", R"({"grammar":"","json_schema":null})",
        R"({"guided_json_object":false})", R"({"structured_outputs":{}})"})
    EXPECT_EQ(Form(text), nullptr) << text;
}

TEST(ConstraintsTest, OneTextIsCompiledOnce) {
  EXPECT_EQ(Form(R"({"json_schema":{"type":"integer","minimum":3}})"),
            Form(R"({"guided_json":{"type":"integer","minimum":3}})"));
}

TEST(ConstraintsTest, WrongOnesAreRefusedByName) {
  struct Unreadable {
    const char *text, *field, *says;
  };
  for (const Unreadable& wrong : {
           Unreadable{R"({"grammar":"root ::= x"})", "grammar",
                      "grammar: 1:10: rule 'x' is not defined"},
           Unreadable{R"({"grammar":3})", "grammar", "a string"},
           Unreadable{R"({"response_format":"json"})", "response_format", "an object with a type"},
           Unreadable{R"({"response_format":{"type":"xml"}})", "response_format.type",
                      "\"json_schema\""},
           Unreadable{R"({"response_format":{"type":"json_schema"}})", "response_format",
                      "json_schema is missing"},
           Unreadable{R"({"json_schema":{"properties":{"a":{"not":{}}}}})", "json_schema",
                      "json_schema: schema at /properties/a: not is not supported"},
           Unreadable{R"({"json_schema":"{"})", "json_schema", "a JSON schema"},
           Unreadable{R"({"guided_choice":[]})", "guided_choice", "an array of texts"},
           Unreadable{R"({"guided_regex":"("})", "guided_regex", "a ( without )"},
           Unreadable{R"({"grammar":"root ::= \"a\"","guided_regex":"a"})", "guided_regex",
                      "expected only one of them"},
       }) {
    try {
      Form(wrong.text);
      ADD_FAILURE() << wrong.text;
    } catch (const Refused& why) {
      EXPECT_EQ(why.param(), wrong.field) << wrong.text;
      EXPECT_NE(std::string(why.what()).find(wrong.says), std::string::npos) << why.what();
      EXPECT_EQ(why.status(), 400);
    }
  }
}

TEST(ConstraintsTest, EachDialectsFieldIsNamedInItsErrors) {
  const std::string schema = R"({"properties":{"a":{"not":{}}}})",
                    says = ": schema at /properties/a: not is";
  const std::string user = R"("messages":[{"role":"user","content":"a"}],)";
  struct Case {
    Dialect dialect;
    std::string field, text;
  };
  for (const Case& one : {
           Case{Dialect::kChat, "response_format",
                "{" + user + R"("response_format":{"type":"json_schema","json_schema":{"schema":)" +
                    schema + "}}}"},
           Case{
               Dialect::kResponses, "text.format",
               R"({"input":"a","text":{"format":{"type":"json_schema","schema":)" + schema + "}}}"},
           Case{Dialect::kMessages, "output_config.format",
                "{" + user + R"("output_config":{"format":{"type":"json_schema","schema":)" +
                    schema + "}}}"},
           Case{Dialect::kMessages, "output_format",
                "{" + user + R"("output_format":{"type":"json_schema","schema":)" + schema + "}}"},
           Case{Dialect::kOllamaChat, "format", "{" + user + R"("format":)" + schema + "}"},
       }) {
    try {
      ReadCompletionRequest(ParseJson(one.text), one.dialect, {});
      ADD_FAILURE() << one.text;
    } catch (const Refused& why) {
      EXPECT_EQ(why.param(), one.field);
      EXPECT_TRUE(std::string(why.what()).starts_with(one.field + says)) << why.what();
    }
  }
}

// Whatever field brings a grammar: the I/O thread gives up one that takes long, and another thread
// compiles it.
TEST(ConstraintsTest, ALongCompilationIsFoundOutWhereItIsSpent) {
  std::string many = "\"a\"";
  for (int i = 0; i < 500; ++i) many += fmt::format("|\"{}\"", i * 7919);
  const Json body = {{"prompt", "x"}, {"grammar", "root ::= " + many}};
  std::string text = body.dump();
  text.replace(text.find("grammar"), 7, "gramm\\u0061r");
  const Json read = ParseJson(text);
  {
    const Work work({.steps = 300, .may_take_long = false});
    EXPECT_THROW(ReadCompletionRequest(read, Dialect::kCompletion, {}), TakesLong);
  }
  EXPECT_NE(ReadCompletionRequest(read, Dialect::kCompletion, {}).spec.grammar, nullptr);
  const Work work({.steps = 300, .may_take_long = false});
  EXPECT_NE(ReadCompletionRequest(read, Dialect::kCompletion, {}).spec.grammar, nullptr)
      << "it is kept";
}

}  // namespace
}  // namespace larder::serving::api
