// The sampling options of `run`, under llama.cpp's names, and what they come to for one tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/tokenizer.h"
#include "serving/sampler.h"

namespace CLI {
class App;
}

namespace larder::node {

struct SamplingOptions {
  serving::SamplingParams params;
  int64_t seed = -1;  // -1: drawn anew
  std::vector<std::string> logit_bias;
  bool ignore_eos = false;
};
void AddSamplingOptions(CLI::App& command, SamplingOptions& options);

// "15043-1.5", "15043+2", "15043-inf". Throws CLI::ValidationError.
std::pair<model::TokenId, float> ParseLogitBias(const std::string& text);

// Draws the seed if asked, bans the end-of-generation tokens for --ignore-eos. Throws Error for values out of
// range.
serving::SamplingParams ResolveSampling(const SamplingOptions& options, const model::Tokenizer& tokenizer,
                                        size_t vocab);

}  // namespace larder::node
