// Vectors and relevance as clients of each API get them.
#include <gtest/gtest.h>

#include <cmath>

#include "serving/reply/replies_testing.h"

namespace larder::serving::inline reply {
namespace {

using nlohmann::json;

ChoiceResult Embedded(std::vector<float> vector, size_t prompt) {
  ChoiceResult result;
  result.end = TestEnd(FinishReason::kEndOfText);
  result.end.embedding = std::move(vector);
  result.prompt = prompt;
  return result;
}

TEST(EmbeddingReplyTest, OpenAiVectorsHaveTheLengthOne) {
  const json whole =
      WholeOf(TestFacts(Dialect::kEmbeddings), {Embedded({3, 4}, 0), Embedded({0, -2}, 1)});
  EXPECT_EQ(whole["object"], "list");
  EXPECT_EQ(whole["model"], "tiny");
  ASSERT_EQ(whole["data"].size(), 2u);
  EXPECT_EQ(whole["data"][0],
            json({{"object", "embedding"}, {"index", 0}, {"embedding", {0.6f, 0.8f}}}));
  EXPECT_EQ(whole["data"][1]["embedding"], json({0.0f, -1.0f}));
  EXPECT_EQ(whole["usage"], json({{"prompt_tokens", 10}, {"total_tokens", 10}}));
}

TEST(EmbeddingReplyTest, FirstDimensionsAndBase64) {
  ReplyFacts facts = TestFacts(Dialect::kEmbeddings);
  facts.embedding = {.dimensions = 2, .base64 = true};
  const json whole = WholeOf(facts, {Embedded({0, 5, 12}, 0)});
  EXPECT_EQ(whole["data"][0]["embedding"], "AAAAAAAAgD8=");  // 0 and 1 as little-endian float32
}

TEST(EmbeddingReplyTest, AVectorOfZerosStaysOne) {
  EXPECT_EQ(WholeOf(TestFacts(Dialect::kEmbeddings), {Embedded({0, 0}, 0)})["data"][0]["embedding"],
            json({0.0f, 0.0f}));
}

TEST(EmbeddingReplyTest, LlamaServersAndOllamas) {
  ReplyFacts native = TestFacts(Dialect::kNativeEmbedding);
  native.embedding.normalize = false;
  EXPECT_EQ(WholeOf(native, {Embedded({3, 4}, 0)}),
            json::parse(R"([{"index":0,"embedding":[[3.0,4.0]]}])"));
  const json ollama =
      WholeOf(TestFacts(Dialect::kOllamaEmbed), {Embedded({3, 4}, 0), Embedded({1, 0}, 1)});
  EXPECT_EQ(ollama["embeddings"], json({{0.6f, 0.8f}, {1.0f, 0.0f}}));
  EXPECT_EQ(ollama["prompt_eval_count"], 10);
  ReplyFacts one = TestFacts(Dialect::kOllamaEmbedding);
  one.embedding.normalize = false;
  EXPECT_EQ(WholeOf(one, {Embedded({3, 4}, 0)}), json({{"embedding", {3.0f, 4.0f}}}));
}

TEST(EmbeddingReplyTest, DocumentsComeByRelevance) {
  ReplyFacts facts = TestFacts(Dialect::kRerank);
  auto rank = std::make_shared<model::RankHead>();
  *rank = {.outputs = 1, .dim = 2, .weights = {1, -1}, .bias = {0.5f}};
  facts.rank_head = rank;
  facts.embedding.top_n = 2;
  facts.embedding.documents = {"a", "b", "c"};
  const json whole =
      WholeOf(facts, {Embedded({1, 1}, 0), Embedded({3, 1}, 1), Embedded({1, 1}, 2)});
  EXPECT_EQ(whole["results"],
            json::parse(R"([{"index":1,"relevance_score":2.5,"document":{"text":"b"}},
                                              {"index":0,"relevance_score":0.5,"document":{"text":"a"}}])"));
  facts.embedding.listed = true;
  EXPECT_EQ(
      WholeOf(facts, {Embedded({1, 1}, 0), Embedded({3, 1}, 1), Embedded({1, 1}, 2)}),
      json::parse(R"([{"index":1,"score":2.5,"text":"b"},{"index":0,"score":0.5,"text":"a"}])"));
}

}  // namespace
}  // namespace larder::serving::reply
