// bench-serve: how it reads replies, its statistics, and its load on a server whose replies the
// test chooses.
#include "node/loadgen/serve_load.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "node/loadgen/client_connection.h"
#include "node/loadgen/loadgen_testing.h"
#include "node/loadgen/serve_prompts.h"
#include "node/loadgen/serve_report.h"

namespace larder::node::inline loadgen {
namespace {

using nlohmann::json;

std::string Text(const std::string& text) {
  return Sse({{"choices", json::array({{{"text", text}, {"finish_reason", nullptr}}})}});
}
const std::string kStop =
    Sse({{"choices", json::array({{{"text", ""}, {"finish_reason", "stop"}}})}});
std::string Usage(size_t prompt, size_t completion) {
  return Sse({{"choices", json::array()},
              {"usage", {{"prompt_tokens", prompt}, {"completion_tokens", completion}}}});
}
LoadSpec SpecFor(const Server& server, size_t requests) {
  LoadSpec spec;
  // std::string around the literals: without it GCC 12 reports overlapping copies (-Wrestrict).
  spec.target = {
      .port = server.port(), .path = std::string("/v1/completions"), .model = std::string("m")};
  spec.requests = RandomPrompts(requests, 5, 16, 1);
  spec.timeout_s = 20;
  return spec;
}
bool Always(size_t) { return true; }

bool AnswerTwoTokens(const std::string&, const Server::Send& send) {
  send(kHead + Chunk(Text("one")));
  send(Chunk(Text("two") + kStop) + Chunk(Usage(7, 2) + "data: [DONE]\n\n") + "0\r\n\r\n");
  return true;
}

TEST(HttpReplyTest, IsTheSameCutAnywhere) {
  const std::string replies[] = {
      "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhello",
      "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ntransfer-encoding:chunked\r\n\r\n3\r\n"
      "hel\r\n2;x=y\r\nlo\r\n0\r\nA: b\r\n\r\n"};
  for (const std::string& reply : replies) {
    for (size_t cut = 0; cut <= reply.size(); ++cut) {
      HttpReplyParser http;
      std::string body;
      http.Feed(std::string_view(reply).substr(0, cut), body);
      http.Feed(std::string_view(reply).substr(cut), body);
      EXPECT_TRUE(http.done());
      EXPECT_TRUE(http.keep_alive());
      EXPECT_EQ(http.status(), 200);
      EXPECT_EQ(body, "hello");
    }
  }
}

TEST(HttpReplyTest, RefusesWhatIsNone) {
  const std::string ok = "HTTP/1.1 200 OK\r\n";
  for (const std::string& wrong :
       {std::string("SSH-2.0-OpenSSH\r\n"), std::string("HTTP/1.1 abc OK\r\n"), ok + "no colon\r\n",
        ok + "Content-Length: x\r\n", ok + "Content-Length: 99999999999999999999\r\n",
        ok + "Transfer-Encoding: gzip\r\n", ok + "Transfer-Encoding: chunked\r\n\r\nzz\r\n",
        ok + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", ok + "Content-Length: 1\r\n\r\nab",
        ok + std::string(100'000, 'x')}) {
    HttpReplyParser http;
    std::string body;
    EXPECT_THROW(http.Feed(wrong, body), Error) << wrong.substr(0, 60);
  }
  HttpReplyParser http;
  std::string body;
  http.Feed(ok + "\r\nuntil the end", body);
  EXPECT_FALSE(http.done());
  http.Close();
  EXPECT_TRUE(http.done());
  EXPECT_FALSE(http.keep_alive());
  http.Reset();
  EXPECT_THROW(http.Close(), Error);
}

TEST(ReplyReaderTest, TimesThePiecesAndTakesTheServersCount) {
  ReplyReader reader(EndpointKind::kCompletions);
  RequestResult result;
  EXPECT_FALSE(reader.Feed(kHead + Chunk(Text("a")), 100, result));
  EXPECT_FALSE(reader.Feed(Chunk(Text("")), 150, result));  // no text: no token yet
  EXPECT_FALSE(reader.Feed(Chunk(Text("b")), 300, result));
  EXPECT_FALSE(reader.Feed(Chunk(Text("c") + kStop + Usage(11, 4)), 350, result));
  EXPECT_TRUE(reader.Feed("0\r\n\r\n", 360, result));
  EXPECT_TRUE(result.ok) << result.error;
  EXPECT_EQ(result.first_ns, 100);
  EXPECT_EQ(result.last_ns, 350);
  EXPECT_EQ(result.gaps_ns, (std::vector<int64_t>{200, 50}));
  EXPECT_EQ(result.prompt_tokens, 11u);
  EXPECT_EQ(result.output_tokens, 4u);
  EXPECT_EQ(result.text_bytes, 3u);
}

TEST(AlikeObjectsTest, GivesThePieceOfObjectsThatAreAlikeOnly) {
  AlikeObjects alike;
  const auto object = [](const char* id, const std::string& text, const json& end) {
    return json({{"id", id}, {"choices", json::array({{{"text", text}, {"finish_reason", end}}})}})
        .dump();
  };
  EXPECT_FALSE(alike.Piece(object("x", " one", nullptr)));
  alike.Learn(object("id", "id", nullptr), "id");  // occurs twice
  EXPECT_FALSE(alike.Piece(object("id", "id", nullptr)));
  alike.Learn(object("x", "\n", nullptr), "\n");  // escaped in the object, so it is not found
  EXPECT_FALSE(alike.Piece(object("x", "a", nullptr)));
  alike.Learn(object("x", " one", nullptr), " one");
  for (const char* text : {"", " one", "two", "\xc3\xa9", ",", "}"})
    EXPECT_EQ(alike.Piece(object("x", text, nullptr)), text);
  EXPECT_FALSE(alike.Piece(object("x", "a \"word\"", nullptr)));
  EXPECT_FALSE(alike.Piece(object("x", "line\n", nullptr)));
  EXPECT_FALSE(alike.Piece(object("x", "three", "stop")));
  EXPECT_FALSE(alike.Piece(object("y", "three", nullptr)));
  EXPECT_FALSE(alike.Piece(R"({"error":{"message":"no"}})"));
  EXPECT_FALSE(alike.Piece(""));
  const std::string whole = object("x", "t", nullptr);
  EXPECT_FALSE(alike.Piece(whole.substr(0, whole.size() - 1)));
  EXPECT_FALSE(alike.Piece(whole.substr(1)));
}

TEST(ReplyReaderTest, CountsWhateverThePiecesHold) {
  const std::vector<std::string> pieces = {"a", " \"quoted\"",      " b",  "\n",
                                           "c", "\xf0\x9f\x8d\x8e", "d\\", "e"};
  ReplyReader http(EndpointKind::kCompletions), text(EndpointKind::kText);
  RequestResult of_http, of_text;
  http.Feed(kHead, 1, of_http);
  size_t bytes = 0;
  int64_t now_ns = 100;
  for (const std::string& piece : pieces) {
    http.Feed(Chunk(Text(piece)), now_ns += 10, of_http);
    text.Feed(json({{"content", piece}, {"stop", false}}).dump() + "\n", now_ns, of_text);
    bytes += piece.size();
  }
  EXPECT_TRUE(http.Feed(Chunk(kStop) + Chunk("data: [DONE]\n\n") + "0\r\n\r\n", now_ns, of_http));
  EXPECT_TRUE(
      text.Feed(json({{"content", "z"}, {"stop", true}, {"tokens_predicted", 9}}).dump() + "\n",
                now_ns, of_text));
  EXPECT_EQ(of_http.text_bytes, bytes);
  EXPECT_EQ(of_text.text_bytes, bytes + 1);
  EXPECT_EQ(of_http.output_tokens, pieces.size());
  EXPECT_EQ(of_text.output_tokens, 9u);
  EXPECT_EQ(of_http.gaps_ns, std::vector<int64_t>(pieces.size() - 1, 10));
}

TEST(ReplyReaderTest, SaysWhatWentWrong) {
  const auto error = [](const std::string& reply) {
    ReplyReader reader(EndpointKind::kChat);
    RequestResult result;
    EXPECT_TRUE(reader.Feed(reply, 1, result));
    EXPECT_FALSE(result.ok);
    return result.error;
  };
  EXPECT_EQ(
      error(
          "HTTP/1.1 400 Bad\r\nContent-Length: 33\r\n\r\n{\"error\":{\"message\":\"too long\"}} "),
      "status 400: too long");
  EXPECT_EQ(error("HTTP/1.1 502 Bad\r\nContent-Length: 4\r\n\r\nnope"), "status 502: nope");
  EXPECT_EQ(error(kHead + Chunk(Sse({{"error", {{"message", "lost"}}}})) + "0\r\n\r\n"), "lost");
  EXPECT_EQ(error(kHead + "0\r\n\r\n"), "the stream ended without a finish reason");
  ReplyReader reader(EndpointKind::kChat);
  RequestResult result;
  EXPECT_THROW(reader.Feed(kHead + Chunk("data: {nonsense\n\n"), 1, result), Error);
}

TEST(ReplyReaderTest, UnderstandsTheTextStream) {
  ReplyReader reader(EndpointKind::kText);
  RequestResult result;
  EXPECT_FALSE(
      reader.Feed("{\"id\":0,\"content\":\"a\",\"stop\":false}\n{\"content\":", 10, result));
  EXPECT_FALSE(reader.Feed("\"b\",\"stop\":false}\n", 25, result));
  EXPECT_TRUE(
      reader.Feed("{\"content\":\"\",\"stop\":true,\"tokens_predicted\":3,\"tokens_evaluated\":9,"
                  "\"timings\":{}}\n",
                  40, result));
  EXPECT_TRUE(result.ok) << result.error;
  EXPECT_EQ(result.gaps_ns, std::vector<int64_t>{15});
  EXPECT_EQ(result.output_tokens, 3u);
  EXPECT_EQ(result.prompt_tokens, 9u);
  ReplyReader second(EndpointKind::kText);
  EXPECT_TRUE(second.Feed("{\"id\":1,\"error\":{\"message\":\"full\"}}\n", 40, result));
  EXPECT_EQ(result.error, "full");
  EXPECT_THROW(second.Close(result), Error);
}

TEST(ServeLoadTest, KeepsToItsConcurrencyAndItsConnections) {
  std::atomic<int> now{0}, most{0};
  Server server([&](const std::string& request, const Server::Send& send) {
    const int here = ++now;
    for (int seen = most; here > seen && !most.compare_exchange_weak(seen, here);) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
    --now;
    return AnswerTwoTokens(request, send);
  });
  LoadSpec spec = SpecFor(server, 20);
  spec.max_concurrency = 3;
  const LoadRun run = RunLoad(spec, Always);
  ASSERT_EQ(run.results.size(), 20u);
  for (const RequestResult& result : run.results) {
    EXPECT_TRUE(result.ok) << result.error;
    EXPECT_EQ(result.prompt_tokens, 7u);
    EXPECT_EQ(result.output_tokens, 2u);
    EXPECT_LE(result.start_ns, result.first_ns);
    EXPECT_LE(result.first_ns, result.last_ns);
  }
  EXPECT_LE(most, 3);
  EXPECT_EQ(run.most_in_flight, 3u);
  EXPECT_EQ(server.connections(), 3u);
}

TEST(ServeLoadTest, SendsWhatTheEndpointWants) {
  std::string request;
  Server server([&](const std::string& got, const Server::Send& send) {
    request = got;
    return AnswerTwoTokens(got, send);
  });
  LoadSpec spec = SpecFor(server, 1);
  spec.target.kind = EndpointKind::kChat;
  spec.target.path = "/v1/chat/completions";
  spec.target.api_key = "secret";
  spec.sampling.temperature = 0;
  RunLoad(spec, Always);
  EXPECT_TRUE(request.starts_with("POST /v1/chat/completions HTTP/1.1\r\n"));
  EXPECT_NE(request.find("\r\nAuthorization: Bearer secret\r\n"), std::string::npos);
  const json body = json::parse(request.substr(request.find("\r\n\r\n")));
  EXPECT_EQ(body["messages"][0]["content"], spec.requests[0].prompt);
  EXPECT_EQ(body["max_tokens"], 16);
  EXPECT_EQ(body["temperature"], 0);
  EXPECT_EQ(body["stream"], true);
}

TEST(ServeLoadTest, OneBadReplyFailsOneRequest) {
  std::atomic<int> n{0};
  Server server([&](const std::string& request, const Server::Send& send) {
    switch (n++) {
      case 0:
        send("HTTP/1.1 503 Busy\r\nContent-Length: 2\r\n\r\nno");
        return true;
      case 1:
        send(kHead + Chunk(Text("half")));
        return false;  // closed in the middle
      case 2:
        return false;  // closed without a reply, on a connection that was used before
      default:
        return AnswerTwoTokens(request, send);
    }
  });
  LoadSpec spec = SpecFor(server, 5);
  spec.max_concurrency = 1;
  const LoadRun run = RunLoad(spec, Always);
  ASSERT_EQ(run.results.size(), 5u);
  EXPECT_EQ(run.results[0].error, "status 503: no");
  EXPECT_EQ(run.results[1].error, "the connection closed in the middle of the reply");
  EXPECT_EQ(run.results[2].error, "the connection closed without a reply");
  EXPECT_TRUE(run.results[3].ok && run.results[4].ok);
}

TEST(ServeLoadTest, AConnectionThatTheServerGaveUpIsMadeAgain) {
  Server server([](const std::string& request, const Server::Send& send) {
    AnswerTwoTokens(request, send);
    return false;  // although its headers did not say so
  });
  LoadSpec spec = SpecFor(server, 6);
  spec.max_concurrency = 1;
  for (const RequestResult& result : RunLoad(spec, Always).results)
    EXPECT_TRUE(result.ok) << result.error;
}

TEST(ServeLoadTest, EndsLateRequestsAndInterruptedOnes) {
  Server server([](const std::string&, const Server::Send& send) {
    send(kHead + Chunk(Text("and then")));
    return true;  // sends no more
  });
  LoadSpec spec = SpecFor(server, 1);
  spec.timeout_s = 0.2;
  EXPECT_EQ(RunLoad(spec, Always).results[0].error, "not finished after 0.2 s");
  spec.timeout_s = 100;
  spec.requests = RandomPrompts(5, 1, 1, 1);
  spec.max_concurrency = 2;
  int asked = 0;
  const LoadRun run = RunLoad(spec, [&](size_t) { return ++asked < 3; });
  ASSERT_EQ(run.results.size(), 2u);
  EXPECT_EQ(run.results[1].error, "interrupted");
}

TEST(ServeLoadTest, NoServerIsAnErrorOfEachRequest) {
  uint16_t port = 0;
  {
    Server gone(AnswerTwoTokens);
    port = gone.port();
  }
  LoadSpec spec;
  spec.target.port = port;
  spec.requests = RandomPrompts(2, 1, 1, 1);
  const LoadRun run = RunLoad(spec, Always);
  ASSERT_EQ(run.results.size(), 2u);
  EXPECT_FALSE(run.results[0].ok);
  EXPECT_THROW(FirstModel(spec.target, 1), Error);
  spec.target.host = "no such host.invalid";
  EXPECT_THROW(RunLoad(spec, Always), Error);
}

TEST(ServeLoadTest, PoissonArrivalsHaveTheWantedRate) {
  Server server(AnswerTwoTokens);
  LoadSpec spec = SpecFor(server, 200);
  spec.requests_per_s = 1000;
  const LoadRun run = RunLoad(spec, Always);
  // 199 gaps with a mean of 1 ms. The last request cannot be early: that bound holds on any
  // machine.
  const double planned_s =
      static_cast<double>(run.results.back().start_ns - run.results.front().start_ns) * 1e-9;
  EXPECT_GT(planned_s, 0.13);
}

TEST(FirstModelTest, IsTheFirstThatTheServerNames) {
  Server server([](const std::string& request, const Server::Send& send) {
    const std::string body =
        request.starts_with("GET /v1/models ") ? R"({"data":[{"id":"x"},{"id":"y"}]})" : "{}";
    send(fmt::format("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{}", body.size(), body));
    return true;
  });
  ServeTarget target;
  target.port = server.port();
  EXPECT_EQ(FirstModel(target, 5), "x");
  Server empty([](const std::string&, const Server::Send& send) {
    send("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n[]");
    return true;
  });
  target.port = empty.port();
  EXPECT_THROW(FirstModel(target, 5), Error);
}

TEST(ServeReportTest, StatisticsAreThoseOfTheDefinitions) {
  LoadRun run;
  run.duration_s = 2;
  for (int i = 1; i <= 5; ++i) {  // TTFT 10..50 ms, TPOT 1..5 ms
    RequestResult result;
    result.ok = true;
    result.start_ns = 1'000'000;
    result.first_ns = result.start_ns + i * 10'000'000;
    result.last_ns = result.first_ns + i * 4'000'000;
    result.prompt_tokens = 10;
    result.output_tokens = 5;
    result.gaps_ns = {1'000'000, 3'000'000};
    run.results.push_back(result);
  }
  run.results.push_back({.error = "no"});
  Goodput goodput;
  goodput.Add("ttft:30");
  goodput.Add("tpot:2.5");
  const ServeReport report = MakeServeReport(run, goodput);
  EXPECT_EQ(report.completed, 5u);
  EXPECT_EQ(report.failed, 1u);
  EXPECT_EQ(report.good, 2u);
  EXPECT_EQ(report.input_tokens, 50u);
  EXPECT_EQ(report.output_tokens, 25u);
  EXPECT_DOUBLE_EQ(report.ttft.mean, 30);
  EXPECT_DOUBLE_EQ(report.ttft.median, 30);
  EXPECT_DOUBLE_EQ(report.ttft.p90, 46);
  EXPECT_DOUBLE_EQ(report.tpot.median, 3);
  EXPECT_DOUBLE_EQ(report.tpot.p99, 4.96);
  EXPECT_EQ(report.itl.count, 10u);
  EXPECT_DOUBLE_EQ(report.itl.median, 2);
  EXPECT_DOUBLE_EQ(report.e2el.mean, 42);
  EXPECT_EQ(report.first_error, "no");
  const json out = json::parse(ServeJson({}, goodput, report));
  EXPECT_EQ(out["request_goodput"], 1.0);
  EXPECT_EQ(out["output_throughput"], 12.5);
  EXPECT_EQ(out["request_rate"], "inf");
  EXPECT_DOUBLE_EQ(out["p90_ttft_ms"], 46);
  EXPECT_NE(ServeText({}, goodput, report).find("(2 of 5) with TTFT <= 30 ms, TPOT <= 2.5 ms"),
            std::string::npos);
}

TEST(ServeReportTest, NothingCompletedIsZerosNotNaN) {
  const ServeReport report = MakeServeReport({}, {});
  EXPECT_EQ(report.ttft.count, 0u);
  EXPECT_EQ(ServeText({}, {}, report).find("nan"), std::string::npos);
  EXPECT_EQ(json::parse(ServeJson({}, {}, report))["request_throughput"], 0);
}

TEST(GoodputTest, RefusesWhatIsNoLimit) {
  for (const char* wrong :
       {"", "ttft", "ttft:", "ttft:x", "ttft:1x", "ttft:0", "ttft:-1", "ttft:nan", "itl:3", ":3"}) {
    EXPECT_THROW(Goodput().Add(wrong), Error) << wrong;
  }
}

TEST(ServePromptsTest, RandomOnesRepeatWithTheirSeed) {
  const auto prompts = RandomPrompts(3, 4, 9, 5);
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(std::count(prompts[0].prompt.begin(), prompts[0].prompt.end(), ' '), 3);
  EXPECT_NE(prompts[0].prompt, prompts[1].prompt);
  EXPECT_EQ(prompts[2].prompt, RandomPrompts(3, 4, 9, 5)[2].prompt);
  EXPECT_NE(prompts[2].prompt, RandomPrompts(3, 4, 9, 6)[2].prompt);
}

TEST(ServePromptsTest, OfAFile) {
  const std::string path = testing::TempDir() + "larder-prompts-" + std::to_string(getpid());
  const auto write = [&](const std::string& text) { std::ofstream(path) << text; };
  write("plain\r\n\n{\"prompt\":\"json\",\"output_len\":3}\n");
  const auto prompts = PromptsOfFile(path, 3, 8);
  ASSERT_EQ(prompts.size(), 3u);
  EXPECT_EQ(prompts[0].prompt, "plain");
  EXPECT_EQ(prompts[0].output_tokens, 8u);
  EXPECT_EQ(prompts[1].prompt, "json");
  EXPECT_EQ(prompts[1].output_tokens, 3u);
  EXPECT_EQ(prompts[2].prompt, "plain");
  for (const char* wrong :
       {"", "\n\n", "{\"prompt\":3}\n", "{broken\n", "{\"prompt\":\"a\",\"output_len\":-1}\n"}) {
    write(wrong);
    EXPECT_THROW(PromptsOfFile(path, 3, 8), Error) << wrong;
  }
  std::filesystem::remove(path);
  EXPECT_THROW(PromptsOfFile(path, 3, 8), Error);
}

}  // namespace
}  // namespace larder::node::loadgen
