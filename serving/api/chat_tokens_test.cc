// Tokens of chats: which control tokens an answer shows, and that a call that a grammar holds to
// its form is the tokens that the next turn's prompt has of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/api/completion_request.h"
#include "serving/api/defaults_testing.h"
#include "serving/constraint/automaton.h"

namespace larder::serving::inline api {
namespace {

using model::TokenType;

// Bytes and the tokens of ChatML with Hermes' calls, which are control tokens or the file's own.
CompletionDefaults HermesDefaults(TokenType markers) {
  model::TokenizerData data = model::TinyBpe("qwen2");
  for (const char* text : {"<|im_start|>", "<|im_end|>"})
    model::AddToken(data, text, TokenType::kControl);
  data.eos = static_cast<TokenId>(data.tokens.size()) - 1;
  for (const char* text : {"<tool_call>", "</tool_call>", "<think>", "</think>"})
    model::AddToken(data, text, markers);
  data.scores.clear();
  CompletionDefaults defaults = TinyDefaults();
  defaults.tokenizer = model::Tokenizer::FromData(std::move(data));
  defaults.vocab = defaults.tokenizer->size();
  defaults.context = 1 << 16;
  defaults.longest_token_bytes = LongestTokenBytes(*defaults.tokenizer);
  defaults.chat_template = model::ChatTemplate::Parse(
      std::string(model::BuiltInTemplate("qwen2.5")), "qwen2.5", "", "<|im_end|>");
  defaults.answer_format = DetectAnswerFormat(defaults.chat_template->source());
  return defaults;
}

GenerationSpec SpecOf(const Json& body, const CompletionDefaults& defaults,
                      Dialect dialect = Dialect::kChat) {
  CompletionRequest request = ReadCompletionRequest(body, dialect, defaults);
  return MakeSpecs(request, defaults).at(0);
}

const Json kWeatherTools = Json::parse(R"([{"type":"function","function":{"name":"get_weather",
  "parameters":{"type":"object","properties":{"city":{"type":"string"}},"required":["city"]}}}])");

Json Question() { return {{"role", "user"}, {"content", "Weather?"}}; }

std::string TextOf(const std::vector<TokenId>& tokens, const GenerationSpec& spec,
                   const CompletionDefaults& defaults) {
  model::StreamDecoder decoder(defaults.tokenizer, spec.special, true, spec.text_exceptions);
  std::string text;
  for (const TokenId token : tokens) text += decoder.Add(token);
  return text + decoder.Finish();
}

TEST(ChatTokens, AForcedCallIsTheTokensThatTheNextTurnHas) {
  for (const TokenType markers : {TokenType::kControl, TokenType::kUserDefined}) {
    const CompletionDefaults defaults = HermesDefaults(markers);
    const model::Tokenizer& tokenizer = *defaults.tokenizer;
    const TokenId open = tokenizer.Find("<tool_call>"), close = tokenizer.Find("</tool_call>");
    for (const Json& choice :
         {Json("required"), Json{{"type", "function"}, {"function", {{"name", "get_weather"}}}}}) {
      Json body = {{"messages", Json::array({Question()})},
                   {"tools", kWeatherTools},
                   {"tool_choice", choice}};
      const GenerationSpec first = SpecOf(body, defaults);
      ASSERT_NE(first.grammar, nullptr);
      const auto vocabulary = std::make_shared<const Vocabulary>(tokenizer, defaults.vocab);
      Automaton automaton(first.grammar, vocabulary);
      std::vector<uint64_t> mask(vocabulary->words());
      StateId state = automaton.start();
      // A model that starts each marker with an ordinary character wherever the grammar allows it.
      std::vector<TokenId> generated;
      std::string wanted =
          "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"<t>\"}}\n"
          "</tool_call>";
      while (!wanted.empty()) {
        ASSERT_TRUE(automaton.Mask(state, mask));
        TokenId next = -1;
        for (TokenId token = 0; token < static_cast<TokenId>(tokenizer.size()) && next < 0;
             ++token) {
          const std::string piece = tokenizer.Piece(token, true);
          const bool may = (mask[static_cast<size_t>(token) / 64] >> token % 64 & 1) != 0;
          if (may && !piece.empty() && wanted.starts_with(piece)) next = token;
        }
        ASSERT_GE(next, 0) << wanted;
        generated.push_back(next);
        wanted.erase(0, tokenizer.Piece(next, true).size());
        state = automaton.StepToken(state, next);
      }
      ASSERT_TRUE(automaton.complete(state));
      EXPECT_EQ(generated.front(), open);
      EXPECT_EQ(generated.back(), close);

      const std::string text = TextOf(generated, first, defaults);
      EXPECT_TRUE(text.starts_with("<tool_call>")) << "the parser sees the markers: " << text;
      body["messages"].push_back(
          {{"role", "assistant"},
           {"content", nullptr},
           {"tool_calls",
            Json::array({{{"id", "c1"},
                          {"type", "function"},
                          {"function",
                           {{"name", "get_weather"}, {"arguments", "{\"city\": \"<t>\"}"}}}}})}});
      body["messages"].push_back(
          {{"role", "tool"}, {"tool_call_id", "c1"}, {"content", "4 degrees"}});
      const GenerationSpec second = SpecOf(body, defaults);
      std::vector<TokenId> begins = first.prompt;
      // The model wrote single bytes; the tokenizer would encode the same text as words.
      const std::vector<TokenId> words =
          tokenizer.Encode(tokenizer.Decode(generated, true), false, true);
      begins.insert(begins.end(), words.begin(), words.end());
      ASSERT_GT(second.prompt.size(), begins.size());
      EXPECT_TRUE(std::equal(begins.begin(), begins.end(), second.prompt.begin()));
    }
  }
}

TEST(ChatTokens, AForcedCallIsOneUnlessMoreAreAskedFor) {
  const auto parallel = [](Dialect dialect, Json fields) {
    Json body = {{"messages", Json::array({Question()})}, {"max_tokens", 8}};
    Json tools = kWeatherTools;
    if (dialect == Dialect::kMessages) {
      tools = Json::array({{{"name", "get_weather"}, {"input_schema", {{"type", "object"}}}}});
    } else if (dialect == Dialect::kResponses) {
      tools = Json::array({{{"type", "function"}, {"name", "get_weather"}}});
      body = {{"input", "Weather?"}};
    }
    body["tools"] = tools;
    body.update(fields);
    return ReadCompletionRequest(body, dialect, HermesDefaults(TokenType::kControl))
        .tool_choice.parallel;
  };
  const Json named = {{"type", "function"}, {"function", {{"name", "get_weather"}}}};
  const Json flat = {{"type", "function"}, {"name", "get_weather"}};
  EXPECT_TRUE(parallel(Dialect::kChat, Json::object()));
  EXPECT_TRUE(parallel(Dialect::kChat, {{"tool_choice", "auto"}}));
  EXPECT_FALSE(parallel(Dialect::kChat, {{"tool_choice", "required"}}));
  EXPECT_FALSE(parallel(Dialect::kChat, {{"tool_choice", named}}));
  EXPECT_TRUE(
      parallel(Dialect::kChat, {{"tool_choice", "required"}, {"parallel_tool_calls", true}}));
  EXPECT_FALSE(parallel(Dialect::kResponses, {{"tool_choice", flat}}));
  EXPECT_TRUE(parallel(Dialect::kMessages, Json::object()));
  EXPECT_FALSE(parallel(Dialect::kMessages, {{"tool_choice", {{"type", "any"}}}}));
  EXPECT_TRUE(parallel(Dialect::kMessages,
                       {{"tool_choice", {{"type", "any"}, {"disable_parallel_tool_use", false}}}}));
}

TEST(ChatTokens, ControlTokensAreShownOnlyToWhomAsksForThem) {
  CompletionDefaults defaults = HermesDefaults(TokenType::kControl);
  const auto id = [&](const char* text) { return defaults.tokenizer->Find(text); };
  const std::vector<TokenId> tokens = {
      id("<think>"), 'h', id("</think>"), id("<|im_start|>"), 'a', '<', '|', id("<tool_call>"),
      '|',           '>', id("<|begin|>")};
  const Json chat = {{"messages", Json::array({Question()})}};
  Json tools = chat;
  tools["tools"] = kWeatherTools;
  // Calls are marked only where there are tools, thoughts always.
  EXPECT_EQ(TextOf(tokens, SpecOf(chat, defaults), defaults), "<think>h</think>a<||>");
  EXPECT_EQ(TextOf(tokens, SpecOf(tools, defaults), defaults), "<think>h</think>a<|<tool_call>|>");
  EXPECT_EQ(TextOf(tokens, SpecOf({{"prompt", "a"}}, defaults, Dialect::kNative), defaults),
            "ha<||>");
  const std::string all = "<think>h</think><|im_start|>a<|<tool_call>|><|begin|>";
  Json asked = chat;
  asked["skip_special_tokens"] = false;
  EXPECT_EQ(TextOf(tokens, SpecOf(asked, defaults), defaults), all);
  defaults.special = true;  // --special
  EXPECT_EQ(TextOf(tokens, SpecOf(chat, defaults), defaults), all);
  EXPECT_EQ(TextOf(tokens, SpecOf({{"prompt", "a"}}, defaults, Dialect::kNative), defaults), all);
}

// A model that speaks of its format writes the text of a control token in ordinary ones.
TEST(ChatTokens, TheTextOfAControlTokenIsTextOfTheAnswer) {
  for (const std::string_view name : AnswerFormatNames()) {
    if (name == "openai") continue;  // its messages are told apart by these
    AnswerParser parser({.format = *AnswerFormatByName(name)});
    const std::string text =
        "all\nIt ends with <|im_end|> or <|eot_id|>, <|end|>, <turn|>, <|END_RESPONSE|>.";
    std::string content;
    for (const auto& deltas : {parser.Add(text), parser.Finish()}) {
      for (const AnswerDelta& delta : deltas) content += delta.text;
    }
    EXPECT_EQ(content, name == "functionary_v32" ? text.substr(4) : text) << name;
  }
}

// Accepts the text if the grammar behind its triggers does, token by token.
bool Permits(const GenerationSpec& spec, const CompletionDefaults& defaults,
             const std::string& text) {
  Automaton automaton(spec.grammar,
                      std::make_shared<const Vocabulary>(*defaults.tokenizer, defaults.vocab));
  StateId state = automaton.start();
  for (const TokenId token :
       defaults.tokenizer->Encode(text, /*add_bos=*/false, /*parse_special=*/true))
    state = automaton.StepToken(state, token);
  return state > Automaton::kTooMany && automaton.complete(state);
}

CompletionDefaults GptOssDefaults() {
  CompletionDefaults defaults = HermesDefaults(TokenType::kControl);
  defaults.chat_template = model::ChatTemplate::Parse(
      "{{ reasoning_effort }}{{ tools }}{% for m in messages %}<|start|>{{ m.role }}<|message|>"
      "{{ m.content }}<|end|>{% endfor %}{% if add_generation_prompt %}<|start|>assistant"
      "{% endif %}{# <|channel|> #}",
      "gpt-oss", "", "");
  defaults.answer_format = DetectAnswerFormat(defaults.chat_template->source());
  return defaults;
}

// If gpt-oss could write without opening the final channel, nothing would hold its text to the
// form.
TEST(ChatTokens, AFormHoldsInGptOssFromTheFirstToken) {
  const CompletionDefaults defaults = GptOssDefaults();
  ASSERT_EQ(defaults.answer_format, AnswerFormat::kHarmony);
  Json body = {{"messages", Json::array({Question()})},
               {"response_format",
                {{"type", "json_schema"},
                 {"json_schema", {{"name", "n"}, {"schema", {{"type", "integer"}}}}}}}};
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  const std::string answer = "<|channel|>final<|message|>42";
  for (const bool with_tools : {false, true}) {
    if (with_tools) body["tools"] = kWeatherTools;
    const GenerationSpec spec = SpecOf(body, defaults);
    EXPECT_TRUE(spec.grammar_triggers.empty());
    EXPECT_TRUE(Permits(spec, defaults, answer));
    EXPECT_TRUE(Permits(spec, defaults, thought + answer));
    EXPECT_TRUE(
        Permits(spec, defaults, thought + "<|channel|>final <|constrain|>json<|message|>7"));
    for (const std::string& wrong : {std::string("42"), std::string("Hello"), thought,
                                     std::string("<|channel|>final<|message|>Hello"),
                                     std::string("<|channel|>commentary<|message|>42")})
      EXPECT_FALSE(Permits(spec, defaults, wrong)) << wrong;
    EXPECT_EQ(Permits(spec, defaults,
                      thought + "<|channel|>commentary to=functions.get_weather <|constrain|>json"
                                "<|message|>{\"city\": \"Bern\"}"),
              with_tools);
  }
}

TEST(ChatTokens, AGrammarHoldsInGptOssAsASchemaDoes) {
  const CompletionDefaults defaults = GptOssDefaults();
  const std::string thought = "<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant";
  for (const Json& form :
       {Json{{"grammar", "root ::= n\nn ::= \"4\" n | \"2\"\n"}}, Json{{"guided_regex", "4*2"}},
        Json{{"guided_choice", {"42", "7"}}}, Json{{"guided_grammar", "root ::= \"42\""}},
        Json{{"structured_outputs", {{"regex", "42|\"7\""}}}}}) {
    SCOPED_TRACE(form.dump());
    Json body = {{"messages", Json::array({Question()})}};
    body.update(form);
    const GenerationSpec spec = SpecOf(body, defaults);
    EXPECT_TRUE(spec.grammar_triggers.empty());
    const std::string answer = "<|channel|>final<|message|>42";
    EXPECT_TRUE(Permits(spec, defaults, answer));
    EXPECT_TRUE(Permits(spec, defaults, thought + answer));
    EXPECT_TRUE(Permits(spec, defaults, thought + thought + answer));
    EXPECT_TRUE(
        Permits(spec, defaults, thought + "<|channel|>final <|constrain|>json<|message|>42"));
    for (const std::string& wrong :
         {std::string("42"), thought, std::string("<|channel|>final<|message|>Hello"),
          "<|channel|>commentary<|message|>Wait.<|end|><|start|>assistant" + answer})
      EXPECT_FALSE(Permits(spec, defaults, wrong)) << wrong;
    // A thought that the client has begun goes on up to its end.
    body["messages"].push_back({{"role", "assistant"}, {"reasoning_content", "Hm"}});
    body["continue_final_message"] = true;
    body["add_generation_prompt"] = false;
    const GenerationSpec begun = SpecOf(body, defaults);
    EXPECT_TRUE(Permits(begun, defaults, "m.<|end|><|start|>assistant" + answer));
    EXPECT_FALSE(Permits(begun, defaults, answer));
  }
}

// A model that thinks does so before the JSON that is asked for, too.
TEST(ChatTokens, AThoughtMayComeBeforeAForm) {
  CompletionDefaults defaults = HermesDefaults(TokenType::kControl);
  defaults.chat_template = model::ChatTemplate::Parse(std::string(model::BuiltInTemplate("qwen3")),
                                                      "qwen3", "", "<|im_end|>");
  const Json schema = {{"type", "integer"}};
  const std::string thought = "<think>\nHm. 4?\n</think>\n\n";
  for (const Json& form :
       {Json{{"response_format",
              {{"type", "json_schema"}, {"json_schema", {{"name", "n"}, {"schema", schema}}}}}},
        Json{{"json_schema", schema}}, Json{{"guided_json", schema}},
        Json{{"structured_outputs", {{"json", schema}}}}}) {
    Json body = {{"messages", Json::array({Question()})}};
    body.update(form);
    const GenerationSpec spec = SpecOf(body, defaults);
    EXPECT_TRUE(spec.grammar_triggers.empty());
    EXPECT_TRUE(Permits(spec, defaults, "42")) << "it need not think";
    EXPECT_TRUE(Permits(spec, defaults, thought + "42"));
    EXPECT_TRUE(Permits(spec, defaults, "<think></think>42"));
    for (const std::string& wrong : {std::string("Hello"), thought, thought + "Hello",
                                     "Hello" + thought + "42", thought + thought + "42"})
      EXPECT_FALSE(Permits(spec, defaults, wrong)) << wrong;
    for (const Json& off :
         {Json{{"enable_thinking", false}}, Json{{"reasoning_effort", "none"}},
          Json{{"reasoning_budget_tokens", 0}}, Json{{"reasoning_format", "none"}}}) {
      Json plain = body;
      plain.update(off);
      EXPECT_TRUE(Permits(SpecOf(plain, defaults), defaults, "42"));
      EXPECT_FALSE(Permits(SpecOf(plain, defaults), defaults, thought + "42")) << off;
    }
    CompletionDefaults never = defaults;  // --reasoning off
    never.reasoning = false;
    EXPECT_FALSE(Permits(SpecOf(body, never), never, thought + "42"));
    CompletionDefaults cannot = defaults;
    cannot.chat_template = HermesDefaults(TokenType::kControl).chat_template;
    EXPECT_FALSE(Permits(SpecOf(body, cannot), cannot, thought + "42"));
    // A template that opens the thought: what is behind its end has to match.
    CompletionDefaults opened = defaults;
    opened.chat_template = model::ChatTemplate::Parse(
        defaults.chat_template->source() + "{{ '<think>\n' }}", "thinks", "", "<|im_end|>");
    const GenerationSpec behind = SpecOf(body, opened);
    EXPECT_EQ(behind.grammar_triggers, std::vector<std::string>{"</think>"});
    EXPECT_TRUE(Permits(behind, opened, "\n\n42"));
    EXPECT_FALSE(Permits(behind, opened, "\n\nHello"));
    EXPECT_FALSE(Permits(behind, opened, "\n\n\n42")) << "or they would not end";
  }
  // Of a grammar only the template's own thought is known.
  const Json body = {{"messages", Json::array({Question()})}, {"grammar", "root ::= \"42\""}};
  EXPECT_FALSE(Permits(SpecOf(body, defaults), defaults, thought + "42"));
}

std::string PromptOf(const Json& body, const CompletionDefaults& defaults) {
  const CompletionRequest request = ReadCompletionRequest(body, Dialect::kChat, defaults);
  return model::JoinPieces(RenderedChat(request, defaults));
}

TEST(ChatTokens, ALastMessageOfTheAssistantsGoesOn) {
  const CompletionDefaults defaults = HermesDefaults(TokenType::kControl);
  const auto body = [](Json last, Json fields = Json::object()) {
    Json all = {{"messages", Json::array({Question(), std::move(last)})}};
    all.update(fields);
    return all;
  };
  const auto says = [](Json content) -> Json {
    return {{"role", "assistant"}, {"content", std::move(content)}};
  };
  const Json parts =
      Json::array({{{"type", "text"}, {"text", "Wh"}}, {{"type", "text"}, {"text", "ill"}}});
  const std::string opened = "<|im_start|>assistant\n";
  EXPECT_TRUE(PromptOf(body(says("Whill")), defaults).ends_with(opened + "Whill"));
  EXPECT_TRUE(PromptOf(body(says(parts)), defaults).ends_with(opened + "Wh\n\nill"));
  for (const Json& yes : {Json(true), Json("content")}) {
    const Json asked = {{"continue_final_message", yes}, {"add_generation_prompt", false}};
    EXPECT_TRUE(PromptOf(body(says("Whill"), asked), defaults).ends_with(opened + "Whill"));
  }
  EXPECT_TRUE(PromptOf(body(says("Whill"), {{"continue_final_message", true}}), defaults)
                  .ends_with(opened + "Whill"));
  EXPECT_TRUE(PromptOf(body(says("Whill"), {{"continue_final_message", false}}), defaults)
                  .ends_with("Whill<|im_end|>\n" + opened));
  Json thought = says("");
  thought["reasoning_content"] = "Hm, wh";
  EXPECT_TRUE(PromptOf(body(thought), defaults).ends_with(opened + "<think>\nHm, wh"));
  CompletionRequest request = ReadCompletionRequest(body(thought), Dialect::kChat, defaults);
  const GenerationSpec spec = MakeSpecs(request, defaults).at(0);
  EXPECT_TRUE(request.answer->starts_in_reasoning);
  EXPECT_NE(std::find(spec.prompt.begin(), spec.prompt.end(), defaults.tokenizer->Find("<think>")),
            spec.prompt.end());

  const auto refused = [&](const Json& asked) {
    try {
      ReadCompletionRequest(asked, Dialect::kChat, defaults);
    } catch (const Refused& why) {
      EXPECT_EQ(why.status(), 400);
      return std::string(why.what());
    }
    return std::string();
  };
  EXPECT_NE(
      refused(body(says("a"), {{"continue_final_message", true}, {"add_generation_prompt", true}}))
          .find("expected one of them"),
      std::string::npos);
  Json two = body(says("a"));
  two["messages"].push_back(says("b"));
  EXPECT_NE(refused(two).find("the last two are the assistant's"), std::string::npos);
  Json calls = says(nullptr);
  calls["tool_calls"] =
      Json::array({{{"id", "c"}, {"function", {{"name", "f"}, {"arguments", "{}"}}}}});
  EXPECT_EQ(refused(body(calls)), "");
  EXPECT_NE(refused(body(calls, {{"continue_final_message", true}})).find("tool_calls"),
            std::string::npos);
}

// What the template of a family is told of thinking.
TEST(ChatTokens, EachFamilyIsToldOfThinkingByItsOwnNames) {
  const auto told = [](const std::string& variables, Json fields, Dialect dialect = Dialect::kChat,
                       AnswerFormat format = AnswerFormat::kHermes, bool reasoning = true) {
    CompletionDefaults defaults = HermesDefaults(TokenType::kControl);
    defaults.chat_template = model::ChatTemplate::Parse(variables, "family", "", "");
    defaults.answer_format = format;
    defaults.reasoning = reasoning;
    fields["messages"] = Json::array({Question()});
    fields["max_tokens"] = 9;
    const CompletionRequest request = ReadCompletionRequest(fields, dialect, defaults);
    return model::JoinPieces(RenderedChat(request, defaults));
  };
  const std::string qwen = "{{ enable_thinking }}", deepseek = "{{ thinking }}",
                    seed = "{{ thinking_budget }}", gpt = "{{ reasoning_effort }}";
  const Json none = {{"reasoning_effort", "none"}};
  EXPECT_EQ(told(qwen, Json::object()), "True");
  EXPECT_EQ(told(qwen, none), "False");
  EXPECT_EQ(told(qwen, {{"reasoning_budget_tokens", 0}}), "False");
  EXPECT_EQ(told(qwen, Json::object(), Dialect::kChat, AnswerFormat::kHermes, false), "False");
  EXPECT_EQ(told(deepseek, Json::object()), "True");
  EXPECT_EQ(told(deepseek, none), "False");
  EXPECT_EQ(told(deepseek, {{"chat_template_kwargs", {{"thinking", false}}}}), "False");
  EXPECT_EQ(told(seed, Json::object()), "");
  EXPECT_EQ(told(seed, none), "0");
  EXPECT_EQ(told(seed, {{"thinking_budget_tokens", 512}}), "512");
  EXPECT_EQ(told(gpt, none, Dialect::kChat, AnswerFormat::kHarmony), "low");
  EXPECT_EQ(told(gpt, {{"reasoning_effort", "xhigh"}}, Dialect::kChat, AnswerFormat::kHarmony),
            "high");
  EXPECT_EQ(told(gpt, {{"reasoning_effort", "medium"}}, Dialect::kChat, AnswerFormat::kHarmony),
            "medium");
  EXPECT_EQ(told(gpt, {{"reasoning_effort", "xhigh"}}), "xhigh");
  const auto thinking = [](const char* type) {
    return Json{{"thinking", {{"type", type}, {"budget_tokens", 1024}}}};
  };
  EXPECT_EQ(told(qwen, thinking("enabled"), Dialect::kMessages), "True");
  EXPECT_EQ(told(qwen, thinking("disabled"), Dialect::kMessages), "False");
  EXPECT_EQ(told(seed, thinking("enabled"), Dialect::kMessages), "1024");
  EXPECT_EQ(told(deepseek, thinking("disabled"), Dialect::kMessages), "False");
}

TEST(ChatTokens, ThoughtsHaveABudget) {
  CompletionDefaults defaults = HermesDefaults(TokenType::kControl);
  Json body = {{"messages", Json::array({Question()})}};
  EXPECT_EQ(SpecOf(body, defaults).thoughts.tokens, -1);
  body["reasoning_budget_tokens"] = 5;
  body["reasoning_budget_message"] = "Now.</think>";
  const ThoughtLimit limit = SpecOf(body, defaults).thoughts;
  EXPECT_EQ(limit.tokens, 5);
  EXPECT_FALSE(limit.open);
  EXPECT_EQ(limit.begin, std::vector<std::string>{"<think>"});
  const TokenId end = defaults.tokenizer->Find("</think>");
  ASSERT_FALSE(limit.closing.empty());
  EXPECT_EQ(limit.closing.back(), end);
  EXPECT_EQ(std::count(limit.closing.begin(), limit.closing.end(), end), 1)
      << "a client's message is text";
  defaults.thought_tokens = 3;
  defaults.split_reasoning = false;
  CompletionRequest request =
      ReadCompletionRequest({{"messages", Json::array({Question()})}}, Dialect::kChat, defaults);
  EXPECT_FALSE(request.split_reasoning);
  EXPECT_EQ(MakeSpecs(request, defaults).at(0).thoughts.tokens, 3);
  body["reasoning_format"] = "deepseek";
  EXPECT_TRUE(ReadCompletionRequest(body, Dialect::kChat, defaults).split_reasoning);
}

TEST(ChatTokens, ToolsInNamespacesHaveOneName) {
  const CompletionDefaults defaults = HermesDefaults(TokenType::kControl);
  const Json body = Json::parse(R"({"input":[
    {"type":"message","role":"user","content":"Weather?"},
    {"type":"function_call","call_id":"c","namespace":"mcp__sky__","name":"look","arguments":"{\"id\":18446744073709551615}"},
    {"type":"function_call_output","call_id":"c","output":"blue"}],
   "tools":[{"type":"function","name":"now"},
    {"type":"namespace","name":"mcp__sky__","description":"d","tools":[{"type":"function","name":"look","parameters":{"type":"object"}}]},
    {"type":"namespace","name":"sea","tools":[{"type":"function","name":"look"},{"type":"custom","name":"x"}]}],
   "tool_choice":{"type":"function","namespace":"sea","name":"look"}})");
  const CompletionRequest got = ReadCompletionRequest(body, Dialect::kResponses, defaults);
  std::vector<std::string> names;
  for (const Json& tool : got.tools) names.push_back(tool["function"]["name"]);
  EXPECT_EQ(names, (std::vector<std::string>{"now", "mcp__sky__look", "sea__look"}));
  EXPECT_EQ(got.namespaced["sea__look"], Json::parse(R"({"namespace":"sea","name":"look"})"));
  EXPECT_EQ(got.tool_choice.names, std::vector<std::string>{"sea__look"});
  const std::string prompt = model::JoinPieces(RenderedChat(got, defaults));
  EXPECT_NE(prompt.find("mcp__sky__look"), std::string::npos);
  EXPECT_NE(prompt.find("18446744073709551615"), std::string::npos) << prompt;
}

}  // namespace
}  // namespace larder::serving::api
