// Addresses as users give them.
#include "node/remote/server_url.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace larder::node::inline remote {
namespace {

std::string Parsed(const std::string& url) {
  const ServeTarget target = ParseServerUrl(url);
  return fmt::format("{} {} {}", target.host, target.port, target.path);
}

TEST(ServerUrlTest, ReadsHostPortAndPath) {
  EXPECT_EQ(Parsed("http://host:8080"), "host 8080 ");
  EXPECT_EQ(Parsed("http://host"), "host 80 ");
  EXPECT_EQ(Parsed("http://host:1/"), "host 1 ");
  EXPECT_EQ(Parsed("http://10.0.0.1:8080/behind/a/proxy/"), "10.0.0.1 8080 /behind/a/proxy");
  EXPECT_EQ(Parsed("http://[::1]:99"), "::1 99 ");
  EXPECT_EQ(Parsed("http://[fe80::1]"), "fe80::1 80 ");
}

TEST(ServerUrlTest, SaysWhatIsWrong) {
  for (const char* url :
       {"https://host", "host:8080", "ftp://host", "http://", "http://:80",
        "http://host:", "http://host:x", "http://host:0", "http://host:65536", "http://host:80x",
        "http://[::1", "http://[::1]x", "http://user:secret@host", "http://host/a?b",
        "http://ho st", "http://host/a\r\nX: y"})
    EXPECT_THROW(ParseServerUrl(url), Error) << url;
  EXPECT_TRUE(IsUrl("https://host"));
  EXPECT_FALSE(IsUrl("server-1"));
}

}  // namespace
}  // namespace larder::node::remote
