// Conversations and tools in the form of OpenAI's chat completions: what a client sent, checked, in
// the canonical form that templates read; and the parts that other dialects' readers make theirs
// of. No state; any thread.
#pragma once

#include <string>
#include <string_view>

#include "serving/api/completion_request.h"

namespace larder::serving::inline api {

// messages, tools, tool_choice, parallel_tool_calls, functions and function_call,
// chat_template_kwargs, reasoning_effort.
void ReadChat(const JsonFields& fields, CompletionRequest& request);

// The parts of these: tools and functions; tool_choice, function_call and parallel_tool_calls, with
// FinishTools; enable_thinking and chat_template_kwargs.
void ReadChatTools(const JsonFields& fields, CompletionRequest& request);
void ReadToolChoice(const JsonFields& fields, CompletionRequest& request);
void ReadTemplateKwargs(const JsonFields& fields, CompletionRequest& request);

// What becomes of a content's parts that are no text. A client can't take back what a tool has
// given, and would be refused for ever: the model is told what was left out.
enum class OtherParts { kRefuse, kSayLeftOut };
// A content: a string, null, or parts, whose texts are joined by line ends, or by `between`.
// `field`: its name, for messages.
std::string ReadText(const std::string& field, const Json& content,
                     OtherParts others = OtherParts::kRefuse, std::string_view between = "\n");
// The line that stands for a part of that type.
std::string LeftOut(const std::string& type);

// Appends a tool to request.tools. Throws Refused if it has no good name, or if it or all of them
// are too large. `parameters`: a JSON schema, or null.
void AddTool(CompletionRequest& request, const std::string& name, const std::string& description,
             const Json& parameters, bool strict);
// The name that a model is shown of a tool in a namespace (of a server of tools, in Codex): both in
// one; of a tool without a namespace its own.
std::string NameInNamespace(const std::string& space, const std::string& name);
// Checks that the choice's names are tools, and leaves only these; no tools at all: nothing to
// choose.
void FinishTools(CompletionRequest& request);
// The arguments of an earlier call as a text: OpenAI has their JSON text, some clients send a
// value. A call without arguments has {}. A text that was cut stays as it is: a client can't take
// back what a model wrote, and templates are given it as they take it. Null: the field is missing.
std::string ArgumentsText(const Json* arguments);
// The canonical form of a call of a message.
Json CallJson(const std::string& id, const std::string& name, const std::string& arguments);
// Appends a message of the assistant's; consecutive ones become one, so that a turn of text,
// thoughts and calls is one message whatever form the dialect gives it.
void AddAssistant(Json& messages, const std::string& text, const std::string& reasoning,
                  Json calls);
// Appends a text of the system's; consecutive ones become one, since many templates take only one.
void AddSystem(Json& messages, const std::string& text);
// Throws Refused unless there are some messages, and not too many.
void CheckMessages(const char* field, const Json& messages);
// What an effort ("none", "minimal", "low", ...) means to templates.
void SetEffort(CompletionRequest& request, const char* field, const std::string& effort);

}  // namespace larder::serving::api
