// The parser by itself: how it reads requests, in whatever pieces they arrive, and which it
// refuses. (What a session does about them: serving/net/access_test.cc,
// serving/net/sessions_test.cc.)
#include "serving/http/http_parser.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <vector>

namespace larder::serving::inline http {
namespace {

// All that a connection's bytes come to.
struct Outcome {
  std::vector<HttpRequest> requests;
  int status = 0;
  std::string error;
  size_t used = 0;  // bytes

  std::string Text() const {
    std::string text;
    for (const HttpRequest& r : requests)
      text += fmt::format("{} {} [{}] {}|{}|{}|{}|{}|{}|{}{}\n", r.method, r.target, r.path, r.body,
                          r.authorization, r.origin, r.content_type, r.host, r.wants_headers,
                          r.keep_alive ? "keep" : "close", r.http10 ? " 1.0" : "");
    return fmt::format("{}status {} {}", text, status, error);
  }
};

// Feeds one piece, as a session does: the rest of it again when a request was taken.
void Feed(HttpParser& parser, std::string_view piece, Outcome* outcome) {
  while (!piece.empty() && parser.error_status() == 0) {
    const size_t used = parser.Feed(piece);
    ASSERT_LE(used, piece.size());
    outcome->used += used;
    piece.remove_prefix(used);
    if (parser.done()) {
      outcome->requests.push_back(parser.Take());
    } else {
      ASSERT_TRUE(piece.empty()) << "bytes that are not used, and no request";
    }
  }
  outcome->status = parser.error_status();
  outcome->error = parser.error();
}

Outcome Parse(const std::vector<std::string_view>& pieces, const HttpLimits& limits = {}) {
  HttpParser parser(limits);
  Outcome outcome;
  for (const std::string_view piece : pieces) Feed(parser, piece, &outcome);
  return outcome;
}

std::vector<std::string_view> Bytes(std::string_view text) {
  std::vector<std::string_view> pieces;
  for (size_t i = 0; i < text.size(); ++i) pieces.push_back(text.substr(i, 1));
  return pieces;
}

const std::string kPost =
    "POST /v1/completions?a=b HTTP/1.1\r\nHost: here:8080\r\nAuthorization: Bearer key-1\r\n"
    "Origin: http://page\r\nContent-Type: application/json\r\nContent-Length: 5\r\n\r\nhello";
const std::string kChunked =
    "POST /c HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n"
    "3\r\nabc\r\nA;name=\"va;lue\"\r\n0123456789\r\n0\r\nTrailer: x\r\n\r\n";
const std::string kGet = "GET /health HTTP/1.0\r\n\r\n";

TEST(HttpParser, MakesARequestOfItsBytes) {
  const Outcome outcome = Parse({kPost});
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.Text();
  const HttpRequest& request = outcome.requests[0];
  EXPECT_EQ(request.method, "POST");
  EXPECT_EQ(request.target, "/v1/completions?a=b");
  EXPECT_EQ(request.path, "/v1/completions");
  EXPECT_EQ(request.body, "hello");
  EXPECT_EQ(request.host, "here:8080");
  EXPECT_EQ(request.authorization, "Bearer key-1");
  EXPECT_EQ(request.origin, "http://page");
  EXPECT_EQ(request.content_type, "application/json");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_FALSE(request.http10);
}

TEST(HttpParser, NamesOfFieldsHaveNoCaseAndValuesNoSpaceAround) {
  const Outcome outcome =
      Parse({"GET / HTTP/1.1\r\nhOsT: \t here \t\r\nCONNECTION: Close\r\n\r\n"});
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.Text();
  EXPECT_EQ(outcome.requests[0].host, "here");
  EXPECT_FALSE(outcome.requests[0].keep_alive);
}

TEST(HttpParser, OldClientsCloseUnlessTheySayOtherwise) {
  const Outcome outcome = Parse({kGet, "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"});
  ASSERT_EQ(outcome.requests.size(), 2u) << outcome.Text();
  EXPECT_TRUE(outcome.requests[0].http10);
  EXPECT_FALSE(outcome.requests[0].keep_alive);
  EXPECT_TRUE(outcome.requests[1].keep_alive);
}

// The host of an absolute target counts, not the Host header's (RFC 9112 3.2.2).
TEST(HttpParser, AnAbsoluteTargetIsItsPath) {
  const auto parsed = [](const char* target) {
    const Outcome got = Parse({fmt::format("GET {} HTTP/1.1\r\nHost: a\r\n\r\n", target)});
    EXPECT_EQ(got.requests.size(), 1u) << got.error;
    const HttpRequest& request = got.requests.at(0);
    return fmt::format("{} {} {}", request.host, request.target, request.path);
  };
  EXPECT_EQ(parsed("http://b:80/c?d=e"), "b:80 /c?d=e /c");
  EXPECT_EQ(parsed("HTTPS://[::1]"), "[::1] / /");
  EXPECT_EQ(parsed("http://b?d"), "b /?d /");
  EXPECT_EQ(parsed("/http://b/c"), "a /http://b/c /http://b/c");
  EXPECT_EQ(Parse({"GET http://b@c/ HTTP/1.1\r\nHost: a\r\n\r\n"}).status, 400);
}

TEST(HttpParser, ChunksAreJoined) {
  const Outcome outcome = Parse({kChunked});
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.Text();
  EXPECT_EQ(outcome.requests[0].body, "abc0123456789");
}

TEST(HttpParser, ChunksThatAreNoneAreRefused) {
  const std::string header =
      "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
  for (const char* body :
       {"x\r\n", "-1\r\n", "\r\n", "3\r\nabcd\r\n", "3\r\nabc0\r\n\r\n", "3 3\r\nabc\r\n",
        "0x3\r\nabc\r\n", "ffffffffffffffff1\r\n", "3\nabc\n"}) {
    // some are known by what follows
    const Outcome outcome = Parse({header + body + "0\r\n\r\n" + kGet});
    EXPECT_TRUE(outcome.requests.empty()) << body;
    EXPECT_GE(outcome.status, 400) << body;
  }
}

TEST(HttpParser, LengthsThatAreNoneAreRefused) {
  for (const char* length : {"", "x", "-1", "+5", "0x5", "5x", "5 5", "5,6", "1e1",
                             "18446744073709551616", "99999999999999999999999999"}) {
    const Outcome outcome = Parse({fmt::format(
        "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\nhello", length)});
    EXPECT_TRUE(outcome.requests.empty()) << length;
    EXPECT_GE(outcome.status, 400) << length;
    EXPECT_FALSE(outcome.error.empty());
  }
  const Outcome two =
      Parse({"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n"
             "hello"});
  EXPECT_TRUE(two.requests.empty());
  EXPECT_EQ(two.status, 400) << two.Text();
}

// A value on several lines (obsolete, RFC 9112 5.2): one value, with spaces; it can't hide a field
// of its own.
TEST(HttpParser, FoldedFieldsAreOneValue) {
  const Outcome outcome = Parse(
      {"POST / HTTP/1.1\r\nHost: here\r\nAuthorization: Bearer\r\n key-1\r\n\tkey-2\r\nOrigin: "
       "here\r\n Content-Length: 9\r\n\r\n"});
  ASSERT_EQ(outcome.requests.size(), 1u) << outcome.Text();
  EXPECT_EQ(outcome.requests[0].authorization, "Bearer key-1 key-2");
  EXPECT_EQ(outcome.requests[0].origin, "here Content-Length: 9");
  EXPECT_EQ(outcome.requests[0].body, "");
}

TEST(HttpParser, WhatIsNoRequestIsRefused) {
  for (const char* text :
       {"hello\r\n\r\n", "GET /\r\n\r\n", "GET / HTTP/2.0\r\n\r\n", "GET / http/1.1\r\n\r\n",
        " GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", "GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "G\x01T / HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\n: no name\r\n\r\n", "GET / HTTP/1.1\r\nHost : here\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nA: b\x01\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n"}) {
    const Outcome outcome = Parse({text});
    EXPECT_TRUE(outcome.requests.empty()) << text;
    EXPECT_EQ(outcome.status, 400) << text;
  }
}

TEST(HttpParser, AfterAnErrorNothingIsTaken) {
  HttpParser parser(HttpLimits{});
  EXPECT_EQ(parser.Feed("nonsense\r\n\r\n"), 12u);
  EXPECT_EQ(parser.error_status(), 400);
  EXPECT_EQ(parser.Feed(kGet), 0u);
  EXPECT_FALSE(parser.done());
  EXPECT_FALSE(parser.NewHeader());
}

TEST(HttpParser, OfSeveralRequestsOnlyTheFirstIsUsed) {
  HttpParser parser(HttpLimits{});
  const std::string both = kPost + kChunked;
  EXPECT_EQ(parser.Feed(both), kPost.size());
  ASSERT_TRUE(parser.done());
  EXPECT_EQ(parser.Feed(std::string_view(both).substr(kPost.size())), 0u)
      << "before the first was taken";
  EXPECT_EQ(parser.Take().body, "hello");
  EXPECT_FALSE(parser.begun());
  EXPECT_EQ(parser.Feed(std::string_view(both).substr(kPost.size())), kChunked.size());
  EXPECT_EQ(parser.Take().body, "abc0123456789");
}

// Wherever a packet ends: the same requests, the same errors.
TEST(HttpParser, PiecesMakeNoDifference) {
  const HttpLimits small{.header_bytes = 200, .body_bytes = 12};
  const std::string long_field =
      "GET / HTTP/1.1\r\nHost: localhost\r\nA: " + std::string(300, 'a') + "\r\n\r\n";
  for (const std::string& text :
       {kPost, kChunked, kGet, kPost + kChunked + kGet, long_field,
        std::string("POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nA: b\r\n c\r\n\td\r\nHost: h\r\n\r\n"),
        std::string(
            "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 13\r\n\r\n0123456789abc"),
        std::string(
            "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
        std::string("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: x\r\n\r\n"),
        std::string("nonsense\r\n\r\n")}) {
    for (const HttpLimits& limits : {HttpLimits{}, small}) {
      const Outcome whole = Parse({text}, limits);
      EXPECT_EQ(Parse(Bytes(text), limits).Text(), whole.Text());
      for (size_t cut = 1; cut < text.size(); ++cut) {
        const std::string_view view = text;
        const Outcome pieces = Parse({view.substr(0, cut), view.substr(cut)}, limits);
        ASSERT_EQ(pieces.Text(), whole.Text()) << "cut at " << cut << " of " << text;
      }
    }
  }
}

TEST(HttpParser, ABodyIsTakenUpToItsLimit) {
  const HttpLimits limits{.header_bytes = 1024, .body_bytes = 10};
  const auto plain = [](size_t bytes) {
    return fmt::format("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: {}\r\n\r\n{}", bytes,
                       std::string(bytes, 'b'));
  };
  const auto chunked = [](size_t bytes) {
    return fmt::format(
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nbbbbb\r\n"
        "{:x}\r\n{}\r\n0\r\n\r\n",
        bytes - 5, std::string(bytes - 5, 'b'));
  };
  for (const std::string& good : {plain(10), chunked(10)}) {
    const Outcome outcome = Parse({good}, limits);
    ASSERT_EQ(outcome.requests.size(), 1u) << outcome.Text();
    EXPECT_EQ(outcome.requests[0].body, std::string(10, 'b'));
  }
  for (const std::string& bad : {plain(11), chunked(11)}) {
    const Outcome outcome = Parse({bad}, limits);
    EXPECT_TRUE(outcome.requests.empty());
    EXPECT_EQ(outcome.status, 413) << outcome.Text();
  }
  // The header alone says so, before any of the body has arrived.
  EXPECT_EQ(
      Parse({"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 11\r\n\r\n"}, limits).status,
      413);
}

// A body that is taken as it arrives has its route's limit, and the parser keeps none of it.
TEST(HttpParser, ABodyCanBeTakenAsItComes) {
  const HttpLimits limits{
      .header_bytes = 1024,
      .body_bytes = 10,
      .streamed = [](std::string_view method, std::string_view path) -> std::optional<size_t> {
        if (method == "POST" && path == "/big") return 1000;
        return std::nullopt;
      }};
  const auto header = [](const char* path, const std::string& framing) {
    return fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\n{}\r\n\r\n", path, framing);
  };
  std::string chunks;
  for (int i = 0; i < 10; ++i) chunks += "64\r\n" + std::string(100, 'b') + "\r\n";
  for (const auto& [framing, body] :
       {std::pair<std::string, std::string>{"Content-Length: 1000", std::string(1000, 'b')},
        {"Transfer-Encoding: chunked", chunks + "0\r\n\r\n"}}) {
    HttpParser parser(limits);
    parser.Feed(header("/big?x=1", framing));
    std::string taken;
    for (size_t at = 0; at < body.size(); at += 70) {
      parser.Feed(std::string_view(body).substr(at, 70));
      EXPECT_LE(parser.held_bytes(), 140u);
      taken += parser.TakeBody();
    }
    ASSERT_TRUE(parser.done()) << parser.error();
    EXPECT_EQ(taken + parser.Take().body, std::string(1000, 'b'));
    // The next one has the ordinary limit again.
    parser.Feed(header("/small", "Content-Length: 11"));
    EXPECT_EQ(parser.error_status(), 413);
  }
  HttpParser parser(limits);
  parser.Feed(header("/big", "Content-Length: 1001"));
  EXPECT_EQ(parser.error_status(), 413);
  HttpParser endless(limits);
  endless.Feed(header("/big", "Transfer-Encoding: chunked"));
  for (int i = 0; i < 11 && endless.error_status() == 0; ++i) {
    endless.Feed("64\r\n" + std::string(100, 'b') + "\r\n");
    endless.TakeBody();
  }
  EXPECT_EQ(endless.error_status(), 413) << "what was taken counts";
}

TEST(HttpParser, AHeaderIsTakenUpToItsLimit) {
  const HttpLimits limits{.header_bytes = 256, .body_bytes = 10};
  const auto header = [](size_t bytes) {
    const std::string begin = "GET / HTTP/1.1\r\nHost: localhost\r\nA: ", end = "\r\n\r\n";
    return begin + std::string(bytes - begin.size() - end.size(), 'a') + end;
  };
  EXPECT_EQ(Parse({header(250)}, limits).requests.size(), 1u);
  EXPECT_EQ(Parse({header(300)}, limits).status, 431);
  // One that never ends is not kept.
  HttpParser parser(limits);
  Outcome outcome;
  for (int i = 0; i < 100 && outcome.status == 0; ++i) {
    Feed(parser, "GET / HTTP/1.1", &outcome);
    EXPECT_LE(parser.held_bytes(), 256u + 14u);
  }
  EXPECT_EQ(outcome.status, 431);
}

// RFC 9110 6.5.1: a proxy that checks headers does not look at them.
TEST(HttpParser, TrailersAreNoHeaders) {
  const std::string text =
      "POST / HTTP/1.1\r\nHost: here\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nhi\r\n0\r\n"
      "Authorization: Bearer key\r\nX-Api-Key: key\r\nOrigin: there\r\nSec-Fetch-Site: "
      "same-origin\r\nConnection: close\r\nExpect: 100-continue\r\n\r\n";
  for (const size_t piece : {text.size(), size_t{1}, size_t{7}}) {
    std::vector<std::string_view> pieces;
    for (size_t at = 0; at < text.size(); at += piece)
      pieces.push_back(std::string_view(text).substr(at, piece));
    const Outcome outcome = Parse(pieces);
    ASSERT_EQ(outcome.requests.size(), 1u) << outcome.Text();
    const HttpRequest& request = outcome.requests[0];
    EXPECT_EQ(request.body, "hi");
    EXPECT_EQ(request.host, "here");
    EXPECT_EQ(request.authorization + request.api_key + request.origin + request.fetch_site, "");
    EXPECT_TRUE(request.keep_alive);
  }
}

TEST(HttpParser, HostIsANameOrAnAddressAndAPort) {
  const auto status = [](const std::string& fields) {
    const Outcome outcome = Parse({"GET / HTTP/1.1\r\n" + fields + "\r\n"});
    return outcome.requests.size() == 1 ? 200 : outcome.status;
  };
  for (const char* good : {"a", "a.b-c_d:80", "127.0.0.1:8080", "[::1]", "[::1]:80", "a:", "x.:1"})
    EXPECT_EQ(status(fmt::format("Host: {}\r\n", good)), 200) << good;
  for (const char* bad : {"", "[::1", "127.0.0.1:evil", "a b", "a/b", ":80", "[]", "[::1]x",
                          "a:b:c", "a:123456", "u@a"})
    EXPECT_EQ(status(fmt::format("Host: {}\r\n", bad)), 400) << bad;
  EXPECT_EQ(status(""), 400);
  EXPECT_EQ(Parse({"GET / HTTP/1.0\r\n\r\n"}).requests.size(), 1u);
}

TEST(HttpParser, CountsWhatItHolds) {
  HttpParser parser(HttpLimits{});
  EXPECT_FALSE(parser.begun());
  EXPECT_EQ(parser.held_bytes(), 0u);
  parser.Feed("POST / HT");
  EXPECT_TRUE(parser.begun());
  EXPECT_EQ(parser.held_bytes(), 9u);
  parser.Feed("TP/1.1\r\nHost: here\r\nContent-Length: 1000\r\n\r\n");
  EXPECT_EQ(parser.held_bytes(), 0u) << "a header that is whole is not kept as bytes";
  parser.Feed(std::string(700, 'b'));
  EXPECT_EQ(parser.held_bytes(), 700u);
  parser.Feed(std::string(300, 'b'));
  EXPECT_TRUE(parser.done());
  parser.Take();
  EXPECT_EQ(parser.held_bytes(), 0u);
}

TEST(HttpParser, TellsOfAHeaderOnceAndOfAWantedContinueOnce) {
  HttpParser parser(HttpLimits{});
  parser.Feed(
      "POST /x HTTP/1.1\r\nHost: localhost\r\nExpect: 100-Continue\r\nContent-Length: 5\r\n\r");
  EXPECT_FALSE(parser.NewHeader());
  EXPECT_FALSE(parser.wants_continue());
  parser.Feed("\n");
  const auto header = parser.NewHeader();
  ASSERT_TRUE(header);
  EXPECT_EQ(header->path, "/x");
  EXPECT_EQ(header->body, "");
  EXPECT_FALSE(parser.NewHeader());
  EXPECT_TRUE(parser.wants_continue());
  EXPECT_FALSE(parser.wants_continue());
  parser.Feed("hello");
  EXPECT_EQ(parser.Take().body, "hello");
  // A request that arrives with its body does not wait; and its header is reported like any other.
  parser.Feed(
      "POST /y HTTP/1.1\r\nHost: localhost\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n"
      "hello");
  EXPECT_FALSE(parser.wants_continue());
  ASSERT_TRUE(parser.NewHeader());
}

}  // namespace
}  // namespace larder::serving::http
