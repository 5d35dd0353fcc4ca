// LARDER_CHECK(condition, "text {}", args...) states what only a bug in Larder can make false. If
// the condition is false, it prints file, line, condition and text, and aborts; release builds
// check too. The cost is one predicted branch, so it may stand in set-up code and at the borders of
// the data path.
#pragma once

#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string>

namespace larder {

[[noreturn]] inline void CheckFailed(const char* file, int line, const char* condition,
                                     const std::string& text) {
  std::fprintf(stderr, "larder: bug: %s:%d: %s is false%s%s\n", file, line, condition,
               text.empty() ? "" : ": ", text.c_str());
  std::abort();
}

}  // namespace larder

#define LARDER_CHECK(condition, ...)  \
  (__builtin_expect(!!(condition), 1) \
       ? (void)0                      \
       : ::larder::CheckFailed(__FILE__, __LINE__, #condition, ::fmt::format("" __VA_ARGS__)))
