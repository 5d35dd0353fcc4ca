// SpecialTokens: finds the control and user-defined tokens that are written out in a text and cuts the text
// at them. The model file may mean harm: time and memory are linear in the text, whatever the tokens are.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer_data.h"

namespace larder::model {

class SpecialTokens {
 public:
  struct Fragment {
    std::string_view text;
    TokenId id;  // -1: plain text
  };

  // Real ones have some 20 bytes, a family's hundreds or thousands of them some 100 KB.
  static constexpr size_t kMaxBytes = 1 << 10;     // of one
  static constexpr size_t kMaxAllBytes = 4 << 20;  // of all; the automaton takes 17 bytes for each

  // `data` must outlive this. Throws Error if a token is longer than kMaxBytes, or all are than kMaxAllBytes.
  explicit SpecialTokens(const TokenizerData& data);

  // User-defined tokens are found always, control and unknown tokens only with parse_special. From left to
  // right; of those that begin at one place the longest, of equal ones the first of the vocabulary (as
  // Hugging Face's tokenizers cut). llama.cpp takes the longest of the whole text first, which differs where
  // the end of one token is the beginning of another; no vocabulary that we know has such. steps: if given,
  // what the search's work is added to.
  std::vector<Fragment> Split(std::string_view text, bool parse_special, size_t* steps = nullptr) const;

 private:
  // A trie of the tokens written backwards, in order of depth, with Aho and Corasick's failure links
  // (Efficient string matching, CACM 18, 1975). Read over the text from its end, it says at each place which
  // is the longest token that begins there, without a list of the others.
  struct Node {
    uint32_t fail = 0;         // the longest proper suffix of this node's bytes that is a node
    uint32_t first_child = 0;  // children lie side by side, sorted by byte, until the next node's first_child
    TokenId any = -1;          // the longest token that ends (backwards) here
    TokenId always = -1;       // the same among user-defined ones
  };
  static constexpr uint32_t kNone = 0;  // the root is nobody's child
  uint32_t Child(uint32_t node, uint8_t byte) const;

  const TokenizerData& data_;
  std::vector<Node> nodes_;    // and one more at the end, for the last one's children
  std::vector<uint8_t> byte_;  // that leads to the node
  std::array<uint32_t, 256> of_root_{};
};

}  // namespace larder::model
