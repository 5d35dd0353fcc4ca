#include "serving/api/chat_prompt.h"

#include <algorithm>
#include <ctime>

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

// A model whose template knows no tools is told about them in the system message.
Json MessagesOf(const CompletionRequest& request, const CompletionDefaults& defaults) {
  if (!request.offers_tools() || defaults.chat_template == nullptr ||
      defaults.chat_template->supports_tools())
    return request.messages;
  Json messages = request.messages;
  const std::string about = MakeToolInstructions(request.tools);
  Json& first = messages[0];
  if (first["role"] == "system") {
    const std::string text = first["content"].is_string() ? first["content"].get<std::string>() : "";
    first["content"] = text.empty() ? about : text + "\n\n" + about;
  } else {
    messages.insert(messages.begin(), Json{{"role", "system"}, {"content", about}});
  }
  return messages;
}

// How the answer is read that follows `prompt`. llama-server's completion shows what the model writes.
void SetAnswer(std::string_view prompt, const CompletionDefaults& defaults, CompletionRequest& request) {
  if (request.dialect == Dialect::kNative) return;
  AnswerParserOptions& answer = request.answer.emplace();
  answer.format = defaults.answer_format;
  answer.parse_tools = request.offers_tools();
  answer.parse_reasoning = request.split_reasoning;
  answer.starts_in_reasoning = StartsInReasoning(answer.format, prompt);
  if (answer.parse_tools) answer.tools = ChosenTools(request);
  for (const Json& message : request.messages) {
    if (message.contains("tool_calls")) answer.calls_before += message["tool_calls"].size();
  }
  request.spec.special = WantsSpecialTokens(answer.format);
}

// What follows a thought must match; the thought itself is free.
std::vector<std::string> EndOfThought(const AnswerParserOptions& answer) {
  if (answer.format == AnswerFormat::kHarmony) return {"<|channel|>final<|message|>"};
  if (!answer.starts_in_reasoning) return {};
  const Json any = Json::parse(R"([{"type":"function","function":{"name":"f","parameters":{}}}])");
  return MakeToolGrammar(answer.format, any, {.kind = ToolChoice::Kind::kRequired, .name = {}},
                         {.parallel = false, .starts_in_reasoning = true, .may_think = false})
      .triggers;
}

// A call or a text of the schema: agents ask for a form of their last answer, and offer tools until then.
std::string WithSchema(const std::string& gbnf, const Json& schema) {
  constexpr std::string_view kRoot = "root ::= ";
  if (!gbnf.starts_with(kRoot)) throw Error("the tools have no grammar");
  return "root ::= tool-calls | %json " + schema.dump(-1, ' ', false, Json::error_handler_t::replace) +
         "\ntool-calls ::= " + gbnf.substr(kRoot.size());
}

void SetConstraint(const CompletionDefaults& defaults, CompletionRequest& request) {
  GenerationSpec& spec = request.spec;
  const AnswerParserOptions& answer = *request.answer;
  const bool required = request.tool_choice.kind == ToolUse::Kind::kRequired;
  if (!request.offers_tools()) {
    if (spec.grammar != nullptr) spec.grammar_triggers = EndOfThought(answer);
    spec.grammar_required = true;
    return;
  }
  if (spec.grammar != nullptr && required)
    throw Refused(400,
                  "tool_choice requires a call, and response_format or a grammar another text: expected "
                  "only one of them")
        .On("tool_choice");
  const bool both = spec.grammar != nullptr && !request.schema.is_null();
  if (spec.grammar != nullptr && !both)
    throw Refused(400, "tools and a grammar: expected only one of them").On("tools");
  if (!required && !both && !AnyIsStrict(answer.tools)) return;
  const bool thinks = defaults.chat_template != nullptr && defaults.chat_template->supports_thinking();
  const Json wanted = request.kwargs.value("enable_thinking", Json(true));
  ToolGrammarOptions options;
  options.parallel = request.tool_choice.parallel;
  options.starts_in_reasoning = answer.starts_in_reasoning;
  options.may_think = thinks && wanted != false && request.split_reasoning;
  const auto kind = required || both ? ToolChoice::Kind::kRequired : ToolChoice::Kind::kAuto;
  ToolGrammar grammar = MakeToolGrammar(answer.format, answer.tools, {.kind = kind, .name = {}}, options);
  if (grammar.gbnf.empty()) return;
  spec.grammar = GrammarOfGbnf(both ? WithSchema(grammar.gbnf, request.schema) : grammar.gbnf);
  spec.grammar_triggers = std::move(grammar.triggers);
  spec.grammar_required = kind == ToolChoice::Kind::kRequired;
}

}  // namespace

void CheckTextFits(size_t bytes, const char* field, const CompletionDefaults& defaults) {
  if (bytes / defaults.longest_token_bytes <= defaults.context) return;
  throw Refused(400,
                "{}: its {} bytes do not fit the context of {} tokens, of which none has more than {} bytes",
                field, bytes, defaults.context, defaults.longest_token_bytes)
      .On(field);
}

std::vector<model::TextPiece> RenderedChat(const CompletionRequest& request,
                                           const CompletionDefaults& defaults) {
  try {
    const auto chat = defaults.chat_template != nullptr ? defaults.chat_template
                                                        : model::ChatTemplate::Plain(*defaults.tokenizer);
    model::ChatInput input;
    input.messages = MessagesOf(request, defaults);
    if (request.offers_tools()) input.tools = request.tools;
    input.kwargs = request.kwargs;
    input.add_generation_prompt = request.add_generation_prompt;
    input.continue_last = request.continue_last;
    input.now_s = std::time(nullptr);
    return chat->Render(input);
  } catch (const Error& error) {
    throw Refused(400, "messages: {}", error.what()).On("messages");
  }
}

std::vector<TokenId> ChatTokens(CompletionRequest& request, const CompletionDefaults& defaults) {
  const std::vector<model::TextPiece> pieces = RenderedChat(request, defaults);
  const std::string text = model::JoinPieces(pieces);
  CheckTextFits(text.size(), "messages", defaults);
  SetAnswer(text, defaults, request);
  if (request.answer) {
    try {
      SetConstraint(defaults, request);
    } catch (const Refused&) {
      throw;
    } catch (const Error& error) {
      throw Refused(400, "tools: {}", error.what()).On("tools");
    }
  }
  return defaults.tokenizer->EncodePieces(pieces, defaults.tokenizer->wants_bos());
}

}  // namespace larder::serving::api
