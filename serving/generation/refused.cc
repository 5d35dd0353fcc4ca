#include "serving/generation/refused.h"

#include "pipeline/sequences/request.h"

namespace larder::serving::inline generation {
namespace {

// Says which one is meant.
std::string OneOfMany(const std::string& field) { return field.ends_with(']') ? field + ": " : ""; }

}  // namespace

Refused TooLong(size_t tokens, size_t context, size_t most, const std::string& field,
                bool counted) {
  // Clients know llama-server's and vLLM's words by heart.
  const std::string advice =
      tokens < most ? fmt::format(", or start larder with -c {} or more", tokens + 1) : "";
  return Refused(400,
                 "{}the prompt of {}{} tokens is too large, it exceeds the available context size: "
                 "this model's maximum context length is {} tokens; shorten it{}",
                 OneOfMany(field), counted ? "" : "at least ", tokens, context, advice)
      .On(field)
      .Exceeding({.tokens = tokens, .context = context});
}

void CheckPrompt(size_t tokens, size_t context, size_t most, const std::string& field) {
  if (tokens > context) throw TooLong(tokens, context, most, field);
  if (tokens > 0) return;
  throw Refused(400, "{}{}", OneOfMany(field), pipeline::PromptProblem(tokens, context)).On(field);
}

}  // namespace larder::serving::generation
