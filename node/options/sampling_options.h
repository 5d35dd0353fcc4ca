// The sampling options of `run`, under llama.cpp's names, and their resolution for a tokenizer.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "model/tokenizer/tokenizer.h"
#include "serving/sampling/sampler.h"

namespace CLI {
class App;
}

namespace larder::node::inline options {

struct SamplingOptions {
  serving::SamplingParams params;
  std::string seed = "-1";  // a number from 0 to 2^64 - 1; "-1": draw one
  std::vector<std::string> logit_bias;
  std::vector<std::string> dry_breakers;  // empty: the default; "none": no breakers so far
  std::string samplers;                   // "penalties;dry;..."; unset: the default
  bool ignore_eos = false;

  // A drawn seed is worth printing only if sampling is random and the user chose none.
  bool draws_seed() const {
    return seed == "-1" &&
           (params.temperature > 0 || params.dynatemp_range > 0 || params.xtc_probability > 0);
  }
};
// `drawn_seed` is the help's description of what "-1" does.
void AddSamplingOptions(CLI::App& command, SamplingOptions& options, const std::string& drawn_seed);

// The values of the samplers that are off by default, as text; empty if they are off.
std::string SamplersText(const SamplingOptions& options);

// Parses "15043-1.5", "15043+2", "15043-inf". Throws CLI::ValidationError.
std::pair<model::TokenId, float> ParseLogitBias(const std::string& text);

// Draws the seed if needed. Throws CLI::ValidationError for a bias on a token id outside the
// vocabulary.
serving::SamplingParams ResolveSampling(const SamplingOptions& options, size_t vocab);
// The same, and bans the end-of-generation tokens for --ignore-eos.
serving::SamplingParams ResolveSampling(const SamplingOptions& options,
                                        const model::Tokenizer& tokenizer, size_t vocab);

}  // namespace larder::node::options
