#include "serving/page/page.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <regex>
#include <string>

namespace larder::serving::inline page {
namespace {

std::string Read(const std::string& name) {
  std::ifstream file(LARDER_SOURCE_DIR "/serving/page/" + name);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(PageTest, FilesAreThoseOfTheTree) {
  ASSERT_EQ(PageFiles().size(), 7u);
  for (const PageFile& file : PageFiles()) {
    const std::string name = file.path == "/" ? "index.html" : std::string(file.path.substr(6));
    const std::string text = Read(name);
    ASSERT_FALSE(text.empty()) << name;
    EXPECT_EQ(file.text, text) << name;
    EXPECT_EQ(FindPageFile(file.path), &file);
  }
  EXPECT_EQ(FindPageFile("/")->content_type, "text/html; charset=utf-8");
  EXPECT_EQ(FindPageFile("/page/chat.js")->content_type, "text/javascript; charset=utf-8");
  EXPECT_EQ(FindPageFile("/page/page.css")->content_type, "text/css; charset=utf-8");
  EXPECT_EQ(FindPageFile(""), nullptr);
  EXPECT_EQ(FindPageFile("/page/../metrics"), nullptr);
}

TEST(PageTest, NamesNothingOutsideAndNothingThatThePolicyForbids) {
  const std::regex outside("(https?:)?//[a-z0-9]", std::regex::icase);
  const std::regex markup(
      "innerHTML|outerHTML|insertAdjacentHTML|document\\.write|eval\\(|new Function");
  for (const PageFile& file : PageFiles()) {
    const std::string text(file.text);
    EXPECT_FALSE(std::regex_search(text, outside)) << file.path;
    EXPECT_FALSE(std::regex_search(text, markup)) << file.path;
  }
  const std::string html(FindPageFile("/")->text);
  EXPECT_FALSE(std::regex_search(html, std::regex("<script(?![^>]*\\ssrc=)| style=| on[a-z]+=")));
}

TEST(PageTest, LinksLeadToItsFiles) {
  const std::regex link("(?:src|href)=\"(/[^\"]*)\"|from \"\\./([a-z.]+)\"");
  size_t found = 0;
  for (const PageFile& file : PageFiles()) {
    const std::string text(file.text);
    for (std::sregex_iterator it(text.begin(), text.end(), link), end; it != end; ++it, ++found) {
      const std::string target = (*it)[1].matched ? (*it)[1].str() : "/page/" + (*it)[2].str();
      EXPECT_NE(FindPageFile(target), nullptr) << target;
    }
  }
  EXPECT_GE(found, 5u);
}

}  // namespace
}  // namespace larder::serving::page
