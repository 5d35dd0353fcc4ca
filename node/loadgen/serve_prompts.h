// The prompts of `larder bench-serve`: random words, or the lines of a file.
#pragma once

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "node/loadgen/serve_wire.h"

namespace larder::node::inline loadgen {

// Short English words, about a token each.
std::string RandomWords(std::mt19937_64& random, size_t words);

// Prompts of `words` random short English words each, about a token per word. Because they are
// random, a server finds little of a prompt in its cache. The same seed gives the same prompts.
std::vector<LoadRequest> RandomPrompts(size_t count, size_t words, size_t output_tokens,
                                       uint64_t seed);

// One prompt per line: text, or a JSON object with "prompt" and optionally "output_len". Empty
// lines are skipped; the file is repeated until there are `count` prompts. Throws Error if there is
// no file, no prompt, or a line of neither form.
std::vector<LoadRequest> PromptsOfFile(const std::string& path, size_t count, size_t output_tokens);

}  // namespace larder::node::loadgen
