// SamplingParams: how the next token is chosen, and the check of the values. Plain data; any
// thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::serving::inline sampling {

using model::TokenId;

// The steps between the logits and the draw.
enum class SamplerStep : uint8_t {
  kPenalties,
  kDry,
  kTopNSigma,
  kTopK,
  kTypicalP,
  kTopP,
  kMinP,
  kXtc,
  kTemperature,
};

// llama.cpp's order.
std::vector<SamplerStep> DefaultSamplers();
// "top_k", or another name that llama.cpp accepts for it ("top-k"). Throws Error that lists the
// names.
SamplerStep SamplerByName(std::string_view name);
std::string_view SamplerName(SamplerStep);
// "penalties;dry;top_k;temperature", as on llama.cpp's command line. Throws Error.
std::vector<SamplerStep> ParseSamplers(std::string_view list);
std::string FormatSamplers(std::span<const SamplerStep>);

inline constexpr size_t kMostSamplers = 32;  // most steps in a list
inline constexpr size_t kMostDryBreakers = 64;
inline constexpr size_t kMostDryBreakerBytes = 40;  // each, as in llama.cpp

// Names, meanings and defaults are llama.cpp's. Probabilities are those among the tokens that
// earlier steps have kept.
struct SamplingParams {
  float temperature = 0.8f;  // 0 or less: greedy
  int top_k = 40;            // the k likeliest tokens; 0 or less: all
  float top_p = 0.95f;       // the likeliest tokens that together reach this probability; 1: all
  float min_p = 0.05f;       // tokens at least this probable, relative to the likeliest; 0: all
  // The tokens whose information is closest to the expected one (the entropy) and that together
  // exceed this probability; 1: all. Meister et al., "Locally Typical Sampling", section 4.
  float typical_p = 1;
  // Tokens whose logit is at most so many standard deviations of all logits below the largest; 0 or
  // less: all. Tang et al., "Top-n-sigma", section 3.
  float top_n_sigma = -1;
  // With this probability, all tokens at least `xtc_threshold` probable are dropped except the
  // least likely of them.
  float xtc_probability = 0;
  float xtc_threshold = 0.1f;
  size_t min_keep = 0;  // typical_p, top_p, min_p and XTC keep at least this many
  // Positive logits of recent tokens are divided by it, negative ones multiplied; 1: off.
  float repeat_penalty = 1.0f;
  int repeat_last_n = 64;       // how many accepted tokens are recent; 0: none, -1: all
  float presence_penalty = 0;   // subtracted from the logit of each recent token
  float frequency_penalty = 0;  // the same, times its number of occurrences
  // DRY ("don't repeat yourself"): a token that would continue a repetition of n tokens loses
  // dry_multiplier * dry_base ^ (n - dry_allowed_length), if n is at least dry_allowed_length. A
  // repetition does not reach across a sequence breaker. 0: off.
  float dry_multiplier = 0;
  float dry_base = 1.75f;
  int dry_allowed_length = 2;
  int dry_penalty_last_n = -1;  // how many accepted tokens are searched; 0: none, -1: all
  std::vector<std::string> dry_sequence_breakers = {"\n", ":", "\"", "*"};
  // The temperature is between temperature - range and temperature + range, by the entropy relative
  // to the largest possible, to the power of the exponent. 0: fixed.
  float dynatemp_range = 0;
  float dynatemp_exponent = 1;
  // 1, 2: Mirostat of that version instead of the steps that drop tokens; Basu et al., "Mirostat",
  // algorithms 1 and 2. tau: the surprise in bits that it aims at; eta: how quickly.
  int mirostat = 0;
  float mirostat_tau = 5;
  float mirostat_eta = 0.1f;
  std::vector<SamplerStep> samplers = DefaultSamplers();  // the steps and their order
  uint64_t seed = 0;                                  // the caller draws it if it is to be random
  std::vector<std::pair<TokenId, float>> logit_bias;  // added first; -infinity bans a token

  bool penalizes() const {
    return repeat_penalty != 1 || presence_penalty != 0 || frequency_penalty != 0;
  }
  bool uses_dry() const { return dry_multiplier > 0 && dry_penalty_last_n != 0; }
};

// Throws an Error that names the parameter, its value and the range.
void Validate(const SamplingParams&, size_t vocab);

}  // namespace larder::serving::sampling
