// Requests for vectors and relevance: what becomes a prompt, and what is refused.
#include <gtest/gtest.h>

#include <algorithm>

#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/api/completion_request.h"
#include "serving/api/defaults_testing.h"

namespace larder::serving::inline api {
namespace {

CompletionDefaults EmbeddingDefaults() {
  CompletionDefaults defaults = TinyDefaults();
  defaults.pooling = model::Pooling::kMean;
  defaults.rank_head = std::make_shared<model::RankHead>();
  return defaults;
}

std::vector<GenerationSpec> Specs(const char* text, Dialect dialect,
                                  const CompletionDefaults& defaults) {
  CompletionRequest request = ReadCompletionRequest(ParseJson(text), dialect, defaults);
  return MakeSpecs(request, defaults);
}

std::string Refusal(const char* text, Dialect dialect, const CompletionDefaults& defaults) {
  try {
    Specs(text, dialect, defaults);
  } catch (const Refused& why) {
    return fmt::format("{} {}", why.status(), why.what());
  }
  return "";
}

TEST(EmbeddingRequestTest, TextsAndTokensBecomePrompts) {
  const CompletionDefaults defaults = EmbeddingDefaults();
  const auto specs = Specs(R"({"input":["a","b"],"encoding_format":"base64","user":"u"})",
                           Dialect::kEmbeddings, defaults);
  ASSERT_EQ(specs.size(), 2u);
  EXPECT_EQ(specs[0].pooling, model::Pooling::kMean);
  EXPECT_EQ(specs[0].prompt,
            defaults.tokenizer->Encode("a", defaults.tokenizer->wants_bos(), false));
  EXPECT_EQ(Specs(R"({"input":[1,2]})", Dialect::kEmbeddings, defaults)[0].prompt,
            (std::vector<TokenId>{1, 2}));
  EXPECT_EQ(Specs(R"({"input":[[1],[2]]})", Dialect::kEmbeddings, defaults).size(), 2u);
  EXPECT_EQ(Specs(R"({"content":"a"})", Dialect::kNativeEmbedding, defaults).size(), 1u);
  EXPECT_EQ(Specs(R"({"prompt":"a"})", Dialect::kOllamaEmbedding, defaults).size(), 1u);
}

TEST(EmbeddingRequestTest, EveryTextEndsAsTheFileSays) {
  model::TokenizerData data = model::TinySpm();
  data.add_eos = true;
  data.add_bos = false;
  CompletionDefaults defaults = EmbeddingDefaults();
  defaults.tokenizer = model::Tokenizer::FromData(data);
  const auto specs = Specs(R"({"input":"a"})", Dialect::kEmbeddings, defaults);
  EXPECT_EQ(specs[0].prompt.back(), defaults.tokenizer->eos());
  EXPECT_EQ(std::count(specs[0].prompt.begin(), specs[0].prompt.end(), defaults.tokenizer->eos()),
            1);
}

TEST(EmbeddingRequestTest, ATextMayComeInLlamaServersForms) {
  const CompletionDefaults defaults = EmbeddingDefaults();
  const auto prompts = [&](const char* text) {
    std::vector<std::vector<TokenId>> all;
    for (const GenerationSpec& spec : Specs(text, Dialect::kEmbeddings, defaults))
      all.push_back(spec.prompt);
    return all;
  };
  const auto plain = prompts(R"({"input":"hello"})");
  EXPECT_EQ(prompts(R"({"input":{"prompt_string":"hello"}})"), plain);
  EXPECT_EQ(
      prompts(
          R"({"input":{"content":[{"type":"text","text":"hel"},{"type":"text","text":"lo"}]}})"),
      plain);
  const auto mixed = prompts(R"({"input":[5,"hello",6]})");
  ASSERT_EQ(mixed.size(), 1u);
  EXPECT_EQ(mixed[0].front(), 5);
  EXPECT_EQ(mixed[0].back(), 6);
  EXPECT_EQ(prompts(R"({"input":["hello",[5,"hello",6],{"prompt_string":"hello"}]})"),
            (std::vector<std::vector<TokenId>>{plain[0], mixed[0], plain[0]}));
}

TEST(EmbeddingRequestTest, ThousandsOfTexts) {
  std::string text = R"({"input":["a")";
  for (size_t i = 1; i < kMostEmbedded; ++i) text += R"(,"a")";
  EXPECT_EQ(Specs((text + "]}").c_str(), Dialect::kEmbeddings, EmbeddingDefaults()).size(),
            kMostEmbedded);
  EXPECT_EQ(Refusal((text + R"(,"a"]})").c_str(), Dialect::kEmbeddings, EmbeddingDefaults()),
            "400 input has 2049 texts: expected at most 2048");
}

TEST(EmbeddingRequestTest, WrongOnesAreRefusedByName) {
  const CompletionDefaults defaults = EmbeddingDefaults();
  EXPECT_EQ(Refusal("{}", Dialect::kEmbeddings, defaults),
            "400 input is missing: expected a text, or an array of texts");
  EXPECT_NE(Refusal(R"({"input":[]})", Dialect::kEmbeddings, defaults), "");
  EXPECT_NE(Refusal(R"({"input":["a",[]]})", Dialect::kEmbeddings, defaults), "");
  EXPECT_NE(Refusal(R"({"input":{"content":"a"}})", Dialect::kEmbeddings, defaults), "");
  EXPECT_NE(
      Refusal(R"({"input":{"content":[{"type":"image_url"}]}})", Dialect::kEmbeddings, defaults),
      "");
  EXPECT_NE(Refusal(R"({"input":{"content":[]}})", Dialect::kEmbeddings, defaults), "");
  EXPECT_NE(Refusal(R"({"input":[100000]})", Dialect::kEmbeddings, defaults), "");
  EXPECT_NE(Refusal(R"({"input":"a","encoding_format":"int8"})", Dialect::kEmbeddings, defaults),
            "");
  EXPECT_NE(Refusal(R"({"input":"a","dimensions":0})", Dialect::kEmbeddings, defaults), "");
  CompletionDefaults bare = EmbeddingDefaults();
  bare.dim = 8;
  model::TokenizerData data = model::TinySpm();
  data.add_bos = false;
  bare.tokenizer = model::Tokenizer::FromData(data);
  EXPECT_EQ(Refusal(R"({"input":["a",""]})", Dialect::kEmbeddings, bare),
            "400 input[1]: the prompt has no tokens; give it some text");
  std::string words;
  for (size_t i = 0; i < 100; ++i) words += "a b ";
  EXPECT_TRUE(Refusal((R"({"input":["a",")" + words + "\"]}").c_str(), Dialect::kEmbeddings, bare)
                  .starts_with("400 input[1]: the prompt of "));
  words = std::string(100'000, 'a');
  EXPECT_TRUE(Refusal((R"({"input":["a",")" + words + "\"]}").c_str(), Dialect::kEmbeddings, bare)
                  .starts_with("400 input[1]: the prompt of at least "));
  EXPECT_EQ(Refusal(R"({"input":"a","dimensions":9})", Dialect::kEmbeddings, bare),
            "400 dimensions is 9: expected a whole number from 1 to 8");
  CompletionDefaults none = EmbeddingDefaults();
  none.pooling = model::Pooling::kNone;
  none.rank_head = nullptr;
  EXPECT_EQ(Refusal(R"({"input":"a"})", Dialect::kEmbeddings, none),
            "400 tiny is not an embedding model: its file does not say how to make one vector of "
            "a text; if you know, start the server with --pooling mean, cls or last");
  EXPECT_EQ(Refusal(R"({"query":"a","documents":["b"]})", Dialect::kRerank, none),
            "501 tiny is not a reranker: its file has no tensor cls.output.weight");
}

TEST(EmbeddingRequestTest, APromptForEachDocument) {
  CompletionDefaults defaults = EmbeddingDefaults();
  const auto plain = Specs(R"({"query":"a","documents":["b",{"text":"c"}],"top_n":1})",
                           Dialect::kRerank, defaults);
  ASSERT_EQ(plain.size(), 2u);
  EXPECT_EQ(plain[0].pooling, model::Pooling::kRank);
  EXPECT_NE(plain[0].prompt, plain[1].prompt);
  EXPECT_EQ(plain[0].prompt.back(), defaults.tokenizer->eos());
  for (const char* name : {"texts", "documents"}) {
    const Json body = {{"query", "a"}, {name, {"b"}}};
    EXPECT_EQ(ReadCompletionRequest(body, Dialect::kRerank, defaults).embedding.listed,
              std::string_view(name) == "texts");
  }
  // The template's text and the client's are tokenized as one; only the template's may be control
  // tokens.
  defaults.rank_template = "a {query} b {document}";
  const auto specs = Specs(R"({"query":"</s>","documents":["a b"]})", Dialect::kRerank, defaults);
  EXPECT_EQ(specs[0].prompt,
            defaults.tokenizer->Encode("a </s> b a b", defaults.tokenizer->wants_bos(),
                                       /*parse_special=*/false));
}

}  // namespace
}  // namespace larder::serving::api
