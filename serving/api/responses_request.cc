// POST /v1/responses. The items of earlier turns (previous_response_id, item_reference) are read as
// if the client had sent them: the prompt is the same, and so is what the KV cache has of it.
#include <utility>
#include <vector>

#include "base/work.h"
#include "serving/api/chat_fields.h"
#include "serving/api/common_fields.h"
#include "serving/api/dialect_readers.h"

namespace larder::serving::inline api {
namespace {

std::string RequiredText(const JsonFields& fields, const char* field, const char* name) {
  std::string text = fields.String(name, "");
  if (text.empty())
    throw Refused(400, "{}.{} is missing: expected a string", field, name).On(field);
  return text;
}

void ReadItem(const Json& one, CompletionRequest& request) {
  const JsonFields item(one, "input");
  Json& messages = request.messages;
  const std::string type = item.String("type", "message");
  const auto text_of = [](const Json* field, const char* name,
                          OtherParts others = OtherParts::kRefuse) {
    return field == nullptr ? std::string() : ReadText(name, *field, others);
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
                                       NameInNamespace(item.String("namespace", ""),
                                                       RequiredText(item, "input", "name")),
                                       ArgumentsText(item.Find("arguments")))}));
  } else if (type == "function_call_output") {
    messages.push_back(
        {{"role", "tool"},
         {"content", text_of(item.Find("output"), "input.output", OtherParts::kSayLeftOut)},
         {"tool_call_id", RequiredText(item, "input", "call_id")}});
  } else if (type == "reasoning") {
    // The content has the thoughts themselves; a summary is for people. Encrypted ones are another
    // server's.
    std::string text;
    if (const Json* content = item.Find("content"); content != nullptr && content->is_array()) {
      for (const Json& part : *content)
        text += JsonFields(part, "input.content").String("text", "");
    }
    if (!text.empty()) AddAssistant(messages, "", text, Json::array());
  } else {
    ++request.ignored_fields;  // results of tools that run on OpenAI's servers, compactions
  }
}

// `space`: the namespace that they are in, as Codex has those of its MCP servers; they are not
// nested.
void ReadResponseTools(const Json& field, CompletionRequest& request,
                       const std::string& space = {}) {
  if (!field.is_array()) JsonFields::Fail("tools", field, "an array of tools");
  for (const Json& one : field) {
    const JsonFields tool(one, "tools");
    const Json* inner = tool.Find("tools");
    if (tool.String("type", "") == "namespace" && space.empty() && inner != nullptr) {
      ReadResponseTools(*inner, request, RequiredText(tool, "tools", "name"));
      continue;
    }
    if (tool.String("type", "") != "function") {
      ++request.ignored_fields;
      continue;
    }
    const std::string name = tool.String("name", "");
    const std::string shown = NameInNamespace(space, name);
    const Json* parameters = tool.Find("parameters");
    AddTool(request, shown, tool.String("description", ""),
            parameters == nullptr ? Json() : *parameters, tool.Bool("strict", false));
    if (!space.empty()) request.namespaced[shown] = {{"namespace", space}, {"name", name}};
  }
}

// Items of answers, by their ids ("msg_NUMBER-AT"), which name the response ("resp_NUMBER").
class References {
 public:
  explicit References(const FindTurn& find) : find_(find) {}

  // Valid until the next call.
  const Json& Find(const JsonFields& reference) {
    const std::string id = RequiredText(reference, "input", "id");
    const size_t begin = id.find('_'), end = id.rfind('-');
    if (find_ && end != std::string::npos && begin < end) {
      // Clients refer to all items of a response, one after the other.
      const std::string of = "resp_" + id.substr(begin + 1, end - begin - 1);
      if (of != response_) {
        const auto turn = find_(of);
        items_ = turn == nullptr ? Json::array() : ParseJson(turn->output);
        response_ = of;
      }
      SpendWork(items_.size());
      for (const Json& one : items_) {
        if (JsonFields(one, "input").String("id", "") == id) return one;
      }
    }
    throw Refused(404, "Item with id {} not found.", Quoted(id)).On("input");
  }

 private:
  const FindTurn& find_;
  std::string response_;
  Json items_ = Json::array();
};

// Reads the input; its items, none of them a reference, go to input_items if they are to be kept.
void ReadInput(const Json& input, const FindTurn& find, CompletionRequest& request) {
  std::string& kept = request.input_items;
  const auto read = [&](const Json& item) {
    ReadItem(item, request);
    if (!request.store) return;
    kept += kept.empty() ? "[" : ",";
    kept += item.dump();
  };
  if (input.is_string()) {
    read({{"type", "message"}, {"role", "user"}, {"content", input}});
  } else {
    CheckMessages("input", input);
    References references(find);
    for (const Json& one : input) {
      const JsonFields item(one, "input");
      read(item.String("type", "") == "item_reference" ? references.Find(item) : one);
    }
  }
  SpendWork(StepsOfText(kept.size()));
  if (request.store) kept += "]";
}

std::shared_ptr<const StoredTurn> PreviousTurn(const JsonFields& fields, const FindTurn& find) {
  const std::string id = fields.String("previous_response_id", "");
  if (id.empty()) return nullptr;
  auto turn = find ? find(id) : nullptr;
  if (turn == nullptr)
    throw Refused(400, "Previous response with id {} not found.", Quoted(id))
        .On("previous_response_id")
        .As("previous_response_not_found");
  if (turn->depth >= kMostTurns)
    throw Refused(400, "previous_response_id is {}: expected at most {} turns before this one",
                  Quoted(id), kMostTurns)
        .On("previous_response_id");
  return turn;
}

void ReadEarlier(const StoredTurn* last, CompletionRequest& request) {
  std::vector<const StoredTurn*> turns;
  for (const StoredTurn* turn = last; turn != nullptr; turn = turn->previous.get())
    turns.push_back(turn);
  for (auto turn = turns.rbegin(); turn != turns.rend(); ++turn) {
    for (const std::string* items : {&(*turn)->input, &(*turn)->output}) {
      for (const Json& item : ParseJson(*items)) ReadItem(item, request);
    }
  }
}

}  // namespace

void ReadResponses(const JsonFields& fields, const CompletionDefaults& defaults,
                   const FindTurn& find, CompletionRequest& request) {
  for (const char* name : {"conversation", "prompt"})
    fields.Refuse(name, "none: use previous_response_id, or send the whole input");
  if (fields.Bool("background", false))
    throw Refused(400, "background is true: expected false; answers are made while clients wait")
        .On("background");
  request.messages = Json::array();
  AddSystem(request.messages, WithoutChangingLines(fields.String("instructions", "")));
  request.previous = PreviousTurn(fields, find);
  const Json* input = fields.Find("input");
  if (input == nullptr)
    throw Refused(400, "input is missing: expected a string or an array").On("input");
  request.store = fields.Bool("store", true);
  ReadEarlier(request.previous.get(), request);
  ReadInput(*input, find, request);
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
                           "temperature", "top_p", "user", "previous_response_id"}) {
    if (const Json* field = fields.Find(name)) request.echoed[name] = *field;
  }
  fields.Ignore({"include", "service_tier", "truncation", "prompt_cache_key", "safety_identifier",
                 "prompt_cache_retention", "stream_options", "client_metadata", "max_tool_calls",
                 "top_logprobs"});
}

}  // namespace larder::serving::api
