// Reads conversations and tools in the form of OpenAI's chat completions: checks what a client sent
// and turns it into the canonical form that templates read. The readers of other dialects use parts
// of it. No state; any thread.
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

// What happens to parts of a content that are not text. kSayLeftOut tells the model what was left
// out: a client cannot take back a tool's result, and refusing it would refuse the conversation for
// ever.
enum class OtherParts { kRefuse, kSayLeftOut };
// A content: a string, null, or parts, whose texts are joined by line ends, or by `between`.
// `field`: its name, for messages.
std::string ReadText(const std::string& field, const Json& content,
                     OtherParts others = OtherParts::kRefuse, std::string_view between = "\n");
// The line that replaces a part of that type.
std::string LeftOut(const std::string& type);

// Appends a tool to request.tools. Throws Refused if it has no good name, or if it or all of them
// are too large. `parameters`: a JSON schema, or null.
void AddTool(CompletionRequest& request, const std::string& name, const std::string& description,
             const Json& parameters, bool strict);
// The name under which a model sees a tool: namespace and name in one (a namespace is a server of
// tools, in Codex), or its own name if it has no namespace.
std::string NameInNamespace(const std::string& space, const std::string& name);
// Checks that the names in the choice are tools, and keeps only those tools. Without tools there is
// nothing to choose.
void FinishTools(CompletionRequest& request);
// The arguments of an earlier call as text: OpenAI's clients send JSON text, others a value. A call
// without arguments has {}. A truncated text stays as it is, since a client can't take back what a
// model wrote; templates get it in the form that they take. Null: the field is missing.
std::string ArgumentsText(const Json* arguments);
// The canonical form of a call of a message.
Json CallJson(const std::string& id, const std::string& name, const std::string& arguments);
// Appends a message of the assistant. Consecutive ones are joined, so that a turn of text, thoughts
// and calls is one message in every dialect.
void AddAssistant(Json& messages, const std::string& text, const std::string& reasoning,
                  Json calls);
// Appends a system message. Consecutive ones are joined, since many templates take only one.
void AddSystem(Json& messages, const std::string& text);
// Throws Refused if there are no messages, or too many.
void CheckMessages(const char* field, const Json& messages);
// What an effort ("none", "minimal", "low", ...) means to templates.
void SetEffort(CompletionRequest& request, const char* field, const std::string& effort);

}  // namespace larder::serving::api
