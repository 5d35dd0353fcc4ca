// POST /v1/messages, as Anthropic's API.
#include <algorithm>
#include <limits>

#include "serving/api/chat_fields.h"
#include "serving/api/common_fields.h"
#include "serving/api/dialect_readers.h"

namespace larder::serving::inline api {
namespace {

// A text or text blocks; what else there is can't be read.
std::string TextOfBlocks(const char* field, const Json& content,
                         OtherParts others = OtherParts::kRefuse) {
  if (content.is_string() || content.is_null()) return ReadText(field, content);
  if (!content.is_array()) JsonFields::Fail(field, content, "a string or an array of blocks");
  std::string text;
  for (const Json& one : content) {
    const JsonFields block(one, field);
    const std::string type = block.String("type", "");
    const bool is_text = type == "text";
    if (!is_text && others == OtherParts::kRefuse)
      JsonFields::Fail(std::string(field) + ".type", type,
                       "\"text\": this model reads nothing else");
    if (!text.empty()) text += '\n';
    text += is_text ? block.String("text", "") : LeftOut(type);
  }
  return text;
}

// Blocks of the system prompt: without lines that change with every request.
std::string ReadSystem(const Json& field) {
  if (!field.is_array()) return WithoutChangingLines(TextOfBlocks("system", field));
  std::string text;
  for (const Json& one : field) {
    const std::string block = WithoutChangingLines(TextOfBlocks("system", Json::array({one})));
    if (block.empty()) continue;
    if (!text.empty()) text += '\n';
    text += block;
  }
  return text;
}

void ReadAssistant(const Json& content, Json& messages) {
  if (!content.is_array())
    return AddAssistant(messages, ReadText("messages.content", content), "", Json::array());
  std::string text, reasoning;
  Json calls = Json::array();
  for (const Json& one : content) {
    const JsonFields block(one, "messages.content");
    const std::string type = block.String("type", "");
    if (type == "text") {
      text += block.String("text", "");
    } else if (type == "thinking") {
      reasoning += block.String("thinking", "");
    } else if (type == "tool_use") {
      calls.push_back(CallJson(block.String("id", ""), block.String("name", ""),
                               ArgumentsText(block.Find("input"))));
    } else if (type != "redacted_thinking") {
      JsonFields::Fail("messages.content.type", type, "text, thinking or tool_use");
    }
  }
  AddAssistant(messages, text, reasoning, std::move(calls));
}

// Results of calls become messages of their own, in front of the user's text.
void ReadUser(const Json& content, Json& messages) {
  if (!content.is_array()) {
    messages.push_back({{"role", "user"}, {"content", ReadText("messages.content", content)}});
    return;
  }
  std::string text;
  bool any = false;
  for (const Json& one : content) {
    const JsonFields block(one, "messages.content");
    const std::string type = block.String("type", "");
    if (type == "text") {
      if (any) text += '\n';
      text += block.String("text", "");
      any = true;
    } else if (type == "tool_result") {
      const Json* result = block.Find("content");
      std::string said = result == nullptr ? ""
                                           : TextOfBlocks("messages.content.content", *result,
                                                          OtherParts::kSayLeftOut);
      if (block.Bool("is_error", false)) said.insert(0, "Error: ");
      messages.push_back(
          {{"role", "tool"}, {"content", said}, {"tool_call_id", block.String("tool_use_id", "")}});
    } else {
      JsonFields::Fail("messages.content.type", type,
                       "text or tool_result: this model reads nothing else");
    }
  }
  if (any) messages.push_back({{"role", "user"}, {"content", text}});
}

void ReadMessageTools(const Json& field, CompletionRequest& request) {
  if (!field.is_array()) JsonFields::Fail("tools", field, "an array of tools");
  for (const Json& one : field) {
    const JsonFields tool(one, "tools");
    const Json* schema = tool.Find("input_schema");
    // a tool of Anthropic's servers
    if (schema == nullptr || tool.String("type", "custom") != "custom") {
      ++request.ignored_fields;
      continue;
    }
    AddTool(request, tool.String("name", ""), tool.String("description", ""), *schema,
            tool.Bool("strict", false));
  }
}

void ReadMessageChoice(const Json& field, ToolUse& choice) {
  const JsonFields fields(field, "tool_choice");
  const std::string type = fields.String("type", "");
  if (type == "any") {
    choice.kind = ToolUse::Kind::kRequired;
  } else if (type == "tool") {
    choice.kind = ToolUse::Kind::kRequired;
    choice.names = {fields.String("name", "")};
  } else if (type == "none") {
    choice.kind = ToolUse::Kind::kNone;
  } else if (type != "auto") {
    JsonFields::Fail("tool_choice.type", type, "auto, any, tool or none");
  }
  choice.parallel =
      !fields.Bool("disable_parallel_tool_use", choice.kind == ToolUse::Kind::kRequired);
}

void ReadThinking(const Json& field, CompletionRequest& request) {
  const JsonFields fields(field, "thinking");
  const std::string type = fields.String("type", "");
  if (type != "enabled" && type != "disabled" && type != "adaptive")
    JsonFields::Fail("thinking.type", type, "enabled, disabled or adaptive");
  request.kwargs["enable_thinking"] = type != "disabled";
  if (type == "enabled")
    request.thought_tokens =
        fields.Integer("budget_tokens", -1, -1, std::numeric_limits<int64_t>::max());
}

}  // namespace

std::string WithoutChangingLines(std::string text) {
  constexpr std::string_view kChanging = "x-anthropic-";
  while (text.starts_with(kChanging)) {
    const size_t end = text.find('\n');
    text.erase(0, end == std::string::npos ? text.size() : end + 1);
    text.erase(0, std::min(text.find_first_not_of('\n'), text.size()));
  }
  return text;
}

void ReadMessages(const JsonFields& fields, const CompletionDefaults& defaults,
                  CompletionRequest& request) {
  request.messages = Json::array();
  if (const Json* system = fields.Find("system")) AddSystem(request.messages, ReadSystem(*system));
  const Json* messages = fields.Find("messages");
  if (messages == nullptr)
    throw Refused(400, "messages is missing: expected an array of messages").On("messages");
  CheckMessages("messages", *messages);
  for (const Json& one : *messages) {
    const JsonFields message(one, "messages");
    const std::string role = message.String("role", "");
    const Json* content = message.Find("content");
    if (content == nullptr)
      throw Refused(400, "messages.content is missing: expected a string or an array of blocks")
          .On("messages");
    if (role == "user") {
      ReadUser(*content, request.messages);
    } else if (role == "assistant") {
      ReadAssistant(*content, request.messages);
    } else if (role == "system") {
      AddSystem(request.messages, ReadSystem(*content));
    } else {
      JsonFields::Fail("messages.role", role, "user or assistant");
    }
  }
  CheckMessages("messages", request.messages);
  const Json& last = request.messages.back();
  request.continue_last =
      last["role"] == "assistant" && last["content"].is_string() && !last.contains("tool_calls");
  if (const Json* tools = fields.Find("tools")) ReadMessageTools(*tools, request);
  if (const Json* choice = fields.Find("tool_choice"))
    ReadMessageChoice(*choice, request.tool_choice);
  FinishTools(request);
  if (const Json* thinking = fields.Find("thinking")) ReadThinking(*thinking, request);
  if (const Json* config = fields.Find("output_config")) {
    const JsonFields output(*config, "output_config");
    SetEffort(request, "output_config.effort", output.String("effort", ""));
    if (const Json* format = output.Find("format"))
      SetForm(*format, "output_config.format", request);
  }
  if (const Json* format = fields.Find("output_format")) SetForm(*format, "output_format", request);
  ReadTemplateKwargs(fields, request);
  ReadSampling(fields, defaults, request);
  ReadLimit(fields, {"max_tokens"}, defaults, request);
  if (const Json* stops = fields.Find("stop_sequences"))
    request.spec.stops = ReadStops("stop_sequences", *stops);
  request.stream = fields.Bool("stream", false);
  fields.Ignore({"metadata", "service_tier", "cache_control", "context_management", "container",
                 "mcp_servers", "betas", "inference_geo", "anthropic_version", "anthropic_beta"});
}

}  // namespace larder::serving::api
