// Both protocols without a network: answers do not depend on how the bytes were cut; after an error
// the connection goes on; requests of clients that leave are cancelled.
#include <gtest/gtest.h>

#include <random>

#include "base/clock.h"
#include "base/utf8.h"
#include "serving/net/http_session.h"
#include "serving/net/sessions_testing.h"
#include "serving/net/text_session.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

std::vector<json> Lines(const std::string& text) {
  std::vector<json> lines;
  for (size_t at = 0; at < text.size();) {
    const size_t end = text.find('\n', at);
    lines.push_back(json::parse(text.substr(at, end - at)));
    at = end + 1;
  }
  return lines;
}

// Random pieces of at most 20 bytes.
void Feed(Session& session, std::string_view bytes, std::mt19937& random) {
  while (!bytes.empty()) {
    const size_t n = std::min<size_t>(bytes.size(), 1 + random() % 20);
    session.OnBytes(bytes.substr(0, n));
    bytes.remove_prefix(n);
  }
}

class SessionsTest : public testing::Test {
 protected:
  SessionsTest() : model_(*test_.service, test_.state.defaults.vocab) {}

  std::string Text(std::string_view bytes) {
    TestWire wire;
    TextSession session(wire, test_.state, {.line_bytes = 1000, .requests = 4});
    Feed(session, bytes, random_);
    session.OnEndOfInput();
    FinishAll(session, wire);
    EXPECT_TRUE(wire.closed);
    return wire.written;
  }

  std::string Http(std::string_view bytes) {
    TestWire wire;
    HttpSession session(wire, test_.state, {.header_bytes = 2000, .body_bytes = 4000});
    Feed(session, bytes, random_);
    FinishAll(session, wire);
    return wire.written;
  }

  void FinishAll(Session& session, TestWire& wire) {
    do {
      wire.TakeTurns(session);
      TestModelThread::DispatchAll(*test_.service);
    } while (wire.later);
  }

  static std::string Post(const std::string& path, const std::string& body,
                          const std::string& headers = "") {
    return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n{}\r\n{}",
                       path, body.size(), headers, body);
  }

  TestState test_;
  TestModelThread model_;
  std::mt19937 random_{1};
};

TEST_F(SessionsTest, APlainPromptGetsRawText) {
  const std::string text = Text("hello\n");
  EXPECT_FALSE(text.empty());
  EXPECT_EQ(Text("hello\r\n"), text);
  EXPECT_EQ(Text("\n \nhello"), text);  // no line end, but the end of input
  EXPECT_EQ(Text("hello\nwhat follows is not read\n"), text);
  const json whole = Lines(Text(R"({"prompt":"hello","stream":false})"
                                "\n"))
                         .at(0);
  EXPECT_EQ(whole["content"], text);
  EXPECT_EQ(whole["stop_type"], "limit");  // the context of the test is small
}

TEST_F(SessionsTest, JsonRequestsAreAnsweredByName) {
  const auto lines = Lines(Text(R"({"prompt":"hello","n_predict":3,"id":"a"})"
                                "\n"
                                R"({"prompt":"world","n_predict":5})"
                                "\n"));
  std::map<std::string, size_t> last;
  for (const json& line : lines) {
    if (line["stop"].get<bool>()) last[line["id"].dump()] = line["tokens_predicted"].get<size_t>();
  }
  EXPECT_EQ(last, (std::map<std::string, size_t>{{"\"a\"", 3}, {"1", 5}}));
}

TEST_F(SessionsTest, AnErrorEndsTheRequestOnly) {
  const auto lines =
      Lines(Text("{oops\n{\"prompt\":\"hello\",\"n_predict\":1,\"stream\":false}\n"));
  ASSERT_EQ(lines.size(), 2u);
  EXPECT_EQ(lines[0]["error"]["code"], 400);
  EXPECT_TRUE(lines[0]["id"].is_null());
  EXPECT_EQ(lines[1]["tokens_predicted"], 1);
}

TEST_F(SessionsTest, LinesThatAreTooMuch) {
  EXPECT_TRUE(
      Text(std::string(1001, 'a') + "\n").starts_with("error: the line is longer than 1000"));
  EXPECT_TRUE(Text("\xff\xfe\n").starts_with("error: the prompt is not UTF-8"));
  EXPECT_NE(Text(std::string(900, 'w') + "\n").find("context length is 64"), std::string::npos);
}

TEST_F(SessionsTest, CancelEndsARequestWithItsLastLine) {
  TestWire wire;
  TextSession session(wire, test_.state, {});
  {
    const auto hold = model_.Hold();
    session.OnBytes("{\"prompt\":\"hello\",\"id\":7}\n{\"cancel\":7}\n{\"cancel\":8}\n");
  }
  TestModelThread::DispatchAll(*test_.service);
  const json last = Lines(wire.written).back();
  EXPECT_EQ(last["stop_type"], "cancelled");
  EXPECT_EQ(session.turn(), Turn::kIdle);
}

// Tokens that came while nobody looked do not keep the I/O thread from its other clients.
TEST(Dispatch, HandsOverSoManyAtOnce) {
  TestState test;
  TestModel model(*test.service, test.state.defaults.vocab);
  TestWire wire;
  TextSession session(wire, test.state, {});
  std::string lines;
  for (int i = 0; i < 8; ++i)
    lines += fmt::format("{{\"prompt\":\"hello\",\"id\":{},\"n_predict\":50}}\n", i);
  session.OnBytes(lines);
  for (int step = 0; step < 60; ++step) model.Step();
  ASSERT_TRUE(model.idle());
  size_t turns = 0;
  pollfd wake{.fd = test.service->wake_fd(), .events = POLLIN, .revents = 0};
  for (; poll(&wake, 1, 0) == 1; ++turns) test.service->Dispatch();
  EXPECT_EQ(turns, 2u) << "416 events";
  EXPECT_EQ(test.service->live(), 0u);
  EXPECT_EQ(session.turn(), Turn::kIdle);
}

TEST_F(SessionsTest, OnlyAStreamTellsThatItsAnswerStillComes) {
  for (const bool streams : {true, false}) {
    TestWire wire;
    HttpSession session(wire, test_.state, {});
    session.OnQuiet();
    EXPECT_EQ(wire.written, "");
    {
      const auto hold = model_.Hold();
      session.OnBytes(
          Post("/v1/completions", fmt::format(R"({{"prompt":"hello","max_tokens":2,"stream":{}}})",
                                              streams ? "true" : "false")));
      session.OnQuiet();
      session.OnQuiet();
      EXPECT_EQ(wire.written.starts_with("HTTP/1.1 200"), streams);
      EXPECT_EQ(wire.written.ends_with("e\r\n: still here\n\n\r\ne\r\n: still here\n\n\r\n"),
                streams);
    }
    TestModelThread::DispatchAll(*test_.service);
    EXPECT_EQ(wire.written.find("HTTP/1.1", 1), std::string::npos) << "one header";
    EXPECT_EQ(wire.written.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"), streams) << wire.written;
  }
}

TEST_F(SessionsTest, LinesWithoutTextTellThatTextStillComes) {
  TestWire wire;
  TextSession session(wire, test_.state, {});
  session.OnQuiet();
  EXPECT_EQ(wire.written, "");
  {
    const auto hold = model_.Hold();
    session.OnBytes("{\"prompt\":\"hello\",\"n_predict\":2,\"id\":\"a\"}\n");
    session.OnBytes("{\"prompt\":\"hello\",\"n_predict\":2,\"id\":\"b\",\"stream\":false}\n");
    session.OnQuiet();
    EXPECT_EQ(wire.written, "{\"content\":\"\",\"stop\":false,\"id\":\"a\"}\n");
  }
  TestModelThread::DispatchAll(*test_.service);
  const std::string said = wire.written;
  EXPECT_EQ(Lines(said).back()["stop"], true);
  session.OnQuiet();
  EXPECT_EQ(wire.written, said);
}

TEST_F(SessionsTest, WhoGoesAwayIsCancelledAndHearsNothing) {
  TestWire wire;
  {
    HttpSession session(wire, test_.state, {});
    session.OnBytes(Post("/v1/completions", R"({"prompt":"hello"})"));
    EXPECT_EQ(test_.service->live(), 1u);
  }
  TestModelThread::DispatchAll(*test_.service);
  EXPECT_EQ(wire.written, "");
}

TEST_F(SessionsTest, HttpStreamsWhatItWouldSayWhole) {
  const std::string whole = Http(Post("/v1/completions", R"({"prompt":"hello","max_tokens":6})"));
  ASSERT_TRUE(whole.starts_with("HTTP/1.1 200 OK\r\n")) << whole;
  const json reply = json::parse(whole.substr(whole.find("\r\n\r\n") + 4));
  const std::string stream =
      Http(Post("/v1/completions", R"({"prompt":"hello","max_tokens":6,"stream":true})"));
  std::string text;
  for (size_t at = 0; (at = stream.find("data: {", at)) != std::string::npos; ++at) {
    const json chunk = json::parse(stream.substr(at + 6, stream.find('\n', at) - at - 6));
    text += chunk["choices"][0]["text"].get<std::string>();
  }
  EXPECT_EQ(text, reply["choices"][0]["text"]);
  EXPECT_FALSE(text.empty());
  EXPECT_TRUE(stream.ends_with("data: [DONE]\n\n\r\n0\r\n\r\n"));
  EXPECT_EQ(reply["usage"]["completion_tokens"], 6);
}

TEST_F(SessionsTest, HttpRequestsInARowAreAnsweredInOrder) {
  const std::string get = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const std::string all =
      Http(get + Post("/v1/completions", R"({"prompt":"hello","max_tokens":2})") + get +
           "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
  const size_t health = all.find("\"ok\""), text = all.find("text_completion"),
               again = all.rfind("\"ok\"");
  EXPECT_LT(health, text);
  EXPECT_LT(text, again);
  EXPECT_LT(again, all.find("404 Not Found"));
}

TEST_F(SessionsTest, HttpRefuses) {
  const auto status = [&](const std::string& bytes) { return Http(bytes).substr(9, 3); };
  EXPECT_EQ(status("nonsense\r\n\r\n"), "400");
  EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: localhost\r\n" + std::string(3000, 'a')), "431");
  EXPECT_EQ(
      status("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5000\r\n\r\n"),
      "413");
  EXPECT_EQ(status(Post("/v1/completions", R"({"prompt":"a","model":"other"})")), "404");
  EXPECT_EQ(status(Post("/health", "")), "405");
  test_.state.api_keys = {"long-key"};
  EXPECT_EQ(status(Post("/v1/completions", R"({"prompt":"hello"})")), "401");
  EXPECT_EQ(
      status(Post("/v1/completions", R"({"prompt":"hello"})", "Authorization: Bearer long-ke\r\n")),
      "401");
  EXPECT_EQ(status(Post("/v1/completions", R"({"prompt":"hello"})",
                        "Authorization: Bearer long-key\r\n")),
            "200");
  // Clients without access are refused before they have sent the body.
  const std::string head =
      "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n";
  for (const char* more : {"", "{\"prompt\""}) {
    EXPECT_EQ(status(head + "\r\n" + more), "401");
    EXPECT_EQ(status(head + "Origin: http://evil.example\r\n\r\n" + more), "403");
    EXPECT_EQ(Http(head + "Authorization: Bearer long-key\r\n\r\n" + more), "");
  }
}

TEST_F(SessionsTest, LoadingIsSaid) {
  test_.state.service = nullptr;
  EXPECT_EQ(Http("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").substr(9, 3), "503");
  EXPECT_EQ(Http(Post("/v1/completions", R"({"prompt":"a"})")).substr(9, 3), "503");
  EXPECT_TRUE(Text("hello\n").starts_with("error: the model is loading"));
  test_.state.service = test_.service.get();
}

// Work for another thread, which runs when the test says so.
struct Elsewhere {
  struct Job {
    int id;
    std::function<void()> work, then;
  };
  explicit Elsewhere(ServerState& state) {
    state.in_background = [this](const std::string&, std::function<void()> work,
                                 std::function<void()> then) {
      jobs.push_back({next_id, std::move(work), std::move(then)});
      return JobTicket(nullptr, [this, id = next_id++](void*) {
        std::erase_if(jobs, [&](const Job& job) { return job.id == id; });
      });
    };
  }
  void DoFirst() {
    const Job job = jobs.at(0);
    jobs.erase(jobs.begin());
    std::thread(job.work).join();
    job.then();
  }
  std::vector<Job> jobs;
  int next_id = 0;
};

std::string LargeLine(const char* fields) {
  return fmt::format("{{{},\"padding\":\"{}\"}}\n", fields, std::string(20000, 'x'));
}

TEST_F(SessionsTest, LargeLinesArePreparedElsewhereAndKeepTheirTurn) {
  Elsewhere elsewhere(test_.state);
  TestWire wire;
  TextSession session(wire, test_.state, {.line_bytes = 30000, .requests = 4});
  session.OnBytes(LargeLine(R"("prompt":"hello","n_predict":2,"id":"large","stream":false)"));
  session.OnBytes(
      "{\"prompt\":\"hello\",\"n_predict\":1,\"id\":\"small\",\"stream\":false}\n{\"cancel\":"
      "\"large\"}\n");
  ASSERT_EQ(elsewhere.jobs.size(), 1u);
  EXPECT_EQ(test_.service->live(), 0u);
  EXPECT_EQ(session.turn(), Turn::kAnswering);
  EXPECT_FALSE(Text("hello\n").empty());  // others are served meanwhile
  session.OnEndOfInput();
  EXPECT_FALSE(wire.closed);
  {
    const auto hold = model_.Hold();
    elsewhere.DoFirst();
  }
  TestModelThread::DispatchAll(*test_.service);
  std::map<std::string, std::string> stop_types;
  for (const json& line : Lines(wire.written))
    stop_types[line["id"].get<std::string>()] = line["stop_type"].get<std::string>();
  EXPECT_EQ(stop_types,
            (std::map<std::string, std::string>{{"large", "cancelled"}, {"small", "limit"}}));
  EXPECT_TRUE(wire.closed);
}

// `nc -N`: the client's side is shut down behind its requests, and the answers come.
TEST_F(SessionsTest, RequestsBeforeTheEndOfInputAreAnswered) {
  const std::string body = R"({"prompt":"hello","max_tokens":3})";
  for (const std::string& requests :
       {Post("/v1/completions", body), Post("/v1/completions", body) +
                                           Post("/v1/completions", body) +
                                           "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"}) {
    TestWire wire;
    HttpSession session(wire, test_.state, {});
    {
      const auto hold = model_.Hold();
      session.OnBytes(requests);
      session.OnEndOfInput();
      EXPECT_FALSE(wire.closed);
      EXPECT_EQ(session.turn(), Turn::kAnswering);
      EXPECT_EQ(wire.written, "HTTP/1.1 100 Continue\r\n\r\n") << "asks whether it is still there";
    }
    FinishAll(session, wire);
    EXPECT_TRUE(wire.closed);
    size_t answers = 0;
    for (size_t at = 0; (at = wire.written.find("HTTP/1.1 200 OK", at)) != std::string::npos; ++at)
      ++answers;
    EXPECT_EQ(answers, requests.find("/health") == std::string::npos ? 1u : 3u) << wire.written;
  }
}

TEST_F(SessionsTest, TheEndOfInputEndsAPartOfARequestAndHttp10) {
  TestWire half;
  HttpSession halved(half, test_.state, {});
  halved.OnBytes("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{");
  halved.OnEndOfInput();
  EXPECT_TRUE(half.closed);
  EXPECT_EQ(half.written, "");
  TestWire old;
  HttpSession aged(old, test_.state, {});
  const auto hold = model_.Hold();
  const std::string body = R"({"prompt":"hello","max_tokens":3})";
  aged.OnBytes(fmt::format("POST /v1/completions HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}",
                           body.size(), body));
  EXPECT_EQ(aged.turn(), Turn::kAnswering);
  aged.OnEndOfInput();
  EXPECT_TRUE(old.closed);
}

TEST_F(SessionsTest, WhoLeavesWhileALargeRequestIsPreparedIsForgotten) {
  Elsewhere elsewhere(test_.state);
  TestWire wire;
  {
    TextSession text(wire, test_.state, {});
    text.OnBytes(LargeLine(R"("prompt":"hello")"));
    text.OnBytes(std::string(2 << 20, 'y'));  // bytes are not kept without limit
    EXPECT_FALSE(text.wants_bytes());
    HttpSession http(wire, test_.state, {});
    http.OnBytes(Post("/tokenize", json{{"content", std::string(20000, 'x')}}.dump()));
    ASSERT_EQ(elsewhere.jobs.size(), 2u);
  }
  EXPECT_TRUE(elsewhere.jobs.empty()) << "their tickets were dropped";
  EXPECT_EQ(test_.service->live(), 0u);
  EXPECT_EQ(wire.written, "");
}

TEST_F(SessionsTest, WhatWaitsToBeReadIsCountedRefusedAndGivenBack) {
  Elsewhere elsewhere(test_.state);
  AdmissionLimits limits;
  limits.queued_bytes = {.peer = 50'000, .all = 90'000};
  Admission admission(limits);
  const std::string large = Post("/tokenize", json{{"content", std::string(20'000, 'x')}}.dump());
  TestWire a1(&admission, "192.0.2.1"), a2(&admission, "192.0.2.1"), a3(&admission, "192.0.2.1");
  TestWire b1(&admission, "192.0.2.2"), b2(&admission, "192.0.2.2"), b3(&admission, "192.0.2.2");
  std::vector<std::unique_ptr<HttpSession>> sessions;
  for (TestWire* wire : {&a1, &a2, &a3, &b1, &b2}) {
    sessions.push_back(std::make_unique<HttpSession>(*wire, test_.state, HttpLimits{}));
    sessions.back()->OnBytes(large);
  }
  EXPECT_EQ(a3.written.substr(9, 3), "429") << a3.written;
  EXPECT_NE(a3.written.find("Retry-After: "), std::string::npos);
  TextSession text(b3, test_.state, {});
  text.OnBytes(LargeLine(R"("prompt":"hello")"));
  EXPECT_EQ(Lines(b3.written).at(0)["error"]["code"], 429);
  TestWire c1(&admission, "192.0.2.3");
  HttpSession other(c1, test_.state, {});
  other.OnBytes(large);
  EXPECT_EQ(c1.written.substr(9, 3), "503") << c1.written;
  EXPECT_EQ(elsewhere.jobs.size(), 4u);
  const size_t queued = admission.used(Resource::kQueuedBytes);
  EXPECT_GT(queued, 80'000u);
  EXPECT_EQ(admission.used(Resource::kBytes), queued);
  elsewhere.DoFirst();
  EXPECT_EQ(a1.written.substr(9, 3), "200");
  EXPECT_LT(admission.used(Resource::kQueuedBytes), queued);
  sessions.clear();
  EXPECT_EQ(admission.used(Resource::kQueuedBytes), 0u);
  EXPECT_EQ(admission.used(Resource::kBytes), 0u);
}

// Other clients' tokens need not wait while it is written.
TEST_F(SessionsTest, ALargeAnswerIsMadeElsewhere) {
  const json prompt = std::vector<int>(60, 5);
  const auto asking = [&](int logprobs) {
    return Post(
        "/v1/completions",
        json{{"prompt", prompt}, {"prompt_logprobs", logprobs}, {"max_tokens", 1}, {"seed", 3}}
            .dump());
  };
  const auto body_of = [](const std::string& answer) {
    return json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
  };
  const json at_once = body_of(Http(asking(20)));
  Elsewhere elsewhere(test_.state);
  TestWire wire;
  HttpSession session(wire, test_.state, {});
  session.OnBytes(asking(0) + asking(20) + asking(0));
  const auto count = [&] {
    size_t answers = 0;
    for (size_t at = 0; (at = wire.written.find("HTTP/1.1 200", at)) != std::string::npos; ++at)
      ++answers;
    return answers;
  };
  FinishAll(session, wire);
  EXPECT_EQ(count(), 1u) << "the small one";
  ASSERT_EQ(elsewhere.jobs.size(), 1u);
  wire.written.clear();
  elsewhere.DoFirst();
  EXPECT_EQ(body_of(wire.written)["choices"], at_once["choices"]);
  FinishAll(session, wire);
  EXPECT_EQ(count(), 2u);
  {
    TestWire leaving;
    HttpSession leaves(leaving, test_.state, {});
    leaves.OnBytes(asking(20));
    FinishAll(leaves, leaving);
    ASSERT_EQ(elsewhere.jobs.size(), 1u);
  }
  EXPECT_TRUE(elsewhere.jobs.empty()) << "its client has left";
}

// The job of a client that leaves while the job runs counts in the budget until its memory is
// freed.
TEST_F(SessionsTest, WhatIsBeingReadIsHeldUntilItIsFreed) {
  Elsewhere elsewhere(test_.state);
  Admission admission{AdmissionLimits()};
  {
    TestWire wire(&admission);
    auto session = std::make_unique<HttpSession>(wire, test_.state, HttpLimits{});
    session->OnBytes(Post("/tokenize", json{{"content", std::string(20'000, 'x')}}.dump()));
    Elsewhere::Job running = std::exchange(elsewhere.jobs.at(0), {});
    session = nullptr;
    EXPECT_GT(admission.used(Resource::kBytes), 20'000u);
    running.work();
    running.then();
    running = {};
    EXPECT_EQ(wire.written, "");
  }
  EXPECT_EQ(admission.used(Resource::kBytes), 0u);
}

// A client that left cannot be told from one that only shut down its sending side, as nc does.
TEST_F(SessionsTest, WhoMayHaveLeftDoesNotWaitToBeReadForever) {
  Elsewhere elsewhere(test_.state);
  TestWire wire;
  TextSession text(wire, test_.state, {});
  text.OnBytes(LargeLine(R"("prompt":"hello")"));
  EXPECT_EQ(text.turn(), Turn::kAnswering);
  text.OnEndOfInput();
  EXPECT_EQ(text.turn(), Turn::kReceiving) << "the state that has a time limit";
  EXPECT_EQ(elsewhere.jobs.size(), 1u);
  text.OnTimeout();
  EXPECT_TRUE(elsewhere.jobs.empty());
  EXPECT_TRUE(wire.written.starts_with("error: too busy")) << wire.written;
  EXPECT_TRUE(wire.closed);
}

TEST_F(SessionsTest, RequestsAreInTheBudgetFromBeginToEnd) {
  AdmissionLimits limits;
  limits.requests = {.connection = 2, .peer = 3};
  Admission admission(limits);
  TestWire first(&admission), second(&admission);
  HttpSession http(first, test_.state, {});
  TextSession text(second, test_.state, {});
  {
    const auto hold = model_.Hold();
    http.OnBytes(Post("/v1/completions", R"({"prompt":"hello","max_tokens":2,"n":2})"));
    text.OnBytes("{\"prompt\":\"hello\",\"n_predict\":2,\"n\":2,\"id\":5}\n");
    EXPECT_EQ(Lines(second.written).at(0)["error"]["code"], 429) << "of the address";
    EXPECT_EQ(Lines(second.written).at(0)["id"], 5);
    text.OnBytes("{\"prompt\":\"hello\",\"n_predict\":2,\"n\":3}\n");
    EXPECT_EQ(Lines(second.written).at(1)["error"]["code"], 429) << "of the connection";
    text.OnBytes("{\"prompt\":\"hello\",\"n_predict\":2}\n");
    EXPECT_EQ(admission.used(Resource::kRequests), 3u);
    EXPECT_GT(admission.used(Resource::kBytes), 0u);
  }
  TestModelThread::DispatchAll(*test_.service);
  EXPECT_EQ(first.written.substr(9, 3), "200");
  EXPECT_EQ(admission.used(Resource::kRequests), 0u);
  EXPECT_EQ(admission.used(Resource::kBytes), 0u);
}

size_t Count(const std::string& text, const std::string& what) {
  size_t count = 0;
  for (size_t at = 0; (at = text.find(what, at)) != std::string::npos; at += what.size()) ++count;
  return count;
}

TEST_F(SessionsTest, ATurnIsAFewRequestsAndTheRestIsLater) {
  int filled = 0;
  test_.state.fill_metrics = [&](ServingMetrics&) { ++filled; };
  TestWire wire;
  HttpSession http(wire, test_.state, {});
  std::string many;
  for (int i = 0; i < 500; ++i) many += "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
  http.OnBytes(many);
  const size_t a_turn = Count(wire.written, "HTTP/1.1 200");
  EXPECT_LE(a_turn, 8u);
  EXPECT_TRUE(wire.later);
  http.OnBytes("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n");  // further bytes do not give a
                                                                     // turn
  EXPECT_EQ(Count(wire.written, "HTTP/1.1 200"), a_turn);
  wire.TakeTurns(http);
  EXPECT_EQ(Count(wire.written, "HTTP/1.1 200"), 501u);
  EXPECT_LT(filled, 250) << "each answer is made again";
  EXPECT_EQ(http.turn(), Turn::kIdle);
  EXPECT_EQ(http.requests(), 501u);

  TestWire lines;
  TextSession text(lines, test_.state, {});
  many.clear();
  for (int i = 0; i < 1000; ++i) many += i % 2 == 0 ? "{}\n" : "\n";
  text.OnBytes(many);
  EXPECT_LE(Lines(lines.written).size(), 16u);
  lines.TakeTurns(text);
  EXPECT_EQ(Lines(lines.written).size(), 500u);
  EXPECT_EQ(text.requests(), 500u) << "blank lines are not requests";
}

TEST_F(SessionsTest, WhoDoesNotTakeIsNotAnswered) {
  TestWire wire, lines;
  wire.most_untaken = lines.most_untaken = 2000;
  HttpSession http(wire, test_.state, {});
  TextSession text(lines, test_.state, {});
  for (int i = 0; i < 100; ++i) {
    http.OnBytes("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n");
    text.OnBytes("{}\n");
  }
  for (int i = 0; i < 20; ++i) {  // like the network while there is no room, it gives no turn
    EXPECT_LT(wire.written.size() - wire.taken, 2400u);
    EXPECT_LT(lines.written.size() - lines.taken, 2400u);
    wire.taken = wire.written.size();
    lines.taken = lines.written.size();
    http.OnTurn();
    text.OnTurn();
    wire.TakeTurns(http);
    lines.TakeTurns(text);
  }
  EXPECT_EQ(Count(wire.written, "HTTP/1.1 200"), 100u);
  EXPECT_EQ(Lines(lines.written).size(), 100u);
}

TEST_F(SessionsTest, TooManyRequestsAreKnownBeforeTheyAreRead) {
  TestWire wire;
  TextSession text(wire, test_.state, {.requests = 1});
  const auto hold = model_.Hold();
  text.OnBytes(
      "{\"prompt\":\"hello\",\"id\":1}\n{\"prompt\":[\"no\",5],\"n\":64,\"id\":\"two\"}\n");
  const json refused = Lines(wire.written).at(0);
  EXPECT_EQ(refused["error"]["code"], 429) << "not 400, which would be found later";
  EXPECT_EQ(refused["id"], "two");
}

TEST_F(SessionsTest, OfALargeLineTheKeyComesFirst) {
  Elsewhere elsewhere(test_.state);
  test_.state.api_keys = {"a-good-key"};
  const std::string padding = "\"padding\":\"" + std::string(30'000, 'x') + "\"";
  for (const std::string& line :
       {"{" + padding + ",\"api_key\":\"a-good-key\"}\n", "{\"api_key\":\"other\"," + padding,
        "{\"a\":{\"api_key\":\"a-good-key\"}," + padding, std::string(30'000, 'x')}) {
    TestWire wire;
    TextSession text(wire, test_.state, {});
    text.OnBytes(line);
    EXPECT_TRUE(wire.written.starts_with("error: this server wants an API key")) << wire.written;
    EXPECT_TRUE(wire.closed);
    EXPECT_EQ(text.held_bytes(), 0u);
    EXPECT_TRUE(elsewhere.jobs.empty());
  }
  TestWire wire;
  TextSession text(wire, test_.state, {});
  text.OnBytes("{\"a\":[1,{\"b\":2}],\"api_key\":\"a-good-key\"," + padding);
  EXPECT_GT(text.held_bytes(), 30'000u);
  text.OnBytes(",\"prompt\":5}\n");
  ASSERT_EQ(elsewhere.jobs.size(), 1u);
  elsewhere.DoFirst();
  EXPECT_EQ(Lines(wire.written).at(0)["error"]["param"], "prompt");
  EXPECT_FALSE(wire.closed);
}

TEST_F(SessionsTest, WhatAHandlerThrowsIsItsRequestsEndOnly) {
  Failures failures;
  test_.state.failures = &failures;
  test_.state.fill_metrics = [](ServingMetrics&) { throw std::out_of_range("planted"); };
  EXPECT_EQ(Http("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").substr(9, 3), "500");
  EXPECT_EQ(Http("GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n").substr(9, 3), "200");
  EXPECT_EQ(failures.count(), 1u);
}

TEST_F(SessionsTest, ErrorsAreCounted) {
  const auto counted = [&](const std::string& line) {
    EXPECT_NE(test_.metrics.Render().find("\n" + line + "\n"), std::string::npos)
        << line << " is not in\n"
        << test_.metrics.Render();
  };
  Http(Post("/v1/completions", "{"));
  Http(Post("/v1/completions", R"({"prompt":"a","model":"other"})"));
  Http("GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n");
  Text("{oops\n\xff\n");
  Text(std::string(1001, 'a') + "\n");
  counted(R"(larder_requests_total{outcome="refused",protocol="http"} 2)");
  counted(R"(larder_requests_total{outcome="refused",protocol="text"} 2)");
  counted(R"(larder_error_answers_total{code="400",protocol="http"} 1)");
  counted(R"(larder_error_answers_total{code="404",protocol="http"} 2)");
  counted(R"(larder_error_answers_total{code="400",protocol="text"} 2)");
  counted(R"(larder_error_answers_total{code="413",protocol="text"} 1)");
}

// The body of an HTTP answer.
json Body(const std::string& answer) {
  return json::parse(answer.substr(answer.find("\r\n\r\n") + 4));
}

TEST_F(SessionsTest, WhileASocketIsAwayHealthSaysSoAndAfterAWhileRequestsAreRefused) {
  const std::string health = "GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n",
                    why = "lost stage 2 of 2 (socket b): gone";
  test_.outage = {.why = why, .since_ns = NowNs(), .refusing = false};
  const std::string answer = Http(health);
  EXPECT_EQ(answer.substr(9, 3), "503");
  EXPECT_EQ(Body(answer)["status"], "connecting");
  EXPECT_EQ(Body(answer)["error"]["message"], why);
  EXPECT_EQ(Body(Http("GET /v1/larder/status HTTP/1.1\r\nHost: localhost\r\n\r\n"))["state"],
            "connecting");
  // The scheduler still lets requests wait.
  EXPECT_EQ(Http(Post("/v1/completions", R"({"prompt":"hello"})")).substr(9, 3), "200");
  test_.outage->refusing = true;
  for (const char* body : {R"({"prompt":"hello"})", R"({"prompt":"hello","stream":true})"}) {
    const std::string refused = Http(Post("/v1/completions", body));
    EXPECT_EQ(refused.substr(9, 3), "503");
    EXPECT_NE(refused.find("Retry-After: "), std::string::npos);
    EXPECT_EQ(Body(refused)["error"]["code"], 503);
    EXPECT_EQ(Body(refused)["error"]["message"], why);
  }
  EXPECT_EQ(Text("hello\n"), "error: " + why + "\n");
  EXPECT_EQ(Lines(Text("{\"prompt\":\"hello\"}\n")).at(0)["error"]["message"], why);
  test_.outage.reset();
  EXPECT_EQ(Http(health).substr(9, 3), "200");
  EXPECT_EQ(Http(Post("/v1/completions", R"({"prompt":"hello"})")).substr(9, 3), "200");
}

// Requests that the scheduler gives up, with and without tokens.
TEST(Sessions, ALostSocketEndsRequestsWithItsName) {
  const std::string why = "lost stage 2 of 2 (socket b): gone";
  const auto lose = [&](TestState& test, Session& session, const std::string& request,
                        bool after_a_token) {
    session.OnBytes(request);
    auto sequence = test.service->Take();
    ASSERT_NE(sequence, nullptr);
    if (after_a_token) {
      std::vector<float> logits(test.state.defaults.vocab, 0.0f);
      logits[260] = 1;
      sequence->Admitted(0);
      EXPECT_TRUE(sequence->Next(logits));
    }
    sequence->Ended(pipeline::SequenceEnd::kUnavailable, why);
    test.service->StepDone();
    TestModelThread::DispatchAll(*test.service);
  };
  const auto post = [](const std::string& body) {
    return fmt::format(
        "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}",
        body.size(), body);
  };
  for (const bool after_a_token : {false, true}) {
    TestState test;
    TestWire whole, streamed, plain, line;
    HttpSession first(whole, test.state, {}), second(streamed, test.state, {});
    TextSession third(plain, test.state, {}), fourth(line, test.state, {});
    lose(test, first, post(R"({"prompt":"hello"})"), after_a_token);
    EXPECT_EQ(whole.written.substr(9, 3), "503");
    EXPECT_EQ(Body(whole.written)["error"]["message"], why);
    lose(test, second, post(R"({"prompt":"hello","stream":true})"), after_a_token);
    EXPECT_EQ(streamed.written.substr(9, 3), after_a_token ? "200" : "503")
        << "a head that was sent cannot be changed";
    EXPECT_NE(streamed.written.find(why), std::string::npos);
    EXPECT_EQ(streamed.written.find("[DONE]"), std::string::npos);
    lose(test, third, "hello\n", after_a_token);
    EXPECT_TRUE(plain.written.ends_with("error: " + why + "\n")) << plain.written;
    EXPECT_TRUE(plain.closed);
    lose(test, fourth, "{\"prompt\":\"hello\"}\n", after_a_token);
    EXPECT_EQ(Lines(line.written).back()["error"]["code"], 503);
    EXPECT_EQ(test.service->live(), 0u);
    EXPECT_EQ(test.service->waiting(), 0u);
  }
}

TEST(Utf8, KnowsWhatIsNot) {
  for (const char* good :
       {"", "a", "\xC3\xBC", "\xE2\x82\xAC", "\xF0\x9F\x98\x80", "\xF4\x8F\xBF\xBF"})
    EXPECT_TRUE(IsUtf8(good)) << good;
  for (const char* bad : {"\x80", "\xC3", "\xC0\x80", "\xE0\x80\x80", "\xED\xA0\x80",
                          "\xF0\x80\x80\x80", "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "a\xE2\x82"})
    EXPECT_FALSE(IsUtf8(bad)) << bad;
}

TEST(GenerationService, AFullQueueIsAnError) {
  TestState test(/*slots=*/1, /*queue=*/2);  // there is no compute thread
  struct Nobody : GenerationListener {
    void OnText(const GeneratedText&) override {}
    void OnEnd(const GenerationEnd&) override {}
  } nobody;
  std::vector<GenerationHandle> handles;
  for (int i = 0; i < 3; ++i)
    handles.push_back(test.service->Start({.prompt = {5}}, Protocol::kHttp, &nobody));
  try {
    test.service->Start({.prompt = {5}}, Protocol::kHttp, &nobody);
    FAIL() << "a fourth was accepted";
  } catch (const Refused& refused) {
    EXPECT_EQ(refused.status(), 429);
  }
}

}  // namespace
}  // namespace larder::serving::net
