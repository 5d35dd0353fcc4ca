// SpecialTokens: finds the control and user-defined tokens that are written out in a text and cuts the text
// at them.
#pragma once

#include <array>
#include <string_view>
#include <vector>

#include "model/tokenizer_data.h"

namespace larder::model {

class SpecialTokens {
 public:
  struct Fragment {
    std::string_view text;
    TokenId id;  // -1: plain text
  };

  // `data` must outlive this.
  explicit SpecialTokens(const TokenizerData& data);

  // User-defined tokens are found always, control and unknown tokens only with parse_special. Where tokens
  // overlap, the longer one wins, then the one that comes first in the vocabulary, then the leftmost.
  std::vector<Fragment> Split(std::string_view text, bool parse_special) const;

 private:
  struct Special {
    std::string_view text;
    TokenId id;
    bool always;
  };
  std::vector<Special> sorted_;  // by text
  std::array<bool, 256> first_byte_{};
};

}  // namespace larder::model
