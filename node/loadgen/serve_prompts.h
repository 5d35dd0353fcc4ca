// The prompts of `larder bench-serve`: words drawn at random, or a file's.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "node/loadgen/serve_wire.h"

namespace larder::node {

// `words` short English words each, about a token a word, drawn at random, so that a server finds little of
// one in its cache. The same seed gives the same prompts.
std::vector<LoadRequest> RandomPrompts(size_t count, size_t words, size_t output_tokens, uint64_t seed);

// A prompt a line: text, or a JSON object with "prompt" and perhaps "output_len". Empty lines are left out;
// the file is begun again until there are `count`. Throws Error: no file, no prompt, a line that is none of
// these.
std::vector<LoadRequest> PromptsOfFile(const std::string& path, size_t count, size_t output_tokens);

}  // namespace larder::node
