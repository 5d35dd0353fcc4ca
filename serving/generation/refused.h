// Refused: the reason why a client's request is refused, as an HTTP status and a line. No state;
// any thread.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "base/error.h"

namespace larder::serving::inline generation {

// A prompt that does not fit: each API has words and fields of its own for it, by which agents
// shorten their conversation and go on (serving/reply/error_reply.h).
struct Overflow {
  size_t tokens = 0;  // tokens of the prompt, at least
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
  // For status 405: the methods that the path takes, "GET, POST".
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

// The refusal of a prompt that has `tokens` tokens (`counted` false: at least that many) and does
// not fit. `most`: the context that the model was trained with, beyond which no advice goes; 0: not
// known. `field`: the client's name for the prompt ("prompt", "input[1]").
Refused TooLong(size_t tokens, size_t context, size_t most, const std::string& field,
                bool counted = true);
// Throws Refused unless a prompt of that many tokens can be continued.
void CheckPrompt(size_t tokens, size_t context, size_t most, const std::string& field);

}  // namespace larder::serving::generation
