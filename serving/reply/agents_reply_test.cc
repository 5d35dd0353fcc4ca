// Answers of OpenAI's Responses, Anthropic's Messages and Ollama's API: whole, and event by event.
#include <gtest/gtest.h>

#include "serving/reply/replies_testing.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;

json Names(const std::vector<std::pair<std::string, json>>& events) {
  json names = json::array();
  for (const auto& [name, object] : events) names.push_back(name);
  return names;
}

TEST(ResponsesReply, WholeResponse) {
  const json got =
      WholeOf(TestFacts(Dialect::kResponses), {TestResult(TestDeltas(), FinishReason::kEndOfText)});
  EXPECT_EQ(got["id"], "resp_1");
  EXPECT_EQ(got["object"], "response");
  EXPECT_EQ(got["status"], "completed");
  EXPECT_EQ(got["output"], json::parse(R"([
    {"id":"rs_1-0","type":"reasoning","status":"completed","summary":[],
     "content":[{"type":"reasoning_text","text":"hm"}]},
    {"id":"msg_1-1","type":"message","status":"completed","role":"assistant",
     "content":[{"type":"output_text","text":"Let me look.","annotations":[],"logprobs":[]}]},
    {"id":"fc_1-2","type":"function_call","status":"completed","call_id":"call_1","name":"get_weather",
     "arguments":"{\"c\":1}"}])"));
  EXPECT_EQ(got["usage"],
            json::parse(R"({"input_tokens":5,"input_tokens_details":{"cached_tokens":2,
    "cache_write_tokens":0},
    "output_tokens":3,"output_tokens_details":{"reasoning_tokens":0},"total_tokens":8})"));
  const json cut =
      WholeOf(TestFacts(Dialect::kResponses), {TestResult(TestDeltas(), FinishReason::kLength)});
  EXPECT_EQ(cut["status"], "incomplete");
  EXPECT_EQ(cut["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(cut["output"][2]["status"], "incomplete");
  EXPECT_EQ(cut["output"][1]["status"], "completed");
}

TEST(ResponsesReply, RepeatsWhatWasAskedFor) {
  ReplyFacts facts = TestFacts(Dialect::kResponses);
  facts.echoed = {{"instructions", "be brief"}, {"temperature", 0.5}};
  const json got = WholeOf(facts, {TestResult({TextDelta("a")}, FinishReason::kEndOfText)});
  EXPECT_EQ(got["instructions"], "be brief");
  EXPECT_EQ(got["temperature"], 0.5);
}

TEST(ResponsesReply, ACallOfAToolInANamespaceHasBothNames) {
  ReplyFacts facts = TestFacts(Dialect::kResponses);
  facts.namespaced = {{"get_weather", {{"namespace", "get"}, {"name", "weather"}}}};
  const json call =
      WholeOf(facts, {TestResult(TestDeltas(), FinishReason::kEndOfText)})["output"][2];
  EXPECT_EQ(call["name"], "weather");
  EXPECT_EQ(call["namespace"], "get");
  for (const auto& [name, event] : EventsOf(facts, TestDeltas(), FinishReason::kEndOfText)) {
    if (name == "response.function_call_arguments.done") {
      EXPECT_EQ(event["name"], "weather");
    }
  }
}

TEST(ResponsesReply, EventsOfAThoughtATextAndACall) {
  const auto events =
      EventsOf(TestFacts(Dialect::kResponses), TestDeltas(), FinishReason::kEndOfText);
  EXPECT_EQ(Names(events), json::parse(R"([
    "response.created", "response.in_progress",
    "response.output_item.added", "response.content_part.added",
    "response.reasoning_text.delta", "response.reasoning_text.done",
    "response.content_part.done", "response.output_item.done",
    "response.output_item.added", "response.content_part.added",
    "response.output_text.delta", "response.output_text.delta", "response.output_text.done",
    "response.content_part.done", "response.output_item.done",
    "response.output_item.added",
    "response.function_call_arguments.delta", "response.function_call_arguments.delta",
    "response.function_call_arguments.done", "response.output_item.done",
    "response.completed"])"));
  for (size_t i = 0; i < events.size(); ++i) {
    EXPECT_EQ(events[i].second["sequence_number"], i);
    EXPECT_EQ(events[i].second["type"], events[i].first);
  }
  EXPECT_EQ(events[0].second["response"]["status"], "in_progress");
  EXPECT_EQ(events[8].second,
            json::parse(R"({"type":"response.output_item.added","sequence_number":8,
    "output_index":1,"item":{"id":"msg_1-1","type":"message","status":"in_progress","role":"assistant",
    "content":[]}})"));
  EXPECT_EQ(events[9].second,
            json::parse(R"({"type":"response.content_part.added","sequence_number":9,
    "item_id":"msg_1-1","output_index":1,"content_index":0,
    "part":{"type":"output_text","text":"","annotations":[],"logprobs":[]}})"));
  EXPECT_EQ(events[10].second,
            json::parse(R"({"type":"response.output_text.delta","sequence_number":10,
    "item_id":"msg_1-1","output_index":1,"content_index":0,"delta":"Let me ","logprobs":[]})"));
  EXPECT_EQ(events[12].second["text"], "Let me look.");
  EXPECT_EQ(events[15].second["item"], json::parse(R"({"id":"fc_1-2","type":"function_call",
    "status":"in_progress","call_id":"call_1","name":"get_weather","arguments":""})"));
  EXPECT_EQ(events[16].second, json::parse(R"({"type":"response.function_call_arguments.delta",
    "sequence_number":16,"item_id":"fc_1-2","output_index":2,"delta":"{\"c\""})"));
  EXPECT_EQ(events[18].second["arguments"], "{\"c\":1}");
  const ChoiceResult result = TestResult(TestDeltas(), FinishReason::kEndOfText);
  EXPECT_EQ(events.back().second["response"], WholeOf(TestFacts(Dialect::kResponses), {result}));
}

TEST(ResponsesReply, EndsEarlyOrFails) {
  const auto cut =
      EventsOf(TestFacts(Dialect::kResponses), {TextDelta("a")}, FinishReason::kLength);
  EXPECT_EQ(cut.back().first, "response.incomplete");
  RecordedEvents events;
  const auto encoder = MakeEncoder(TestFacts(Dialect::kResponses), events);
  encoder->Begin(1);
  encoder->Failed(503, "a socket is lost");
  EXPECT_EQ(events.all.back().first, "response.failed");
  EXPECT_EQ(events.all.back().second["response"]["error"]["message"], "a socket is lost");
}

TEST(MessagesReply, WholeMessage) {
  const json got =
      WholeOf(TestFacts(Dialect::kMessages), {TestResult(TestDeltas(), FinishReason::kEndOfText)});
  EXPECT_EQ(got, json::parse(R"({
    "id":"msg_1","type":"message","role":"assistant","model":"tiny",
    "content":[{"type":"thinking","thinking":"hm","signature":""},
               {"type":"text","text":"Let me look."},
               {"type":"tool_use","id":"call_1","name":"get_weather","input":{"c":1}}],
    "stop_reason":"tool_use","stop_sequence":null,
    "usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,
             "output_tokens":3}})"));
  ChoiceResult stopped = TestResult({TextDelta("a")}, FinishReason::kStopString);
  stopped.end.stop_string = "###";
  const json word = WholeOf(TestFacts(Dialect::kMessages), {stopped});
  EXPECT_EQ(word["stop_reason"], "stop_sequence");
  EXPECT_EQ(word["stop_sequence"], "###");
  const auto reason = [](FinishReason why) {
    return WholeOf(TestFacts(Dialect::kMessages),
                   {TestResult({TextDelta("a")}, why)})["stop_reason"];
  };
  EXPECT_EQ(reason(FinishReason::kEndOfText), "end_turn");
  EXPECT_EQ(reason(FinishReason::kLength), "max_tokens");
}

TEST(MessagesReply, EventsOfAThoughtATextAndACall) {
  const auto events =
      EventsOf(TestFacts(Dialect::kMessages), TestDeltas(), FinishReason::kEndOfText);
  json objects = json::array();
  for (const auto& [name, object] : events) {
    EXPECT_EQ(object["type"], name);
    objects.push_back(object);
  }
  EXPECT_EQ(objects, json::parse(R"([
    {"type":"message_start","message":{"id":"msg_1","type":"message","role":"assistant","model":"tiny",
      "content":[],"stop_reason":null,"stop_sequence":null,
      "usage":{"input_tokens":5,"cache_creation_input_tokens":0,"cache_read_input_tokens":0,
               "output_tokens":0}}},
    {"type":"content_block_start","index":0,
     "content_block":{"type":"thinking","thinking":"","signature":""}},
    {"type":"content_block_delta","index":0,"delta":{"type":"thinking_delta","thinking":"hm"}},
    {"type":"content_block_delta","index":0,"delta":{"type":"signature_delta","signature":""}},
    {"type":"content_block_stop","index":0},
    {"type":"content_block_start","index":1,"content_block":{"type":"text","text":""}},
    {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"Let me "}},
    {"type":"content_block_delta","index":1,"delta":{"type":"text_delta","text":"look."}},
    {"type":"content_block_stop","index":1},
    {"type":"content_block_start","index":2,
     "content_block":{"type":"tool_use","id":"call_1","name":"get_weather","input":{}}},
    {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":"{\"c\""}},
    {"type":"content_block_delta","index":2,"delta":{"type":"input_json_delta","partial_json":":1}"}},
    {"type":"content_block_stop","index":2},
    {"type":"message_delta","delta":{"stop_reason":"tool_use","stop_sequence":null},
     "usage":{"input_tokens":3,"cache_creation_input_tokens":0,"cache_read_input_tokens":2,
              "output_tokens":3}},
    {"type":"message_stop"}])"));
}

TEST(MessagesReply, ACallThatWasCutHasNoInput) {
  const std::vector<AnswerDelta> deltas = {{AnswerDelta::Kind::kCallBegin, 0, "f", "call_1"},
                                           {AnswerDelta::Kind::kArguments, 0, "{\"a\":", ""}};
  const json got =
      WholeOf(TestFacts(Dialect::kMessages), {TestResult(deltas, FinishReason::kLength)});
  EXPECT_EQ(got["content"][0]["input"], json::object());
  EXPECT_EQ(got["stop_reason"], "max_tokens");
  const std::vector<AnswerDelta> deep = {
      {AnswerDelta::Kind::kCallBegin, 0, "f", "call_1"},
      {AnswerDelta::Kind::kArguments, 0, std::string(100000, '['), ""}};
  EXPECT_EQ(WholeOf(TestFacts(Dialect::kMessages),
                    {TestResult(deep, FinishReason::kLength)})["content"][0]["input"],
            json::object());
}

// A client would run a call whose arguments are not JSON as one without arguments.
TEST(AgentsReply, ABrokenCallIsText) {
  const std::vector<AnswerDelta> deltas = {{AnswerDelta::Kind::kCallBegin, 0, "f", "call_1"},
                                           {AnswerDelta::Kind::kArguments, 0, "{\"a\":", ""},
                                           {AnswerDelta::Kind::kCallEnd, 0, "", ""}};
  const ChoiceResult broken = TestResult(deltas, FinishReason::kEndOfText);
  const json message = WholeOf(TestFacts(Dialect::kMessages), {broken});
  EXPECT_EQ(message["content"], json::parse(R"([{"type":"text","text":"f {\"a\":"}])"));
  EXPECT_EQ(message["stop_reason"], "end_turn");
  const json said = WholeOf(TestFacts(Dialect::kOllamaChat), {broken})["message"];
  EXPECT_EQ(said["content"], "f {\"a\":");
  EXPECT_FALSE(said.contains("tool_calls"));
  for (const auto& [name, line] :
       EventsOf(TestFacts(Dialect::kOllamaChat), deltas, FinishReason::kEndOfText))
    EXPECT_FALSE(line["message"].contains("tool_calls")) << line;
}

TEST(AgentsReply, AStopStringInACallIsTheReason) {
  const ChoiceResult stopped = TestResult(TestDeltas(), FinishReason::kStopString);
  EXPECT_EQ(WholeOf(TestFacts(Dialect::kChat), {stopped})["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(WholeOf(TestFacts(Dialect::kMessages), {stopped})["stop_reason"], "stop_sequence");
}

TEST(OllamaReply, WholeAndLines) {
  const json got = WholeOf(TestFacts(Dialect::kOllamaChat),
                           {TestResult(TestDeltas(), FinishReason::kEndOfText)});
  EXPECT_EQ(got, json::parse(R"({"model":"tiny","created_at":"1970-01-01T00:00:12Z",
    "message":{"role":"assistant","content":"Let me look.","thinking":"hm","tool_calls":[
      {"id":"call_1","function":{"name":"get_weather","arguments":{"c":1}}}]},
    "done":true,"done_reason":"stop","total_duration":8000000,"load_duration":0,"prompt_eval_count":5,
    "prompt_eval_duration":3000000,"eval_count":3,"eval_duration":4000000})"));
  const auto lines = EventsOf(TestFacts(Dialect::kOllamaChat), TestDeltas(), FinishReason::kLength);
  json messages = json::array();
  for (const auto& [name, line] : lines) {
    EXPECT_EQ(line["done"], &line == &lines.back().second);
    messages.push_back(line["message"]);
  }
  EXPECT_EQ(messages, json::parse(R"([
    {"role":"assistant","content":"","thinking":"hm"},
    {"role":"assistant","content":"Let me "},
    {"role":"assistant","content":"look."},
    {"role":"assistant","content":"",
     "tool_calls":[{"id":"call_1","function":{"name":"get_weather","arguments":{"c":1}}}]},
    {"role":"assistant","content":""}])"));
  EXPECT_EQ(lines.back().second["done_reason"], "length");
  const auto generated =
      EventsOf(TestFacts(Dialect::kOllamaGenerate), {TextDelta("hi")}, FinishReason::kEndOfText);
  EXPECT_EQ(generated.at(0).second,
            json::parse(R"({"model":"tiny","created_at":"1970-01-01T00:00:12Z",
    "done":false,"response":"hi"})"));
  EXPECT_EQ(generated.at(1).second["response"], "");
}

}  // namespace
}  // namespace larder::serving::reply
