#include "model/chat/chat_template.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/error.h"
#include "base/json_text.h"
#include "model/chat/conversation.h"
#include "model/jinja_language/text.h"

namespace larder::model::inline chat {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kProbeSteps = 200'000;  // some ten milliseconds; real templates take some
                                           // thousand

constexpr std::string_view kRoles[] = {"system", "developer", "user",   "assistant",
                                       "tool",   "function",  "ipython"};

// A role is one of a few words, and templates write it between control tokens or inside one
// ("<|user|>").
bool IsTrusted(std::string_view key, std::string_view value) {
  return key == "role" &&
         std::find(std::begin(kRoles), std::end(kRoles), value) != std::end(kRoles);
}

std::string_view Stripped(std::string_view text) {
  const size_t begin = SkipSpace(text, 0, text.size());
  return text.substr(begin, SkipSpaceBack(text, begin, text.size()) - begin);
}

const Json& Of(const Json& object, const char* name) {
  static const Json null;
  const auto it = object.find(name);
  return it == object.end() ? null : *it;
}

// The texts of a content's parts; parts of other kinds are left out.
std::string FlatText(const Json& content) {
  if (!content.is_array()) return "";
  std::string text;
  for (const Json& part : content) {
    if (part.is_object() && Of(part, "text").is_string())
      text += Of(part, "text").get_ref<const std::string&>();
  }
  return text;
}

bool OnlyText(const Json& content) {
  return std::all_of(content.begin(), content.end(), [](const Json& part) {
    return part.is_object() && Of(part, "type") == "text" && Of(part, "text").is_string();
  });
}

void AdaptArguments(Json& message, bool objects) {
  if (!Of(message, "tool_calls").is_array()) return;
  for (Json& call : message["tool_calls"]) {
    if (!call.is_object()) continue;
    Json* holder = &call;
    if (Of(call, "function").is_object()) holder = &call["function"];
    if (!holder->contains("arguments")) continue;
    Json& arguments = (*holder)["arguments"];
    if (objects && arguments.is_string()) {
      // What a model wrote may be cut, or no object: then it is shown as it is, under a name.
      auto parsed = TryParseJsonText<Json>(arguments.get_ref<const std::string&>());
      Json value = parsed ? std::move(*parsed) : Json(arguments);
      arguments = value.is_object() ? std::move(value) : Json{{"arguments", std::move(value)}};
    } else if (!objects && arguments.is_object()) {
      arguments = arguments.dump(-1, ' ', false, Json::error_handler_t::replace);
    }
  }
}

// Gemma and others know no system message: its text begins the first message of the user's.
void MergeSystem(Json& messages) {
  if (messages.empty() || !messages[0].is_object() || Of(messages[0], "role") != "system") return;
  const Json& content = Of(messages[0], "content");
  const std::string system = content.is_string() ? content.get<std::string>() : FlatText(content);
  messages.erase(0);
  if (messages.empty() || Of(messages[0], "role") != "user") {
    messages.insert(messages.begin(), Json{{"role", "user"}, {"content", system}});
    return;
  }
  const Json& first = Of(messages[0], "content");
  const std::string user = first.is_string() ? first.get<std::string>() : FlatText(first);
  messages[0]["content"] = system.empty() ? user : system + "\n\n" + user;
}

// Cuts what the template writes behind the content of the last message, which only data can be:
// what the template itself writes never counts as the content, however short that is.
void CutBehind(std::vector<TextPiece>& pieces, std::string_view content, const std::string& name) {
  const std::string_view wanted = Stripped(content);
  const std::string_view trailing =
      content.substr(static_cast<size_t>(wanted.data() - content.data()) + wanted.size());
  while (!pieces.empty()) {
    TextPiece& last = pieces.back();
    const std::string_view text = last.text;
    // A template may have cut the content itself (thoughts off): then its end is what there is.
    const size_t at = last.trusted ? std::string::npos : text.rfind(wanted);
    if (at != std::string::npos) {
      size_t end = at + wanted.size();
      if (text.substr(end).starts_with(trailing)) end += trailing.size();
      last.text.resize(end);
      return;
    }
    if (!last.trusted && !Stripped(text).empty() && wanted.ends_with(Stripped(text))) return;
    pieces.pop_back();
  }
  throw Error(
      "{}: the template does not write the assistant's last message, which the answer should "
      "continue",
      name);
}

std::string Day(int64_t now_s, const char* form = "%b %d %Y") {
  const auto now = static_cast<std::time_t>(now_s);
  std::tm local{};
  char text[32];
  if (localtime_r(&now, &local) == nullptr) return "";
  return {text, std::strftime(text, sizeof text, form, &local)};
}

Json Message(const char* role, Json content) {
  return {{"role", role}, {"content", std::move(content)}};
}

Json CallMessage(Json content, Json arguments) {
  Json message = Message("assistant", std::move(content));
  message["tool_calls"] =
      Json::array({{{"id", "call00001"},
                    {"type", "function"},
                    {"function", {{"name", "probe_call"}, {"arguments", std::move(arguments)}}}}});
  return message;
}

Json ProbeTools() {
  return Json::array(
      {{{"type", "function"},
        {"function",
         {{"name", "probe_tool"},
          {"description", "probe"},
          {"parameters",
           {{"type", "object"},
            {"properties", {{"probe_argument", {{"type", "string"}, {"description", "probe"}}}}},
            {"required", Json::array({"probe_argument"})}}}}}}});
}

// Gives a tool the descriptions that it lacks.
void Describe(Json& tool) {
  if (!tool.is_object()) return;
  Json& function = tool.contains("function") ? tool["function"] : tool;
  if (!function.is_object()) return;
  const auto describe = [](Json& one) {
    if (one.is_object() && !one.contains("description")) one["description"] = "";
  };
  describe(function);
  const auto parameters = function.find("parameters");
  if (parameters == function.end() || !parameters->is_object()) return;
  const auto properties = parameters->find("properties");
  if (properties == parameters->end() || !properties->is_object()) return;
  for (Json& one : *properties) describe(one);
}

bool Has(std::string_view text, std::string_view what) {
  return text.find(what) != std::string_view::npos;
}

}  // namespace

std::shared_ptr<const ChatTemplate> ChatTemplate::Parse(std::string source, std::string name,
                                                        std::string bos, std::string eos,
                                                        std::string tool_use) {
  std::shared_ptr<ChatTemplate> out(new ChatTemplate);
  out->name_ = name;
  out->bos_ = std::move(bos);
  out->eos_ = std::move(eos);
  out->main_ = JinjaTemplate::Parse(std::move(source), name);
  out->caps_ = out->Probe(*out->main_);
  if (!tool_use.empty()) {
    out->tool_use_ = JinjaTemplate::Parse(std::move(tool_use), name + " (tool_use)");
    out->tool_use_caps_ = out->Probe(*out->tool_use_);
    out->caps_.tools |= out->tool_use_caps_.tools;
  }
  return out;
}

std::shared_ptr<const ChatTemplate> ChatTemplate::OfModel(const Tokenizer& tokenizer,
                                                          const std::string& file) {
  if (tokenizer.chat_template().empty()) return nullptr;
  return Parse(std::string(tokenizer.chat_template()), "tokenizer.chat_template of " + file,
               tokenizer.Piece(tokenizer.bos(), true), tokenizer.Piece(tokenizer.eos(), true),
               std::string(tokenizer.tool_use_template()));
}

std::shared_ptr<const ChatTemplate> ChatTemplate::Named(const std::string& name,
                                                        const Tokenizer& tokenizer) {
  std::string text(BuiltInTemplate(name));
  const std::string bos = tokenizer.Piece(tokenizer.bos(), true),
                    eos = tokenizer.Piece(tokenizer.eos(), true);
  if (!text.empty()) return Parse(std::move(text), name, bos, eos);
  if (Has(name, "{{") || Has(name, "{%")) return Parse(name, "--chat-template", bos, eos);
  std::error_code ignored;
  std::ifstream file(name, std::ios::binary);
  if (!file || !std::filesystem::is_regular_file(name, ignored))
    throw Error("--chat-template {}: expected a file or one of {}", name, BuiltInTemplateList());
  text.assign(std::istreambuf_iterator<char>(file), {});
  // Clients see its name, and need not know where it lies.
  const std::string file_name = std::filesystem::path(name).filename().string();
  try {
    return Parse(std::move(text), file_name, bos, eos);
  } catch (const Error& error) {
    throw Error("--chat-template {}: {}", name, error.what());
  }
}

std::vector<TextPiece> ChatTemplate::RenderWith(const JinjaTemplate& jinja, const Caps& caps,
                                                const ChatInput& input, uint64_t most_steps) const {
  static const Json null;
  const Json prompt = input.add_generation_prompt && !input.continue_last;
  JinjaVariables variables;
  variables.is_trusted = IsTrusted;
  variables.now_s = input.now_s;
  variables.most_steps = most_steps;
  variables.data.emplace_back("documents", &null);
  // Fireworks' names, which transformers does not give: the tools' text and the day.
  Json functions, datetime;
  if (jinja.Mentions("functions")) {
    functions =
        input.tools.empty() ? "" : input.tools.dump(2, ' ', false, Json::error_handler_t::replace);
    variables.data.emplace_back("functions", &functions);
  }
  if (jinja.Mentions("datetime")) {
    datetime = Day(input.now_s);
    variables.data.emplace_back("datetime", &datetime);
  }
  // llama-server's: Llama 3's templates else tell every model that it is July 2024.
  Json date;
  if (jinja.Mentions("date_string") && !input.kwargs.contains("date_string")) {
    date = Day(input.now_s, "%d %b %Y");
    variables.data.emplace_back("date_string", &date);
  }
  for (const auto& [name, value] : input.kwargs.items()) variables.data.emplace_back(name, &value);
  variables.data.emplace_back("messages", &input.messages);
  if (!input.tools.empty() || !caps.unset_tools)
    variables.data.emplace_back("tools", input.tools.empty() ? &null : &input.tools);
  variables.data.emplace_back("add_generation_prompt", &prompt);
  variables.trusted = {{"bos_token", bos_}, {"eos_token", eos_}};
  return jinja.Render(variables);
}

ChatInput ChatTemplate::Adapted(const ChatInput& input, const Caps& caps, bool in_turns) const {
  ChatInput out = input;
  if (!caps.lone_results) TellLoneResults(out.messages);
  FoldSystems(out.messages, caps.several_systems, caps.late_systems);
  OrderResults(out.messages);
  if (caps.calls && !caps.text_and_calls) out.messages = SplitTexts(out.messages);
  if (caps.calls && !caps.parallel_calls) out.messages = SplitCalls(out.messages);
  if (caps.short_ids) out.messages = WithShortIds(out.messages);
  if (!caps.system) MergeSystem(out.messages);
  if (in_turns) MakeTurns(out.messages);
  if (caps.descriptions) {
    for (Json& tool : out.tools) Describe(tool);
  }
  for (Json& message : out.messages) {
    if (!message.is_object()) continue;
    AdaptArguments(message, caps.object_arguments);
    if (!message.contains("content")) continue;
    Json& content = message["content"];
    if (content.is_array() && !caps.typed_content && OnlyText(content)) content = FlatText(content);
    if (content.is_string() && !caps.text_content && caps.typed_content)
      content = Json::array({{{"type", "text"}, {"text", content.get<std::string>()}}});
    const bool calls = Of(message, "tool_calls").is_array() && !message["tool_calls"].empty();
    if (content.is_null() && !caps.null_content) content = "";
    if (calls && caps.null_content && content == "") content = nullptr;
  }
  return out;
}

std::vector<TextPiece> ChatTemplate::RenderAdapted(const JinjaTemplate& jinja, const Caps& caps,
                                                   const ChatInput& input, bool in_turns) const {
  ChatInput adapted = Adapted(input, caps, in_turns);
  if (!input.continue_last) return RenderWith(jinja, caps, adapted);
  const Json& last = input.messages.back();
  const Json& said = Of(last, "content");
  const std::string content = said.is_string() ? said.get<std::string>() : FlatText(said);
  if (Of(last, "role") != "assistant")
    throw Error("chat: the last message is not the assistant's, so there is nothing to continue");
  if (Stripped(content).empty()) {  // nothing to continue: an answer begins
    adapted.messages.erase(adapted.messages.size() - 1);
    adapted.continue_last = false;
    adapted.add_generation_prompt = true;
    return RenderWith(jinja, caps, adapted);
  }
  std::vector<TextPiece> pieces = RenderWith(jinja, caps, adapted);
  CutBehind(pieces, content, name_);
  return pieces;
}

std::vector<TextPiece> ChatTemplate::Render(const ChatInput& input) const {
  if (!input.messages.is_array() || input.messages.empty())
    throw Error("chat: no messages, expected at least one");
  const bool with_tools = tool_use_ != nullptr && !input.tools.empty();
  const JinjaTemplate& jinja = with_tools ? *tool_use_ : *main_;
  const Caps& caps = CapsFor(with_tools);
  try {
    return RenderAdapted(jinja, caps, input, /*in_turns=*/false);
  } catch (const Error&) {
    try {
      return RenderAdapted(jinja, caps, input, /*in_turns=*/true);
    } catch (const Error&) {  // what was asked for says more than this
    }
    throw;
  }
}

std::string ChatTemplate::TryRender(const JinjaTemplate& jinja, const Caps& caps,
                                    const ChatInput& input) const {
  try {
    return JoinPieces(RenderWith(jinja, caps, input, kProbeSteps));
  } catch (const Error&) {
    return "";
  }
}

ChatTemplate::Caps ChatTemplate::Probe(const JinjaTemplate& jinja) const {
  Caps caps;
  ChatInput input;
  const auto render = [&](std::initializer_list<Json> messages) {
    input.messages = Json::array();
    for (const Json& message : messages) input.messages.push_back(message);
    return TryRender(jinja, caps, input);
  };
  const Json parts = Json::array({{{"type", "text"}, {"text", "probe-user"}}});
  const Json plain_text = Message("user", "probe-user"), typed_text = Message("user", parts);
  if (render({plain_text}).empty() && render({typed_text}).empty()) {
    caps.unset_tools = true;
    caps.unset_tools = !render({plain_text}).empty() || !render({typed_text}).empty();
  }
  caps.text_content = Has(render({plain_text}), "probe-user");
  // A list that is printed as such is no support for it.
  const std::string typed = render({typed_text});
  caps.typed_content = Has(typed, "probe-user") && !Has(typed, "'text'") && !Has(typed, "\"text\"");
  const Json user =
      Message("user", caps.text_content || !caps.typed_content ? Json("probe-user") : parts);
  const Json system =
      Message("system", caps.text_content || !caps.typed_content
                            ? Json("probe-system")
                            : Json::array({{{"type", "text"}, {"text", "probe-system"}}}));
  // A template that shows not even the user's words (the demo model's) needs no help with the
  // system's.
  caps.system =
      Has(render({system, user}), "probe-system") || (!caps.text_content && !caps.typed_content);
  ProbeSystems(jinja, caps, system, user);

  const Json object = {{"probe_argument", "probe-value"}};
  const std::string as_object = render({user, CallMessage("", object)});
  const std::string as_text = render({user, CallMessage("", object.dump())});
  // Objects, if text fails, is quoted a second time, or is shown without its names; text, if an
  // object fails or is printed in Python's notation.
  const auto clean = [](std::string_view text) {
    return Has(text, "probe_argument") && !Has(text, "'probe_argument'") &&
           !Has(text, "\\\"probe_argument");
  };
  caps.object_arguments = clean(as_object) && !clean(as_text);
  if (clean(as_object) && clean(as_text)) caps.object_arguments = as_object == as_text;
  const std::string null_content =
      render({user, CallMessage(Json(), caps.object_arguments ? object : Json(object.dump()))});
  caps.null_content = Has(null_content, "probe_call") && !Has(null_content, "None");

  input.tools = ProbeTools();
  const auto shows_tools = [&] {
    return Has(render({user}), "probe_tool") || Has(render({system, user}), "probe_tool");
  };
  caps.tools = shows_tools();
  if (caps.tools) {
    input.tools[0]["function"].erase("description");
    input.tools[0]["function"]["parameters"]["properties"]["probe_argument"].erase("description");
    caps.descriptions = !shows_tools();
  }
  input.tools = nullptr;

  caps.thinking = jinja.Mentions("enable_thinking") || jinja.Mentions("thinking") ||
                  jinja.Mentions("reasoning_effort");
  if (!caps.thinking) {
    Json thought = CallMessage("probe-answer", object);
    thought["reasoning_content"] = "probe-thought";
    caps.thinking = Has(render({user, thought}), "probe-thought");
  }
  ProbeCalls(jinja, caps);
  return caps;
}

// Whether texts of the system's are in the prompt, in their order and as the system's, where they
// are not the only one.
void ChatTemplate::ProbeSystems(const JinjaTemplate& jinja, Caps& caps, const Json& system,
                                const Json& user) const {
  Json other = system;
  Json& content = other["content"];
  (content.is_string() ? content : content[0]["text"]) = "probe-other";
  const Json answer = Message("assistant", user["content"]);
  const auto in_order = [&](Json messages, const char* before) {
    bool any = false;
    for (const bool tools : {false, true}) {
      ChatInput input;
      input.messages = messages;
      if (tools) input.tools = ProbeTools();
      const std::string text = TryRender(jinja, caps, input);
      if (text.empty()) continue;
      any = true;
      const size_t first = text.find("probe-system"), second = text.find("probe-other");
      if (first == std::string::npos || second == std::string::npos || second < first ||
          second < text.find(before) || text.find("probe-system", first + 1) != std::string::npos)
        return false;
    }
    return any;
  };
  caps.several_systems = in_order(Json::array({system, other, user}), "probe-system");
  caps.late_systems = in_order(Json::array({system, user, answer, other, user}), "probe-user");
}

void ChatTemplate::ProbeCalls(const JinjaTemplate& jinja, Caps& caps) const {
  caps.parallel_calls = true;  // Adapted leaves the conversations as they are
  const auto call = [](const char* id, const char* value) -> Json {
    return {{"id", id},
            {"type", "function"},
            {"function",
             {{"name", "probe_call"}, {"arguments", Json{{"probe_argument", value}}.dump()}}}};
  };
  const auto result = [](const char* id, const char* content) -> Json {
    return {{"role", "tool"}, {"content", content}, {"tool_call_id", id}, {"name", "probe_call"}};
  };
  ChatInput input;
  const auto render = [&](Json calls, std::initializer_list<Json> results) {
    input.messages = Json::array({Message("user", "probe-user"), Message("assistant", Json())});
    input.messages[1]["tool_calls"] = std::move(calls);
    for (const Json& one : results) input.messages.push_back(one);
    input.tools = ProbeTools();
    std::string text = TryRender(jinja, caps, Adapted(input, caps, /*in_turns=*/false));
    if (text.empty()) {
      input.tools = nullptr;
      text = TryRender(jinja, caps, Adapted(input, caps, /*in_turns=*/false));
    }
    return text;
  };
  constexpr const char *kShort = "abcDEF123", *kOther = "abcDEF124", *kLong = "call_abc123def";
  const Json one = Json::array({call(kShort, "probe-value")});
  const std::string alone = render(one, {});
  std::string answered = render(one, {result(kShort, "probe-result")});
  if (answered.empty() && caps.null_content) {  // QwQ's takes it in the last message only
    caps.null_content = false;
    answered = render(one, {result(kShort, "probe-result")});
  }
  input.messages = Json::array({Message("user", "probe-user"), result(kShort, "probe-result"),
                                Message("user", "probe-user")});
  input.tools = nullptr;
  caps.lone_results = Has(TryRender(jinja, caps, Adapted(input, caps, false)), "probe-result");
  caps.calls = Has(alone, "probe-value") || Has(answered, "probe-value");
  caps.results = Has(answered, "probe-result");
  caps.parallel_calls = false;
  if (!caps.calls) return;
  // Whether these texts are in the prompt in this order, with tools and without.
  const auto in_order = [&](Json messages, std::initializer_list<const char*> texts) {
    input.messages = std::move(messages);
    for (const bool tools : {false, true}) {
      input.tools = tools ? ProbeTools() : Json();
      const std::string text = TryRender(jinja, caps, Adapted(input, caps, /*in_turns=*/false));
      if (text.empty()) continue;
      size_t at = 0;
      for (const char* wanted : texts) {
        at = text.find(wanted, at);
        if (at == std::string::npos) return false;
      }
    }
    return true;
  };
  const Json user = Message("user", "probe-user");
  Json with_text = Message("assistant", "probe-answer");
  with_text["tool_calls"] = one;
  caps.text_and_calls = in_order(Json::array({user, with_text, result(kShort, "probe-result")}),
                                 {"probe-answer", "probe-value", "probe-result"}) &&
                        in_order(Json::array({user, with_text, result(kShort, "probe-result"),
                                              Message("assistant", "probe-last"), user}),
                                 {"probe-answer", "probe-value", "probe-result", "probe-last"});
  caps.short_ids =
      !answered.empty() &&
      render(Json::array({call(kLong, "probe-value")}), {result(kLong, "probe-result")}).empty();
  caps.parallel_calls = true;
  const std::string both =
      render(Json::array({call(kShort, "probe-value"), call(kOther, "probe-other")}),
             {result(kShort, "probe-result"), result(kOther, "probe-result")});
  caps.parallel_calls = Has(both, "probe-value") && Has(both, "probe-other");
}

}  // namespace larder::model::chat
