// The page at "/": its files, part of the program (serving/page/ in the tree). Constant; any
// thread.
#pragma once

#include <span>
#include <string_view>

namespace larder::serving::inline page {

struct PageFile {
  std::string_view path;  // the request's: "/", "/page/page.css", ...
  std::string_view content_type;
  std::string_view text;
};
std::span<const PageFile> PageFiles();
const PageFile* FindPageFile(std::string_view path);  // nullptr: no such file

// Content-Security-Policy of all files: nothing from other origins, no inline script, no frame
// around the page. Send X-Content-Type-Options: nosniff and Cache-Control: no-cache with it.
inline constexpr std::string_view kPageSecurityPolicy =
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

}  // namespace larder::serving::page
