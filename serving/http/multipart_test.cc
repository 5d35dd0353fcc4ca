// multipart/form-data: the same parts, however the bytes are cut; and what is not multipart.
#include "serving/http/multipart.h"

#include <gtest/gtest.h>

#include <vector>

namespace larder::serving::inline http {
namespace {

struct Parts : MultipartParser::Sink {
  struct Part {
    std::string name, filename, data;
    bool operator==(const Part&) const = default;
  };
  void OnPart(std::string name, std::string filename) override {
    parts.push_back({std::move(name), std::move(filename), ""});
  }
  void OnData(std::string_view bytes) override { parts.back().data += bytes; }
  std::vector<Part> parts;
};

// The parts of a body that arrives in pieces of this many bytes, or why it is refused.
struct Parsed {
  std::vector<Parts::Part> parts = {};
  bool done = false;
  std::string error;
};
Parsed Parse(std::string_view body, size_t piece, const std::string& boundary = "b") {
  Parts sink;
  MultipartParser parser(boundary, sink);
  while (!body.empty() && parser.Feed(body.substr(0, piece)))
    body.remove_prefix(std::min(piece, body.size()));
  return {sink.parts, parser.done(), parser.error()};
}

constexpr std::string_view kBody =
    "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
    "--b\r\ncontent-disposition:form-data; name=file; filename=\"a \\\"b\\\";c.jsonl\"\r\n"
    "Content-Type: application/jsonl\r\n\r\n{\"x\": 1}\r\n-b\r\n\r\n--\r\n"
    "--b\r\nContent-Disposition: form-data; name=\"empty\"\r\n\r\n\r\n"
    "--b--\r\nan epilogue";

TEST(MultipartTest, TheSamePartsInWhateverPieces) {
  for (size_t piece = 1; piece <= kBody.size(); ++piece) {
    const Parsed parsed = Parse(kBody, piece);
    ASSERT_TRUE(parsed.done) << parsed.error << ", pieces of " << piece;
    const std::vector<Parts::Part> expected = {
        {"purpose", "", "batch"},
        {"file", "a \"b\";c.jsonl", "{\"x\": 1}\r\n-b\r\n\r\n--"},
        {"empty", "", ""}};
    EXPECT_EQ(parsed.parts, expected) << "pieces of " << piece;
  }
}

TEST(MultipartTest, SaysWhatIsWrong) {
  const std::string head = "--b\r\nContent-Disposition: form-data; name=\"x\"\r\n";
  for (const size_t piece : {size_t{1}, size_t{7}, SIZE_MAX}) {
    const auto why = [&](const std::string& body) { return Parse(body, piece).error; };
    EXPECT_EQ(why("--c\r\n"), "expected it to begin with the boundary --b");
    EXPECT_EQ(why("{\"purpose\":\"batch\"}"), "expected it to begin with the boundary --b");
    EXPECT_EQ(why("--b\nContent"), "expected a line end after a boundary");
    EXPECT_EQ(why("--b\r\nContent-Type: x\r\n\r\n"),
              "a part has no name: expected Content-Disposition: form-data; name");
    EXPECT_EQ(why("--b\r\nnothing\r\n\r\n"), "a line of a part's header has no ':'");
    EXPECT_EQ(why("--b\r\nX: " + std::string(9000, 'x')),
              "a part's header is larger than 8192 bytes");
    std::string many;
    for (int i = 0; i < 33; ++i) many += head + "\r\n\r\n";
    EXPECT_EQ(why(many), "more than 32 parts");
    EXPECT_FALSE(Parse(head + "\r\ndata\r\n--b", piece).done) << "cut";
  }
}

TEST(MultipartTest, ABoundaryIsWhatRfc2046Allows) {
  EXPECT_EQ(BoundaryOf("multipart/form-data; boundary=abc"), "abc");
  EXPECT_EQ(BoundaryOf("Multipart/Form-Data; charset=x; Boundary=\"a b\""), "a b");
  EXPECT_EQ(BoundaryOf("multipart/form-data; boundary=" + std::string(70, 'x')).size(), 70u);
  for (const std::string& wrong :
       {std::string(), std::string("application/json"), std::string("multipart/form-data"),
        std::string("multipart/form-data; boundary="),
        std::string("multipart/form-data; boundary=\"a\r\nb\""),
        std::string("multipart/form-data; boundary=\"a \""),
        std::string("multipart/mixed; boundary=a"),
        "multipart/form-data; boundary=" + std::string(71, 'x')})
    EXPECT_EQ(BoundaryOf(wrong), "") << wrong;
}

}  // namespace
}  // namespace larder::serving::http
