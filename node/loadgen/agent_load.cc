#include "node/loadgen/agent_load.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <iterator>
#include <nlohmann/json.hpp>
#include <random>
#include <utility>

#include "base/json_text.h"
#include "node/loadgen/serve_prompts.h"

namespace larder::node::inline loadgen {
namespace {

using nlohmann::json;

constexpr const char* kTools[] = {"read_file",   "write_file",    "edit_file",  "list_folder",
                                  "search_text", "run_command",   "fetch_page", "search_web",
                                  "ask_user",    "make_plan",     "read_notes", "write_note",
                                  "start_task",  "wait_for_task", "show_diff",  "run_tests"};
constexpr size_t kWordsOfForm = 60;  // what a tool takes without its description, in about as many
                                     // tokens

json MakeTool(std::string_view name, std::mt19937_64& random, size_t words) {
  const auto field = [&](const char* type, size_t n) {
    return json{{"type", type}, {"description", RandomWords(random, n)}};
  };
  return {{"type", "function"},
          {"function",
           {{"name", name},
            {"description", RandomWords(random, words / 2)},
            {"parameters",
             {{"type", "object"},
              {"properties",
               {{"target", field("string", words / 4)},
                {"limit", field("integer", words - words / 2 - words / 4)}}},
              {"required", {"target"}}}}}}};
}

// A quarter of the words are the tools'.
json MakeTools(std::mt19937_64& random, size_t words) {
  const size_t each = words / 4 / std::size(kTools);
  json tools = json::array();
  for (const char* name : kTools)
    tools.push_back(MakeTool(name, random, each - std::min(each, kWordsOfForm)));
  return tools;
}

json Message(const char* role, std::string content) {
  return {{"role", role}, {"content", std::move(content)}};
}

// The model's message, as a client sends it back. Arguments that were cut at the limit of tokens
// are none.
json Repeated(const ReplyMessage& said) {
  json message = Message("assistant", said.content);
  for (const ReplyMessage::Call& call : said.calls) {
    const bool whole = TryParseJsonText<json>(call.arguments).has_value();
    message["tool_calls"].push_back(
        {{"id", call.id},
         {"type", "function"},
         {"function", {{"name", call.name}, {"arguments", whole ? call.arguments : "{}"}}}});
  }
  return message;
}

}  // namespace

std::vector<LoadRequest> AgentTasks(const AgentSpec& spec) {
  std::mt19937_64 random(spec.seed);
  const json tools = MakeTools(random, spec.system_words);
  const json system =
      Message("system", RandomWords(random, spec.system_words - spec.system_words / 4));
  std::vector<LoadRequest> requests(spec.conversations);
  for (LoadRequest& request : requests) {
    request.output_tokens = spec.output_tokens;
    request.tools = tools;
    request.messages =
        json::array({system, Message("user", RandomWords(random, spec.message_words))});
  }
  return requests;
}

std::optional<LoadRequest> AgentTurn(const AgentSpec& spec, LoadRequest& ended,
                                     const RequestResult& result) {
  if (ended.turn + 1 >= spec.turns) return std::nullopt;
  // The words differ between conversations and turns: the task's text is the conversation's own.
  const auto& task = ended.messages[1]["content"].get_ref<const std::string&>();
  std::mt19937_64 random(std::hash<std::string>()(task) + ended.turn);
  LoadRequest next = std::move(ended);
  ++next.turn;
  next.messages.push_back(Repeated(result.message));
  for (const ReplyMessage::Call& call : result.message.calls) {
    json answer = Message("tool", RandomWords(random, spec.message_words));
    answer["tool_call_id"] = call.id;
    next.messages.push_back(std::move(answer));
  }
  if (result.message.calls.empty())
    next.messages.push_back(Message("user", RandomWords(random, spec.message_words)));
  return next;
}

}  // namespace larder::node::loadgen
