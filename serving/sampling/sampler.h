// From logits to the next token, and from tokens' text to what may be shown. One Sampler and one StopStrings
// per request, owned by the thread that serves it; scratch memory is allocated at construction.
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

namespace larder::serving {

using model::TokenId;

// Names, meaning and defaults are llama.cpp's.
struct SamplingParams {
  float temperature = 0.8f;  // 0 or less: greedy
  int top_k = 40;            // the k likeliest tokens; 0 or less: all
  float top_p = 0.95f;       // the likeliest tokens that together reach this probability; 1: all
  float min_p = 0.05f;       // tokens at least this probable, relative to the likeliest; 0: all
  float repeat_penalty =
      1.0f;                // logits of recent tokens: divided by it if positive, multiplied if not; 1: off
  int repeat_last_n = 64;  // how many accepted tokens are recent; 0: none, -1: all
  float presence_penalty = 0;                         // subtracted from the logit of each recent token
  float frequency_penalty = 0;                        // the same, times its number of occurrences
  uint64_t seed = 0;                                  // a random seed is the caller's to draw
  std::vector<std::pair<TokenId, float>> logit_bias;  // added first; -infinity bans a token
};

// Throws Error: one line that names the parameter, its value and the range.
void Validate(const SamplingParams&, size_t vocab);

// What logit_bias asks for can't be done: whoever asked is wrong.
class EveryTokenIsBanned : public Error {
  using Error::Error;
};

// Order: bias, penalties, [greedy], top-k, top-p, min-p, temperature, draw. Equal logits rank by lower id
// first. The same seed, parameters and logits give the same tokens on every machine: the generator and its
// mapping to [0, 1) are fixed, and the exponential is our own. Greedy sampling uses up no random number, any
// other Sample() exactly one.
class Sampler {
 public:
  Sampler(SamplingParams, size_t vocab);  // throws Error as Validate

  // logits[vocab]. Throws Error if one is NaN or +infinity, EveryTokenIsBanned if all are -infinity.
  TokenId Sample(std::span<const float> logits);

  // A token joined the sequence: the sampled one, and before that those of the prompt (penalties count both).
  void Accept(TokenId);

  const SamplingParams& params() const { return params_; }

 private:
  struct Candidate {
    float logit;
    TokenId id;
    double weight;  // proportional to the probability
  };
  // Strict total order: likelier first, then the lower id.
  static bool Before(const Candidate& a, const Candidate& b);
  void Adjust(std::span<const float> logits);
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

// Text pieces go in, text that cannot be part of a stop string comes out. The first stop string to be
// complete ends the text before its first byte (of two complete at the same byte, the longer); how the text
// is cut into pieces changes nothing.
class StopStrings {
 public:
  explicit StopStrings(std::vector<std::string> stops);  // throws Error if one is empty

  std::string Add(std::string_view piece);  // nothing more once stopped
  std::string Finish();                     // generation ended: what was held back
  bool stopped() const { return matched_ >= 0; }
  int matched() const { return matched_; }  // index of the stop string, -1: none yet

 private:
  std::vector<std::string> stops_;
  std::string held_;  // the longest suffix so far that begins a stop string
  int matched_ = -1;
};

}  // namespace larder::serving
