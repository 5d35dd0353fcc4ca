// Answers of OpenAI's completions and chat completions and of llama-server's, as clients parse
// them.
#include <gtest/gtest.h>

#include <cmath>

#include "serving/reply/replies_testing.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;

TEST(OpenAiReply, WholeCompletion) {
  const json got = WholeOf(TestFacts(Dialect::kCompletion),
                           {TestResult({TextDelta("one")}, FinishReason::kEndOfText),
                            TestResult({TextDelta("two")}, FinishReason::kLength)});
  EXPECT_EQ(got["object"], "text_completion");
  EXPECT_EQ(got["id"], "cmpl-1");
  EXPECT_EQ(got["created"], 12);
  EXPECT_EQ(got["choices"][0]["text"], "one");
  EXPECT_EQ(got["choices"][0]["finish_reason"], "stop");
  EXPECT_EQ(got["choices"][1]["finish_reason"], "length");
  EXPECT_EQ(got["choices"][1]["index"], 1);
  EXPECT_EQ(got["usage"]["prompt_tokens"], 5) << "choices of one prompt share it";
  EXPECT_EQ(got["usage"]["completion_tokens"], 6);
  EXPECT_EQ(got["usage"]["total_tokens"], 11);
  EXPECT_EQ(got["usage"]["prompt_tokens_details"]["cached_tokens"], 2);
}

TEST(OpenAiReply, WholeChatWithThoughtsAndACall) {
  const json got =
      WholeOf(TestFacts(Dialect::kChat), {TestResult(TestDeltas(), FinishReason::kEndOfText)});
  EXPECT_EQ(got["object"], "chat.completion");
  EXPECT_EQ(got["choices"][0]["message"], json::parse(R"({
    "role":"assistant","content":"Let me look.","refusal":null,"reasoning_content":"hm","reasoning":"hm",
    "tool_calls":[{"id":"call_1","type":"function",
                   "function":{"name":"get_weather","arguments":"{\"c\":1}"}}]})"));
  EXPECT_EQ(got["choices"][0]["finish_reason"], "tool_calls");
  EXPECT_EQ(got["choices"][0]["logprobs"], nullptr);
  const json cut =
      WholeOf(TestFacts(Dialect::kChat), {TestResult(TestDeltas(), FinishReason::kLength)});
  EXPECT_EQ(cut["choices"][0]["finish_reason"], "length") << "the call may not be whole";
  const json plain = WholeOf(TestFacts(Dialect::kChat),
                             {TestResult({TextDelta("hi")}, FinishReason::kStopString)});
  EXPECT_EQ(plain["choices"][0]["message"],
            json::parse(R"({"role":"assistant","content":"hi","refusal":null})"));
  EXPECT_EQ(plain["choices"][0]["finish_reason"], "stop");
}

TEST(OpenAiReply, ChunksOfAChat) {
  ReplyFacts facts = TestFacts(Dialect::kChat);
  facts.include_usage = true;
  const auto events = EventsOf(facts, TestDeltas(), FinishReason::kEndOfText);
  json deltas = json::array();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const json& chunk = events[i].second;
    EXPECT_EQ(events[i].first, "");
    EXPECT_EQ(chunk["object"], "chat.completion.chunk");
    EXPECT_EQ(chunk["id"], "chatcmpl-1");
    EXPECT_TRUE(chunk.contains("usage") && chunk["usage"].is_null());
    const bool last = i + 2 == events.size();
    EXPECT_EQ(chunk["choices"][0]["finish_reason"], last ? json("tool_calls") : json());
    deltas.push_back(chunk["choices"][0]["delta"]);
  }
  EXPECT_EQ(deltas, json::parse(R"([
    {"role":"assistant","content":null},
    {"reasoning_content":"hm","reasoning":"hm"},
    {"content":"Let me "}, {"content":"look."},
    {"tool_calls":[{"index":0,"id":"call_1","type":"function",
                    "function":{"name":"get_weather","arguments":""}}]},
    {"tool_calls":[{"index":0,"function":{"arguments":"{\"c\""}}]},
    {"tool_calls":[{"index":0,"function":{"arguments":":1}"}}]},
    {}])"));
  EXPECT_TRUE(events.back().second["choices"].empty());
  EXPECT_EQ(events.back().second["usage"]["completion_tokens"], 3);
}

TEST(OpenAiReply, PiecesOfTextAreThoseOfATree) {
  for (const char* text : {"he", "\"\\\n\x01", "", "\xff", "\x01text\x01"}) {
    const auto events =
        EventsOf(TestFacts(Dialect::kCompletion), {TextDelta(text)}, FinishReason::kLength);
    EXPECT_EQ(events.at(0).second,
              json::parse(Dump(json{{"system_fingerprint", "b0000000000000000"},
                                    {"id", "cmpl-1"},
                                    {"object", "text_completion"},
                                    {"created", 12},
                                    {"model", "tiny"},
                                    {"choices", json::array({{{"index", 0},
                                                              {"text", text},
                                                              {"logprobs", nullptr},
                                                              {"finish_reason", nullptr}}})}})));
  }
}

TEST(NativeReply, SaysWhyItStopped) {
  ChoiceResult result = TestResult({TextDelta("he")}, FinishReason::kStopString);
  result.end.stop_string = "###";
  const json got = WholeOf(TestFacts(Dialect::kNative), {result});
  EXPECT_EQ(got["content"], "he");
  EXPECT_EQ(got["stop"], true);
  EXPECT_EQ(got["stop_type"], "word");
  EXPECT_EQ(got["stopping_word"], "###");
  EXPECT_EQ(got["truncated"], false);
  EXPECT_EQ(WholeOf(TestFacts(Dialect::kNative),
                    {TestResult({}, FinishReason::kContextFull)})["truncated"],
            true);
  EXPECT_EQ(WholeOf(TestFacts(Dialect::kNative), {result, result}).size(), 2u)
      << "n choices: an array";
  const auto events =
      EventsOf(TestFacts(Dialect::kNative), {TextDelta("he")}, FinishReason::kLength);
  EXPECT_EQ(events.at(0).second, json::parse(R"({"index":0,"content":"he","stop":false})"));
  EXPECT_EQ(events.at(1).second["stop_type"], "limit");
}

TEST(NativeReply, ShowsTokensPromptAndSettings) {
  ReplyFacts facts = TestFacts(Dialect::kNative);
  facts.settings = {{"n_predict", 8}, {"seed", 1}};
  const std::vector<TokenId> prompt = facts.tokenizer->Encode("hello", /*add_bos=*/true, false);
  ChoiceResult result = TestResult({TextDelta("he")}, FinishReason::kLength);
  result.tokens = {7, 8};
  result.with_tokens = true;
  result.prompt_tokens = prompt;
  result.seed = 43;
  result.end.stats.has_line_end = true;
  const json got = WholeOf(facts, {result});
  EXPECT_EQ(got["tokens"], json({7, 8}));
  EXPECT_EQ(got["has_new_line"], true);
  EXPECT_TRUE(got["prompt"].get<std::string>().starts_with("<s>")) << got["prompt"];
  EXPECT_TRUE(got["prompt"].get<std::string>().ends_with("hello")) << got["prompt"];
  EXPECT_EQ(got["generation_settings"], json({{"n_predict", 8}, {"seed", 43}}));
  facts.form.fields = {"content", "generation_settings/n_predict", "timings/none", "content/x", ""};
  EXPECT_EQ(WholeOf(facts, {result}),
            json({{"content", "he"}, {"generation_settings/n_predict", 8}}));
  RecordedEvents events;
  const auto encoder = MakeEncoder(facts, events);
  encoder->Begin(1);
  encoder->Delta(0, TextDelta("he"), nullptr, 0, result);
  encoder->End(0, result);
  EXPECT_EQ(events.all[0].second["tokens"], json({7, 8}));
  EXPECT_EQ(events.all[1].second, json({{"content", ""}, {"generation_settings/n_predict", 8}}));
}

TEST(NativeReply, TheTextStreamIsBrief) {
  ReplyFacts facts = TestFacts(Dialect::kNative);
  facts.form.brief = true;
  const json got = WholeOf(facts, {TestResult({TextDelta("he")}, FinishReason::kLength)});
  EXPECT_FALSE(got.contains("prompt") || got.contains("generation_settings"));
  EXPECT_TRUE(got.contains("timings"));
}

TEST(NativeReply, DrawnProbabilitiesHaveTheirOwnNames) {
  ReplyFacts facts = TestFacts(Dialect::kNative);
  facts.drawn_probs = true;
  ChoiceResult result = TestResult({TextDelta("he")}, FinishReason::kLength);
  result.with_logprobs = true;
  result.logprobs = {{5, std::log(0.75f), {{5, std::log(0.75f)}, {6, std::log(0.25f)}}}};
  const json one = WholeOf(facts, {result})["completion_probabilities"][0];
  EXPECT_FALSE(one.contains("logprob") || one.contains("top_logprobs"));
  EXPECT_NEAR(one["prob"].get<double>(), 0.75, 1e-6);
  EXPECT_NEAR(one["top_probs"][1]["prob"].get<double>(), 0.25, 1e-6);
  EXPECT_EQ(one["top_probs"][1]["id"], 6);
}

TEST(Progress, IsShownByAllWhoHaveIt) {
  const GenerationStats stats = {.prompt_tokens = 9, .reused_tokens = 2, .prompt_ns = 3'000'000};
  for (const Dialect dialect : {Dialect::kNative, Dialect::kChat, Dialect::kCompletion}) {
    for (const bool timings : {false, true}) {
      ReplyFacts facts = TestFacts(dialect);
      facts.form.timings = timings;
      RecordedEvents events;
      const auto encoder = MakeEncoder(facts, events);
      encoder->Begin(1);
      encoder->Progress(0, {.total = 9, .cached = 2, .processed = 5, .stats = stats});
      const json got = events.all.back().second;
      EXPECT_EQ(got["prompt_progress"],
                json({{"total", 9}, {"cache", 2}, {"processed", 5}, {"time_ms", 3}}));
      EXPECT_EQ(got.contains("timings"), timings);
      if (timings) {
        EXPECT_EQ(got["timings"]["prompt_n"], 3);
      }
      encoder->Delta(0, TextDelta("he"), nullptr, 0, TestResult({}, FinishReason::kLength));
      EXPECT_EQ(events.all.back().second.contains("timings"), timings);
    }
  }
}

TEST(OpenAiReply, VerboseShowsTheNativeForm) {
  for (const Dialect dialect : {Dialect::kChat, Dialect::kCompletion}) {
    ReplyFacts facts = TestFacts(dialect);
    const ChoiceResult result = TestResult({TextDelta("he")}, FinishReason::kLength);
    EXPECT_FALSE(WholeOf(facts, {result}).contains("__verbose"));
    facts.form.verbose = true;
    const json got = WholeOf(facts, {result})["__verbose"];
    EXPECT_EQ(got["content"], "he");
    EXPECT_EQ(got["stop_type"], "limit");
    EXPECT_TRUE(got.contains("prompt"));
    const auto events = EventsOf(facts, {TextDelta("he")}, FinishReason::kLength);
    EXPECT_TRUE(events.back().second.contains("__verbose")) << events.back().second;
  }
}

TEST(OpenAiReply, LogprobsInBothForms) {
  const model::Tokenizer& tokenizer = *TestFacts(Dialect::kChat).tokenizer;
  const TokenId hello = tokenizer.Encode("hello", false, false).back();
  const std::vector<TokenLogprobs> logprobs = {{hello, -0.5f, {{hello, -0.5f}, {5, -2.f}}}};
  const std::string piece = tokenizer.Piece(hello, true);
  const auto of = [&](Dialect dialect) {
    RecordedEvents events;
    const auto encoder = MakeEncoder(TestFacts(dialect), events);
    encoder->Begin(1);
    encoder->Delta(0, TextDelta(piece), &logprobs, 7, {});
    return events.all.back().second["choices"][0]["logprobs"];
  };
  ChoiceResult result;
  result.with_logprobs = true;
  result.logprobs = logprobs;
  const json native = WholeOf(TestFacts(Dialect::kNative), {result})["completion_probabilities"][0];
  EXPECT_EQ(native["id"], hello);
  EXPECT_EQ(native["top_logprobs"][1]["id"], 5);
  const json old = of(Dialect::kCompletion);
  EXPECT_EQ(old["tokens"][0], piece);
  EXPECT_EQ(old["token_logprobs"][0], -0.5);
  EXPECT_EQ(old["text_offset"][0], 7);
  EXPECT_EQ(old["top_logprobs"][0].size(), 2u);
  const json chat = of(Dialect::kChat);
  EXPECT_EQ(chat["content"][0]["token"], piece);
  EXPECT_FALSE(chat["content"][0].contains("id"));
  EXPECT_EQ(chat["content"][0]["bytes"].size(), piece.size());
  EXPECT_EQ(chat["content"][0]["top_logprobs"][1]["logprob"], -2.0);
}

TEST(TimingsJson, AreOfThePartsThatRan) {
  const json got = TimingsJson(TestEnd(FinishReason::kLength).stats);
  EXPECT_EQ(got["cache_n"], 2);
  EXPECT_EQ(got["prompt_n"], 3);
  EXPECT_DOUBLE_EQ(got["prompt_ms"].get<double>(), 3.0);
  EXPECT_DOUBLE_EQ(got["prompt_per_second"].get<double>(), 1000.0);
  EXPECT_DOUBLE_EQ(got["prompt_per_token_ms"].get<double>(), 1.0);
  EXPECT_DOUBLE_EQ(got["predicted_per_token_ms"].get<double>(), 2.0)
      << "the first token is the prompt's";
  EXPECT_DOUBLE_EQ(got["queue_ms"].get<double>(), 1.0);
  const json nothing = TimingsJson({.prompt_tokens = 5});
  EXPECT_EQ(nothing["predicted_per_second"], 0.0);
  EXPECT_EQ(nothing["prompt_ms"], 0.0);
}

TEST(ErrorJson, HasTheTypesOfEachApi) {
  const json missing = ErrorJson(404, "no such model", "model")["error"];
  EXPECT_EQ(missing["code"], "model_not_found");
  EXPECT_EQ(missing["param"], "model");
  EXPECT_EQ(ErrorJson(401, "key")["error"]["code"], "invalid_api_key");
  EXPECT_EQ(ErrorJson(401, "key")["error"]["type"], "authentication_error");
  EXPECT_EQ(ErrorJson(400, "x")["error"]["type"], "invalid_request_error");
  EXPECT_EQ(ErrorJson(400, "x")["error"]["param"], nullptr);
  EXPECT_EQ(ErrorJson(429, "x")["error"]["type"], "rate_limit_error");
  EXPECT_EQ(ErrorJson(500, "x")["error"]["type"], "server_error");
  EXPECT_EQ(ErrorJson(503, "x")["error"]["type"], "unavailable_error");
  EXPECT_EQ(ErrorJson(429, "x", "", ErrorShape::kAnthropic),
            json::parse(R"({"type":"error","error":{"type":"rate_limit_error","message":"x"}})"));
  EXPECT_EQ(ErrorJson(400, "x", "", ErrorShape::kOllama), json::parse(R"({"error":"x"})"));
}

// Agents shorten their conversation and go on where they know the words.
TEST(ErrorJson, APromptThatDoesNotFitIsSaidInEachApisWords) {
  const Refused why = TooLong(5000, 4096, 32768, "messages");
  const json error = ErrorJson(why)["error"];
  EXPECT_EQ(error["code"], "context_length_exceeded");
  EXPECT_EQ(error["type"], "exceed_context_size_error");
  EXPECT_EQ(error["param"], "messages");
  EXPECT_EQ(error["n_prompt_tokens"], 5000);
  EXPECT_EQ(error["n_ctx"], 4096);
  EXPECT_EQ(error["message"],
            "the prompt of 5000 tokens is too large, it exceeds the available context size: this "
            "model's maximum context length is 4096 tokens; shorten it, or start larder with -c "
            "5001 or more");
  EXPECT_EQ(ErrorJson(why, ErrorShape::kAnthropic)["error"]["message"],
            "prompt is too long: 5000 tokens > 4096 maximum");
  EXPECT_EQ(std::string(TooLong(5000, 4096, 4096, "prompt").what()).find("-c"), std::string::npos)
      << "no advice beyond the model's own context";
}

TEST(Dump, BytesThatAreNoTextBecomeAMark) {
  EXPECT_EQ(Dump(std::string_view("a\xff")), "\"a\xef\xbf\xbd\"");
}

}  // namespace
}  // namespace larder::serving::reply
