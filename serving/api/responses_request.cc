// POST /v1/responses. The server keeps no responses: a request has its whole conversation.
#include "serving/api/chat_fields.h"
#include "serving/api/common_fields.h"
#include "serving/api/dialect_readers.h"

namespace larder::serving::inline api {
namespace {

std::string Required(const JsonFields& fields, const char* field, const char* name) {
  std::string text = fields.String(name, "");
  if (text.empty())
    throw Refused(400, "{}.{} is missing: expected a string", field, name).On(field);
  return text;
}

void ReadItem(const Json& one, CompletionRequest& request) {
  const JsonFields item(one, "input");
  Json& messages = request.messages;
  const std::string type = item.String("type", "message");
  const auto text_of = [](const Json* field, const char* name) {
    return field == nullptr ? std::string() : ReadText(name, *field);
  };
  if (type == "message") {
    std::string role = item.String("role", "user");
    if (role == "developer") role = "system";
    if (role != "system" && role != "user" && role != "assistant")
      JsonFields::Fail("input.role", role, "user, assistant, system or developer");
    const std::string text = text_of(item.Find("content"), "input.content");
    if (role == "assistant") {
      AddAssistant(messages, text, "", Json::array());
    } else if (role == "system") {
      AddSystem(messages, WithoutChangingLines(text));
    } else {
      messages.push_back({{"role", role}, {"content", text}});
    }
  } else if (type == "function_call") {
    AddAssistant(messages, "", "",
                 Json::array({CallJson(item.String("call_id", item.String("id", "")),
                                       Required(item, "input", "name"),
                                       ArgumentsText(item.Find("arguments")))}));
  } else if (type == "function_call_output") {
    messages.push_back({{"role", "tool"},
                        {"content", text_of(item.Find("output"), "input.output")},
                        {"tool_call_id", Required(item, "input", "call_id")}});
  } else if (type == "reasoning") {
    // The content has the thoughts themselves; a summary is for people. Encrypted ones are another
    // server's.
    std::string text;
    if (const Json* content = item.Find("content"); content != nullptr && content->is_array()) {
      for (const Json& part : *content)
        text += JsonFields(part, "input.content").String("text", "");
    }
    if (!text.empty()) AddAssistant(messages, "", text, Json::array());
  } else if (type == "item_reference") {  // what it stands for is part of the conversation
    JsonFields::Fail("input.type", type,
                     "items themselves: this server keeps none; ask with store false");
  } else {
    ++request.ignored_fields;  // results of tools that run on OpenAI's servers, compactions
  }
}

void ReadResponseTools(const Json& field, CompletionRequest& request) {
  if (!field.is_array()) JsonFields::Fail("tools", field, "an array of tools");
  for (const Json& one : field) {
    const JsonFields tool(one, "tools");
    if (tool.String("type", "") != "function") {
      ++request.ignored_fields;
      continue;
    }
    const Json* parameters = tool.Find("parameters");
    AddTool(request, tool.String("name", ""), tool.String("description", ""),
            parameters == nullptr ? Json() : *parameters, tool.Bool("strict", false));
  }
}

}  // namespace

void ReadResponses(const JsonFields& fields, const CompletionDefaults& defaults,
                   CompletionRequest& request) {
  for (const char* name : {"previous_response_id", "conversation", "prompt"}) {
    if (const Json* field = fields.Find(name))
      JsonFields::Fail(name, *field, "none: this server keeps no responses; send the whole input");
  }
  if (fields.Bool("background", false))
    throw Refused(400, "background is true: expected false; this server keeps no responses")
        .On("background");
  request.messages = Json::array();
  AddSystem(request.messages, WithoutChangingLines(fields.String("instructions", "")));
  const Json* input = fields.Find("input");
  if (input == nullptr)
    throw Refused(400, "input is missing: expected a string or an array").On("input");
  if (input->is_string()) {
    request.messages.push_back({{"role", "user"}, {"content", *input}});
  } else {
    CheckMessages("input", *input);
    for (const Json& item : *input) ReadItem(item, request);
  }
  CheckMessages("input", request.messages);
  if (const Json* tools = fields.Find("tools")) ReadResponseTools(*tools, request);
  ReadToolChoice(fields, request);
  if (const Json* reasoning = fields.Find("reasoning"))
    SetEffort(request, "reasoning.effort",
              JsonFields(*reasoning, "reasoning").String("effort", ""));
  ReadTemplateKwargs(fields, request);
  ReadSampling(fields, defaults, request);
  ReadLimit(fields, {"max_output_tokens"}, defaults, request);
  if (const Json* stop = fields.Find("stop")) request.spec.stops = ReadStops("stop", *stop);
  if (const Json* text = fields.Find("text")) {
    const JsonFields form(*text, "text");
    if (const Json* format = form.Find("format")) SetForm(*format, "text.format", request);
    form.Ignore({"verbosity"});
  }
  request.stream = fields.Bool("stream", false);
  // What was left out is said, too: as OpenAI does, and a job's request to a server, which leaves
  // out nothing (serving/batch/remote_request.h), must have the answer of the line.
  const SamplingParams& sampling = request.spec.sampling;
  request.echoed = {{"temperature", sampling.temperature}, {"top_p", sampling.top_p}};
  if (request.spec.max_tokens >= 0) request.echoed["max_output_tokens"] = request.spec.max_tokens;
  for (const char* name : {"instructions", "tools", "tool_choice", "metadata", "reasoning", "text",
                           "temperature", "top_p", "user"}) {
    if (const Json* field = fields.Find(name)) request.echoed[name] = *field;
  }
  fields.Ignore({"store", "include", "service_tier", "truncation", "prompt_cache_key",
                 "safety_identifier", "prompt_cache_retention", "stream_options", "client_metadata",
                 "max_tool_calls", "top_logprobs"});
}

}  // namespace larder::serving::api
