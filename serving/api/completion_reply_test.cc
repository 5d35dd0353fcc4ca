// Answers in each dialect, as clients parse them.
#include "serving/api/completion_reply.h"

#include <gtest/gtest.h>

#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::serving::inline api {
namespace {

using nlohmann::json;

class CompletionReplyTest : public testing::Test {
 protected:
  ReplyHead Head(Dialect dialect) const {
    return {.dialect = dialect, .id = "id-1", .model = "tiny", .created = 12, .tokenizer = tokenizer_.get()};
  }
  static ChoiceResult Result(std::string text, FinishReason reason) {
    ChoiceResult result;
    result.text = std::move(text);
    result.end.reason = reason;
    result.end.stats = {.prompt_tokens = 5,
                        .reused_tokens = 2,
                        .generated_tokens = 3,
                        .queue_ns = 1'000'000,
                        .first_token_ns = 4'000'000,
                        .total_ns = 8'000'000};
    return result;
  }
  std::shared_ptr<const model::Tokenizer> tokenizer_ = model::Tokenizer::FromData(model::TinySpm());
};

TEST_F(CompletionReplyTest, WholeCompletion) {
  const json got = WholeJson(Head(Dialect::kCompletion),
                             {Result("one", FinishReason::kEndOfText), Result("two", FinishReason::kLength)});
  EXPECT_EQ(got["object"], "text_completion");
  EXPECT_EQ(got["id"], "id-1");
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

TEST_F(CompletionReplyTest, WholeChat) {
  const json got = WholeJson(Head(Dialect::kChat), {Result("hi", FinishReason::kStopString)});
  EXPECT_EQ(got["object"], "chat.completion");
  EXPECT_EQ(got["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(got["choices"][0]["message"]["content"], "hi");
  EXPECT_EQ(got["choices"][0]["logprobs"], nullptr);
}

TEST_F(CompletionReplyTest, ChunksOfAChat) {
  ReplyHead head = Head(Dialect::kChat);
  head.include_usage = true;
  EXPECT_EQ(RoleChunkJson(head, 0)["choices"][0]["delta"]["role"], "assistant");
  const json chunk = ChunkJson(head, 0, "he", nullptr, 0);
  EXPECT_EQ(chunk["object"], "chat.completion.chunk");
  EXPECT_EQ(chunk["choices"][0]["delta"]["content"], "he");
  EXPECT_EQ(chunk["choices"][0]["finish_reason"], nullptr);
  EXPECT_TRUE(chunk.contains("usage") && chunk["usage"].is_null());
  const ChoiceResult result = Result("he", FinishReason::kContextFull);
  const json last = LastChunkJson(head, 0, result.end);
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(last["choices"][0]["delta"], json::object());
  const json usage = UsageChunkJson(head, {result});
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["completion_tokens"], 3);
}

TEST_F(CompletionReplyTest, NativeSaysWhyItStopped) {
  ChoiceResult result = Result("he", FinishReason::kStopString);
  result.end.stop_string = "###";
  const json got = WholeJson(Head(Dialect::kNative), {result});
  EXPECT_EQ(got["content"], "he");
  EXPECT_EQ(got["stop"], true);
  EXPECT_EQ(got["stop_type"], "word");
  EXPECT_EQ(got["stopping_word"], "###");
  EXPECT_EQ(got["truncated"], false);
  EXPECT_EQ(WholeJson(Head(Dialect::kNative), {Result("", FinishReason::kContextFull)})["truncated"], true);
  EXPECT_EQ(WholeJson(Head(Dialect::kNative), {result, result}).size(), 2u) << "n choices: an array";
}

TEST_F(CompletionReplyTest, LogprobsInBothForms) {
  const TokenId hello = tokenizer_->Encode("hello", false, false).back();
  const std::vector<TokenLogprobs> logprobs = {{hello, -0.5f, {{hello, -0.5f}, {5, -2.f}}}};
  const std::string piece = tokenizer_->Piece(hello, true);
  const json old = ChunkJson(Head(Dialect::kCompletion), 0, piece, &logprobs, 7)["choices"][0]["logprobs"];
  EXPECT_EQ(old["tokens"][0], piece);
  EXPECT_EQ(old["token_logprobs"][0], -0.5);
  EXPECT_EQ(old["text_offset"][0], 7);
  EXPECT_EQ(old["top_logprobs"][0].size(), 2u);
  const json chat = ChunkJson(Head(Dialect::kChat), 0, piece, &logprobs, 7)["choices"][0]["logprobs"];
  EXPECT_EQ(chat["content"][0]["token"], piece);
  EXPECT_EQ(chat["content"][0]["bytes"].size(), piece.size());
  EXPECT_EQ(chat["content"][0]["top_logprobs"][1]["logprob"], -2.0);
}

TEST_F(CompletionReplyTest, TimingsAreOfThePartsThatRan) {
  const json got = TimingsJson(Result("", FinishReason::kLength).end.stats);
  EXPECT_EQ(got["cache_n"], 2);
  EXPECT_EQ(got["prompt_n"], 3);
  EXPECT_DOUBLE_EQ(got["prompt_ms"].get<double>(), 3.0);
  EXPECT_DOUBLE_EQ(got["prompt_per_second"].get<double>(), 1000.0);
  EXPECT_DOUBLE_EQ(got["predicted_per_token_ms"].get<double>(), 2.0) << "the first token is the prompt's";
  EXPECT_DOUBLE_EQ(got["queue_ms"].get<double>(), 1.0);
  const json nothing = TimingsJson({.prompt_tokens = 5});
  EXPECT_EQ(nothing["predicted_per_second"], 0.0);
  EXPECT_EQ(nothing["prompt_ms"], 0.0);
}

TEST(ErrorJsonTest, HasOpenAisTypes) {
  const json missing = ErrorJson(404, "no such model", "model")["error"];
  EXPECT_EQ(missing["code"], "model_not_found");
  EXPECT_EQ(missing["param"], "model");
  EXPECT_EQ(ErrorJson(401, "key")["error"]["code"], "invalid_api_key");
  EXPECT_EQ(ErrorJson(401, "key")["error"]["type"], "authentication_error");
  EXPECT_EQ(ErrorJson(400, "x")["error"]["type"], "invalid_request_error");
  EXPECT_EQ(ErrorJson(400, "x")["error"]["param"], nullptr);
  EXPECT_EQ(ErrorJson(500, "x")["error"]["type"], "server_error");
  EXPECT_EQ(ErrorJson(503, "x")["error"]["type"], "unavailable_error");
}

TEST(DumpTest, BytesThatAreNoTextBecomeAMark) { EXPECT_EQ(Dump("a\xff"), "\"a\xef\xbf\xbd\""); }

}  // namespace
}  // namespace larder::serving::api
