// Log-probabilities of tokens from the model's logits: those that clients see, and those that
// `larder perplexity` scores a text by. No state; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "serving/generation/generation.h"

namespace larder::serving::inline generation {

// The logarithms of the probabilities of `token` and of the `top` likeliest tokens.
TokenLogprobs LogprobsOf(std::span<const float> logits, TokenId token, size_t top);
// One plus the number of likelier tokens; among equals the lower id ranks first.
uint32_t RankOf(std::span<const float> logits, TokenId token);

}  // namespace larder::serving::generation
