#include "pipeline/sequences/request.h"

#include <fmt/format.h>

namespace larder::pipeline::inline sequences {

std::string PromptProblem(size_t prompt_tokens, size_t context) {
  if (prompt_tokens == 0) return "the prompt has no tokens; give it some text";
  if (prompt_tokens <= context) return "";
  return fmt::format("the prompt's {} tokens do not fit the context of {} tokens", prompt_tokens,
                     context);
}

}  // namespace larder::pipeline::sequences
