// Sampler chooses the next token from logits; StopStrings decides how much of the text may be shown. There is
// one of each per request, owned by the thread that serves it. Scratch memory is allocated at construction.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/error.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::serving::inline sampling {

using model::TokenId;

// Names, meanings and defaults are llama.cpp's.
struct SamplingParams {
  float temperature = 0.8f;  // 0 or less: greedy
  int top_k = 40;            // the k likeliest tokens; 0 or less: all
  float top_p = 0.95f;       // the likeliest tokens that together reach this probability; 1: all
  float min_p = 0.05f;       // tokens at least this probable, relative to the likeliest; 0: all
  // Positive logits of recent tokens are divided by it, negative ones multiplied; 1: off.
  float repeat_penalty = 1.0f;
  int repeat_last_n = 64;                             // how many accepted tokens are recent; 0: none, -1: all
  float presence_penalty = 0;                         // subtracted from the logit of each recent token
  float frequency_penalty = 0;                        // the same, times its number of occurrences
  uint64_t seed = 0;                                  // the caller draws it if it is to be random
  std::vector<std::pair<TokenId, float>> logit_bias;  // added first; -infinity bans a token
};

// Throws an Error that names the parameter, its value and the range.
void Validate(const SamplingParams&, size_t vocab);

// logit_bias bans every token: the request is wrong.
class EveryTokenIsBanned : public Error {
  using Error::Error;
};

// Applies in this order: bias, penalties, [greedy], top-k, top-p, min-p, temperature, draw. Of equal logits
// the lower id ranks first. The same seed, parameters and logits give the same tokens on every machine: the
// generator and its mapping to [0, 1) are fixed, and the exponential is our own. Greedy sampling consumes no
// random number, any other Sample() exactly one.
class Sampler {
 public:
  Sampler(SamplingParams, size_t vocab);  // throws Error as Validate

  // logits[vocab]. Throws Error if one is NaN or +infinity, EveryTokenIsBanned if all are -infinity.
  // `allowed`: a bit for each token that may be chosen (a grammar's mask), before all else; empty: all may.
  TokenId Sample(std::span<const float> logits, std::span<const uint64_t> allowed = {});

  // Adds a token of the sequence: first those of the prompt, then each sampled one (penalties count both).
  void Accept(TokenId);

  const SamplingParams& params() const { return params_; }

 private:
  struct Candidate {
    float logit;
    TokenId id;
    double weight;  // proportional to the probability
  };
  // A strict total order: the likelier token first, then the lower id.
  static bool Before(const Candidate& a, const Candidate& b);
  void Adjust(std::span<const float> logits, std::span<const uint64_t> allowed);
  float Max() const;
  void Collect();  // candidates_ = the top k, or all with a possible probability
  void KeepTopP(double mass);
  double NextUniform();

  SamplingParams params_;
  std::vector<float> logits_;  // adjusted
  std::vector<Candidate> candidates_;
  std::deque<TokenId> recent_;               // at most repeat_last_n
  std::unordered_map<TokenId, int> counts_;  // of recent_
  std::mt19937_64 generator_;
};

// Takes pieces of text, and returns text that cannot be part of a stop string. The first stop string that is
// complete ends the text before its first byte (if two are complete at the same byte, the longer one). The
// result does not depend on how the text is cut into pieces.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // throws Error if one is empty

  std::string Add(std::string_view piece);  // returns nothing once stopped
  std::string Finish();                     // at the end of the generation: returns what was held back
  bool stopped() const { return matched_ >= 0; }
  int matched() const { return matched_; }  // index of the stop string, -1: none yet

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the longest suffix of the text that is the start of a stop string
  int matched_ = -1;
};

}  // namespace larder::serving::sampling
