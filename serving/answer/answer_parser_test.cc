#include "serving/answer/answer_parser.h"

#include <gtest/gtest.h>

#include "serving/answer/answer_testing.h"

namespace larder::serving::inline answer {
namespace {

using Json = nlohmann::ordered_json;

Json Tools() {
  return Json::parse(R"([
    {"type": "function", "function": {"name": "get_weather", "parameters": {"type": "object", "properties": {
      "city": {"type": "string"}, "days": {"type": "integer"}, "o": {"type": "object"}, "metric": {"type": "boolean"},
      "note": {"type": ["string", "null"]}}}}},
    {"type": "function", "function": {"name": "add", "parameters": {"type": "object", "properties": {
      "a": {"type": "number"}, "b": {"$ref": "#/$defs/n"}}, "$defs": {"n": {"type": "number"}}}}}
  ])");
}

ParsedAnswer Parse(AnswerFormat format, std::string_view text, bool in_thought = false) {
  return ParseAnswer({.format = format, .starts_in_reasoning = in_thought, .tools = Tools()}, text);
}

// "get_weather {"city": "Zürich"} | add {...}", or the error.
std::string Calls(const ParsedAnswer& answer) {
  std::string text;
  for (const ParsedCall& call : answer.calls) {
    const Json arguments = Json::parse(call.arguments, nullptr, false);
    if (!text.empty()) text += " | ";
    text += call.name + " " +
            (arguments.is_discarded() ? "BROKEN " + call.arguments : arguments.dump());
  }
  return text;
}

struct Sample {
  AnswerFormat format;
  const char* text;
  const char* reasoning;
  const char* content;
  const char* calls;
};

constexpr char kWeather[] = R"(get_weather {"city":"Zürich \"x\"","days":3,"o":{"k":[1,"<b>"]}})";
constexpr char kBoth[] =
    R"(get_weather {"city":"Zürich \"x\"","days":3,"o":{"k":[1,"<b>"]}} | add {"a":1.5,"b":2})";

const Sample kSamples[] = {
    {AnswerFormat::kHermes,
     "<think>\nLet me\n\nsee.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"get_weather\", "
     "\"arguments\": {\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}}\n"
     "</tool_call>\n<tool_call>\n{\"name\": \"add\", \"arguments\": {\"a\": 1.5, \"b\": 2}}\n"
     "</tool_call>",
     "Let me\n\nsee.", "I look.", kBoth},
    // Arguments before the name, as a string, and missing.
    {AnswerFormat::kHermes, "<tool_call>{\"arguments\": {\"a\": 1}, \"name\": \"add\"}</tool_call>",
     "", "", "add {\"a\":1}"},
    {AnswerFormat::kHermes,
     R"(<tool_call>{"name": "add", "arguments": "{\"a\": \"\u00fc\ud83d\ude00\"}"}</tool_call>)",
     "", "", "add {\"a\":\"ü😀\"}"},
    {AnswerFormat::kHermes, R"(<tool_call>{"name": "now"}</tool_call>)", "", "", "now {}"},
    {AnswerFormat::kHermes,
     R"(<tool_call>[{"type": "function", "function": {"name": "f", "arguments": {}}}]</tool_call>)",
     "", "", "f {}"},
    {AnswerFormat::kQwenXml,
     "<think>\nHm\n</think>\nI look.\n\n<tool_call>\n<function=get_weather>\n<parameter=city>\n"
     "Zürich \"x\"\n</parameter>\n"
     "<parameter=days>\n3\n</parameter>\n<parameter=o>\n{\"k\": [1, \"<b>\"]}\n</parameter>\n"
     "</function>\n</tool_call>\n"
     "<tool_call>\n<function=add>\n<parameter=a>\n1.5\n</parameter>\n<parameter=b>\n2\n"
     "</parameter>\n</function>\n"
     "</tool_call>",
     "Hm", "I look.", kBoth},
    // Strings keep their inner lines and look-alikes; booleans come as Python prints them; unions.
    {AnswerFormat::kQwenXml,
     "<function=get_weather>\n<parameter=city>\n\n12\n</param\n</parameter>\n<parameter=metric>\n"
     "True\n</parameter>\n"
     "<parameter=note>\nnull\n</parameter>\n<parameter=x>\n[1, 2]\n</parameter>\n<parameter=days>\n"
     "many\n</parameter>\n"
     "</function>\n</tool_call>",
     "", "",
     R"(get_weather {"city":"\n12\n</param","metric":true,"note":null,"x":[1,2],"days":"many"})"},
    {AnswerFormat::kQwenXml, "<tool_call>\n<function=now>\n</function>\n</tool_call>\nDone.", "",
     "Done.", "now {}"},
    {AnswerFormat::kSeedOss,
     "<seed:think>Hm</seed:think>\nI look.\n\n<seed:tool_call>\n<function=get_weather>\n"
     "<parameter=city>Zürich \"x\"</parameter>\n<parameter=days>3</parameter>\n<parameter=o>{'k': "
     "[1, '<b>']}</parameter>\n</function>\n"
     "</seed:tool_call>\n<seed:tool_call>\n<function=add>\n<parameter=a>1.5</parameter>\n"
     "<parameter=b>2</parameter>\n"
     "</function>\n</seed:tool_call>",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kLlama3,
     R"({"name": "get_weather", "parameters": {"city": "Zürich \"x\"", "days": 3, "o": {"k": [1, "<b>"]}}})",
     "", "", kWeather},
    {AnswerFormat::kLlama3,
     R"(<|python_tag|>{"type": "function", "name": "add", "parameters": {"a": 1}}; {"name": "add", "parameters": {"a": 2}})",
     "", "", R"(add {"a":1} | add {"a":2})"},
    {AnswerFormat::kLlama3, R"x(<|python_tag|>brave_search.call(query="a \"b\" (c)", n=2))x", "",
     "", R"x(brave_search {"query":"a \"b\" (c)","n":2})x"},
    {AnswerFormat::kLlama3, R"({"name": "Bob", "parameters": {"a": 1}})", "",
     R"({"name": "Bob", "parameters": {"a": 1}})", ""},
    {AnswerFormat::kLlama3, R"({"city": "Bern"})", "", R"({"city": "Bern"})", ""},
    {AnswerFormat::kMistral,
     R"([TOOL_CALLS][{"name": "get_weather", "arguments": {"city": "Zürich \"x\"", "days": 3, "o": {"k": [1, "<b>"]}}, "id": "abcdefgh1"}, {"name": "add", "arguments": {"a": 1.5, "b": 2}, "id": "abcdefgh2"}]</s>)",
     "", "</s>", kBoth},
    {AnswerFormat::kMistralArgs,
     R"([THINK]Hm[/THINK]I look.[TOOL_CALLS]get_weather[ARGS]{"city": "Zürich \"x\"", "days": 3, "o": {"k": [1, "<b>"]}}[TOOL_CALLS]add[CALL_ID]123456789[ARGS]{"a": 1.5, "b": 2})",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kDeepSeekV3,
     "<think>\nHm\n</think>\n\n"
     "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"city\": "
     "\"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}\n```<｜tool▁call▁end｜>\n"
     "<｜tool▁call▁begin｜>function<｜tool▁sep｜>add\n```json\n{\"a\": 1.5, \"b\": 2}\n"
     "```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "Hm", "", kBoth},
    {AnswerFormat::kDeepSeekV31,
     "I look.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"city\": \"Zürich "
     "\\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, "
     "\"<b>\"]}}<｜tool▁call▁end｜><｜tool▁call▁begin｜>add<｜tool▁sep｜>{\"a\": 1.5, \"b\": "
     "2}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
     "", "I look.", kBoth},
    {AnswerFormat::kDeepSeekV4,
     "</think>I look.\n\n<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter "
     "name=\"city\" string=\"true\">Zürich \"x\"</｜DSML｜parameter>\n<｜DSML｜parameter name=\"days\" "
     "string=\"false\">3</｜DSML｜parameter>\n<｜DSML｜parameter name=\"o\" string=\"false\">{\"k\": "
     "[1, \"<b>\"]}</｜DSML｜parameter>\n</｜DSML｜invoke>\n<｜DSML｜invoke name=\"add\">\n"
     "<｜DSML｜parameter name=\"a\" string=\"false\">1.5</｜DSML｜parameter>\n<｜DSML｜parameter "
     "name=\"b\" string=\"false\">2</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>",
     "", "I look.", kBoth},
    {AnswerFormat::kGlm,
     "\n<think>Hm</think>\nI look.\n<tool_call>get_weather\n<arg_key>city</arg_key>\n"
     "<arg_value>Zürich \"x\"</arg_value>\n<arg_key>days</arg_key>\n<arg_value>3</arg_value>\n"
     "<arg_key>o</arg_key>\n<arg_value>{\"k\": [1, \"<b>\"]}</arg_value>\n</tool_call>\n"
     "<tool_call>add<arg_key>a</arg_key><arg_value>1.5</arg_value><arg_key>b</arg_key><arg_value>2</arg_value></tool_call>",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kGemma4,
     "<|channel>thought\nHm\n<channel|><|tool_call>call:get_weather{city:<|\"|>Zürich \"x\""
     "<|\"|>,days:3,o:{k:[1,<|\"|><b><|\"|>]}}<tool_call|>"
     "<|tool_call>call:add{a:1.5,b:2}<tool_call|><|tool_response>",
     "Hm", "", kBoth},
    {AnswerFormat::kGemma4,
     "<|tool_call>call:f{}<tool_call|><|tool_call>call:g{a:[],b:true,c:{},\"d\":\"e\\\"\",f:x "
     "y}<tool_call|>",
     "", "", R"(f {} | g {"a":[],"b":true,"c":{},"d":"e\"","f":"x y"})"},
    {AnswerFormat::kHarmony,
     "<|channel|>analysis<|message|>Hm.\n\nSo.<|end|><|start|>assistant<|channel|>commentary"
     "<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
     "<|constrain|>json<|message|>{\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, "
     "\"<b>\"]}}<|call|><|start|>assistant to=functions.add<|channel|>commentary json"
     "<|message|>{\"a\": 1.5, \"b\": 2}<|call|>",
     "Hm.\n\nSo.", "I look.", kBoth},
    {AnswerFormat::kHarmony, "<|channel|>final<|message|>Hello.<|return|>", "", "Hello.", ""},
    {AnswerFormat::kHarmony, "Hello <|there", "", "Hello <|there", ""},
    {AnswerFormat::kCommandR,
     "Action: ```json\n[\n    {\n        \"tool_name\": \"get_weather\",\n        \"parameters\": "
     "{\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}\n    },\n    {\n"
     "        \"tool_name\": \"add\",\n        \"parameters\": {\"a\": 1.5, \"b\": 2}\n    }\n]```",
     "", "", kBoth},
    {AnswerFormat::kCommandR7b,
     "<|START_THINKING|>Hm<|END_THINKING|><|START_ACTION|>[\n    {\"tool_call_id\": \"0\", "
     "\"tool_name\": \"get_weather\", \"parameters\": {\"city\": \"Zürich \\\"x\\\"\", \"days\": "
     "3, \"o\": {\"k\": [1, \"<b>\"]}}},\n    {\"tool_call_id\": \"1\", \"tool_name\": \"add\", "
     "\"parameters\": {\"a\": 1.5, \"b\": 2}}\n]<|END_ACTION|>",
     "Hm", "", kBoth},
    {AnswerFormat::kCommandR7b, "<|START_THINKING|><|END_THINKING|>Hi.", "", "Hi.", ""},
    {AnswerFormat::kKimiK2,
     "I look.<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0"
     "<|tool_call_argument_begin|>{\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, "
     "\"<b>\"]}}<|tool_call_end|><|tool_call_begin|>functions.add:1"
     "<|tool_call_argument_begin|>{\"a\": 1.5, \"b\": 2}<|tool_call_end|>"
     "<|tool_calls_section_end|>",
     "", "I look.", kBoth},
    {AnswerFormat::kApriel,
     "<thinking>Hm</thinking>I look.\n<tool_calls>[{\"name\": \"get_weather\", \"arguments\": "
     "{\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}}, {\"name\": "
     "\"add\", \"arguments\": {\"a\": 1.5, \"b\": 2}}]</tool_calls>\n\n",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kGigaChat,
     "I look.\n\nfunction call<|role_sep|>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}}\n\n"
     "<|function_call|>{\"name\": \"add\", \"arguments\": {\"a\": 1.5, \"b\": 2}}",
     "", "I look.", kBoth},
    {AnswerFormat::kFunctionary31,
     "I look.<function=get_weather>{\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": "
     "[1, \"<b>\"]}}</function><function=add>{\"a\": 1.5, \"b\": 2}</function>",
     "", "I look.", kBoth},
    {AnswerFormat::kFunctionary32,
     "all\nI look.>>>get_weather\n{\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, "
     "\"<b>\"]}}>>>add\n{\"a\": 1.5, \"b\": 2}",
     "", "I look.", kBoth},
    {AnswerFormat::kFunctionary32, "add\n{\"a\": 1.5}>>>all\nDone.", "", "Done.",
     "add {\"a\":1.5}"},
    {AnswerFormat::kFunctionary32, "Hello\nall >>> 3 >>>", "", "Hello\nall >>> 3 >>>", ""},
    {AnswerFormat::kFireFunction,
     "I look. functools[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich "
     "\\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}}, {\"name\": \"add\", \"arguments\": "
     "{\"a\": 1.5, \"b\": 2}}]",
     "", "I look.", kBoth},
    {AnswerFormat::kMiroThinker,
     "<think>\nHm\n</think>\n\nI look.\n<use_mcp_tool>\n<server_name>generic-extras</server_name>\n"
     "<tool_name>get_weather</tool_name>\n<arguments>\n{\"city\": \"Zürich \\\"x\\\"\", \"days\": "
     "3, \"o\": {\"k\": [1, \"<b>\"]}}\n</arguments>\n"
     "<server_name>generic-extras</server_name>\n<tool_name>add</tool_name>\n<arguments>\n{\"a\": "
     "1.5, \"b\": 2}\n"
     "</arguments>\n</use_mcp_tool>",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kLfm2,
     "<|tool_call_start|>[get_weather(city=\"Zürich \\\"x\\\"\", days=3, o={'k': [1, '<b>']}), "
     "add(a=1.5, b=2)]<|tool_call_end|>I look.",
     "", "I look.", kBoth},
    {AnswerFormat::kLfm2,
     "<|tool_call_start|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}]<|tool_call_end|>", "", "",
     "add {\"a\":1}"},
    // What a grammar permits where not all names are Python's.
    {AnswerFormat::kLfm2,
     "<|tool_call_start|>[{\"name\": \"add\", \"arguments\": {\"a\": 1}}, add(a=2), {\"name\": "
     "\"add\", \"arguments\": {\"a\": 3}}, add(a=4)]<|tool_call_end|>I look.",
     "", "I look.", "add {\"a\":1} | add {\"a\":2} | add {\"a\":3} | add {\"a\":4}"},
    {AnswerFormat::kLfm2,
     R"(<|tool_call_start|>[add(a="\u00fc\ud83d\ude00\/\u12\ud83d")]<|tool_call_end|>)", "", "",
     R"(add {"a":"ü😀/\\u12�"})"},
    {AnswerFormat::kMiniMaxM2,
     "<think>\nHm\n</think>\n\nI look.\n<minimax:tool_call>\n<invoke name=\"get_weather\">\n"
     "<parameter name=\"city\">Zürich \"x\"</parameter>\n<parameter name=\"days\">3</parameter>\n"
     "<parameter name=\"o\">{\"k\": [1, \"<b>\"]}</parameter>\n</invoke>\n"
     "<invoke name=\"add\"><parameter name=\"a\">1.5</parameter><parameter name=\"b\">2</parameter>"
     "</invoke>\n</minimax:tool_call>",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kMiniMaxM2, "Write <invoke name=\"add\"> there.", "",
     "Write <invoke name=\"add\"> there.", ""},
    {AnswerFormat::kNemotron,
     "Hm\n</think>\n\nI look.\n\n<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"city\": "
     "\"Zürich \\\"x\\\"\", \"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}}, {\"name\": \"add\", "
     "\"arguments\": {\"a\": 1.5, \"b\": 2}}]</TOOLCALL>\n",
     "", "Hm\n</think>\n\nI look.", kBoth},
    {AnswerFormat::kPhi4Mini,
     "<|tool_call|>{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich \\\"x\\\"\", "
     "\"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}}<|/tool_call|><|tool_call|>{\"name\": \"add\", "
     "\"arguments\": {\"a\": 1.5, \"b\": 2}}<|/tool_call|>",
     "", "", kBoth},
    {AnswerFormat::kPhi4Mini, R"(functools[{"name": "add", "arguments": {"a": 1}}])", "", "",
     R"(add {"a":1})"},
    {AnswerFormat::kGranite,
     "Here is my thought process: Hm\n\nHere is my response:\nI look.<|tool_call|>[{\"name\": "
     "\"get_weather\", \"arguments\": {\"city\": \"Zürich \\\"x\\\"\", \"days\": 3, \"o\": "
     "{\"k\": [1, \"<b>\"]}}}, {\"arguments\": {\"a\": 1.5, \"b\": 2}, \"name\": \"add\"}]",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kHunyuan, "<think>\nHm\n</think>\n<answer>\nI look.\n</answer>", "Hm", "I look.",
     ""},
    {AnswerFormat::kHunyuan,
     "<tool_calls>[{\"name\": \"get_weather\", \"arguments\": {\"city\": \"Zürich \\\"x\\\"\", "
     "\"days\": 3, \"o\": {\"k\": [1, \"<b>\"]}}}, {\"name\": \"add\", \"arguments\": {\"a\": "
     "1.5, \"b\": 2}}]</tool_calls>",
     "", "", kBoth},
    {AnswerFormat::kOlmo3,
     "<think>Hm</think>I look.\n<function_calls>\nget_weather(city='Zürich \"x\"', days=3, o={'k': "
     "[1, '<b>']})\nadd(a=1.5, b=2)\n</function_calls>",
     "Hm", "I look.", kBoth},
    {AnswerFormat::kOlmo3,
     "<function_calls>\nget_weather(metric=true, note=null)\n</function_calls>\nDone.", "", "Done.",
     R"(get_weather {"metric":true,"note":null})"},
    // Qwen2.5-Coder's, which has the template of its family and leaves the tags out.
    {AnswerFormat::kHermes, R"({"name": "add", "arguments": {"a": 1.5, "b": 2}})", "", "",
     R"(add {"a":1.5,"b":2})"},
    {AnswerFormat::kHermes,
     "```json\n{\n  \"name\": \"add\",\n  \"arguments\": {\n    \"a\": 1\n  }\n}\n```", "", "",
     R"(add {"a":1})"},
    {AnswerFormat::kHermes, "```json\n{\"arguments\": {\"a\": 1}, \"name\": \"add\"}\n```\nDone.",
     "", "Done.", R"(add {"a":1})"},
    {AnswerFormat::kHermes, "<tools>\n{\"name\": \"add\", \"arguments\": {\"a\": 1}}\n</tools>", "",
     "", R"(add {"a":1})"},
    {AnswerFormat::kHermes,
     "<think>Hm</think>\n{\"name\": \"add\", \"arguments\": {}}\n{\"name\": \"add\", "
     "\"arguments\": \"{\\\"a\\\": 2}\"}",
     "Hm", "", R"(add {} | add {"a":2})"},
    {AnswerFormat::kGeneric, R"({"tool_call": {"name": "add", "arguments": {"a": 1.5, "b": 2}}})",
     "", "", R"(add {"a":1.5,"b":2})"},
    {AnswerFormat::kGeneric,
     "```json\n{\"tool_calls\": [{\"name\": \"add\", \"arguments\": {\"a\": 1}}]}\n```", "", "",
     R"(add {"a":1})"},
    {AnswerFormat::kGeneric, "```json\n{\"a\": 1}\n```", "", "```json\n{\"a\": 1}\n```", ""},
    {AnswerFormat::kGeneric, "<think>a</think> Hello.\n", "a", " Hello.\n", ""},
};

TEST(AnswerParser, ReadsEveryFormatHoweverItIsCut) {
  for (const Sample& sample : kSamples) {
    SCOPED_TRACE(sample.text);
    const ParsedAnswer answer = Parse(sample.format, sample.text);
    EXPECT_EQ(answer.reasoning, sample.reasoning);
    EXPECT_EQ(answer.content, sample.content);
    EXPECT_EQ(Calls(answer), sample.calls);
  }
}

// JSON is a call only as the whole of a message, of a tool, with an object of arguments.
TEST(AnswerParser, JsonThatIsNoCallIsText) {
  for (const std::string text :
       {R"({"name": "Bob", "arguments": {"a": 1}})", R"({"name": "add"})", R"({"answer": 42})",
        R"({"name": "add", "arguments": [1]})", R"({"name": "add", "arguments": "now"})",
        R"({"name": "add", "arguments": ""})", R"({"name": "add", "age": 3, "arguments": {}})",
        R"([{"name": "add", "arguments": {"a": 1}}])", R"({"name": "add", "argum)",
        "I would write {\"name\": \"add\", \"arguments\": {}}.",
        "So:\n```json\n{\"name\": \"add\", \"arguments\": {}}\n```",
        "```json\n{\"name\": \"Bob\"}\n```", "```python\nadd(1)\n```", "{{ x }}",
        "<tools> are few"}) {
    const ParsedAnswer answer = Parse(AnswerFormat::kHermes, text);
    EXPECT_EQ(answer.content, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
  }
  // A text is held back only while it may still become a call.
  AnswerParser parser({.format = AnswerFormat::kHermes, .tools = Tools()});
  const auto text = [&](std::string_view piece) {
    std::string all;
    for (const AnswerDelta& delta : parser.Add(piece)) all += delta.text;
    return all;
  };
  EXPECT_EQ(text("{\"name\": \"a"), "");
  EXPECT_EQ(text("n"), "{\"name\": \"an");
  EXPECT_EQ(text(", \"x"), ", \"x");
  AnswerParser other({.format = AnswerFormat::kHermes, .tools = Tools()});
  EXPECT_TRUE(other.Add("{\"").empty());
  EXPECT_EQ(other.Add("b").at(0).text, "{\"b");
}

// In every format: text without markers passes, byte for byte and at once.
TEST(AnswerParser, PlainTextPassesAtOnce) {
  for (const std::string_view name : AnswerFormatNames()) {
    SCOPED_TRACE(name);
    AnswerParser parser({.format = *AnswerFormatByName(name), .tools = Tools()});
    std::string all;
    for (const std::string_view token : {"Hello", " world", ",", " 2", " <", " 3", "!", " Grüße"}) {
      const auto deltas = parser.Add(token);
      if (token != " <" && token != "Hello") {
        EXPECT_EQ(deltas.size(), 1u) << token;
      }
      for (const AnswerDelta& delta : deltas) all += delta.text;
    }
    EXPECT_EQ(all, "Hello world, 2 < 3! Grüße");
    EXPECT_TRUE(parser.Finish().empty());
    EXPECT_FALSE(parser.called());
  }
}

TEST(AnswerParser, HoldsBackOnlyWhatMayBecomeAMarker) {
  AnswerParser parser({.format = AnswerFormat::kHermes});
  const auto text = [&](std::string_view piece) {
    std::string all;
    for (const AnswerDelta& delta : parser.Add(piece)) all += delta.text;
    return all;
  };
  EXPECT_EQ(text("a <tool"), "a ");
  EXPECT_EQ(text("box> b\n"), "<toolbox> b");
  EXPECT_EQ(text("\n"), "");
  EXPECT_EQ(text("c"), "\n\nc");
}

TEST(AnswerParser, ArgumentsStreamAsTheyCome) {
  AnswerParser parser({.format = AnswerFormat::kHermes});
  const auto begin =
      parser.Add("<tool_call>\n{\"name\": \"write\", \"arguments\": {\"text\": \"on");
  ASSERT_EQ(begin.size(), 2u);
  EXPECT_EQ(begin[0].text, "write");
  EXPECT_EQ(begin[1].text, "{\"text\": \"on");
  const auto more = parser.Add("e\\\" }tw");
  ASSERT_EQ(more.size(), 1u);
  EXPECT_EQ(more[0].text, "e\\\" }tw");
  const auto end = parser.Add("o\"}}");
  ASSERT_EQ(end.size(), 2u);
  EXPECT_EQ(end[0].text, "o\"}");
  EXPECT_EQ(end[1].kind, AnswerDelta::Kind::kCallEnd);
  EXPECT_TRUE(parser.called());
}

TEST(AnswerParser, StringsOfXmlFormsStreamToo) {
  AnswerParser parser({.format = AnswerFormat::kQwenXml, .tools = Tools()});
  parser.Add("<tool_call>\n<function=get_weather>\n<parameter=city>\n");
  EXPECT_EQ(parser.Add("Zü").at(0).text, "Zü");
  EXPECT_EQ(parser.Add("\"rich").at(0).text, "\\\"rich");
  EXPECT_TRUE(parser.Add("\n</para").empty());
}

TEST(AnswerParser, ThoughtsBeginWhereThePromptOpenedOne) {
  const ParsedAnswer opened = Parse(AnswerFormat::kHermes, "\nHm\n</think>\n\nHi", true);
  EXPECT_EQ(opened.reasoning, "Hm");
  EXPECT_EQ(opened.content, "Hi");
  const ParsedAnswer unfinished = Parse(AnswerFormat::kHermes, "Hm </thi", true);
  EXPECT_EQ(unfinished.reasoning, "Hm </thi");
  const ParsedAnswer empty = Parse(AnswerFormat::kHermes, "<think>\n\n</think>\n\nHi");
  EXPECT_EQ(DeltasOf({.format = AnswerFormat::kHermes}, "<think>\n\n</think>\n\nHi", 0).size(), 1u);
  EXPECT_EQ(empty.content, "Hi");
  const ParsedAnswer spoken =
      Parse(AnswerFormat::kHermes, "The tag <think> opens it, </think> ends it.");
  EXPECT_EQ(spoken.content, "The tag <think> opens it, </think> ends it.");
  EXPECT_TRUE(StartsInReasoning(AnswerFormat::kHermes, "<|im_start|>assistant\n<think>\n"));
  EXPECT_FALSE(
      StartsInReasoning(AnswerFormat::kHermes, "<|im_start|>assistant\n<think>\n\n</think>\n\n"));
  EXPECT_TRUE(StartsInReasoning(AnswerFormat::kApriel,
                                "<|begin_assistant|>\nHere are my reasoning steps:\n"));
  EXPECT_TRUE(StartsInReasoning(AnswerFormat::kCommandR7b, "<|START_THINKING|>"));
}

TEST(AnswerParser, ACallInsideAThoughtEndsItWhereItsMarkerIsAToken) {
  const ParsedAnswer answer = Parse(AnswerFormat::kKimiK2,
                                    "Hm <|tool_calls_section_begin|>"
                                    "<|tool_call_begin|>functions.add:4"
                                    "<|tool_call_argument_begin|>{}",
                                    true);
  EXPECT_EQ(answer.reasoning, "Hm");
  ASSERT_EQ(Calls(answer), "add {}");
  EXPECT_EQ(answer.calls[0].id, "functions.add:4");
}

TEST(AnswerParser, WithoutParsingTextStaysAsItIs) {
  const std::string text =
      "<think>a</think>\nb <tool_call>{\"name\": \"f\", \"arguments\": {}}</tool_call>\n";
  const auto without_tools =
      ParseAnswer({.format = AnswerFormat::kHermes, .parse_tools = false}, text);
  EXPECT_EQ(without_tools.reasoning, "a");
  EXPECT_EQ(without_tools.content, text.substr(17));
  const auto without_thoughts =
      ParseAnswer({.format = AnswerFormat::kHermes, .parse_reasoning = false}, text);
  EXPECT_EQ(without_thoughts.content, "<think>a</think>\nb ");
  EXPECT_EQ(without_thoughts.calls.size(), 1u);
}

TEST(AnswerParser, WhatIsBrokenIsNotLost) {
  const auto content = [](AnswerFormat format, std::string_view text) {
    const ParsedAnswer answer = Parse(format, text);
    EXPECT_TRUE(answer.calls.empty()) << text;
    return answer.content;
  };
  // Broken before its arguments: it is content.
  for (const std::string text :
       {"a\n<tool_call>\n{\"name\": \"f\", \"argum", "a\n<tool_call>", "<tool_call>\nnot JSON",
        "<tool_call>{\"a\": 1}", "<tool_call> see <tool_call> there\n", "<tool_call>[]"}) {
    EXPECT_EQ(content(AnswerFormat::kHermes, text), text);
  }
  EXPECT_EQ(content(AnswerFormat::kMistralArgs, "x[TOOL_CALLS]name[AR"), "x[TOOL_CALLS]name[AR");
  EXPECT_EQ(content(AnswerFormat::kGlm, "<tool_call>{\"name\": 1}"), "<tool_call>{\"name\": 1}");
  EXPECT_EQ(content(AnswerFormat::kLlama3, "<|python_tag|>print('a')\nb"),
            "<|python_tag|>print('a')\nb");
  // A good call behind a broken one.
  const ParsedAnswer second =
      Parse(AnswerFormat::kHermes, "<tool_call>{<tool_call>{\"name\": \"f\"}</tool_call>");
  EXPECT_EQ(second.content, "<tool_call>{");
  EXPECT_EQ(Calls(second), "f {}");
  // Broken in its arguments: the call ends with those that were read.
  const ParsedAnswer cut =
      Parse(AnswerFormat::kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"rm -r");
  EXPECT_EQ(Calls(cut), "f BROKEN {\"a\": \"rm -r");
  EXPECT_EQ(cut.content, "");
  const ParsedAnswer wrong =
      Parse(AnswerFormat::kHermes,
            "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": oops}}</tool_call> so");
  EXPECT_EQ(Calls(wrong), "f BROKEN {\"a\": ");
  EXPECT_EQ(wrong.content, "oops}}</tool_call> so");
  const ParsedAnswer xml =
      Parse(AnswerFormat::kQwenXml, "<tool_call><function=f><parameter=a>\nrm -r");
  EXPECT_EQ(Calls(xml), "f BROKEN {\"a\": \"rm -r");
  // Behind a whole call: the rest of a list.
  const ParsedAnswer list = Parse(
      AnswerFormat::kMistral, "[TOOL_CALLS][{\"name\": \"f\", \"arguments\": {}}, {\"name\": \"g");
  EXPECT_EQ(Calls(list), "f {}");
  EXPECT_EQ(list.content, "{\"name\": \"g");
}

// Random pieces of what the formats are made of: nothing crashes, is lost or depends on the cuts.
TEST(AnswerParser, AnyTextHoweverItIsCut) {
  const std::string_view common[] = {"{",
                                     "}",
                                     "[",
                                     "]",
                                     "\"",
                                     ":",
                                     ",",
                                     "\n",
                                     " ",
                                     "name",
                                     "arguments",
                                     "\"name\": \"f\"",
                                     "\"arguments\": {",
                                     "a",
                                     "\\",
                                     "\\u00",
                                     "```",
                                     "function",
                                     "<",
                                     "<|",
                                     "|>",
                                     "f\n",
                                     "all\n",
                                     "=",
                                     "(",
                                     ")",
                                     ">",
                                     "/",
                                     "<function=f>",
                                     "<parameter=a>",
                                     "</parameter>",
                                     "</function>",
                                     "<arg_key>a</arg_key>",
                                     "<arg_value>",
                                     "</arg_value>",
                                     "call:f{",
                                     "<|\"|>",
                                     "[ARGS]",
                                     "<｜tool▁sep｜>",
                                     "<|tool_call_argument_begin|>",
                                     "functions.f:0",
                                     "<tool_name>f</tool_name>",
                                     "<arguments>",
                                     "<｜DSML｜parameter name=\"a\" string=\"true\">",
                                     "</｜DSML｜parameter>",
                                     "</｜DSML｜invoke>",
                                     "f\">",
                                     "<|channel|>",
                                     "<|message|>",
                                     "analysis",
                                     "commentary to=functions.f",
                                     "<|call|>",
                                     "<|end|>",
                                     "<|start|>"};
  std::minstd_rand random(7);
  for (const std::string_view name : AnswerFormatNames()) {
    AnswerParserOptions options{.format = *AnswerFormatByName(name)};
    std::vector<std::string_view> pieces(std::begin(common), std::end(common));
    const size_t most = pieces.size();
    for (const Marker& marker : MarkersOf(options.format, true, true)) {
      for (size_t i = 0; i < 1 + most / 8; ++i) pieces.push_back(marker.text);
    }
    for (int round = 0; round < 400; ++round) {
      options.parse_tools = random() % 4 != 0;
      options.parse_reasoning = random() % 4 != 0;
      options.starts_in_reasoning = random() % 4 == 0;
      options.tools = random() % 2 == 0 ? SomeTools() : Json();
      std::string text;
      for (size_t i = random() % 30; i > 0; --i) text += pieces[random() % pieces.size()];
      SCOPED_TRACE(std::string(name) + ": " + text);
      CheckAnyText(options, text, static_cast<unsigned>(random()));
    }
  }
}

TEST(AnswerParser, RawControlCharactersInArgumentsAreEscaped) {
  const ParsedAnswer answer = Parse(
      AnswerFormat::kHermes, "<tool_call>{\"name\": \"f\", \"arguments\": {\"a\": \"x\ny\"}}");
  EXPECT_EQ(Calls(answer), "f {\"a\":\"x\\ny\"}");
}

TEST(AnswerParser, IdsAreOfTheSeed) {
  const auto id = [](AnswerFormat format, uint64_t seed, size_t call) {
    return ToolCallId(format, seed, call, 2, "f");
  };
  EXPECT_EQ(id(AnswerFormat::kHermes, 1, 0), id(AnswerFormat::kHermes, 1, 0));
  EXPECT_NE(id(AnswerFormat::kHermes, 1, 0), id(AnswerFormat::kHermes, 1, 1));
  EXPECT_NE(id(AnswerFormat::kHermes, 1, 0), id(AnswerFormat::kHermes, 2, 0));
  EXPECT_TRUE(id(AnswerFormat::kHermes, 1, 0).starts_with("call_"));
  EXPECT_EQ(id(AnswerFormat::kMistral, 1, 0).size(), 9u);
  EXPECT_EQ(id(AnswerFormat::kKimiK2, 1, 1), "functions.f:3");
  EXPECT_NE(AnswerIdSeed("a", 1, 0), AnswerIdSeed("a", 1, 1));
  EXPECT_NE(AnswerIdSeed("a", 1, 0), AnswerIdSeed("b", 1, 0));
}

}  // namespace
}  // namespace larder::serving::answer
