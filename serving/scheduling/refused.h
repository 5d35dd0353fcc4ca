// Refused: the reason why a client's request is refused, as an HTTP status and a line. No state;
// any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace larder::serving::inline scheduling {

// A prompt that does not fit: each API has words and fields of its own for it, by which agents
// shorten their conversation and go on (serving/reply/error_reply.h).
struct Overflow {
  size_t tokens = 0;  // of the prompt, at least
  size_t context = 0;
};

class Refused : public Error {
 public:
  template <typename... Args>
  explicit Refused(int status, fmt::format_string<Args...> format, Args&&... args)
      : Error(format, std::forward<Args>(args)...), status_(status) {}
  Refused&& On(std::string param) && {
    param_ = std::move(param);
    return std::move(*this);
  }
  Refused&& As(std::string code) && {
    code_ = std::move(code);
    return std::move(*this);
  }
  Refused&& Exceeding(Overflow overflow) && {
    overflow_ = overflow;
    return std::move(*this);
  }
  // Of status 405: what the path takes, "GET, POST".
  Refused&& Allowing(std::string methods) && {
    methods_ = std::move(methods);
    return std::move(*this);
  }
  int status() const { return status_; }
  const std::string& param() const { return param_; }  // the field that is wrong; may be empty
  const std::string& code() const { return code_; }    // OpenAI's name of the error; may be empty
  const std::optional<Overflow>& overflow() const { return overflow_; }
  const std::string& methods() const { return methods_; }

 private:
  int status_;
  std::string param_, code_, methods_;
  std::optional<Overflow> overflow_;
};

// A prompt of so many tokens that does not fit; `counted` false: it has at least so many. `most`:
// the context that the model was trained with, which no advice goes beyond; 0: not known. `field`:
// what the client calls it ("prompt", "input[1]").
Refused TooLong(size_t tokens, size_t context, size_t most, const std::string& field,
                bool counted = true);
// Throws Refused unless a prompt of so many tokens can be continued.
void CheckPrompt(size_t tokens, size_t context, size_t most, const std::string& field);

}  // namespace larder::serving::scheduling
