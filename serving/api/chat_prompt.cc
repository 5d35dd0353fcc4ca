#include "serving/api/chat_prompt.h"

#include <algorithm>
#include <ctime>
#include <unordered_map>

#include "model/chat/conversation.h"
#include "serving/answer/grammar_text.h"
#include "serving/answer/tool_grammar.h"
#include "serving/fields/constraints.h"

namespace larder::serving::inline api {
namespace {

// The tools that may be called.
Json ChosenTools(const CompletionRequest& request) {
  const std::vector<std::string>& names = request.tool_choice.names;
  if (names.empty()) return request.tools;
  Json chosen = Json::array();
  for (const Json& tool : request.tools) {
    const auto& name = tool["function"]["name"].get_ref<const std::string&>();
    if (std::find(names.begin(), names.end(), name) != names.end()) chosen.push_back(tool);
  }
  return chosen;
}

bool AnyIsStrict(const Json& tools) {
  return std::any_of(tools.begin(), tools.end(),
                     [](const Json& tool) { return tool["function"].value("strict", false); });
}

// For each message that is a result the name of its call; empty: it is none, or names none.
std::vector<std::string> NamesOfResults(const Json& messages) {
  std::vector<std::string> names(messages.size());
  std::unordered_map<std::string, std::string> calls;  // by id
  std::string last;  // name of the last call, for results without an id
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (message.contains("tool_calls")) {
      for (const Json& call : message["tool_calls"]) {
        last = call["function"]["name"].get<std::string>();
        calls[call["id"].get<std::string>()] = last;
      }
    }
    if (message["role"] != "tool") continue;
    const std::string id = message.value("tool_call_id", "");
    const auto call = calls.find(id);
    names[i] = message.value("name", call != calls.end() ? call->second : id.empty() ? last : "");
  }
  return names;
}

std::string ContentOf(const Json& message) {
  return message["content"].is_string() ? message["content"].get<std::string>() : "";
}

// Earlier calls as text of the assistant's.
Json WithCallsAsText(Json messages, AnswerFormat format) {
  for (Json& message : messages) {
    if (!message.contains("tool_calls")) continue;
    std::string text = ContentOf(message);
    for (const Json& call : message["tool_calls"]) {
      if (!text.empty()) text += '\n';
      text += MakeCallText(format, call["function"]["name"], call["function"]["arguments"]);
    }
    message["content"] = text;
    message.erase("tool_calls");
  }
  return messages;
}

// Results as text of the user's, in one message with his own behind them.
Json WithResultsAsText(const Json& given, const std::vector<std::string>& names) {
  Json messages = Json::array();
  bool joins = false;
  for (size_t i = 0; i < given.size(); ++i) {
    Json message = given[i];
    const bool result = message["role"] == "tool";
    if (result) {
      const std::string about =
          names[i].empty() ? "The result:" : "The result of " + names[i] + ":";
      message = {{"role", "user"}, {"content", about + "\n" + ContentOf(message)}};
    }
    const bool after_user = !messages.empty() && messages.back()["role"] == "user";
    if (after_user && message["role"] == "user" && (joins || result)) {
      Json& content = messages.back()["content"];
      if (!content.is_string()) content = "";
      content.get_ref<std::string&>().append("\n\n").append(ContentOf(message));
      joins = true;
      continue;
    }
    joins = result;
    messages.push_back(std::move(message));
  }
  return messages;
}

// A model whose template leaves earlier calls or their results out is shown them as text.
Json WithHistoryAsText(const Json& given, const model::ChatTemplate& chat, bool with_tools,
                       AnswerFormat format) {
  const bool calls = chat.writes_calls(with_tools);
  const bool results = chat.writes_results(with_tools) && (calls || chat.supports_tools());
  if (calls && results) return given;
  Json messages = calls ? given : model::SplitCalls(given);
  const std::vector<std::string> names = NamesOfResults(messages);
  if (!calls) messages = WithCallsAsText(std::move(messages), format);
  return results ? messages : WithResultsAsText(messages, names);
}

// The model's template shows no tools: it is told about them, and how to call them, in the system
// message.
bool IsToldTools(const CompletionRequest& request, const CompletionDefaults& defaults) {
  return request.offers_tools() && !defaults.chat_template->supports_tools();
}

Json MessagesOf(const CompletionRequest& request, const CompletionDefaults& defaults) {
  Json messages = WithHistoryAsText(request.messages, *defaults.chat_template,
                                    request.offers_tools(), defaults.answer_format);
  if (!IsToldTools(request, defaults)) return messages;
  const std::string about = MakeToolInstructions(defaults.answer_format, request.tools);
  Json& first = messages[0];
  if (first["role"] == "system") {
    const std::string text = ContentOf(first);
    first["content"] = text.empty() ? about : text + "\n\n" + about;
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", about}});
  }
  return messages;
}

// How many tokens a thought may have; -1: it is not limited.
int64_t ThoughtTokens(const CompletionRequest& request, const CompletionDefaults& defaults) {
  return request.thought_tokens >= 0 ? request.thought_tokens : defaults.thought_tokens;
}

// What the template is told of thinking, under the name that it has for it. A model that can think
// does, as with llama-server, unless the request or the server says no.
Json Thinks(const CompletionRequest& request, const CompletionDefaults& defaults) {
  const bool may = defaults.reasoning && ThoughtTokens(request, defaults) != 0;
  const Json thinks = request.kwargs.value("enable_thinking", Json(may));
  if (defaults.chat_template->Mentions("enable_thinking")) return thinks;
  return request.kwargs.value("thinking", thinks);  // DeepSeek, Granite
}

// Whether an answer that has to match a form may have a thought before it.
bool MayThink(const CompletionRequest& request, const CompletionDefaults& defaults) {
  return defaults.chat_template->supports_thinking() && request.split_reasoning &&
         Thinks(request, defaults) != false;
}

void SetThoughts(const CompletionDefaults& defaults, CompletionRequest& request) {
  const int64_t tokens = ThoughtTokens(request, defaults);
  if (tokens < 0) return;
  const ThoughtForm form = ThoughtFormOf(request.answer->format, defaults.chat_template->source());
  ThoughtLimit& limit = request.spec.thoughts;
  limit.tokens = tokens;
  limit.open = request.answer->starts_in_reasoning;
  limit.begin.assign(form.begins.begin(), form.begins.end());
  limit.end.assign(form.ends.begin(), form.ends.end());
  // The message is a client's: it is no control token.
  const std::string& message =
      request.thought_message ? *request.thought_message : defaults.thought_message;
  limit.closing = defaults.tokenizer->EncodePieces(
      std::vector<model::TextPiece>{{.text = message, .trusted = false},
                                    {.text = std::string(form.end), .trusted = true}},
      /*add_bos=*/false);
}

// The template's variables of thinking, by the names of its family, unless the request has them.
void SetThinking(const CompletionRequest& request, const CompletionDefaults& defaults,
                 Json& kwargs) {
  const model::ChatTemplate& chat = *defaults.chat_template;
  const int64_t tokens = ThoughtTokens(request, defaults);
  const Json thinks = Thinks(request, defaults);
  const auto set = [&](const char* name, const Json& value) {
    if (chat.Mentions(name) && !kwargs.contains(name)) kwargs[name] = value;
  };
  // Some templates take a variable that is not there for false.
  set("enable_thinking", thinks);
  if (!chat.Mentions("enable_thinking")) set("thinking", thinks);
  if (thinks == false) {
    set("thinking_budget", 0);  // Seed-OSS
  } else if (tokens >= 0) {
    set("thinking_budget", tokens);
  }
  const Json effort = kwargs.value("reasoning_effort", Json(thinks == false ? "none" : ""));
  if (!effort.is_string()) return;
  const auto& asked = effort.get_ref<const std::string&>();
  const std::string_view trained = TrainedEffort(defaults.answer_format, asked);
  if (trained != asked) kwargs["reasoning_effort"] = trained;
}

// How the answer is read that follows `prompt`. llama-server's completion shows what the model
// writes.
void SetAnswer(std::string_view prompt, const CompletionDefaults& defaults,
               CompletionRequest& request) {
  if (request.dialect == Dialect::kNative) return;
  AnswerParserOptions& answer = request.answer.emplace();
  answer.format =
      IsToldTools(request, defaults) ? ToldFormat(defaults.answer_format) : defaults.answer_format;
  answer.parse_tools = request.offers_tools();
  answer.parse_reasoning = request.split_reasoning;
  answer.starts_in_reasoning = request.continue_thought || StartsInReasoning(answer.format, prompt);
  if (answer.parse_tools) answer.tools = ChosenTools(request);
  for (const Json& message : request.messages) {
    if (message.contains("tool_calls")) answer.calls_before += message["tool_calls"].size();
  }
  const FormatTokens tokens = TokensOf(answer.format, answer.parse_tools);
  const auto ids_of = [&](const std::vector<std::string_view>& texts) {
    std::vector<TokenId> ids;
    for (const std::string_view text : texts) {
      if (const TokenId id = defaults.tokenizer->Find(text); id >= 0) ids.push_back(id);
    }
    return ids;
  };
  SetThoughts(defaults, request);
  request.spec.text_exceptions = {.shown = ids_of(tokens.shown), .hidden = ids_of(tokens.hidden)};
}

// The first tool whose schema has no grammar, and why: a grammar of all tools at once cannot say.
std::string WrongTool(const CompletionRequest& request) {
  const std::vector<std::string>& names = request.tool_choice.names;
  for (size_t i = 0; i < request.tools.size(); ++i) {
    const Json& function = request.tools[i]["function"];
    const auto& name = function["name"].get_ref<const std::string&>();
    if (!names.empty() && std::find(names.begin(), names.end(), name) == names.end()) continue;
    try {
      GrammarOfSchema(function["parameters"]);
    } catch (const Error& error) {
      return fmt::format("tools[{}] {}: {}", i, name, error.what());
    }
  }
  return "";
}

void SetConstraint(const CompletionDefaults& defaults, CompletionRequest& request) {
  GenerationSpec& spec = request.spec;
  const AnswerParserOptions& answer = *request.answer;
  const bool required = request.tool_choice.kind == ToolUse::Kind::kRequired;
  if (!request.offers_tools()) {
    spec.grammar_required = true;
    if (spec.grammar == nullptr || request.continue_last) return;
    const ToolGrammarOptions options{.starts_in_reasoning = answer.starts_in_reasoning,
                                     .may_think = MayThink(request, defaults)};
    const bool thinks =
        options.starts_in_reasoning || options.may_think || AlwaysThinks(answer.format);
    if (!thinks) return;
    const bool own = request.schema.is_null();
    if (own && !AlwaysThinks(answer.format)) {
      // A grammar of the client's own says nothing of thoughts: it holds behind the one that the
      // template has begun.
      if (answer.starts_in_reasoning) spec.grammar_triggers = {EndOfThought(answer.format)};
      return;
    }
    ToolGrammar grammar = MakeAnswerGrammar(
        answer.format, own ? request.form_gbnf : GbnfJson(request.schema), options);
    spec.grammar = GrammarOfGbnf(grammar.gbnf);
    spec.grammar_triggers = std::move(grammar.triggers);
    return;
  }
  if (required) {
    // The form of a text that will not be written, and strings that would cut the call.
    if (!request.schema.is_null()) spec.grammar = nullptr;
    spec.stops.clear();
  }
  if (spec.grammar != nullptr && required)
    throw Refused(
        400, "tool_choice requires a call, and a grammar another text: expected only one of them")
        .On("tool_choice");
  const bool both = spec.grammar != nullptr && !request.schema.is_null();
  if (spec.grammar != nullptr && !both)
    throw Refused(400, "tools and a grammar: expected only one of them").On("tools");
  if (!required && !both && !AnyIsStrict(answer.tools)) return;
  ToolGrammarOptions options;
  options.parallel =
      request.tool_choice.parallel && defaults.chat_template->writes_parallel_calls(true);
  options.starts_in_reasoning = answer.starts_in_reasoning;
  // Agents ask for a form of their last answer, and offer tools until then.
  if (both) options.schema = request.schema;
  options.may_think = MayThink(request, defaults);
  const auto kind = required || both ? ToolChoice::Kind::kRequired : ToolChoice::Kind::kAuto;
  ToolGrammar grammar =
      MakeToolGrammar(answer.format, answer.tools, {.kind = kind, .name = {}}, options);
  spec.grammar = GrammarOfGbnf(grammar.gbnf);
  spec.grammar_triggers = std::move(grammar.triggers);
  spec.grammar_required = kind == ToolChoice::Kind::kRequired;
}

}  // namespace

void CheckTextFits(size_t bytes, const std::string& field, const CompletionDefaults& defaults) {
  const size_t tokens = bytes / defaults.longest_token_bytes;
  if (tokens > defaults.context)
    throw TooLong(tokens, defaults.context, defaults.model_context, field, /*counted=*/false);
}

std::vector<model::TextPiece> RenderedChat(const CompletionRequest& request,
                                           const CompletionDefaults& defaults) {
  try {
    model::ChatInput input;
    input.messages = MessagesOf(request, defaults);
    if (request.offers_tools() && !IsToldTools(request, defaults)) input.tools = request.tools;
    input.kwargs = request.kwargs;
    SetThinking(request, defaults, input.kwargs);
    input.add_generation_prompt = request.add_generation_prompt;
    input.continue_last = request.continue_last;
    input.now_s = std::time(nullptr);
    if (!request.continue_thought || input.messages.size() < 2)
      return defaults.chat_template->Render(input);
    const std::string thought = input.messages.back().value("reasoning_content", "");
    input.messages.erase(input.messages.size() - 1);
    input.add_generation_prompt = true;
    std::vector<model::TextPiece> pieces = defaults.chat_template->Render(input);
    const AnswerFormat format = defaults.answer_format;
    if (!StartsInReasoning(format, model::JoinPieces(pieces))) {
      std::string open(ThoughtFormOf(format, defaults.chat_template->source()).begin);
      if (open == "<think>") open += '\n';
      pieces.push_back({.text = open, .trusted = true});
    }
    pieces.push_back({.text = thought, .trusted = false});
    return pieces;
  } catch (const Error& error) {
    const char* field = request.conversation_field();
    throw Refused(400, "{}: {}", field, error.what()).On(field);
  }
}

std::vector<TokenId> ChatTokens(CompletionRequest& request, const CompletionDefaults& defaults) {
  const std::vector<model::TextPiece> pieces = RenderedChat(request, defaults);
  const std::string text = model::JoinPieces(pieces);
  CheckTextFits(text.size(), request.conversation_field(), defaults);
  SetAnswer(text, defaults, request);
  if (request.answer) {
    try {
      SetConstraint(defaults, request);
    } catch (const Refused&) {
      throw;
    } catch (const Error& error) {
      const std::string wrong = WrongTool(request);
      throw Refused(400, "{}", wrong.empty() ? "tools: " + std::string(error.what()) : wrong)
          .On("tools");
    }
  }
  return defaults.tokenizer->EncodePieces(pieces, defaults.tokenizer->wants_bos());
}

}  // namespace larder::serving::api
