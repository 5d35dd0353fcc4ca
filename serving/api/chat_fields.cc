#include "serving/api/chat_fields.h"

#include <algorithm>
#include <array>

namespace larder::serving::inline api {
namespace {

constexpr size_t kMostMessages = 4096;
constexpr size_t kMostTools = 512;
constexpr size_t kMostNameBytes = 256;
constexpr size_t kMostSchemaBytes = size_t{64} << 10;  // limit for one tool
constexpr size_t kMostCalls = 128;                     // limit for one message

constexpr std::array<std::string_view, 7> kEfforts = {"none", "minimal", "low", "medium",
                                                      "high", "xhigh",   "max"};

void CheckName(const std::string& field, const std::string& name) {
  const auto bad = [](char c) {
    return static_cast<unsigned char>(c) <= ' ' || c == '"' || c == '\\';
  };
  if (name.empty() || name.size() > kMostNameBytes || std::any_of(name.begin(), name.end(), bad))
    JsonFields::Fail(
        field, name,
        fmt::format("1 to {} bytes without spaces, quotes and backslashes", kMostNameBytes));
}

// A call's arguments are an object.
bool IsOfObjects(const Json& schema) {
  const auto type = schema.find("type");
  return type == schema.end() || *type == "object" ||
         (type->is_array() && std::find(type->begin(), type->end(), "object") != type->end());
}

// at: the field's name, of the message that it is in.
Json ReadCalls(const std::string& at, const Json& field) {
  if (!field.is_array() || field.size() > kMostCalls)
    JsonFields::Fail(at, field, fmt::format("an array of at most {} calls", kMostCalls));
  Json calls = Json::array();
  for (const Json& one : field) {
    const std::string here = fmt::format("{}[{}]", at, calls.size()),
                      function_name = here + ".function";
    const JsonFields call(one, here);
    const Json* function = call.Find("function");
    if (function == nullptr) throw Refused(400, "{} is missing", function_name).On("messages");
    const JsonFields fields(*function, function_name);
    const std::string name = fields.String("name", "");
    CheckName(function_name + ".name", name);
    calls.push_back(CallJson(call.String("id", ""), name, ArgumentsText(fields.Find("arguments"))));
  }
  return calls;
}

Json ReadMessage(const std::string& at, const Json& one) {
  const JsonFields fields(one, at);
  std::string role = fields.String("role", "");
  if (role == "developer") role = "system";  // OpenAI's newer name
  if (role == "function") role = "tool";     // its older one
  if (role != "system" && role != "user" && role != "assistant" && role != "tool")
    JsonFields::Fail(at + ".role", role, "system, developer, user, assistant or tool");
  Json message = {{"role", role}};
  const Json* content = fields.Find("content");
  Json calls = Json::array();
  if (role == "assistant") {
    if (const Json* field = fields.Find("tool_calls"))
      calls = ReadCalls(at + ".tool_calls", *field);
    if (const Json* old = fields.Find("function_call"))
      calls.push_back(
          ReadCalls(at + ".function_call", Json::array({{{"id", ""}, {"function", *old}}}))[0]);
  }
  const auto others = role == "tool" ? OtherParts::kSayLeftOut : OtherParts::kRefuse;
  const std::string text = content == nullptr ? "" : ReadText(at + ".content", *content, others);
  message["content"] = content == nullptr && !calls.empty() ? Json() : Json(text);
  if (role == "assistant") {
    const std::string reasoning =
        fields.String("reasoning_content", fields.String("reasoning", ""));
    if (!reasoning.empty()) message["reasoning_content"] = reasoning;
    if (!calls.empty()) message["tool_calls"] = std::move(calls);
  }
  if (role == "tool") message["tool_call_id"] = fields.String("tool_call_id", "");
  if (const std::string name = fields.String("name", ""); !name.empty()) message["name"] = name;
  return message;
}

void ReadTools(const Json& field, CompletionRequest& request) {
  if (!field.is_array()) JsonFields::Fail("tools", field, "an array of tools");
  for (size_t i = 0; i < field.size(); ++i) {
    const std::string at = fmt::format("tools[{}]", i);
    const JsonFields tool(field[i], at);
    if (tool.String("type", "function") != "function") {  // those that run on OpenAI's servers
      ++request.ignored_fields;
      continue;
    }
    const Json* function = tool.Find("function");
    if (function == nullptr)
      throw Refused(400, "{}.function is missing: expected an object", at).On("tools");
    const JsonFields fields(*function, at + ".function");
    const Json* parameters = fields.Find("parameters");
    AddTool(request, fields.String("name", ""), fields.String("description", ""),
            parameters == nullptr ? Json() : *parameters, fields.Bool("strict", false));
  }
}

std::string NameOf(const char* field, const JsonFields& fields) {
  const Json* function = fields.Find("function");
  if (function == nullptr)
    return NameInNamespace(fields.String("namespace", ""), fields.String("name", ""));
  return JsonFields(*function, field).String("name", "");
}

// Tools that run on a vendor's servers are skipped where they are offered, and so are choices of
// them. The names of modes are no types.
bool IsHosted(const std::string& type) {
  return type != "function" && type != "auto" && type != "none" && type != "required" &&
         type != "any" && type != "tool";
}

void ReadChoice(const char* field, const Json& value, CompletionRequest& request) {
  ToolUse& choice = request.tool_choice;
  constexpr const char* kExpected =
      "\"auto\", \"none\", \"required\" or an object that names a function";
  if (value.is_string()) {
    if (value == "none") {
      choice.kind = ToolUse::Kind::kNone;
    } else if (value == "required" || value == "any") {
      choice.kind = ToolUse::Kind::kRequired;
    } else if (value != "auto") {
      JsonFields::Fail(field, value, kExpected);
    }
    return;
  }
  if (!value.is_object()) JsonFields::Fail(field, value, kExpected);
  const JsonFields fields(value, field);
  const std::string type = fields.String("type", "function");
  if (type == "function") {
    choice.kind = ToolUse::Kind::kRequired;
    choice.names = {NameOf(field, fields)};
  } else if (type == "allowed_tools") {
    // In a chat completion these are in an object of that name, in a response they are not.
    const Json* inner = fields.Find("allowed_tools");
    const JsonFields allowed(inner == nullptr ? value : *inner, field);
    if (allowed.String("mode", "auto") == "required") choice.kind = ToolUse::Kind::kRequired;
    const Json* tools = allowed.Find("tools");
    if (tools == nullptr || !tools->is_array() || tools->size() > kMostTools)
      JsonFields::Fail(field, value, kExpected);
    for (const Json& one : *tools) {
      const JsonFields tool(one, field);
      if (IsHosted(tool.String("type", "function"))) {
        ++request.ignored_fields;
      } else {
        choice.names.push_back(NameOf(field, tool));
      }
    }
    if (choice.names.empty() && !tools->empty())
      choice.kind = ToolUse::Kind::kNone;  // no call of these tools
  } else if (IsHosted(type)) {
    ++request.ignored_fields;
  } else {
    JsonFields::Fail(field, type, kExpected);
  }
}

// Whether the last message, the assistant's, is the beginning of the answer: it is unless the
// request says otherwise. `sent`: as the client has it.
void ReadContinuation(const JsonFields& fields, const Json& sent, CompletionRequest& request) {
  constexpr const char* kField = "continue_final_message";
  Json& last = request.messages.back();
  const bool assistants = last["role"] == "assistant";
  request.add_generation_prompt = fields.Bool("add_generation_prompt", true);
  const Json* field = fields.Find(kField);
  // llama-server's names of the part that goes on; it follows from what the message has.
  const bool named = field != nullptr && (*field == "content" || *field == "reasoning_content");
  const bool asked = named || fields.Bool(kField, false);
  if (asked && fields.Has("add_generation_prompt") && request.add_generation_prompt)
    throw Refused(400, "{} and add_generation_prompt are both true: expected one of them", kField)
        .On(kField);
  if (asked && last.contains("tool_calls"))
    throw Refused(400, "{}: the last message has tool_calls: expected a text to continue", kField)
        .On(kField);
  const size_t count = request.messages.size();
  if (!asked && assistants && count > 1 && request.messages[count - 2]["role"] == "assistant")
    throw Refused(400,
                  "messages: the last two are the assistant's: expected at most one, which the "
                  "answer continues")
        .On("messages");
  const bool wanted = asked || (field == nullptr && request.add_generation_prompt);
  if (!wanted || !assistants || last.contains("tool_calls") || !last["content"].is_string()) return;
  if (const auto parts = sent.find("content"); parts != sent.end() && parts->is_array())
    last["content"] = ReadText("messages.content", *parts, OtherParts::kRefuse, "\n\n");
  request.continue_last = !last["content"].get_ref<const std::string&>().empty();
  request.continue_thought = !request.continue_last && last.contains("reasoning_content");
}

}  // namespace

std::string ReadText(const std::string& field, const Json& content, OtherParts others,
                     std::string_view between) {
  if (content.is_null()) return "";
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) JsonFields::Fail(field, content, "a string or an array of parts");
  std::string text;
  const auto add = [&](const std::string& more) {
    if (!text.empty() && !more.empty()) text += between;
    text += more;
  };
  for (const Json& part : content) {
    if (part.is_string()) {
      add(part.get<std::string>());
      continue;
    }
    const JsonFields fields(part, field.c_str());
    const std::string type = fields.String("type", "");
    if (type == "refusal") {
      add(fields.String("refusal", ""));
    } else if (type == "text" || type == "input_text" || type == "output_text") {
      add(fields.String("text", ""));
    } else if (others == OtherParts::kSayLeftOut) {
      add(LeftOut(type));
    } else {
      JsonFields::Fail(field + ".type", type, "\"text\": this model reads nothing else");
    }
  }
  return text;
}

void AddTool(CompletionRequest& request, const std::string& name, const std::string& description,
             const Json& parameters, bool strict) {
  CheckName("tools.function.name", name);
  if (request.tools.is_null()) request.tools = Json::array();
  if (request.tools.size() >= kMostTools)
    throw Refused(400, "tools has more than {} tools", kMostTools).On("tools");
  Json function = {{"name", name}, {"description", description}};
  request.tool_bytes += name.size() + description.size();
  if (!parameters.is_null()) {
    const std::string field = fmt::format("tools[{}].function.parameters", request.tools.size());
    if (!parameters.is_object()) JsonFields::Fail(field, parameters, "a JSON schema");
    if (!IsOfObjects(parameters))
      JsonFields::Fail(field + ".type", parameters["type"],
                       "\"object\", as in the schema of any function's arguments");
    const size_t bytes = parameters.dump(-1, ' ', false, Json::error_handler_t::replace).size();
    if (bytes > kMostSchemaBytes)
      throw Refused(400, "tools: the schema of {} has {} bytes: expected at most {}", Excerpt(name),
                    bytes, kMostSchemaBytes)
          .On("tools");
    function["parameters"] = parameters;
    request.tool_bytes += bytes;
  } else {
    function["parameters"] = {{"type", "object"}, {"properties", Json::object()}};
  }
  if (strict) function["strict"] = true;
  request.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
}

std::string NameInNamespace(const std::string& space, const std::string& name) {
  if (space.empty()) return name;
  return space + (space.back() == '_' ? "" : "__") + name;
}

void FinishTools(CompletionRequest& request) {
  ToolUse& choice = request.tool_choice;
  if (request.tools.is_null() || request.tools.empty()) {
    if (choice.kind == ToolUse::Kind::kRequired)
      throw Refused(400, "tool_choice requires a call, but there are no tools").On("tool_choice");
    request.tools = nullptr;
    choice.names.clear();
    return;
  }
  for (const std::string& name : choice.names) {
    if (std::none_of(request.tools.begin(), request.tools.end(),
                     [&](const Json& tool) { return tool["function"]["name"] == name; }))
      JsonFields::Fail("tool_choice", name, "the name of one of the tools");
  }
}

std::string LeftOut(const std::string& type) {
  return fmt::format("[{} left out: this model reads only text]",
                     type.empty() ? "a part" : Excerpt(type));
}

std::string ArgumentsText(const Json* arguments) {
  if (arguments == nullptr) return "{}";
  if (!arguments->is_string())
    return arguments->dump(-1, ' ', false, Json::error_handler_t::replace);
  const auto& text = arguments->get_ref<const std::string&>();
  const size_t begin = text.find_first_not_of(" \t\r\n");
  if (begin == std::string::npos || text.substr(begin) == "null") return "{}";
  return text;
}

Json CallJson(const std::string& id, const std::string& name, const std::string& arguments) {
  return {
      {"id", id}, {"type", "function"}, {"function", {{"name", name}, {"arguments", arguments}}}};
}

void AddAssistant(Json& messages, const std::string& text, const std::string& reasoning,
                  Json calls) {
  if (messages.empty() || messages.back()["role"] != "assistant")
    messages.push_back({{"role", "assistant"}, {"content", nullptr}});
  Json& message = messages.back();
  const auto append = [&](const char* field, const std::string& more) {
    if (more.empty()) return;
    const bool has = message.contains(field) && message[field].is_string();
    message[field] = has ? message[field].get<std::string>() + more : more;
  };
  append("content", text);
  append("reasoning_content", reasoning);
  for (Json& call : calls) message["tool_calls"].push_back(std::move(call));
  if (message["content"].is_null() && !message.contains("tool_calls")) message["content"] = "";
}

void AddSystem(Json& messages, const std::string& text) {
  if (text.empty()) return;
  if (messages.empty() || messages.back()["role"] != "system") {
    messages.push_back({{"role", "system"}, {"content", text}});
  } else {
    messages.back()["content"] = messages.back()["content"].get<std::string>() + "\n\n" + text;
  }
}

void CheckMessages(const char* field, const Json& messages) {
  if (!messages.is_array() || messages.empty() || messages.size() > kMostMessages)
    JsonFields::Fail(field, messages, fmt::format("an array of 1 to {} messages", kMostMessages));
}

void SetEffort(CompletionRequest& request, const char* field, const std::string& effort) {
  if (effort.empty()) return;
  if (std::find(kEfforts.begin(), kEfforts.end(), effort) == kEfforts.end())
    JsonFields::Fail(field, effort, "none, minimal, low, medium, high, xhigh or max");
  if (effort == "none") {
    request.kwargs["enable_thinking"] = false;
  } else {
    request.kwargs["reasoning_effort"] = effort;
  }
}

void ReadChatTools(const JsonFields& fields, CompletionRequest& request) {
  if (const Json* tools = fields.Find("tools")) ReadTools(*tools, request);
  const Json* functions = fields.Find("functions");
  if (functions == nullptr) return;
  if (!functions->is_array()) JsonFields::Fail("functions", *functions, "an array of functions");
  Json tools = Json::array();
  for (const Json& one : *functions) tools.push_back({{"type", "function"}, {"function", one}});
  ReadTools(tools, request);
}

void ReadToolChoice(const JsonFields& fields, CompletionRequest& request) {
  for (const char* name : {"function_call", "tool_choice"}) {
    if (const Json* choice = fields.Find(name)) ReadChoice(name, *choice, request);
  }
  // A model that is held to calls may go on with the same one: several are for who asks for them.
  ToolUse& use = request.tool_choice;
  use.parallel = fields.Bool("parallel_tool_calls", use.kind != ToolUse::Kind::kRequired);
  FinishTools(request);
}

void ReadTemplateKwargs(const JsonFields& fields, CompletionRequest& request) {
  if (fields.Has("enable_thinking"))
    request.kwargs["enable_thinking"] = fields.Bool("enable_thinking", true);
  if (fields.Has("reasoning_format")) {
    const std::string format = fields.String("reasoning_format", "auto");
    if (format != "auto" && format != "none" && format != "deepseek")
      JsonFields::Fail("reasoning_format", format, "auto, none or deepseek");
    request.split_reasoning = format != "none";
  }
  for (const char* name : {"thinking_budget_tokens", "reasoning_budget_tokens"})
    request.thought_tokens =
        fields.Integer(name, request.thought_tokens, -1, std::numeric_limits<int64_t>::max());
  if (fields.Has("reasoning_budget_message"))
    request.thought_message = fields.String("reasoning_budget_message", "");
  const Json* kwargs = fields.Find("chat_template_kwargs");
  if (kwargs == nullptr) return;
  if (!kwargs->is_object()) JsonFields::Fail("chat_template_kwargs", *kwargs, "an object");
  for (const auto& [name, value] : kwargs->items()) request.kwargs[name] = value;
}

void ReadChat(const JsonFields& fields, CompletionRequest& request) {
  const Json* messages = fields.Find("messages");
  if (messages == nullptr)
    throw Refused(400, "messages is missing: expected an array of messages").On("messages");
  CheckMessages("messages", *messages);
  request.messages = Json::array();
  for (const Json& one : *messages)
    request.messages.push_back(
        ReadMessage(fmt::format("messages[{}]", request.messages.size()), one));
  ReadChatTools(fields, request);
  ReadToolChoice(fields, request);
  SetEffort(request, "reasoning_effort", fields.String("reasoning_effort", ""));
  if (const Json* reasoning = fields.Find("reasoning");
      reasoning != nullptr && reasoning->is_object())
    SetEffort(request, "reasoning.effort",
              JsonFields(*reasoning, "reasoning").String("effort", ""));
  ReadTemplateKwargs(fields, request);
  ReadContinuation(fields, messages->back(), request);
}

}  // namespace larder::serving::api
