// Vocabulary: the tokens of a model as trees of their bytes, so that a mask over all tokens is a
// walk that leaves out what cannot follow. Made once per server; immutable; any thread.
//
// Most tokens are plain: characters that a JSON string has unescaped, and nothing else. They have a
// tree of their own, and sets by how many characters they have: inside a string they are decided
// without a walk.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace larder::serving::inline constraint {

using model::TokenId;

class Vocabulary {
 public:
  // In preorder: a node's children follow it; `next` is behind its subtree.
  struct Node {
    uint32_t next;
    TokenId token;   // the token that ends here, -1: none; others with the same bytes: Same()
    uint16_t depth;  // bytes before this one
    uint8_t byte;
    uint8_t most_plain;  // the most characters of a plain token in the subtree; 255: 255 or more
  };
  static constexpr uint32_t kPlainLevels = 32;

  // `vocab`: the model's number of logits, at least the tokenizer's number of tokens. Tokens that
  // only the model has are never allowed.
  Vocabulary(const model::Tokenizer&, size_t vocab);

  size_t size() const { return size_; }
  size_t words() const { return (size_ + 63) / 64; }
  std::span<const Node> plain() const { return plain_; }
  std::span<const Node> other() const { return other_; }
  // A bit for each plain token of at most `characters` characters (1 to kPlainLevels; for more, all
  // plain tokens).
  std::span<const uint64_t> PlainOfAtMost(uint32_t characters) const;
  size_t longest() const { return longest_; }  // bytes of a token

  std::string_view bytes(TokenId token) const {  // empty for control tokens
    const auto i = static_cast<size_t>(token);
    return i < size_ ? std::string_view(text_).substr(begin_[i], begin_[i + 1] - begin_[i])
                     : std::string_view();
  }
  TokenId Same(TokenId token) const { return same_[static_cast<size_t>(token)]; }
  std::span<const TokenId> end_of_generation() const { return ends_; }
  bool IsEnd(TokenId token) const;
  // Control tokens that do not end a generation, with their texts.
  const std::vector<std::pair<std::string, TokenId>>& controls() const { return controls_; }
  // The token that a tokenizer makes of this text as a whole: a control token, or one that the file
  // defines besides its words; -1: none.
  TokenId Special(const std::string& text) const {
    const auto found = specials_.find(text);
    return found == specials_.end() ? -1 : found->second;
  }
  std::string_view ControlText(TokenId) const;

 private:
  void Build(std::vector<TokenId> tokens, std::vector<Node>& tree);

  size_t size_;
  size_t longest_ = 1;
  std::string text_;
  std::vector<size_t> begin_;
  std::vector<uint8_t> characters_;  // number of characters of plain tokens; 0: not plain
  std::vector<TokenId> same_, ends_;
  std::vector<std::pair<std::string, TokenId>> controls_;
  std::unordered_map<std::string, TokenId> specials_;
  std::vector<Node> plain_, other_;
  std::vector<std::vector<uint64_t>> plain_of_;
};

}  // namespace larder::serving::constraint
