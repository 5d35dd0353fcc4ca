// Every published chat template with every shape of history that agents send: each message's text,
// each call and each result is in the prompt once, and in order. Nothing that a client said
// vanishes.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/test_data_testing.h"
#include "model/chat/chat_template.h"
#include "serving/answer/answer_testing.h"
#include "serving/api/completion_request.h"
#include "serving/api/defaults_testing.h"

namespace larder::serving::inline api {
namespace {

// What the client said has the form SAIDn, in the order of n: the texts, values of arguments and
// results. Calls and results of one turn may be written call by call, which is an order, too.
constexpr char kHistories[] = R"({
  "system": [{"role": "system", "content": "SAID0"}, {"role": "user", "content": "SAID1"}],
  "two systems": [{"role": "system", "content": "SAID0"}, {"role": "system", "content": "SAID1"}, {"role": "user", "content": "SAID2"}],
  "system and developer": [{"role": "system", "content": "SAID0"}, {"role": "developer", "content": "SAID1"}, {"role": "user", "content": "SAID2"}],
  "developer": [{"role": "developer", "content": "SAID0"}, {"role": "user", "content": "SAID1"}],
  "late system": [{"role": "system", "content": "SAID0"}, {"role": "user", "content": "SAID1"}, {"role": "assistant", "content": "SAID2"},
    {"role": "system", "content": "SAID3"}, {"role": "user", "content": "SAID4"}],
  "only a late system": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "SAID1"},
    {"role": "system", "content": "SAID2"}, {"role": "user", "content": "SAID3"}],
  "system at the end": [{"role": "system", "content": "SAID0"}, {"role": "user", "content": "SAID1"}, {"role": "system", "content": "SAID2"}],
  "system after a user": [{"role": "user", "content": "SAID0"}, {"role": "developer", "content": "SAID1"}],
  "two users": [{"role": "user", "content": "SAID0"}, {"role": "user", "content": "SAID1"}],
  "two answers": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "SAID1"}, {"role": "assistant", "content": "SAID2"},
    {"role": "user", "content": "SAID3"}],
  "answer first": [{"role": "assistant", "content": "SAID0"}, {"role": "user", "content": "SAID1"}],
  "turns": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "SAID1"}, {"role": "user", "content": "SAID2"},
    {"role": "assistant", "content": "SAID3"}, {"role": "user", "content": "SAID4"}],
  "call": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [CALL1]}, RESULT1_SAID2],
  "call, answer": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [CALL1]}, RESULT1_SAID2,
    {"role": "assistant", "content": "SAID3"}, {"role": "user", "content": "SAID4"}],
  "call, empty text": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "", "tool_calls": [CALL1]}, RESULT1_SAID2],
  "call with text": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "SAID1", "tool_calls": [CALL2]}, RESULT2_SAID3],
  "call with text, answer": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "SAID1", "tool_calls": [CALL2]}, RESULT2_SAID3,
    {"role": "assistant", "content": "SAID4"}, {"role": "user", "content": "SAID5"}],
  "two calls": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [CALL1, CALL2]}, RESULT1_SAID3, RESULT2_SAID4],
  "two calls, results turned": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [CALL1, CALL2]},
    RESULT2_SAID4, RESULT1_SAID3],
  "two calls with text": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "SAID1", "tool_calls": [CALL2, CALL3]},
    RESULT2_SAID4, RESULT3_SAID5, {"role": "assistant", "content": "SAID6"}, {"role": "user", "content": "SAID7"}],
  "calls one after the other": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": "SAID1", "tool_calls": [CALL2]}, RESULT2_SAID3,
    {"role": "assistant", "content": null, "tool_calls": [CALL4]}, RESULT4_SAID5, {"role": "assistant", "content": "SAID6", "tool_calls": [CALL7]},
    RESULT7_SAID8],
  "user behind a result": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [CALL1]}, RESULT1_SAID2,
    {"role": "user", "content": "SAID3"}],
  "call without its result": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [CALL1]},
    {"role": "user", "content": "SAID2"}],
  "result without its call": [{"role": "user", "content": "SAID0"}, RESULT1_SAID1, {"role": "user", "content": "SAID2"}],
  "system behind a result": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [CALL1]}, RESULT1_SAID2,
    {"role": "system", "content": "SAID3"}],
  "arguments cut": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "{\"what\": \"SAID1"}}]}, RESULT1_SAID2],
  "arguments of a list": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": ["SAID1"]}}]}, RESULT1_SAID2],
  "arguments of a list's text": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": "[\"SAID1\"]"}}]}, RESULT1_SAID2],
  "arguments empty": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "SAID1", "arguments": ""}}]}, RESULT1_SAID2],
  "arguments null": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "SAID1", "arguments": null}}]}, RESULT1_SAID2],
  "arguments null as text": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "SAID1", "arguments": "null"}}]}, RESULT1_SAID2],
  "arguments missing": [{"role": "user", "content": "SAID0"}, {"role": "assistant", "content": null, "tool_calls": [
    {"id": "call_1", "type": "function", "function": {"name": "SAID1"}}]}, RESULT1_SAID2]
})";

// CALLn is a call with the argument SAIDn, RESULTn_SAIDm its result.
std::string Expanded(std::string text) {
  const auto replace = [&](const std::string& what, const std::string& with) {
    for (size_t at; (at = text.find(what)) != std::string::npos;)
      text.replace(at, what.size(), with);
  };
  for (int call = 0; call < 10; ++call) {
    const std::string n = std::to_string(call);
    replace(
        "CALL" + n,
        R"({"id": "call_)" + n +
            R"(", "type": "function", "function": {"name": "look", "arguments": "{\"what\": \"SAID)" +
            n + R"(\"}"}})");
    for (int said = 0; said < 10; ++said)
      replace("RESULT" + n + "_SAID" + std::to_string(said),
              R"({"role": "tool", "tool_call_id": "call_)" + n + R"(", "content": "SAID)" +
                  std::to_string(said) + "\"}");
  }
  return text;
}

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// The numbers n of SAIDn in the order of the text.
std::vector<int> Said(std::string_view text) {
  std::vector<int> found;
  for (size_t at = 0; (at = text.find("SAID", at)) != std::string_view::npos; at += 4)
    found.push_back(text[at + 4] - '0');
  return found;
}

// In a turn of several calls each call may be followed by its result.
std::vector<int> CallByCall(const Json& messages) {
  std::vector<int> order;
  for (size_t i = 0; i < messages.size(); ++i) {
    const Json& message = messages[i];
    if (!message.contains("tool_calls") || message["tool_calls"].size() < 2) {
      for (const int one : Said(message.dump())) order.push_back(one);
      continue;
    }
    for (const int one : Said(message["content"].dump())) order.push_back(one);
    std::vector<int> calls = Said(message["tool_calls"].dump()), results;
    for (; i + 1 < messages.size() && messages[i + 1]["role"] == "tool"; ++i)
      results.push_back(Said(messages[i + 1]["content"].dump())[0]);
    std::sort(results.begin(), results.end());
    for (size_t call = 0; call < calls.size(); ++call) {
      order.push_back(calls[call]);
      if (call < results.size()) order.push_back(results[call]);
    }
  }
  return order;
}

std::string Shown(const std::vector<int>& order) {
  std::string text;
  for (const int one : order) text += std::to_string(one) + " ";
  return text;
}

TEST(Histories, NothingThatAClientSaidVanishes) {
  const std::filesystem::path folder = TestData("templates");
  LARDER_NEEDS_TEST_DATA(folder);
  const Json histories = Json::parse(Expanded(kHistories));
  const Json tools =
      Json::parse(R"([{"type": "function", "function": {"name": "look", "description": "Looks.",
    "parameters": {"type": "object", "properties": {"what": {"type": "string", "description": "It."}}, "required": ["what"]}}}])");
  size_t templates = 0;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() != ".jinja") continue;
    ++templates;
    const std::string source = ReadFile(entry.path());
    CompletionDefaults defaults = TinyDefaults();
    defaults.context = 1 << 20;
    defaults.chat_template =
        model::ChatTemplate::Parse(source, entry.path().filename(), "<s>", "</s>");
    defaults.answer_format = DetectAnswerFormat(source);
    for (const auto& [name, messages] : histories.items()) {
      std::vector<int> in_order = Said(messages.dump());
      std::sort(in_order.begin(), in_order.end());
      for (const bool with_tools : {false, true}) {
        Json body = {{"messages", messages}};
        if (with_tools) body["tools"] = tools;
        std::string prompt;
        try {
          prompt = model::JoinPieces(
              RenderedChat(ReadCompletionRequest(body, Dialect::kChat, defaults), defaults));
        } catch (const std::exception& error) {
          // This template assigns to a message's field, which Jinja2 refuses as well.
          if (entry.path().stem() == "MiroThinker" &&
              std::string_view(error.what()).find("cannot assign attribute") != std::string::npos)
            continue;
          ADD_FAILURE() << entry.path().stem() << ", " << name << (with_tools ? ", tools" : "")
                        << ": " << error.what();
          continue;
        }
        std::vector<int> got = Said(prompt);
        // Here a function's name is what was said; results may repeat it.
        if (name.starts_with("arguments"))
          got.erase(std::unique(got.begin(), got.end()), got.end());
        // This template puts the first system message in front of the user's last message.
        if (entry.path().stem() == "mistralai-Mistral-Nemo-Instruct-2407" && name == "late system")
          std::sort(got.begin(), got.end());
        EXPECT_TRUE(got == in_order || got == CallByCall(messages))
            << entry.path().stem() << ", " << name << (with_tools ? ", tools" : "") << ": "
            << Shown(got);
      }
    }
  }
  EXPECT_GE(templates, 46u);
}

}  // namespace
}  // namespace larder::serving::api
