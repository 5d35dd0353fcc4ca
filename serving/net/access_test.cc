// Access control: web pages by Host and Origin, requests that two readers could interpret
// differently, clients of other protocols, and keys.
#include "serving/http/access.h"

#include <gtest/gtest.h>

#include "serving/net/http_session.h"
#include "serving/net/sessions_testing.h"
#include "serving/net/text_session.h"

namespace larder::serving::inline net {
namespace {

using nlohmann::json;

bool Good(const Access& access, const std::string& host, const std::string& origin = "",
          const std::string& fetch_site = "", bool has_keys = false) {
  HttpRequest request;
  request.host = host;
  request.origin = origin;
  request.fetch_site = fetch_site;
  return access.WhyNot(request, has_keys).empty();
}

TEST(Access, OnLoopbackANameOfSomebodyElseIsRefused) {
  const Access access;
  for (const char* host : {"", "localhost", "localhost:8080", "LocalHost.:8080", "127.0.0.1",
                           "127.0.0.1:8080", "[::1]", "[::1]:8080", "10.0.0.1:8080"})
    EXPECT_TRUE(Good(access, host)) << host;
  for (const char* host :
       {"evil.example", "evil.example:8080", "localhost.evil.example", "node-a:8080",
        "127.0.0.1.evil.example", ":8080", "[", "[]", "1.2.3", "evil.example:80:80"}) {
    EXPECT_FALSE(Good(access, host)) << host;
    EXPECT_TRUE(Good(access, host, "", "", /*has_keys=*/true)) << "the attacker's page has no key";
  }
  const Access named({.host = "::1", .hosts = {"llm.example", "node-a"}, .cors_origins = {}});
  EXPECT_TRUE(Good(named, "LLM.example:443"));
  EXPECT_TRUE(Good(named, "node-a:8080"));
  EXPECT_FALSE(Good(named, "a.llm.example"));
  EXPECT_FALSE(Good(named, ":8080"));
}

TEST(Access, OnTheNetworkNamesOfTheNetworkAreOurs) {
  const Access access({.host = "0.0.0.0", .hosts = {}, .cors_origins = {}});
  for (const char* host : {"10.0.0.1:8080", "node-a:8080", "localhost:8080", "[fd00::1]:8080"})
    EXPECT_TRUE(Good(access, host)) << host;
  EXPECT_FALSE(Good(access, "node-a.evil.example:8080"));
  EXPECT_TRUE(
      Good(Access({.host = "node-a.lan", .hosts = {}, .cors_origins = {}}), "node-a.lan:8080"));
}

TEST(Access, PagesAreOursOrNamed) {
  const Access access;
  EXPECT_TRUE(Good(access, "localhost:8080", "http://localhost:8080"));
  EXPECT_TRUE(Good(access, "localhost", "http://localhost:80"));
  EXPECT_TRUE(Good(access, "localhost", "https://localhost")) << "a proxy terminates TLS";
  // A proxy that sets its own Host: the browser says that page and address have the same origin.
  EXPECT_TRUE(Good(access, "127.0.0.1:8080", "https://llm.example", "same-origin"));
  for (const char* origin :
       {"http://evil.example", "null", "http://localhost:8081", "http://127.0.0.1:8080",
        "http://localhost:8080.evil.example", "ftp://localhost:8080", "localhost:8080"}) {
    EXPECT_FALSE(Good(access, "localhost:8080", origin)) << origin;
    EXPECT_FALSE(Good(access, "localhost:8080", origin, "cross-site")) << origin;
    EXPECT_FALSE(Good(access, "localhost:8080", origin, "same-site", /*has_keys=*/true)) << origin;
  }
  const Access named(
      {.host = "127.0.0.1", .hosts = {}, .cors_origins = {"https://chat.example", "null"}});
  EXPECT_TRUE(Good(named, "localhost", "https://chat.example"));
  EXPECT_TRUE(Good(named, "localhost", "null"));
  EXPECT_FALSE(Good(named, "localhost", "https://chat.example.evil.example"));
  EXPECT_FALSE(Good(named, "localhost", "http://chat.example"));
  EXPECT_FALSE(Good(named, "evil.example", "https://chat.example"));
  EXPECT_TRUE(
      Good(Access({.host = "::1", .hosts = {}, .cors_origins = {"*"}}), "localhost", "http://a.b"));
  const Access here({.host = "::1", .hosts = {}, .cors_origins = {"localhost"}});
  for (const char* origin : {"http://localhost", "http://localhost:3000", "https://LOCALHOST:3000",
                             "http://127.0.0.1:3000", "http://127.1.2.3", "http://[::1]:3000"})
    EXPECT_TRUE(here.IsNamed(origin)) << origin;
  for (const char* origin :
       {"http://localhost.evil.example", "http://localhost:8080.evil.example",
        "http://notlocalhost", "http://127.0.0.1.evil.example", "http://192.0.2.1",
        "http://[2001:db8::1]", "null", "http://", "file://localhost", "http://evil.example:127"})
    EXPECT_FALSE(here.IsNamed(origin)) << origin;
}

class AccessTest : public testing::Test {
 protected:
  AccessTest() : model_(*test_.service, test_.state.defaults.vocab) {}

  std::string Http(std::string_view bytes) {
    TestWire wire;
    HttpSession session(wire, test_.state, {});
    session.OnBytes(bytes);
    TestModelThread::DispatchAll(*test_.service);
    closed_ = wire.closed;
    return wire.written;
  }
  std::string Text(std::string_view bytes) {
    TestWire wire;
    TextSession session(wire, test_.state, {});
    session.OnBytes(bytes);
    TestModelThread::DispatchAll(*test_.service);
    closed_ = wire.closed;
    return wire.written;
  }
  static std::string Post(const std::string& headers,
                          const std::string& body = R"({"prompt":"hello"})") {
    const char* host = headers.find("Host: ") == std::string::npos ? "Host: localhost\r\n" : "";
    return fmt::format("POST /v1/completions HTTP/1.1\r\n{}Content-Length: {}\r\n{}\r\n{}", host,
                       body.size(), headers, body);
  }
  static size_t Answers(const std::string& written) {
    size_t n = 0;
    for (size_t at = 0; (at = written.find("\r\nServer: larder\r\n", at)) != std::string::npos;
         ++at)
      ++n;
    return n;
  }

  TestState test_;
  TestModelThread model_;
  bool closed_ = false;
};

// A simple request of a page needs no preflight, so it must be refused before it is begun.
TEST_F(AccessTest, APageOfAnotherOriginGetsNothing) {
  const std::string evil = "Host: localhost:8080\r\nOrigin: http://evil.example\r\n";
  const std::string answer = Http(Post(evil + "Content-Type: text/plain\r\n"));
  EXPECT_EQ(answer.substr(9, 3), "403");
  EXPECT_NE(answer.find("--cors-origin"), std::string::npos) << answer;
  EXPECT_EQ(answer.find("Access-Control"), std::string::npos) << answer;
  EXPECT_EQ(test_.metrics.generated_tokens(), 0u);
  EXPECT_EQ(Http("OPTIONS /v1/completions HTTP/1.1\r\n" + evil + "\r\n").substr(9, 3), "403");
  EXPECT_EQ(Http("GET /metrics HTTP/1.1\r\n" + evil + "\r\n").substr(9, 3), "403");
  EXPECT_EQ(Http("GET /v1/larder/plan HTTP/1.1\r\nHost: evil.example\r\n\r\n").substr(9, 3), "403");
  // The server's own page, and clients that are not browsers.
  const std::string own = Http(Post("Host: localhost:8080\r\nOrigin: http://localhost:8080\r\n"));
  EXPECT_EQ(own.substr(9, 3), "200");
  EXPECT_EQ(own.find("Access-Control"), std::string::npos);
  EXPECT_EQ(Http(Post("Host: localhost:8080\r\n")).substr(9, 3), "200");
}

TEST_F(AccessTest, ANamedOriginIsToldSo) {
  test_.state.access =
      Access({.host = "127.0.0.1", .hosts = {}, .cors_origins = {"https://chat.example"}});
  const std::string named = "Host: localhost\r\nOrigin: https://chat.example\r\n";
  EXPECT_NE(Http(Post(named))
                .find("Access-Control-Allow-Origin: https://chat.example\r\nVary: Origin\r\n"),
            std::string::npos);
  const std::string asked =
      Http("OPTIONS /v1/completions HTTP/1.1\r\n" + named +
           "Access-Control-Request-Headers: authorization, x-stainless-os\r\n\r\n");
  EXPECT_EQ(asked.substr(9, 3), "200");
  EXPECT_NE(asked.find("Access-Control-Allow-Headers: authorization, x-stainless-os\r\n"),
            std::string::npos)
      << asked;
}

// If a proxy sees a body where we see a request, one client's bytes become another client's
// request.
TEST_F(AccessTest, WhatTwoReadersCouldCutDifferentlyIsRefusedAndNothingFollows) {
  const std::string next = "0\r\n\r\nGET /health HTTP/1.1\r\nHost: localhost\r\n\r\n";
  const auto with = [&](const std::string& headers, const char* version = "1.1") {
    return Http(fmt::format("POST /v1/models HTTP/{}\r\nHost: localhost\r\n{}\r\n{}", version,
                            headers, next));
  };
  for (const char* coding : {"chunked, x", "x", "gzip, chunked", "chunked, chunked", "identity",
                             "\x0b"
                             "chunked",
                             "chunked;q=1", "xchunked"}) {
    const std::string answer = with(fmt::format("Transfer-Encoding: {}\r\n", coding));
    EXPECT_EQ(Answers(answer), 1u) << coding;
    EXPECT_TRUE(answer.substr(9, 3) == "501" || answer.substr(9, 3) == "400")
        << coding << ": " << answer;
    EXPECT_TRUE(closed_) << coding;
  }
  EXPECT_EQ(with("Transfer-Encoding: chunked, x\r\n").substr(9, 3), "501");
  for (const char* headers :
       {"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 5\r\nTransfer-Encoding: x\r\n",
        "Transfer-Encoding: x\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: x\r\nTransfer-Encoding: chunked\r\n", "Transfer-Encoding : chunked\r\n",
        "Content-Length: 5\r\nContent-Length: 6\r\n", "Host: a\r\nHost: b\r\n"}) {
    const std::string answer = with(headers);
    EXPECT_EQ(Answers(answer), 1u) << headers << answer;
    EXPECT_TRUE(answer.substr(9, 3) == "501" || answer.substr(9, 3) == "400") << headers << answer;
    EXPECT_TRUE(closed_) << headers;
  }
  EXPECT_EQ(with("Transfer-Encoding: chunked\r\n", "1.0").substr(9, 3), "400");
  EXPECT_TRUE(closed_);
  const std::string chunked = with("Transfer-Encoding: Chunked\r\n");  // in any case of letters
  EXPECT_EQ(Answers(chunked), 2u) << chunked;
  EXPECT_FALSE(closed_);
}

// A browser may be made to send anything to any port: what it sends must not be taken as a prompt.
TEST_F(AccessTest, OtherProtocolsOnTheTextPortBeginNothing) {
  const std::string http = "POST / HTTP/1.1\r\nHost: x\r\n\r\n{\"prompt\":\"hello\"}\n";
  for (const std::string& bytes :
       {http, std::string("GET /a?b HTTP/1.0\r\n"), std::string("PRI * HTTP/2.0\r\n\r\n"),
        std::string("SSH-2.0-OpenSSH_9.2\r\n"), "\n" + http,
        std::string("\x16\x03\x01\x02\x00\x01", 6) /* no line end */}) {
    const std::string answer = Text(bytes);
    EXPECT_TRUE(answer.starts_with("error: this is ")) << answer;
    EXPECT_EQ(std::count(answer.begin(), answer.end(), '\n'), 1) << answer;
    EXPECT_TRUE(closed_);
  }
  EXPECT_EQ(test_.service->live(), 0u);
  for (const char* prompt :
       {"GET on with it\n", "get / HTTP/1.1\n", "GET / HTTP/1.1 is a line\n", "SSH is\n"})
    EXPECT_FALSE(Text(prompt).starts_with("error")) << prompt;
}

TEST_F(AccessTest, WhoHasNoKeyIsLoggedOnceInAWhile) {
  std::vector<std::string> lines;
  test_.state.on_denied = [&](const std::string& line) { lines.push_back(line); };
  test_.state.api_keys = {"secret-1"};
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(Http(Post("Authorization: Bearer secret-2\r\n")).substr(9, 3), "401");
    EXPECT_TRUE(Text("hello\n").starts_with("error: this server wants an API key"));
  }
  ASSERT_EQ(lines.size(), 1u);
  EXPECT_NE(lines[0].find("test: "), std::string::npos) << "the client's address";
  EXPECT_EQ(lines[0].find("secret"), std::string::npos);
}

TEST_F(AccessTest, WhoShowsNoKeyInALongLineIsLogged) {
  std::vector<std::string> lines;
  test_.state.on_denied = [&](const std::string& line) { lines.push_back(line); };
  test_.state.api_keys = {"secret-1"};
  EXPECT_TRUE(Text(std::string(9000, 'a')).starts_with("error: this server wants an API key"));
  EXPECT_EQ(lines.size(), 1u);
}

TEST_F(AccessTest, AKeyThatIsTakenAwayEndsALongConnectionToo) {
  test_.state.api_keys = {"secret-1", "secret-2"};
  TestWire wire;
  TextSession session(wire, test_.state, {});
  const auto ask = [&](const char* line) {
    wire.written.clear();
    session.OnBytes(line);
    TestModelThread::DispatchAll(*test_.service);
    return json::parse(wire.written);
  };
  const char* again = "{\"prompt\":\"hello\",\"n_predict\":1,\"stream\":false}\n";
  EXPECT_EQ(
      ask("{\"prompt\":\"hello\",\"n_predict\":1,\"stream\":false,\"api_key\":\"secret-1\"}\n")
          ["stop"],
      true);
  test_.state.api_keys = {"secret-3", "secret-1"};
  EXPECT_EQ(ask(again)["stop"], true) << "shown once";
  test_.state.api_keys = {"secret-2"};
  EXPECT_EQ(ask(again)["error"]["code"], "invalid_api_key");
  EXPECT_TRUE(wire.closed);
}

// The scheduler keeps the cached prompts of different keys apart.
TEST(Tenants, AreKeysNotConnections) {
  TestState test;
  test.state.api_keys = {"secret-1", "secret-2"};
  TestWire wire;
  const auto tenant = [&](const char* key, bool text) {
    std::unique_ptr<Session> session;
    if (text) {
      session = std::make_unique<TextSession>(wire, test.state, TextLimits{});
      session->OnBytes(fmt::format("{{\"prompt\":\"hello\",\"api_key\":\"{}\"}}\n", key));
    } else {
      session = std::make_unique<HttpSession>(wire, test.state, HttpLimits{});
      session->OnBytes(
          fmt::format("POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18\r\n"
                      "Authorization: Bearer {}\r\n\r\n{{\"prompt\":\"hello\"}}",
                      key));
    }
    const auto sequence = test.service->Take();
    if (sequence == nullptr) throw std::runtime_error(wire.written);
    sequence->Ended(pipeline::SequenceEnd::kCancelled, "");
    test.service->StepDone();
    TestModelThread::DispatchAll(*test.service);
    return sequence->tenant();
  };
  EXPECT_EQ(tenant("secret-1", false), tenant("secret-1", true));
  EXPECT_NE(tenant("secret-1", false), tenant("secret-2", false));
  EXPECT_NE(tenant("secret-1", true), tenant("secret-2", true));
  EXPECT_NE(tenant("secret-1", true), static_cast<uint64_t>(kEverybody));
}

// A client's error is not a server's failure.
TEST_F(AccessTest, ToBanEveryTokenIsABadRequest) {
  std::string all;
  for (size_t i = 0; i < test_.state.defaults.vocab; ++i)
    all += fmt::format("{}[{},false]", i > 0 ? "," : "", i);
  const std::string answer =
      Http(Post("", fmt::format(R"({{"prompt":"hello","logit_bias":[{}]}})", all)));
  EXPECT_EQ(answer.substr(9, 3), "400") << answer;
  EXPECT_NE(answer.find("every token is banned"), std::string::npos) << answer;
}

}  // namespace
}  // namespace larder::serving::net
