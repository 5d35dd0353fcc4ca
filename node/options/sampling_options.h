// The sampling options of `run`, under llama.cpp's names, and what they come to for one tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "serving/sampling/sampler.h"

namespace CLI {
class App;
}

namespace larder::node {

struct SamplingOptions {
  serving::SamplingParams params;
  std::string seed = "-1";  // a number from 0 to 2^64 - 1; "-1": drawn anew
  std::vector<std::string> logit_bias;
  bool ignore_eos = false;

  // What the seed decides is of interest where the user did not choose it.
  bool draws_seed() const { return seed == "-1" && params.temperature > 0; }
};
// `drawn_seed`: what becomes of a seed that is drawn, for the help.
void AddSamplingOptions(CLI::App& command, SamplingOptions& options, const std::string& drawn_seed);

// "15043-1.5", "15043+2", "15043-inf". Throws CLI::ValidationError.
std::pair<model::TokenId, float> ParseLogitBias(const std::string& text);

// Draws the seed if asked, bans the end-of-generation tokens for --ignore-eos. Throws CLI::ValidationError
// for a bias of no token of the vocabulary.
serving::SamplingParams ResolveSampling(const SamplingOptions& options, const model::Tokenizer& tokenizer,
                                        size_t vocab);

}  // namespace larder::node
