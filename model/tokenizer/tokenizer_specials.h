// SpecialTokens: finds the control and user-defined tokens that a text spells out, and cuts the
// text at them. The model file may be malicious, so time and memory are linear in the text,
// whatever the tokens are.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer_data.h"

namespace larder::model::inline tokenizer {

class SpecialTokens {
 public:
  struct Fragment {
    std::string_view text;
    TokenId id;  // -1: plain text
  };

  // Real special tokens have some 20 bytes, and the hundreds or thousands of a model family some
  // 100 KB in all.
  static constexpr size_t kMaxBytes = 1 << 10;     // per token
  static constexpr size_t kMaxAllBytes = 4 << 20;  // in all; the automaton takes 17 bytes for each

  // `data` must outlive this. Throws Error if a token exceeds kMaxBytes, or all together
  // kMaxAllBytes.
  explicit SpecialTokens(const TokenizerData& data);

  // User-defined tokens are always found, control and unknown tokens only with parse_special. The
  // search goes from left to right and takes the longest token that begins at a place, of equal
  // ones the first of the vocabulary (as Hugging Face's tokenizers do). llama.cpp takes the longest
  // token of the whole text first; that differs only if the end of one token is the start of
  // another, and no vocabulary that we know has such tokens. The number of the search's steps is
  // added to *steps, if given.
  std::vector<Fragment> Split(std::string_view text, bool parse_special,
                              size_t* steps = nullptr) const;

 private:
  // A trie of the reversed tokens, in order of depth, with Aho and Corasick's failure links
  // (Efficient string matching, CACM 18, 1975). It reads the text from its end and gives, at each
  // place, the longest token that begins there, without a list of the others.
  struct Node {
    uint32_t fail = 0;         // the longest proper suffix of this node's bytes that is a node
    uint32_t first_child = 0;  // children lie side by side, sorted by byte, until the next node's
                               // first_child
    TokenId any = -1;          // the longest token that ends (backwards) here
    TokenId always = -1;       // the same among user-defined ones
  };
  static constexpr uint32_t kNone = 0;  // no child: 0 is the root, which is not a child of any node
  uint32_t Child(uint32_t node, uint8_t byte) const;

  const TokenizerData& data_;
  std::vector<Node> nodes_;    // with one more at the end, for the children of the last node
  std::vector<uint8_t> byte_;  // the byte that leads to the node
  std::array<uint32_t, 256> of_root_{};
};

}  // namespace larder::model::tokenizer
