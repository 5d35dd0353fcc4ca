// Requests in the dialects of agents: conversations and tools become the same canonical form,
// whatever they came as; what can't be is refused in one line.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <tuple>

#include "base/test_data_testing.h"
#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/answer/answer_testing.h"
#include "serving/api/chat_fields.h"
#include "serving/api/completion_request.h"
#include "serving/api/defaults_testing.h"
#include "serving/api/dialect_readers.h"
#include "serving/api/routes.h"

namespace larder::serving::inline api {
namespace {

CompletionDefaults AgentDefaults() {
  CompletionDefaults defaults = TinyDefaults();
  defaults.chat_template = model::ChatTemplate::Parse(
      "{% for message in messages %}{{ message.role }}: {{ message.content }}\n{% endfor %}"
      "{% if add_generation_prompt %}assistant:{% endif %}",
      "plain", "<s>", "</s>");
  return defaults;
}

CompletionRequest Read(Dialect dialect, const std::string& text) {
  return ReadCompletionRequest(ParseJson(text), dialect, AgentDefaults());
}

std::string WhyNot(Dialect dialect, const std::string& text) {
  try {
    Read(dialect, text);
  } catch (const Refused& why) {
    EXPECT_EQ(std::string(why.what()).find('\n'), std::string::npos) << why.what();
    return why.what();
  }
  return "";
}

// A question, a call with a thought and a text, its result; and the tool.
const Json kMessages = Json::parse(R"([
  {"role":"system","content":"Be brief."},
  {"role":"user","content":"Weather?"},
  {"role":"assistant","content":"Let me look.","reasoning_content":"hm",
   "tool_calls":[{"id":"c1","type":"function","function":{"name":"get_weather","arguments":"{\"city\":\"Bern\"}"}}]},
  {"role":"tool","content":"4 degrees","tool_call_id":"c1"}])");
const Json kTools = Json::parse(R"([{"type":"function","function":{"name":"get_weather",
  "description":"Looks outside.","parameters":{"type":"object","properties":{"city":{"type":"string"}}}}}])");

TEST(AgentsRequest, AChatCompletionIsTheCanonicalForm) {
  const auto got =
      Read(Dialect::kChat, R"({"messages":)" + kMessages.dump() + R"(,"tools":)" + kTools.dump() +
                               R"(,"parallel_tool_calls":false,"reasoning_effort":"low"})");
  EXPECT_EQ(got.messages, kMessages);
  EXPECT_EQ(got.tools, kTools);
  EXPECT_EQ(got.tool_choice.kind, ToolUse::Kind::kAuto);
  EXPECT_FALSE(got.tool_choice.parallel);
  EXPECT_EQ(got.kwargs["reasoning_effort"], "low");
  EXPECT_EQ(got.ignored_fields, 0u);
  EXPECT_FALSE(got.continue_last);
}

// A client can't take a tool's result back. If the server refused it, it would refuse every later
// turn of the conversation as well.
TEST(AgentsRequest, WhatAToolGaveThatIsNoTextIsSaidToBeLeftOut) {
  const std::string image = "[\"image_url\" left out: this model reads only text]";
  const auto chat = Read(Dialect::kChat, R"({"messages":[{"role":"user","content":"x"},
    {"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"see"},
     {"type":"image_url","image_url":{"url":"data:,"}}]}]})");
  EXPECT_EQ(chat.messages[1]["content"], "see\n" + image);
  const auto messages =
      Read(Dialect::kMessages, R"({"max_tokens":9,"messages":[{"role":"user","content":[
    {"type":"tool_result","tool_use_id":"c","content":[{"type":"image","source":{}},{"type":"text","text":"see"}]}]}]})");
  EXPECT_EQ(messages.messages[0]["content"],
            "[\"image\" left out: this model reads only text]\nsee");
  const auto responses = Read(Dialect::kResponses, R"({"input":[{"role":"user","content":"x"},
    {"type":"function_call_output","call_id":"c","output":[{"type":"input_image","image_url":"data:,"}]}]})");
  EXPECT_EQ(responses.messages[1]["content"],
            "[\"input_image\" left out: this model reads only text]");
  EXPECT_NE(
      WhyNot(Dialect::kChat, R"({"messages":[{"role":"user","content":[{"type":"image_url"}]}]})"),
      "")
      << "who shows a model an image wants it seen";
}

TEST(AgentsRequest, AResponseBecomesTheSame) {
  const auto got =
      Read(Dialect::kResponses, R"({"model":"gpt-5","instructions":"Be brief.","input":[
    {"role":"user","content":[{"type":"input_text","text":"Weather?"}]},
    {"type":"reasoning","id":"rs_1","summary":[],"content":[{"type":"reasoning_text","text":"hm"}]},
    {"type":"message","role":"assistant","content":[{"type":"output_text","text":"Let me look."}]},
    {"type":"function_call","id":"fc_1","call_id":"c1","name":"get_weather","arguments":"{\"city\":\"Bern\"}"},
    {"type":"function_call_output","call_id":"c1","output":"4 degrees"}],
    "tools":[{"type":"function","name":"get_weather","description":"Looks outside.",
              "parameters":{"type":"object","properties":{"city":{"type":"string"}}}},
             {"type":"web_search"}],
    "tool_choice":{"type":"function","name":"get_weather"},"max_output_tokens":7,"stream":true,"store":true,
    "reasoning":{"effort":"none"}})");
  EXPECT_EQ(got.messages.size(), kMessages.size());
  for (size_t i = 0; i < kMessages.size(); ++i) {
    for (const auto& [name, value] : kMessages[i].items())
      EXPECT_EQ(got.messages[i][name], value) << name;
  }
  EXPECT_EQ(got.tools, kTools);
  EXPECT_EQ(got.tool_choice.kind, ToolUse::Kind::kRequired);
  EXPECT_EQ(got.tool_choice.names, std::vector<std::string>{"get_weather"});
  EXPECT_EQ(got.spec.max_tokens, 7);
  EXPECT_TRUE(got.stream);
  EXPECT_EQ(got.kwargs["enable_thinking"], false);
  EXPECT_EQ(got.ignored_fields, 1u) << "the tool that runs on OpenAI's servers";
  EXPECT_EQ(got.echoed["instructions"], "Be brief.");
  EXPECT_EQ(Read(Dialect::kResponses, R"({"input":"hi"})").messages,
            Json::parse(R"([{"role":"user","content":"hi"}])"));
}

TEST(AgentsRequest, AMessageBecomesTheSame) {
  const auto got = Read(Dialect::kMessages, R"({"model":"claude","max_tokens":7,
    "system":[{"type":"text","text":"x-anthropic-billing-header: cc_version=1; cch=17;"},
              {"type":"text","text":"Be brief.","cache_control":{"type":"ephemeral"}}],
    "messages":[
      {"role":"user","content":"Weather?"},
      {"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":""},
        {"type":"text","text":"Let me look."},
        {"type":"tool_use","id":"c1","name":"get_weather","input":{"city":"Bern"}}]},
      {"role":"user","content":[{"type":"tool_result","tool_use_id":"c1",
                                 "content":[{"type":"text","text":"4 degrees"}]}]}],
    "tools":[{"name":"get_weather","description":"Looks outside.",
              "input_schema":{"type":"object","properties":{"city":{"type":"string"}}}},
             {"type":"web_search_20250305","name":"web_search"}],
    "tool_choice":{"type":"any","disable_parallel_tool_use":true},"stop_sequences":["###"],
    "thinking":{"type":"enabled","budget_tokens":2000},"metadata":{"user_id":"u"},"stream":true})");
  EXPECT_EQ(got.messages, kMessages);
  EXPECT_EQ(got.tools, kTools);
  EXPECT_EQ(got.tool_choice.kind, ToolUse::Kind::kRequired);
  EXPECT_FALSE(got.tool_choice.parallel);
  EXPECT_EQ(got.spec.max_tokens, 7);
  EXPECT_EQ(got.spec.stops, std::vector<std::string>{"###"});
  EXPECT_EQ(got.kwargs["enable_thinking"], true);
  EXPECT_EQ(got.ignored_fields, 1u);
  const auto prefill = Read(Dialect::kMessages, R"({"max_tokens":7,"messages":[
    {"role":"user","content":"a"},{"role":"assistant","content":"{"}]})");
  EXPECT_TRUE(prefill.continue_last);
}

TEST(AgentsRequest, OllamasChatBecomesTheSame) {
  const auto got = Read(Dialect::kOllamaChat, R"({"model":"llama3","messages":[
    {"role":"system","content":"Be brief."},{"role":"user","content":"Weather?"},
    {"role":"assistant","content":"Let me look.","thinking":"hm","tool_calls":[
      {"id":"c1","function":{"name":"get_weather","arguments":{"city":"Bern"}}}]},
    {"role":"tool","tool_name":"get_weather","content":"4 degrees","tool_call_id":"c1"}],
    "tools":)" + kTools.dump() + R"(,"think":false,"keep_alive":"5m",
    "options":{"num_predict":7,"temperature":0.5,"stop":["x"],"num_ctx":4096,"unheard_of":1}})");
  for (size_t i = 0; i < kMessages.size(); ++i) {
    for (const auto& [name, value] : kMessages[i].items())
      EXPECT_EQ(got.messages[i][name], value) << name;
  }
  EXPECT_EQ(got.tools, kTools);
  EXPECT_EQ(got.kwargs["enable_thinking"], false);
  EXPECT_EQ(got.spec.max_tokens, 7);
  EXPECT_EQ(got.spec.sampling.temperature, 0.5f);
  EXPECT_EQ(got.spec.stops, std::vector<std::string>{"x"});
  EXPECT_TRUE(got.stream) << "the default";
  EXPECT_EQ(got.ignored_fields, 1u);
  const auto generate =
      Read(Dialect::kOllamaGenerate, R"({"prompt":"hello","system":"Be brief.","stream":false})");
  EXPECT_EQ(generate.messages, Json::parse(R"([{"role":"system","content":"Be brief."},
                                               {"role":"user","content":"hello"}])"));
  EXPECT_FALSE(generate.stream);
  EXPECT_EQ(Read(Dialect::kOllamaGenerate, R"({"prompt":"hello","raw":true})").prompts.size(), 1u);
}

TEST(AgentsRequest, OlderNamesOfToolsWork) {
  const auto got = Read(Dialect::kChat, R"({"messages":[{"role":"user","content":"a"},
    {"role":"assistant","content":null,"function_call":{"name":"f","arguments":"{}"}},
    {"role":"function","name":"f","content":"1"}],
    "functions":[{"name":"f"},{"name":"g"}],"function_call":{"name":"g"}})");
  EXPECT_EQ(got.tools.size(), 2u);
  EXPECT_EQ(got.tool_choice.names, std::vector<std::string>{"g"});
  EXPECT_EQ(got.messages[1]["tool_calls"][0]["function"]["name"], "f");
  EXPECT_EQ(got.messages[2]["role"], "tool");
  const std::string chat =
      R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function",)"
      R"("function":{"name":"f"}}],"tool_choice":)";
  EXPECT_EQ(Read(Dialect::kChat, chat + R"("none"})").offers_tools(), false);
  EXPECT_EQ(Read(Dialect::kChat, chat + R"("required"})").tool_choice.kind,
            ToolUse::Kind::kRequired);
  const auto allowed =
      Read(Dialect::kChat,
           chat + R"({"type":"allowed_tools","allowed_tools":{"mode":"required","tools":)"
                  R"([{"type":"function","function":{"name":"f"}}]}}})");
  EXPECT_EQ(allowed.tool_choice.kind, ToolUse::Kind::kRequired);
  EXPECT_EQ(allowed.tool_choice.names, std::vector<std::string>{"f"});
}

TEST(AgentsRequest, ChoicesOfHostedToolsAreSkipped) {
  const std::string response =
      R"({"input":"a","tools":[{"type":"function","name":"f"},{"type":"web_search"}],)"
      R"("tool_choice":)";
  const auto some = Read(Dialect::kResponses,
                         response + R"({"type":"allowed_tools","mode":"required","tools":)"
                                    R"([{"type":"web_search"},{"type":"function","name":"f"}]}})");
  EXPECT_EQ(some.tool_choice.kind, ToolUse::Kind::kRequired);
  EXPECT_EQ(some.tool_choice.names, std::vector<std::string>{"f"});
  const auto none = Read(Dialect::kResponses,
                         response + R"({"type":"allowed_tools","tools":[{"type":"web_search"}]}})");
  EXPECT_FALSE(none.offers_tools()) << "of those that are here none is allowed";
  const auto search = Read(Dialect::kResponses, response + R"({"type":"web_search"}})");
  EXPECT_EQ(search.tool_choice.kind, ToolUse::Kind::kAuto);
  EXPECT_TRUE(search.offers_tools());
  EXPECT_NE(WhyNot(Dialect::kResponses, response + R"({"type":"required"}})"), "");
}

// What each dialect calls the form of the answer becomes a grammar; a forced call too.
TEST(AgentsRequest, FormsAndForcedCallsBecomeGrammars) {
  const auto grammar = [](Dialect dialect, const std::string& text) {
    CompletionDefaults defaults = AgentDefaults();
    defaults.context = 4096;
    defaults.chat_template = model::ChatTemplate::Named("chatml", *defaults.tokenizer);
    CompletionRequest request = ReadCompletionRequest(ParseJson(text), dialect, defaults);
    return MakeSpecs(request, defaults).at(0).grammar != nullptr;
  };
  const std::string user = R"("messages":[{"role":"user","content":"a"}])";
  const std::string schema = R"({"type":"object","properties":{"a":{"type":"integer"}}})";
  const std::string tool = R"(,"tools":[{"type":"function","function":{"name":"f","parameters":)" +
                           schema + R"(}}],"tool_choice":)";
  EXPECT_FALSE(grammar(Dialect::kChat, "{" + user + "}"));
  EXPECT_TRUE(
      grammar(Dialect::kChat, "{" + user + R"(,"response_format":{"type":"json_object"}})"));
  EXPECT_FALSE(grammar(Dialect::kChat, "{" + user + tool + R"("auto"})"));
  EXPECT_TRUE(grammar(Dialect::kChat, "{" + user + tool + R"("required"})"));
  EXPECT_TRUE(grammar(Dialect::kChat,
                      "{" + user + tool + R"({"type":"function","function":{"name":"f"}}})"));
  EXPECT_FALSE(grammar(Dialect::kChat, "{" + user + tool + R"("none"})"));
  const auto stops = [&](const char* choice) {
    CompletionDefaults defaults = AgentDefaults();
    defaults.context = 4096;
    CompletionRequest request = ReadCompletionRequest(
        ParseJson("{" + user + tool + choice + R"(,"stop":"c"})"), Dialect::kChat, defaults);
    return MakeSpecs(request, defaults).at(0).stops.size();
  };
  EXPECT_EQ(stops("\"auto\""), 1u);
  EXPECT_EQ(stops("\"required\""), 0u) << "it would cut the call";
  const std::string form =
      R"({"type":"json_schema","json_schema":{"name":"n","schema":)" + schema + "}}";
  EXPECT_TRUE(
      grammar(Dialect::kChat, "{" + user + tool + R"("auto","response_format":)" + form + "}"));
  EXPECT_TRUE(
      grammar(Dialect::kChat, "{" + user + tool + R"("required","response_format":)" + form + "}"));
  EXPECT_THROW(
      grammar(Dialect::kChat, "{" + user + tool + R"("required","grammar":"root ::= \"a\""})"),
      Refused);
  EXPECT_TRUE(grammar(Dialect::kResponses,
                      R"({"input":"a","text":{"format":{"type":"json_schema","name":"n",)"
                      R"("schema":)" +
                          schema + "}}}"));
  EXPECT_TRUE(grammar(Dialect::kMessages, "{" + user + R"(,"tools":[{"name":"f","input_schema":)" +
                                              schema + R"(}],"tool_choice":{"type":"any"}})"));
  EXPECT_TRUE(grammar(Dialect::kOllamaChat, "{" + user + R"(,"format":"json"})"));
  EXPECT_TRUE(grammar(Dialect::kOllamaChat, "{" + user + R"(,"format":)" + schema + "}"));
}

// The prompt of a chat with the tools, in this template; "refused: ..." if there is none.
std::string PromptOf(std::shared_ptr<const model::ChatTemplate> chat, const Json& messages,
                     bool with_tools = true) {
  CompletionDefaults defaults = AgentDefaults();
  defaults.answer_format = DetectAnswerFormat(chat->source());
  defaults.chat_template = std::move(chat);
  Json body = {{"messages", messages}};
  if (with_tools) {
    body["tools"] = kTools;
    body["tools"][0]["function"]["parameters"]["properties"]["city"]["description"] = "A town.";
  }
  try {
    return model::JoinPieces(RenderedChat(Read(Dialect::kChat, body.dump()), defaults));
  } catch (const Refused& why) {
    return std::string("refused: ") + why.what();
  }
}

std::shared_ptr<const model::ChatTemplate> BuiltIn(std::string_view name) {
  return model::ChatTemplate::Parse(std::string(model::BuiltInTemplate(name)), std::string(name),
                                    "<s>", "</s>");
}

bool Has(const std::string& text, const std::string& what) {
  return text.find(what) != std::string::npos;
}

Json CallOf(const char* id, const char* city) {
  return {{"id", id},
          {"type", "function"},
          {"function", {{"name", "get_weather"}, {"arguments", Json{{"city", city}}.dump()}}}};
}

// Conversations of agents: a call and its result, the user's words behind a result, two calls at
// once, two messages of the user, ids of other servers and none.
std::vector<Json> AgentsConversations() {
  const Json user = {{"role", "user"}, {"content", "Weather?"}};
  const auto calls = [](Json all) {
    return Json{{"role", "assistant"}, {"content", nullptr}, {"tool_calls", std::move(all)}};
  };
  const auto result = [](const char* id, const char* text) {
    return Json{{"role", "tool"}, {"content", text}, {"tool_call_id", id}};
  };
  const Json one = calls(Json::array({CallOf("call_abc", "Bern")})),
             found = result("call_abc", "4 degrees");
  std::vector<Json> all;
  all.push_back(Json::array({user, one, found}));
  all.push_back(Json::array({user, one, found, {{"role", "user"}, {"content", "And the wind?"}}}));
  all.push_back(Json::array({{{"role", "user"}, {"content", "Hello."}}, user, one, found}));
  all.push_back(
      Json::array({user, calls(Json::array({CallOf("", "Bern")})), result("", "4 degrees")}));
  all.push_back(
      Json::array({user, calls(Json::array({CallOf("call_a", "Bern"), CallOf("call_b", "Rome")})),
                   result("call_b", "20 degrees"), result("call_a", "4 degrees")}));
  all.push_back(Json::array({user,
                             one,
                             found,
                             {{"role", "assistant"}, {"content", "Cold."}},
                             user,
                             calls(Json::array({CallOf("call_b", "Rome")})),
                             result("call_b", "20 degrees")}));
  return all;
}

void ExpectAllIsThere(const std::shared_ptr<const model::ChatTemplate>& chat) {
  const bool needs_tools = Has(chat->name(), "tool_use");
  for (const Json& messages : AgentsConversations()) {
    for (const bool with_tools : {true, false}) {
      if (needs_tools && !with_tools) continue;
      const std::string prompt = PromptOf(chat, messages, with_tools);
      EXPECT_FALSE(Has(prompt, "refused: ")) << chat->name() << messages << "\n" << prompt;
      for (const char* what :
           {"Hello.", "Weather?", "Bern", "Rome", "4 degrees", "20 degrees", "wind"})
        EXPECT_EQ(Has(prompt, what), Has(messages.dump(), what)) << chat->name() << messages << "\n"
                                                                 << prompt;
    }
  }
}

TEST(AgentsRequest, BuiltInTemplatesShowCallsAndResults) {
  for (const std::string_view name : model::BuiltInTemplateNames()) ExpectAllIsThere(BuiltIn(name));
}

TEST(AgentsRequest, PublishedTemplatesShowCallsAndResults) {
  const std::filesystem::path folder = TestData("templates");
  LARDER_NEEDS_TEST_DATA(folder);
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    if (entry.path().stem() == "MiroThinker") continue;  // fails in Jinja2 as well
    std::ifstream file(entry.path(), std::ios::binary);
    ExpectAllIsThere(model::ChatTemplate::Parse({std::istreambuf_iterator<char>(file), {}},
                                                entry.path().filename(), "<s>", "</s>"));
  }
}

TEST(AgentsRequest, CallsThatATemplateLeavesOutAreTheTextThatIsParsed) {
  const std::string prompt = PromptOf(BuiltIn("gemma"), AgentsConversations()[1]);
  const std::string call =
      R"({"tool_call": {"name": "get_weather", "arguments": {"city":"Bern"}}})";
  EXPECT_TRUE(
      Has(prompt, "<start_of_turn>model\n" + call +
                      "<end_of_turn>\n<start_of_turn>user\n"
                      "The result of get_weather:\n4 degrees\n\nAnd the wind?<end_of_turn>\n"))
      << prompt;
  const ParsedAnswer answer =
      ParseAnswer({.format = AnswerFormat::kGeneric, .tools = kTools}, call);
  ASSERT_EQ(answer.calls.size(), 1u);
  EXPECT_EQ(answer.calls[0].arguments, R"({"city":"Bern"})");
}

// A template without tools: the model is told the form that its answer is read in, its own or the
// generic one.
TEST(AgentsRequest, TheToldFormIsTheAnswersForm) {
  CompletionDefaults defaults = AgentDefaults();
  defaults.context = 8192;
  const auto plain = defaults.chat_template;  // of a model without one
  const Json body = {{"messages", AgentsConversations()[0]}, {"tools", kTools}};
  for (const auto& [chat, format, told, form] :
       {std::tuple(BuiltIn("gemma"), AnswerFormat::kDeepSeekV31, AnswerFormat::kDeepSeekV31,
                   "<｜tool▁call▁begin｜>NAME<｜tool▁sep｜>"),
        std::tuple(BuiltIn("gemma"), AnswerFormat::kHermes, AnswerFormat::kHermes,
                   "<tool_call>\n{\"name\": \"NAME\""),
        std::tuple(BuiltIn("gemma"), AnswerFormat::kCommandR, AnswerFormat::kGeneric,
                   "{\"tool_call\": {\"name\": \"NAME\""),
        std::tuple(plain, AnswerFormat::kGeneric, AnswerFormat::kGeneric,
                   "{\"tool_call\": {\"name\": \"NAME\"")}) {
    defaults.chat_template = chat;
    defaults.answer_format = format;
    CompletionRequest request = Read(Dialect::kChat, body.dump());
    EXPECT_TRUE(Has(model::JoinPieces(RenderedChat(request, defaults)), form));
    MakeSpecs(request, defaults);
    ASSERT_TRUE(request.answer);
    EXPECT_EQ(request.answer->format, told);
  }
}

// What is written for a template remains the client's: it spells no control tokens.
TEST(AgentsRequest, CallsAndResultsAsTextAreNotTrusted) {
  CompletionDefaults defaults = AgentDefaults();
  defaults.chat_template = BuiltIn("gemma");
  const Json body = {{"messages", AgentsConversations()[5]}, {"tools", kTools}};
  for (const model::TextPiece& piece : RenderedChat(Read(Dialect::kChat, body.dump()), defaults)) {
    for (const char* what : {"tool_call", "result", "Bern", "4 degrees"})
      EXPECT_FALSE(piece.trusted && Has(piece.text, what)) << piece.text;
  }
}

TEST(AgentsRequest, WhatTemplatesTakeIsSaid) {
  CompletionDefaults defaults = AgentDefaults();
  const auto says = [&](const char* name, const char* what) {
    defaults.chat_template = BuiltIn(name);
    return ChatCapsJson(*defaults.chat_template).value(what, false);
  };
  EXPECT_TRUE(says("qwen3", "supports_parallel_tool_calls"));
  EXPECT_FALSE(says("llama3.1", "supports_parallel_tool_calls"));
  EXPECT_TRUE(says("llama3.1", "supports_tool_calls"));
  EXPECT_FALSE(says("chatml", "supports_tool_calls"));
}

TEST(AgentsRequest, ToolsWithSchemasThatAreNoneAreRefusedByName) {
  const auto why = [](const std::string& parameters, const std::string& rest) {
    CompletionDefaults defaults = AgentDefaults();
    defaults.context = 4096;
    defaults.chat_template = BuiltIn("qwen2");
    const std::string body =
        R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function","function":{"name":"g"}},)"
        R"({"type":"function","function":{"name":"f","parameters":)" +
        parameters + "}}]" + rest + "}";
    try {
      CompletionRequest request = ReadCompletionRequest(ParseJson(body), Dialect::kChat, defaults);
      MakeSpecs(request, defaults);
    } catch (const Refused& refused) {
      return std::string(refused.what());
    }
    return std::string();
  };
  EXPECT_TRUE(
      Has(why(R"({"type":"string"})", ""), R"(tools[1].function.parameters.type is "string")"))
      << why(R"({"type":"string"})", "");
  EXPECT_EQ(why(R"({"type":["object","null"]})", ""), "");
  const std::string wrong = why(R"({"type":"object","properties":{"a":{"type":"wizard"}}})",
                                R"(,"tool_choice":"required")");
  EXPECT_TRUE(wrong.starts_with("tools[1] f: schema at /properties/a")) << wrong;
}

TEST(AgentsRequest, InfillPutsTheTextsBetweenTheTokens) {
  model::TokenizerData data = model::TinySpm();
  const auto add = [&](const char* text) {
    return AddToken(data, text, model::TokenType::kControl);
  };
  const TokenId prefix = add("<|fim_prefix|>"), suffix = add("<|fim_suffix|>"),
                middle = add("<|fim_middle|>");
  const TokenId repository = add("<|repo_name|>"), file = add("<|file_sep|>");
  CompletionDefaults defaults = AgentDefaults();
  defaults.tokenizer = model::Tokenizer::FromData(data);
  defaults.vocab = defaults.tokenizer->size();
  const auto prompt = [&](const char* text) {
    const CompletionRequest request =
        ReadCompletionRequest(ParseJson(text), Dialect::kInfill, defaults);
    return std::get<std::vector<TokenId>>(request.prompts.at(0));
  };
  const auto plain = [&](const char* text) {
    return defaults.tokenizer->Encode(text, false, false);
  };
  const auto joined = [](std::initializer_list<std::vector<TokenId>> parts) {
    std::vector<TokenId> all;
    for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
    return all;
  };
  const TokenId bos = defaults.tokenizer->bos();
  EXPECT_EQ(prompt(R"({"input_prefix":"he","prompt":"ll","input_suffix":"<|fim_middle|>"})"),
            joined({{bos, prefix}, plain("hell"), {suffix}, plain("<|fim_middle|>"), {middle}}));
  EXPECT_EQ(prompt(R"({"input_prefix":"he","input_extra":[{"filename":"or","text":"ld"}]})"),
            joined({{bos, repository},
                    plain("project\n"),
                    {file},
                    plain("or\n"),
                    plain("ld\n"),
                    {file},
                    plain("this file\n"),
                    {prefix},
                    plain("he"),
                    {suffix},
                    {middle}}));
  const auto why_not = [&](const std::string& extra) {
    try {
      prompt((R"({"input_prefix":"he","input_extra":[)" + extra + "]}").c_str());
    } catch (const Refused& why) {
      return std::string(why.what());
    }
    return std::string();
  };
  EXPECT_EQ(why_not(R"({"filename":"or"})"), "input_extra.text is missing: expected a string");
  EXPECT_EQ(why_not(R"({"text":7})"), "text is 7: expected a string");
  EXPECT_EQ(why_not(R"({"filename":7,"text":"a"})"), "filename is 7: expected a string");
  EXPECT_EQ(why_not(R"({"text":"a"})"), "");
}

TEST(AgentsRequest, OllamasNegativeLimitsAreNone) {
  for (const int limit : {-1, -2, -100}) {
    const std::string text = fmt::format(
        R"({{"messages":[{{"role":"user","content":"a"}}],"options":{{"num_predict":{}}}}})",
        limit);
    EXPECT_EQ(Read(Dialect::kOllamaChat, text).spec.max_tokens, -1) << limit;
  }
  EXPECT_NE(
      WhyNot(Dialect::kChat, R"({"messages":[{"role":"user","content":"a"}],"max_tokens":-2})"),
      "");
}

TEST(AgentsRequest, UnknownFieldsAreCounted) {
  EXPECT_EQ(
      Read(Dialect::kChat, R"({"messages":[{"role":"user","content":"a"}],"service_tier":"auto",
    "store":true,"metadata":{},"user":"u","frobnicate":1,"quux":2,"nothing":null})")
          .ignored_fields,
      2u);
}

TEST(AgentsRequest, WrongRequestsAreRefusedByName) {
  const struct {
    Dialect dialect;
    const char* text;
    const char* says;
  } cases[] = {
      {Dialect::kResponses, R"({})", "input is missing"},
      {Dialect::kResponses, R"({"input":"a","previous_response_id":"resp_1"})",
       "Previous response with id 'resp_1' not found."},
      {Dialect::kResponses, R"({"input":"a","background":true})", "background"},
      {Dialect::kResponses, R"({"input":[]})",
       "input is an empty array: expected an array of 1 to 4096 messages"},
      {Dialect::kResponses, R"({"input":[{"type":"function_call_output","output":"a"}]})",
       "call_id"},
      {Dialect::kResponses, R"({"input":[{"role":"user","content":[{"type":"input_image"}]}]})",
       "input_image"},
      {Dialect::kMessages, R"({"max_tokens":1})", "messages is missing"},
      {Dialect::kMessages, R"({"messages":[{"role":"wizard","content":"a"}]})", "wizard"},
      {Dialect::kMessages, R"({"messages":[{"role":"user","content":[{"type":"image"}]}]})",
       "image"},
      {Dialect::kMessages,
       R"({"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"any"}})", "no tools"},
      {Dialect::kMessages,
       R"({"messages":[{"role":"user","content":"a"}],"thinking":{"type":"deep"}})", "deep"},
      {Dialect::kOllamaChat, R"({"messages":[{"role":"user","content":"a","images":["x"]}]})",
       "images"},
      {Dialect::kOllamaChat, R"({"messages":[{"role":"user","content":"a"}],"options":[]})",
       "options"},
      {Dialect::kInfill, R"({"input_prefix":"a"})", "fill in the middle"},
      {Dialect::kChat, R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function",
        "function":{"name":"a b"}}]})",
       "tools.function.name"},
      {Dialect::kChat, R"({"messages":[{"role":"user","content":"a"}],"tools":[{"type":"function",
        "function":{"name":"f","parameters":[]}}]})",
       "a JSON schema"},
      {Dialect::kChat,
       R"({"messages":[{"role":"user","content":"a"}],"tool_choice":{"type":"function",
        "function":{"name":"f"}},"tools":[{"type":"function","function":{"name":"g"}}]})",
       "one of the tools"},
      {Dialect::kChat,
       R"({"messages":[{"role":"user","content":"a"}],"reasoning_effort":"enormous"})", "enormous"},
  };
  for (const auto& wrong : cases)
    EXPECT_NE(WhyNot(wrong.dialect, wrong.text).find(wrong.says), std::string::npos)
        << wrong.text << ": " << WhyNot(wrong.dialect, wrong.text);
}

// What a client may make the server hold and search is limited.
TEST(AgentsRequest, ToolsAndFieldsAreLimited) {
  std::string tools;
  for (int i = 0; i < 600; ++i)
    tools +=
        fmt::format(R"({}{{"type":"function","function":{{"name":"f{}"}}}})", i == 0 ? "" : ",", i);
  const std::string chat = R"({"messages":[{"role":"user","content":"a"}],"tools":[)";
  EXPECT_NE(WhyNot(Dialect::kChat, chat + tools + "]}").find("more than 512"), std::string::npos);
  const std::string large =
      R"({"type":"function","function":{"name":"f","parameters":{"description":")" +
      std::string(70000, 'a') + R"("}}})";
  EXPECT_NE(WhyNot(Dialect::kChat, chat + large + "]}").find("expected at most 65536"),
            std::string::npos);
  std::string fields;
  for (int i = 0; i < 5000; ++i) fields += fmt::format(R"(,"f{}":1)", i);
  EXPECT_NE(WhyNot(Dialect::kChat, R"({"a":1)" + fields + "}").find("more than 4096 fields"),
            std::string::npos);
  EXPECT_THROW(ParseJson(std::string(65, '[') + std::string(65, ']')), Refused);
}

TEST(WithoutChangingLinesTest, KeepsWhatDoesNotChange) {
  EXPECT_EQ(WithoutChangingLines("x-anthropic-billing-header: a; cch=1;\nYou are"), "You are");
  EXPECT_EQ(WithoutChangingLines("x-anthropic-billing-header: a"), "");
  EXPECT_EQ(WithoutChangingLines("x-anthropic-a: 1\nx-anthropic-b: 2\n\nYou\nx-anthropic-c: 3"),
            "You\nx-anthropic-c: 3");
  EXPECT_EQ(WithoutChangingLines("You are"), "You are");
}

TEST(RoutesTest, PathsAreUniqueAndFound) {
  for (const Route& route : Routes()) EXPECT_EQ(FindRoute(route.path), &route) << route.path;
  EXPECT_EQ(FindRoute("/v1/models/a/b")->action, Action::kModel);
  EXPECT_EQ(FindRoute("/v1/messages/x"), nullptr);
  EXPECT_EQ(ErrorShapeOf("/v1/messages/count_tokens"), ErrorShape::kAnthropic);
  EXPECT_EQ(ErrorShapeOf("/api/nothing"), ErrorShape::kOllama);
  EXPECT_EQ(ErrorShapeOf("/v1/responses"), ErrorShape::kOpenAi);
}

}  // namespace
}  // namespace larder::serving::api
