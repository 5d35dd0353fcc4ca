# cmake -DFOLDER=... -DOUT=FILE.cc -P embed.cmake: the page's files as string literals.
set(types html "text/html" css "text/css" js "text/javascript")
set(rows "")
foreach(file index.html page.css api.js chat.js tools.js machine.js experts.js)
  file(READ ${FOLDER}/${file} text)
  string(REGEX MATCH "[a-z]+$" extension ${file})
  list(FIND types ${extension} at)
  math(EXPR at "${at} + 1")
  list(GET types ${at} type)
  set(path "/page/${file}")
  if(file STREQUAL "index.html")
    set(path "/")
  endif()
  string(APPEND rows "    {\"${path}\", \"${type}; charset=utf-8\", R\"larder(${text})larder\"},\n")
endforeach()
file(WRITE ${OUT} "// Made by serving/page/embed.cmake.
#include \"serving/page/page.h\"

namespace larder::serving::inline page {
namespace {
constexpr PageFile kFiles[] = {
${rows}};
}  // namespace

std::span<const PageFile> PageFiles() { return kFiles; }

}  // namespace larder::serving::page
")
