// What the parser knows of each API's fields, against the lists in docs/api.md, and requests that
// want nothing left out.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>

#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/api/completion_request.h"
#include "serving/api/defaults_testing.h"

namespace larder::serving::inline api {
namespace {

CompletionDefaults AllDefaults() {
  CompletionDefaults defaults = TinyDefaults();
  defaults.chat_template = model::ChatTemplate::Named("chatml", *defaults.tokenizer);
  model::TokenizerData data = model::TinySpm();
  for (const char* name : {"<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"})
    AddToken(data, name, model::TokenType::kControl);
  defaults.tokenizer = model::Tokenizer::FromData(data);
  defaults.vocab = defaults.tokenizer->size();
  defaults.pooling = model::Pooling::kMean;
  defaults.rank_head = std::make_shared<model::RankHead>();
  return defaults;
}

struct Api {
  const char* path;
  Dialect dialect;
  // Requests that between them take every way through the reader.
  std::vector<const char*> requests;
};

constexpr const char* kChat = R"({"messages":[{"role":"user","content":"a"}],"tools":[],)"
                              R"("chat_template_kwargs":{}})";

std::vector<Api> Apis() {
  return {
      {"/v1/chat/completions", Dialect::kChat, {kChat}},
      {"/v1/completions", Dialect::kCompletion, {R"({"prompt":"a"})"}},
      {"/v1/responses", Dialect::kResponses, {R"({"input":"a","text":{},"store":false})"}},
      {"/v1/messages", Dialect::kMessages, {kChat}},
      {"/completion", Dialect::kNative, {R"({"prompt":"a"})", kChat}},
      {"/infill", Dialect::kInfill, {R"({"input_prefix":"a","input_suffix":"b"})"}},
      {"/api/chat",
       Dialect::kOllamaChat,
       {R"({"messages":[{"role":"user","content":"a"}],"options":{}})", "{}"}},
      {"/api/generate", Dialect::kOllamaGenerate, {R"({"prompt":"a","options":{}})", "{}"}},
      {"/v1/embeddings", Dialect::kEmbeddings, {R"({"input":"a"})"}},
      {"/embedding", Dialect::kNativeEmbedding, {R"({"content":"a"})"}},
      {"/api/embed", Dialect::kOllamaEmbed, {R"({"input":"a"})"}},
      {"/v1/rerank", Dialect::kRerank, {R"({"query":"a","documents":["b"]})"}},
  };
}

std::string Row(const std::string& path, const char* what, const std::set<std::string>& names) {
  if (names.empty()) return "";
  std::string row = "| `" + path + "` | " + what + " | ";
  for (const std::string& name : names) row += (name == *names.begin() ? "`" : ", `") + name + "`";
  return row + " |\n";
}

std::string Lists() {
  const CompletionDefaults defaults = AllDefaults();
  std::string rows = "| route | | fields |\n|---|---|---|\n";
  for (const Api& api : Apis()) {
    FieldNames names;
    for (const char* request : api.requests)
      ReadCompletionRequest(ParseJson(request), api.dialect, defaults, {}, &names);
    rows += Row(api.path, "used", names.used) + Row(api.path, "ignored", names.ignored) +
            Row(api.path, "refused", names.refused);
  }
  return rows;
}

// LARDER_WRITE_DOCS=1 in the environment writes them.
TEST(FieldLists, TheDocsHaveThem) {
  const std::string path = LARDER_SOURCE_DIR "/docs/api.md";
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  std::string is = text.str();
  const size_t begin = is.find("| route | | fields |");
  ASSERT_NE(begin, std::string::npos);
  const size_t end = std::min(is.find("\n\n", begin) + 1, is.size());
  if (std::getenv("LARDER_WRITE_DOCS") != nullptr) {
    std::ofstream(path) << is.replace(begin, end - begin, Lists());
    return;
  }
  EXPECT_EQ(is.substr(begin, end - begin), Lists()) << "written by LARDER_WRITE_DOCS=1";
}

// The message of the refusal; empty: there is none.
std::string Refusal(const char* text, Dialect dialect, bool by_the_server = false) {
  CompletionDefaults defaults = AllDefaults();
  defaults.strict_fields = by_the_server;
  try {
    ReadCompletionRequest(ParseJson(text), dialect, defaults);
  } catch (const Refused& why) {
    EXPECT_EQ(why.status(), 400);
    return why.param() + ": " + why.what();
  }
  return "";
}

TEST(StrictFields, WhatWouldBeLeftOutIsNamed) {
  constexpr const char* kSays = "strict is true, and these fields change nothing here: ";
  EXPECT_EQ(
      Refusal(R"({"prompt":"a","tempreature":1,"user":"u","strict":true})", Dialect::kCompletion),
      std::string("tempreature: ") + kSays + R"("tempreature", "user")");
  EXPECT_EQ(Refusal(R"({"prompt":"a","user":"u"})", Dialect::kCompletion, true),
            std::string("user: ") + kSays + R"("user")");
  EXPECT_EQ(
      Refusal(R"({"messages":[{"role":"user","content":"a"}],"keep_alive":3,)"
              R"("options":{"num_gpu":1,"top_k":3,"x":1},"strict":true})",
              Dialect::kOllamaChat),
      std::string("keep_alive: ") + kSays + R"("keep_alive", "options.x", "options.num_gpu")");
  EXPECT_NE(Refusal(R"({"input":"a","tools":[{"type":"web_search"}],"strict":true})",
                    Dialect::kResponses),
            "");
}

TEST(StrictFields, OtherRequestsAreTaken) {
  EXPECT_EQ(Refusal(R"({"prompt":"a","max_tokens":3,"nothing":null,"strict":true})",
                    Dialect::kCompletion),
            "");
  EXPECT_EQ(Refusal(kChat, Dialect::kChat, true), "");
  EXPECT_EQ(Refusal(R"({"prompt":"a","user":"u","strict":false})", Dialect::kCompletion, true), "");
  EXPECT_EQ(Refusal(R"({"prompt":"a","user":"u"})", Dialect::kCompletion), "");
}

// A client cannot have the answer grow without bound.
TEST(StrictFields, OnlySomeNamesAreSaid) {
  std::string body = R"({"prompt":"a","strict":true)";
  for (int i = 0; i < 1000; ++i) body += fmt::format(R"(,"{}{}":1)", std::string(100, 'x'), i);
  const std::string said = Refusal((body + "}").c_str(), Dialect::kCompletion);
  EXPECT_GT(said.size(), 500u);
  EXPECT_LT(said.size(), 2000u);
}

}  // namespace
}  // namespace larder::serving::api
