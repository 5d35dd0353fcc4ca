// Dry: finds the tokens that would continue a repetition ("don't repeat yourself"). Owned by a
// Sampler, whose thread uses it. The definition is llama.cpp's, except that sequence breakers are
// found in the text of the tokens, however it is cut into tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "serving/sampling/sampling_params.h"

namespace larder::serving::inline sampling {

class Dry {
 public:
  // `tokenizer`: for the tokens' texts, outlives this; null: no token breaks a repetition.
  Dry(const SamplingParams&, const model::Tokenizer* tokenizer);

  void Accept(TokenId);
  // What to subtract from the logit of each token that would continue a repetition.
  const std::vector<std::pair<TokenId, float>>& Find();

 private:
  bool Breaks(TokenId);  // whether a breaker ends in the token's text

  double multiplier_, base_;
  size_t allowed_, last_n_;
  std::vector<std::string> breakers_;
  const model::Tokenizer* tokenizer_;
  size_t longest_breaker_ = 0;
  std::string tail_;             // the text's last bytes, fewer than the longest breaker has
  std::vector<TokenId> tokens_;  // at least the last last_n_ tokens, if there are that many
  size_t unbroken_ = 0;          // tokens after the last one in which a breaker ended
  // Scratch memory.
  std::vector<uint32_t> lengths_;
  std::vector<std::pair<TokenId, float>> found_;
};

}  // namespace larder::serving::sampling
