// llama-server's own fields over HTTP, without a network: the compute thread's steps are taken by
// hand.
#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "serving/net/http_session.h"
#include "serving/net/sessions_testing.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

// The biases that leave nothing but line ends, token 13.
constexpr const char* kLineEnds = R"("logit_bias":{"13":100})";

class NativeApi : public testing::Test {
 protected:
  // Begins a request; the answer comes while steps are taken.
  struct Asked {
    TestWire wire;
    std::unique_ptr<HttpSession> session;
    std::string body() const { return wire.written.substr(wire.written.find("\r\n\r\n") + 4); }
  };
  std::unique_ptr<Asked> Begin(const std::string& path, const std::string& body) {
    auto asked = std::make_unique<Asked>();
    asked->session = std::make_unique<HttpSession>(asked->wire, test_.state, HttpLimits());
    asked->session->OnBytes(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", path,
                    body.size(), body));
    return asked;
  }
  void Step() {
    model_.Step();
    test_.service->Dispatch();
  }
  std::string Ask(const std::string& path, const std::string& body) {
    const auto asked = Begin(path, body);
    for (int i = 0; i < 100 && test_.service->live() > 0; ++i) Step();
    return asked->body();
  }
  json Whole(const std::string& path, const std::string& body) {
    return json::parse(Ask(path, body));
  }
  std::vector<json> Events(const std::string& path, const std::string& body) {
    const std::string chunks = Ask(path, body);
    std::vector<json> events;
    for (size_t at = chunks.find("data: {"); at != std::string::npos;
         at = chunks.find("data: {", at + 1))
      events.push_back(json::parse(chunks.substr(at + 6, chunks.find('\n', at) - at - 6)));
    return events;
  }
  json Get(const std::string& path) {
    TestWire wire;
    HttpSession session(wire, test_.state, {});
    session.OnBytes("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n");
    return json::parse(wire.written.substr(wire.written.find("\r\n\r\n") + 4));
  }

  TestState test_;
  TestModel model_{*test_.service, test_.state.defaults.vocab};
};

TEST_F(NativeApi, AnAnswerSaysHowItWasMade) {
  const json got = Whole("/completion", R"({"prompt":"hello","n_predict":4,"seed":42,"top_k":7})");
  EXPECT_EQ(got["tokens"], json::array());
  EXPECT_EQ(got["has_new_line"], false);
  EXPECT_EQ(got["generation_settings"]["n_predict"], 4);
  EXPECT_EQ(got["generation_settings"]["seed"], 42);
  EXPECT_EQ(got["generation_settings"]["top_k"], 7);
  EXPECT_EQ(got["generation_settings"]["logit_bias"], json::array());
  EXPECT_EQ(got["generation_settings"]["lora"], json::array());
  EXPECT_TRUE(got["prompt"].get<std::string>().ends_with("hello"));
  const json with =
      Whole("/completion", R"({"prompt":"hello","n_predict":4,"return_tokens":true})");
  EXPECT_EQ(with["tokens"].size(), 4u);
  const json banned = Whole("/completion", R"({"prompt":"hello","n_predict":4,"ignore_eos":true})");
  const json& biases = banned["generation_settings"]["logit_bias"];
  ASSERT_FALSE(biases.empty());
  for (const json& one : biases) EXPECT_TRUE(one["bias"].is_null()) << "a ban";
  EXPECT_EQ(Whole("/completion",
                  R"({"prompt":"hello","n_predict":3,"response_fields":["timings/predicted_n"]})"),
            json({{"timings/predicted_n", 3}}));
  EXPECT_EQ(Whole("/completion", R"({"prompt":"hello","n_predict":2,"n_cmpl":3})").size(), 3u);
}

TEST_F(NativeApi, AStreamHasTheTokensOfAWholeAnswer) {
  const std::string asked = R"({"prompt":"hello","n_predict":5,)";
  const json whole = Whole("/completion", asked + R"("return_tokens":true})");
  const auto events = Events("/completion", asked + R"("stream":true})");
  json tokens = json::array();
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    EXPECT_FALSE(events[i]["tokens"].empty());
    EXPECT_FALSE(events[i].contains("timings"));
    tokens.insert(tokens.end(), events[i]["tokens"].begin(), events[i]["tokens"].end());
  }
  EXPECT_EQ(tokens, whole["tokens"]);
  EXPECT_EQ(events.back()["tokens"], json::array());
  EXPECT_EQ(events.back()["generation_settings"]["stream"], true);
  size_t n = 0;
  for (const json& event :
       Events("/completion", asked + R"("stream":true,"timings_per_token":true})"))
    if (!event["stop"].get<bool>()) {
      EXPECT_EQ(event["timings"]["predicted_n"], ++n);
    }
  EXPECT_EQ(n, 5u);
}

TEST_F(NativeApi, APromptsProgressComesFirst) {
  for (const char* path : {"/completion", "/v1/completions"}) {
    const auto events = Events(
        path,
        R"({"prompt":"hello hello","n_predict":2,"stream":true,"return_progress":true,"timings_per_token":true})");
    ASSERT_GT(events.size(), 3u);
    const json first = events[0]["prompt_progress"], second = events[1]["prompt_progress"];
    EXPECT_EQ(first["cache"], 0);
    EXPECT_EQ(first["processed"], 0);
    EXPECT_EQ(events[0]["timings"]["prompt_n"], 0);
    EXPECT_EQ(events[0]["timings"]["prompt_ms"], 0.0);
    EXPECT_EQ(second["processed"], second["total"]);
    EXPECT_EQ(events[1]["timings"]["prompt_n"], second["total"]);
    for (size_t i = 2; i < events.size(); ++i) EXPECT_FALSE(events[i].contains("prompt_progress"));
    for (const json& event : Events(path, R"({"prompt":"hello","n_predict":2,"stream":true})"))
      EXPECT_FALSE(event.contains("prompt_progress"));
  }
}

TEST_F(NativeApi, DrawnProbabilitiesAreOfWhatIsLeft) {
  const json got = Whole(
      "/completion",
      R"({"prompt":"hello","n_predict":2,"n_probs":5,"post_sampling_probs":true,"temperature":1,"top_k":2,"top_p":1,"min_p":0})");
  const json& one = got["completion_probabilities"][0];
  EXPECT_FALSE(one.contains("logprob"));
  ASSERT_EQ(one["top_probs"].size(), 2u);
  EXPECT_NEAR(one["top_probs"][0]["prob"].get<double>() + one["top_probs"][1]["prob"].get<double>(),
              1, 1e-6);
  const json sure = Whole(
      "/completion", R"({"prompt":"hello","n_predict":1,"n_probs":5,"post_sampling_probs":true})");
  EXPECT_EQ(sure["completion_probabilities"][0]["prob"], 1.0) << "greedy";
}

// The pause between two tokens is longer than the limit: only texts with a line end are ended.
TEST_F(NativeApi, ATimeLimitEndsATextThatHasALine) {
  for (const bool has_lines : {false, true}) {
    const auto asked = Begin(
        "/completion", fmt::format(R"({{"prompt":"hello","n_predict":5,"t_max_predict_ms":1{}}})",
                                   has_lines ? std::string(",") + kLineEnds : ""));
    Step();
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    for (int i = 0; i < 10; ++i) Step();
    const json got = json::parse(asked->body());
    EXPECT_EQ(got["tokens_predicted"], has_lines ? 2 : 5);
    EXPECT_EQ(got["has_new_line"], has_lines);
    EXPECT_EQ(got["stop_type"], "limit");
  }
}

TEST_F(NativeApi, TooLittleIndentEndsTheText) {
  const json got =
      Whole("/completion",
            fmt::format(R"({{"prompt":"hello","n_predict":5,"n_indent":2,{}}})", kLineEnds));
  EXPECT_EQ(got["content"], "\n");
  EXPECT_EQ(got["stop_type"], "limit");
  EXPECT_EQ(Whole("/completion",
                  fmt::format(R"({{"prompt":"hello","n_predict":5,{}}})", kLineEnds))["content"],
            "\n\n\n\n\n");
}

TEST_F(NativeApi, AVerboseChatShowsItsPrompt) {
  const std::string asked = R"({"messages":[{"role":"user","content":"hello"}],"max_tokens":2)";
  const json got = Whole("/v1/chat/completions", asked + R"(,"verbose":true})");
  EXPECT_NE(got["__verbose"]["prompt"].get<std::string>().find("hello"), std::string::npos);
  EXPECT_EQ(got["__verbose"]["generation_settings"]["n_predict"], 2);
  EXPECT_FALSE(Whole("/v1/chat/completions", asked + "}").contains("__verbose"));
}

TEST_F(NativeApi, ASlotShowsWhatIsLeftOfItsRequest) {
  test_.state.fill_status = [](StatusView& view) {
    view.slots = {{.state = SlotView::State::kDecode, .generated_tokens = 1},
                  {.state = SlotView::State::kIdle, .generated_tokens = 8}};
  };
  const json slots = Get("/slots");
  EXPECT_EQ(slots[0]["next_token"][0], json({{"n_decoded", 1}, {"n_remain", -1}}));
  EXPECT_EQ(slots[1]["next_token"][0], json({{"n_decoded", 0}, {"n_remain", -1}})) << "it is idle";
}

}  // namespace
}  // namespace larder::serving::net
