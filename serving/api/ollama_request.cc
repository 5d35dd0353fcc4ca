// POST /api/chat and /api/generate, as Ollama's API: parameters are in an object, and streaming is
// the default.
#include "serving/api/chat_fields.h"
#include "serving/api/common_fields.h"
#include "serving/api/dialect_readers.h"

namespace larder::serving::inline api {
namespace {

void RefuseImages(const JsonFields& fields, const char* name) {
  const Json* images = fields.Find("images");
  if (images != nullptr && !images->empty())
    JsonFields::Fail(name, *images, "none: this model reads only text");
}

Json ReadOllamaCalls(const Json& field) {
  if (!field.is_array()) JsonFields::Fail("messages.tool_calls", field, "an array of calls");
  Json calls = Json::array();
  for (const Json& one : field) {
    const JsonFields call(one, "messages.tool_calls");
    const Json* function = call.Find("function");
    if (function == nullptr)
      throw Refused(400, "messages.tool_calls.function is missing").On("messages");
    const JsonFields fields(*function, "messages.tool_calls.function");
    calls.push_back(CallJson(call.String("id", ""), fields.String("name", ""),
                             ArgumentsText(fields.Find("arguments"))));
  }
  return calls;
}

void ReadOllamaMessages(const Json& field, CompletionRequest& request) {
  CheckMessages("messages", field);
  request.messages = Json::array();
  for (const Json& one : field) {
    const JsonFields message(one, "messages");
    const std::string role = message.String("role", "");
    const std::string text = message.String("content", "");
    RefuseImages(message, "messages.images");
    if (role == "assistant") {
      const Json* calls = message.Find("tool_calls");
      AddAssistant(request.messages, text, message.String("thinking", ""),
                   calls == nullptr ? Json::array() : ReadOllamaCalls(*calls));
    } else if (role == "tool") {
      Json result = {{"role", role}, {"content", text}};
      result["tool_call_id"] = message.String("tool_call_id", "");
      if (const std::string name = message.String("tool_name", ""); !name.empty())
        result["name"] = name;
      request.messages.push_back(std::move(result));
    } else if (role == "user" || role == "system") {
      request.messages.push_back({{"role", role}, {"content", text}});
    } else {
      JsonFields::Fail("messages.role", role, "system, user, assistant or tool");
    }
  }
  const Json& last = request.messages.back();
  request.continue_last =
      last["role"] == "assistant" && last["content"].is_string() && !last.contains("tool_calls");
}

void ReadGenerate(const JsonFields& fields, CompletionRequest& request) {
  fields.Refuse("images", "none: this model reads only text");
  fields.Refuse("suffix", "none: use /infill");
  const std::string prompt = fields.String("prompt", "");
  if (fields.Bool("raw", false)) {
    request.prompts.emplace_back(prompt);
    return;
  }
  request.messages = Json::array();
  const std::string system = fields.String("system", "");
  if (!system.empty()) request.messages.push_back({{"role", "system"}, {"content", system}});
  request.messages.push_back({{"role", "user"}, {"content", prompt}});
}

// keep_alive: 0, "0", "0s"
bool IsKeptForNoTime(const Json* keep_alive) {
  if (keep_alive == nullptr) return false;
  if (keep_alive->is_number()) return *keep_alive == 0;
  if (!keep_alive->is_string()) return false;
  const auto& text = keep_alive->get_ref<const std::string&>();
  return text.starts_with('0') && text.find_first_of("123456789") == std::string::npos;
}

bool AsksForNothing(const JsonFields& fields, Dialect dialect) {
  if (dialect == Dialect::kOllamaGenerate) return fields.String("prompt", "").empty();
  const Json* messages = fields.Find("messages");
  return messages == nullptr || (messages->is_array() && messages->empty());
}

}  // namespace

void ReadOllama(const JsonFields& fields, const CompletionDefaults& defaults,
                CompletionRequest& request) {
  if (AsksForNothing(fields, request.dialect)) {
    request.at_once = IsKeptForNoTime(fields.Find("keep_alive")) ? AtOnce::kUnload : AtOnce::kLoad;
    fields.Ignore({"stream", "options", "format", "think", "tools", "system", "template", "raw",
                   "context", "suffix", "images", "truncate", "shift"});
    return;
  }
  if (request.dialect == Dialect::kOllamaGenerate) {
    ReadGenerate(fields, request);
  } else {
    ReadOllamaMessages(*fields.Find("messages"), request);
    ReadChatTools(fields, request);
    request.shorten = fields.Bool("truncate", true);
  }
  FinishTools(request);
  if (const Json* think = fields.Find("think")) {
    if (think->is_string()) {
      SetEffort(request, "think", think->get<std::string>());
    } else {
      request.kwargs["enable_thinking"] = fields.Bool("think", true);
    }
  }
  const Json none = Json::object();
  const Json* given = fields.Find("options");
  const JsonFields options(given == nullptr ? none : *given, "options");
  ReadSampling(options, defaults, request);
  ReadLimit(options, {"num_predict"}, defaults, request);
  if (const Json* stop = options.Find("stop"))
    request.spec.stops = ReadStops("options.stop", *stop);
  if (const Json* format = fields.Find("format"); format != nullptr && !IsEmptyText(*format)) {
    if (*format != "json" && !format->is_object())
      JsonFields::Fail("format", *format, "\"json\" or a JSON schema");
    SetForm(format->is_string() ? Json{{"type", "json_object"}}
                                : Json{{"type", "json_object"}, {"schema", *format}},
            "format", request);
  }
  request.stream = fields.Bool("stream", true);
  options.Ignore({"num_ctx", "num_keep", "num_batch", "num_gpu", "main_gpu", "num_thread",
                  "use_mmap", "use_mlock", "numa", "low_vram", "vocab_only", "penalize_newline"});
  fields.Include("options", options);
  fields.Ignore({"keep_alive", "context", "template", "system", "truncate", "shift"});
}

}  // namespace larder::serving::api
