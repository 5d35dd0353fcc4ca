// Test support: the line of the Error that a call throws. Included by tests only.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace larder {

template <typename Call>
std::string ErrorOf(Call&& call) {
  try {
    std::forward<Call>(call)();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace larder
