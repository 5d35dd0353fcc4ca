// The APIs over HTTP, without a network: framing of streams, forms of errors, keys in each API's
// header, routes that only read.
#include <gtest/gtest.h>

#include "serving/net/http_session.h"
#include "serving/net/sessions_testing.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

std::string Post(const std::string& path, const std::string& body,
                 const std::string& headers = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", path,
                     headers, body.size(), body);
}

class Apis : public testing::Test {
 protected:
  std::string Http(const std::string& bytes) {
    TestWire wire;
    HttpSession session(wire, test_.state, {});
    session.OnBytes(bytes);
    TestModelThread::DispatchAll(*test_.service);
    return wire.written;
  }
  static json Body(const std::string& answer) {
    return json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  }
  // The parts of a chunked answer.
  static std::string Parts(const std::string& answer) {
    std::string all;
    size_t at = answer.find("\r\n\r\n") + 4;
    for (;;) {
      const size_t bytes = std::stoul(answer.substr(at), nullptr, 16);
      if (bytes == 0) return all;
      at = answer.find("\r\n", at) + 2;
      all += answer.substr(at, bytes);
      at += bytes + 2;
    }
  }

  TestState test_;
  TestModelThread model_{*test_.service, test_.state.defaults.vocab};
};

// The events of a stream of server-sent events.
std::vector<json> Events(const std::string& stream) {
  std::vector<json> all;
  for (size_t at = stream.find("data: {"); at != std::string::npos;
       at = stream.find("data: {", at + 1))
    all.push_back(json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6)));
  return all;
}

TEST_F(Apis, EachStreamHasItsFraming) {
  const std::string user = R"([{"role":"user","content":"hell"}])";
  const std::string chat = Http(
      Post("/v1/chat/completions", R"({"stream":true,"max_tokens":2,"messages":)" + user + "}"));
  EXPECT_NE(chat.find("Content-Type: text/event-stream"), std::string::npos);
  EXPECT_TRUE(Parts(chat).starts_with("data: {")) << chat;
  EXPECT_TRUE(Parts(chat).ends_with("data: [DONE]\n\n"));
  const std::string native =
      Parts(Http(Post("/completion", R"({"stream":true,"n_predict":2,"prompt":"hell"})")));
  EXPECT_TRUE(native.starts_with("data: {")) << native;
  EXPECT_EQ(native.find("[DONE]"), std::string::npos)
      << "llama-server's own stream ends without a word";
  EXPECT_EQ(FramingOf(Dialect::kInfill), Framing::kSse);
  const std::string message = Parts(
      Http(Post("/v1/messages", R"({"stream":true,"max_tokens":2,"messages":)" + user + "}")));
  EXPECT_TRUE(message.starts_with("event: message_start\ndata: {")) << message;
  EXPECT_TRUE(message.ends_with("event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"));
  const std::string response =
      Parts(Http(Post("/v1/responses", R"({"stream":true,"max_output_tokens":2,"input":"hell"})")));
  EXPECT_TRUE(response.starts_with("event: response.created\ndata: {")) << response;
  EXPECT_NE(response.find("event: response.incomplete\n"), std::string::npos);
  EXPECT_EQ(response.find("[DONE]"), std::string::npos);
  const std::string ollama =
      Http(Post("/api/chat", R"({"options":{"num_predict":2},"messages":)" + user + "}"));
  EXPECT_NE(ollama.find("Content-Type: application/x-ndjson"), std::string::npos);
  const std::string lines = Parts(ollama);
  const std::string last = lines.substr(lines.rfind('\n', lines.size() - 2) + 1);
  EXPECT_EQ(json::parse(last)["done_reason"], "length");
}

TEST_F(Apis, AStreamHasTheLogprobsOfAllTokens) {
  // A text of line ends only, which are held back until it is clear that no marker follows.
  const std::string asked =
      R"("max_tokens":8,"logprobs":true,"logit_bias":{"13":100},"messages":[{"role":"user","content":"hell"}])";
  const json whole = Body(Http(Post("/v1/chat/completions", "{" + asked + "}")));
  const json wanted = whole["choices"][0]["logprobs"]["content"];
  EXPECT_EQ(wanted.size(), 8u);
  const std::string stream =
      Parts(Http(Post("/v1/chat/completions", R"({"stream":true,)" + asked + "}")));
  json got = json::array();
  for (const json& event : Events(stream)) {
    const json& logprobs = event["choices"][0]["logprobs"];
    if (logprobs.is_object())
      got.insert(got.end(), logprobs["content"].begin(), logprobs["content"].end());
  }
  EXPECT_EQ(got, wanted);
}

TEST_F(Apis, AnEchoHasThePromptsLogprobs) {
  const std::string asked = R"("prompt":"hello world","echo":true,"logprobs":2,"max_tokens":2)";
  const json choice = Body(Http(Post("/v1/completions", "{" + asked + "}")))["choices"][0];
  const json logprobs = choice["logprobs"];
  const std::string text = choice["text"];
  EXPECT_TRUE(text.starts_with("hello world")) << text;
  const size_t count = logprobs["tokens"].size();
  ASSERT_GT(count, 5u);
  EXPECT_EQ(logprobs["tokens"][0], "<s>");
  for (const char* list : {"token_logprobs", "top_logprobs", "text_offset"})
    EXPECT_EQ(logprobs[list].size(), count) << list;
  EXPECT_EQ(logprobs["token_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["top_logprobs"][0], nullptr);
  EXPECT_EQ(logprobs["text_offset"][1], 0) << "<s> is no part of the text";
  for (size_t i = 1; i < count; ++i) {
    const json& top = logprobs["top_logprobs"][i];
    const std::string token = logprobs["tokens"][i];
    EXPECT_LE(top.size(), 3u);
    EXPECT_EQ(top[token], logprobs["token_logprobs"][i]);
    const std::string shown = i == 1 ? token.substr(1) : token;  // its space is no part of the text
    EXPECT_EQ(text.substr(logprobs["text_offset"][i], shown.size()), shown);
  }
  // A stream has the same, the prompt's in its first event.
  json streamed = {{"text", ""}};
  for (const auto& [name, list] : logprobs.items()) streamed[name] = json::array();
  for (const json& event :
       Events(Parts(Http(Post("/v1/completions", R"({"stream":true,)" + asked + "}"))))) {
    const json& one = event["choices"][0];
    if (streamed["text"] == "") {
      EXPECT_EQ(one["text"], "hello world");
    }
    streamed["text"] = streamed["text"].get<std::string>() + one["text"].get<std::string>();
    if (one["logprobs"].is_null()) continue;
    for (const auto& [name, list] : one["logprobs"].items())
      streamed[name].insert(streamed[name].end(), list.begin(), list.end());
  }
  EXPECT_EQ(streamed["text"], text);
  streamed.erase("text");
  EXPECT_EQ(streamed, logprobs);
  // Without generated tokens, with several prompts and choices: each choice has its own prompt's
  // log-probabilities.
  const json many = Body(Http(Post(
      "/v1/completions",
      R"({"prompt":["hello world",[1,262,263]],"n":2,"echo":true,"logprobs":2,"max_tokens":0})")));
  ASSERT_EQ(many["choices"].size(), 4u);
  EXPECT_EQ(many["usage"]["completion_tokens"], 0);
  for (size_t i = 0; i < 4; ++i) {
    const json& own = many["choices"][i]["logprobs"];
    EXPECT_EQ(many["choices"][i]["finish_reason"], "length");
    EXPECT_EQ(own["tokens"].size(), i < 2 ? count - 2 : 3);
    for (size_t k = 0; k < own["tokens"].size() && i < 2; ++k)
      EXPECT_EQ(own["token_logprobs"][k], logprobs["token_logprobs"][k]);
  }
}

TEST_F(Apis, PromptLogprobsAreByTokenId) {
  const json whole =
      Body(Http(Post("/v1/completions", R"({"prompt":"hello world","echo":true,"logprobs":2,)"
                                        R"("prompt_logprobs":1,"max_tokens":1})")));
  const json& list = whole["choices"][0]["prompt_logprobs"];
  const auto tokens = test_.state.defaults.tokenizer->Encode("hello world", true, true);
  ASSERT_EQ(list.size(), tokens.size());
  EXPECT_EQ(list[0], nullptr);
  const json& echoed = whole["choices"][0]["logprobs"];
  size_t ranks_beyond_the_first = 0;
  for (size_t i = 1; i < list.size(); ++i) {
    const json& own = list[i][fmt::to_string(tokens[i])];
    EXPECT_EQ(own["logprob"], echoed["token_logprobs"][i]);
    EXPECT_EQ(own["decoded_token"], echoed["tokens"][i]);
    EXPECT_EQ(list[i].size(), own["rank"] == 1 ? 1u : 2u) << "its own and the likeliest";
    ranks_beyond_the_first += own["rank"] > 1;
    EXPECT_LE(echoed["top_logprobs"][i].size(), 3u);
  }
  EXPECT_GT(ranks_beyond_the_first, 0u);
  const json chat = Body(Http(Post(
      "/v1/chat/completions",
      R"({"max_tokens":1,"prompt_logprobs":0,"n":2,"messages":[{"role":"user","content":"hell"}]})")));
  EXPECT_EQ(chat["prompt_logprobs"].size(), chat["usage"]["prompt_tokens"]);
  EXPECT_EQ(chat["prompt_logprobs"][1].size(), 1u);
  EXPECT_FALSE(chat["choices"][0].contains("prompt_logprobs"));
}

TEST_F(Apis, LongPromptsLogprobsAreCharged) {
  CompletionRequest request;
  GenerationSpec spec;
  spec.prompt.resize(5'000);
  const auto charge = [&] {
    TestWire wire;
    const Admitted held = ServerState::Admit(wire.client(), request, {spec});
    return held.bytes.amount();
  };
  const size_t plain = charge();
  spec.prompt_logprobs = request.prompt_logprobs = 20;
  EXPECT_GT(charge(), plain + 5'000 * 21 * (sizeof(TokenId) + sizeof(float)));
}

TEST_F(Apis, WholeAnswers) {
  const std::string user = R"("messages":[{"role":"user","content":"hell"}])";
  const json message = Body(Http(Post("/v1/messages", R"({"max_tokens":2,)" + user + "}")));
  EXPECT_EQ(message["type"], "message");
  EXPECT_EQ(message["stop_reason"], "max_tokens");
  EXPECT_EQ(message["usage"]["output_tokens"], 2);
  const json response =
      Body(Http(Post("/v1/responses", R"({"max_output_tokens":2,"input":"hell"})")));
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["output"][0]["type"], "message");
  const json chat =
      Body(Http(Post("/api/chat", R"({"stream":false,"options":{"num_predict":2},)" + user + "}")));
  EXPECT_EQ(chat["message"]["role"], "assistant");
  EXPECT_EQ(chat["eval_count"], 2);
  const json generated = Body(
      Http(Post("/api/generate",
                R"({"stream":false,"raw":true,"prompt":"hello","options":{"num_predict":2}})")));
  EXPECT_TRUE(generated["response"].is_string());
}

TEST_F(Apis, ErrorsHaveEachApisForm) {
  EXPECT_EQ(Body(Http(Post("/v1/messages", "{}")))["type"], "error");
  EXPECT_EQ(Body(Http(Post("/v1/messages", "{}")))["error"]["type"], "invalid_request_error");
  EXPECT_TRUE(Body(Http(Post("/api/chat", "[]")))["error"].is_string());
  EXPECT_EQ(Body(Http(Post("/v1/responses", "{}")))["error"]["param"], "input");
  EXPECT_EQ(Http(Post("/v1/embeddings", R"({"input":"a"})")).substr(9, 3), "400");
  EXPECT_EQ(Http(Post("/embedding", R"({"input":"a"})")).substr(9, 3), "501");
  EXPECT_EQ(Http("GET /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n").substr(9, 3), "405");
}

TEST_F(Apis, WhatIsRefusedByItsHeadHasItsApisFormToo) {
  const auto large = [](const std::string& path) {
    return "POST " + path + " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9000000\r\n\r\n";
  };
  const std::string message = Http(large("/v1/messages?beta=true"));
  EXPECT_EQ(message.substr(9, 3), "413");
  EXPECT_EQ(Body(message)["type"], "error");
  EXPECT_EQ(Body(message)["error"]["type"], "request_too_large");
  EXPECT_TRUE(Body(Http(large("/api/chat")))["error"].is_string());
  EXPECT_EQ(Body(Http(large("/v1/chat/completions")))["error"]["type"], "invalid_request_error");
  TestWire wire;
  HttpSession session(wire, test_.state, {});
  session.OnBytes("POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90\r\n\r\n");
  session.OnTimeout();
  EXPECT_EQ(Body(wire.written)["error"]["type"], "timeout_error");
}

TEST_F(Apis, AKeyMayComeAsAnthropicsClientsSendIt) {
  test_.state.api_keys = std::vector<std::string>{"key-number-1"};
  const std::string body = R"({"max_tokens":1,"messages":[{"role":"user","content":"hell"}]})";
  EXPECT_EQ(Http(Post("/v1/messages", body)).substr(9, 3), "401");
  EXPECT_EQ(Body(Http(Post("/v1/messages", body)))["error"]["type"], "authentication_error");
  EXPECT_EQ(Http(Post("/v1/messages", body, "X-Api-Key: key-number-2\r\n")).substr(9, 3), "401");
  EXPECT_EQ(Http(Post("/v1/messages", body, "x-api-key: key-number-1\r\n")).substr(9, 3), "200");
  EXPECT_EQ(Http(Post("/v1/messages", body, "Authorization: Bearer key-number-1\r\n")).substr(9, 3),
            "200");
}

TEST_F(Apis, CountsTokensAsTheAnswerWould) {
  const std::string user = R"("messages":[{"role":"user","content":"hello world"}])";
  const json answer = Body(Http(Post("/v1/messages", R"({"max_tokens":1,)" + user + "}")));
  const size_t tokens = answer["usage"]["input_tokens"].get<size_t>() +
                        answer["usage"]["cache_read_input_tokens"].get<size_t>();
  EXPECT_EQ(Body(Http(Post("/v1/messages/count_tokens", "{" + user + "}")))["input_tokens"],
            tokens);
  for (const char* path : {"/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"})
    EXPECT_EQ(Body(Http(Post(path, "{" + user + "}")))["input_tokens"], tokens);
  EXPECT_EQ(
      Body(Http(Post("/v1/responses/input_tokens", R"({"input":"hello world"})")))["input_tokens"],
      tokens);
  std::string words;
  for (size_t i = 0; i < 400; ++i) words += "hello world ";
  const json more =
      Body(Http(Post("/v1/messages/count_tokens",
                     R"({"messages":[{"role":"user","content":")" + words + "\"}]}")));
  EXPECT_GT(more["input_tokens"].get<size_t>(), TestState::kContext)
      << "clients ask before they send it";
  const json applied = Body(Http(Post("/apply-template", "{" + user + "}")));
  EXPECT_NE(applied["prompt"].get<std::string>().find("hello world"), std::string::npos);
}

TEST_F(Apis, WhatClientsAskAboutTheServer) {
  const auto get = [&](const std::string& path) {
    return Body(Http("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n"));
  };
  EXPECT_EQ(get("/api/tags")["models"][0]["name"], "tiny");
  EXPECT_EQ(get("/api/tags")["models"][0]["digest"].get<std::string>().size(), 64u)
      << "clients show 12 of it";
  EXPECT_EQ(get("/api/ps")["models"][0]["model"], "tiny");
  EXPECT_TRUE(get("/api/version")["version"].is_string());
  EXPECT_EQ(Body(Http(Post("/api/show", R"({"model":"tiny"})")))["capabilities"][0], "completion");
  EXPECT_EQ(get("/tokenizer_info")["eos_token"], "</s>");
  EXPECT_EQ(Body(Http(Post("/tokenize", R"({"prompt":"hello"})")))["count"], 2);
  EXPECT_EQ(Body(Http(Post("/tokenize", R"({"prompt":"hello","add_special_tokens":false})"))),
            json::parse(fmt::format(R"({{"tokens":[263],"count":1,"max_model_len":{}}})",
                                    TestState::kContext)));
  EXPECT_EQ(Body(Http(Post("/detokenize", R"({"tokens":[262]})")))["prompt"], "hello");
  EXPECT_EQ(get("/props")["default_generation_settings"]["n_ctx"], TestState::kContext);
  const json params = get("/props")["default_generation_settings"]["params"];
  EXPECT_EQ(params["samplers"].size(), DefaultSamplers().size());
  for (const char* name :
       {"typical_p", "dry_multiplier", "xtc_probability", "mirostat", "dynatemp_range"})
    EXPECT_TRUE(params.contains(name)) << name;
  EXPECT_TRUE(get("/slots").is_array());
  const json pieces = Body(Http(Post("/tokenize", R"({"content":"hello","with_pieces":true})")));
  EXPECT_TRUE(pieces["tokens"][0].contains("piece"));
}

TEST_F(Apis, ChoicesThatCanNeverWaitTogetherAreNotToTryAgain) {
  const auto choices = [&](size_t n) {
    return Http(
        Post("/v1/completions", fmt::format(R"({{"prompt":"hello","max_tokens":1,"n":{}}})", n)));
  };
  EXPECT_EQ(choices(6).substr(9, 3), "200");
  const std::string refused = choices(7);
  EXPECT_EQ(refused.substr(9, 3), "400");
  EXPECT_EQ(Body(refused)["error"]["param"], "n");
}

TEST_F(Apis, NamesOfTheModel) {
  test_.state.defaults.aliases = {"org/tiny.gguf"};
  const auto status = [&](const std::string& request) { return Http(request).substr(9, 3); };
  const auto get = [&](const char* name) {
    return status(fmt::format("GET /v1/models/{} HTTP/1.1\r\nHost: localhost\r\n\r\n", name));
  };
  EXPECT_EQ(get("tiny"), "200");
  EXPECT_EQ(get("%74iny"), "200");
  EXPECT_EQ(get("org%2Ftiny.gguf"), "200");
  EXPECT_EQ(get("org/tiny.gguf"), "200");
  EXPECT_EQ(get("tiny%"), "404");
  EXPECT_EQ(get("tiny:latest"), "404");
  EXPECT_EQ(status(Post("/api/show", R"({"model":"tiny:latest"})")), "200");
  EXPECT_EQ(status(Post("/api/show", R"({"name":"tiny"})")), "200");
  EXPECT_EQ(status(Post("/api/show", R"({"model":"huge"})")), "404");
  EXPECT_EQ(status(Post("/api/show", "tiny")), "400");
  EXPECT_EQ(status(Post("/api/generate", R"({"model":"tiny:latest"})")), "200");
  EXPECT_EQ(status(Post("/api/generate", R"({"model":"huge:latest"})")), "404");
  EXPECT_EQ(status(Post("/completion", R"({"model":"tiny:latest","prompt":"hello"})")), "404");
}

TEST_F(Apis, TheModelsAliasesAndTagsAreShown) {
  test_.state.defaults.said_aliases = {"tiny", "small"};
  test_.state.defaults.tags = {"demo"};
  const json model = Body(Http("GET /v1/models HTTP/1.1\r\nHost: localhost\r\n\r\n"))["data"][0];
  EXPECT_EQ(model["aliases"], json({"tiny", "small"}));
  EXPECT_EQ(model["tags"], json({"demo"}));
}

TEST_F(Apis, ThePageAndTheSlotsCanBeLeftOut) {
  const auto get = [&](const char* path) {
    return Http(fmt::format("GET {} HTTP/1.1\r\nHost: localhost\r\n\r\n", path)).substr(9, 3);
  };
  EXPECT_EQ(get("/"), "200");
  EXPECT_EQ(get("/slots"), "200");
  test_.state.has_page = test_.state.shows_slots = false;
  EXPECT_EQ(get("/"), "404");
  EXPECT_EQ(get("/slots"), "501");
}

TEST_F(Apis, AMethodThatAPathDoesNotTakeIsToldTheOthers) {
  const auto allow = [&](const char* method, const char* path) {
    const std::string reply =
        Http(fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n\r\n", method, path));
    EXPECT_EQ(reply.substr(9, 3), "405") << reply;
    const size_t at = reply.find("Allow: ");
    return at == std::string::npos ? "" : reply.substr(at + 7, reply.find('\r', at) - at - 7);
  };
  EXPECT_EQ(allow("GET", "/v1/chat/completions"), "POST");
  EXPECT_EQ(allow("DELETE", "/v1/models"), "GET");
  EXPECT_EQ(allow("PUT", "/tokenize"), "POST");
  EXPECT_EQ(allow("PUT", "/v1/responses/resp_1"), "GET, DELETE");
}

// As proxies send it.
TEST_F(Apis, TargetsMayBeAbsolute) {
  EXPECT_EQ(Http("GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n").substr(9, 3),
            "200");
  EXPECT_EQ(Http("GET http://evil.example/health HTTP/1.1\r\nHost: localhost\r\n\r\n").substr(9, 3),
            "403");
}

TEST_F(Apis, OllamasRequestsForNothingAreAnsweredAtOnce) {
  const auto answer = [&](const std::string& path, const std::string& body) {
    json got = Body(Http(Post(path, body)));
    got.erase("created_at");
    return got;
  };
  EXPECT_EQ(answer("/api/generate", R"({"model":"tiny"})"),
            json::parse(R"({"model":"tiny","response":"","done":true,"done_reason":"load"})"));
  EXPECT_EQ(answer("/api/generate", R"({"prompt":"","keep_alive":0})")["done_reason"], "unload");
  EXPECT_EQ(
      answer("/api/chat", R"({"messages":[]})"),
      json::parse(
          R"({"model":"tiny","message":{"role":"assistant","content":""},"done":true,"done_reason":"load"})"));
  EXPECT_EQ(answer("/api/chat", R"({"messages":[],"keep_alive":"0s"})")["done_reason"], "unload");
  EXPECT_EQ(answer("/api/chat", R"({"messages":[],"keep_alive":"10m"})")["done_reason"], "load");
  test_.state.defaults.pooling = model::Pooling::kMean;
  EXPECT_EQ(answer("/api/embed", R"({"input":[]})"),
            json::parse(R"({"model":"tiny","embeddings":[]})"));
  EXPECT_EQ(answer("/api/embeddings", R"({"prompt":""})"), json::parse(R"({"embedding":[]})"));
  EXPECT_EQ(Body(Http(Post("/api/show", "{}")))["capabilities"].back(), "embedding");
  test_.state.defaults.pooling = model::Pooling::kRank;
  EXPECT_NE(Body(Http(Post("/api/show", "{}")))["capabilities"].back(), "embedding");
}

TEST_F(Apis, QuietStreamsSaySoInTheirOwnWay) {
  const auto quiet = [&](const std::string& path, const std::string& body) {
    TestWire wire;
    HttpSession session(wire, test_.state, {});
    {
      const auto hold = model_.Hold();
      session.OnBytes(Post(path, body));
      session.OnQuiet();
    }
    TestModelThread::DispatchAll(*test_.service);
    return wire.written;
  };
  const std::string user = R"("messages":[{"role":"user","content":"hell"}])";
  EXPECT_NE(quiet("/v1/messages", R"({"max_tokens":1,"stream":true,)" + user + "}")
                .find("event: ping\ndata: {\"type\":\"ping\"}\n\n"),
            std::string::npos);
  EXPECT_NE(quiet("/v1/responses", R"({"input":"hell","max_output_tokens":1,"stream":true})")
                .find(": still here"),
            std::string::npos);
  const std::string lines = quiet("/api/chat", R"({"options":{"num_predict":1},)" + user + "}");
  EXPECT_EQ(lines.find("still here"), std::string::npos);
}

TEST_F(Apis, UnknownFieldsAreCounted) {
  Http(Post("/v1/completions", R"({"prompt":"hello","max_tokens":1,"frobnicate":1})"));
  EXPECT_NE(test_.metrics.Render().find("\nlarder_ignored_fields_total 1\n"), std::string::npos);
}

}  // namespace
}  // namespace larder::serving::net
