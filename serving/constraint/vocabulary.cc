#include "serving/constraint/vocabulary.h"

#include <algorithm>

#include "base/check.h"

namespace larder::serving::inline constraint {
namespace {

// How many characters a text has if all are plain in a JSON string and whole; 0: some are not. At
// most 255.
uint8_t PlainCharacters(std::string_view text) {
  size_t count = 0;
  for (size_t i = 0; i < text.size(); ++count) {
    const auto byte = [&](size_t at) {
      return at < text.size() ? static_cast<uint8_t>(text[at]) : 0;
    };
    const uint8_t lead = byte(i);
    if (lead < 0x80) {
      if (lead < 0x20 || lead == '"' || lead == '\\' || lead == 0x7f) return 0;
      ++i;
      continue;
    }
    const size_t following = lead < 0xc2   ? 0
                             : lead < 0xe0 ? 1
                             : lead < 0xf0 ? 2
                             : lead < 0xf5 ? 3
                                           : 0;
    if (following == 0) return 0;
    // Too long forms, surrogates and what is beyond U+10FFFF.
    const uint8_t second = byte(i + 1);
    const uint8_t low = lead == 0xe0 ? 0xa0 : lead == 0xf0 ? 0x90 : 0x80;
    const uint8_t high = lead == 0xed ? 0x9f : lead == 0xf4 ? 0x8f : 0xbf;
    if (second < low || second > high) return 0;
    for (size_t k = 2; k <= following; ++k) {
      if (byte(i + k) >> 6 != 2) return 0;
    }
    i += following + 1;
  }
  return static_cast<uint8_t>(std::min<size_t>(count, 255));
}

}  // namespace

Vocabulary::Vocabulary(const model::Tokenizer& tokenizer, size_t vocab) : size_(vocab) {
  std::vector<TokenId> plain, other;
  begin_.reserve(size_ + 1);
  characters_.assign(size_, 0);
  same_.assign(size_, -1);
  for (size_t i = 0; i < size_; ++i) {
    const auto token = static_cast<TokenId>(i);
    begin_.push_back(text_.size());
    if (i >= tokenizer.size()) continue;
    if (tokenizer.IsEndOfGeneration(token)) {
      ends_.push_back(token);
    } else if (tokenizer.IsControl(token)) {
      if (std::string text = tokenizer.Piece(token, true); !text.empty()) {
        specials_.emplace(text, token);
        controls_.emplace_back(std::move(text), token);
      }
    } else if (const std::string piece = tokenizer.Piece(token);
               !piece.empty() && piece.size() < UINT16_MAX) {
      if (tokenizer.IsUserDefined(token)) specials_.emplace(piece, token);
      text_ += piece;
      longest_ = std::max(longest_, piece.size());
      characters_[i] = PlainCharacters(piece);
      (characters_[i] > 0 ? plain : other).push_back(token);
    }
  }
  begin_.push_back(text_.size());
  plain_of_.assign(kPlainLevels + 1, std::vector<uint64_t>(words()));
  for (const TokenId token : plain) {
    const auto i = static_cast<size_t>(token);
    for (size_t level = std::min<size_t>(characters_[i], kPlainLevels + 1);
         level <= kPlainLevels + 1; ++level)
      plain_of_[level - 1][i / 64] |= uint64_t{1} << i % 64;
  }
  Build(std::move(plain), plain_);
  Build(std::move(other), other_);
}

void Vocabulary::Build(std::vector<TokenId> tokens, std::vector<Node>& tree) {
  std::sort(tokens.begin(), tokens.end(), [&](TokenId a, TokenId b) {
    const int order = bytes(a).compare(bytes(b));
    return order != 0 ? order < 0 : a < b;
  });
  std::vector<uint32_t> path;  // open nodes
  const auto close = [&](size_t depth) {
    while (path.size() > depth) {
      Node& node = tree[path.back()];
      node.next = static_cast<uint32_t>(tree.size());
      path.pop_back();
      if (!path.empty()) {
        Node& parent = tree[path.back()];
        parent.most_plain = std::max(parent.most_plain, node.most_plain);
      }
    }
  };
  std::string_view before;
  for (const TokenId token : tokens) {
    const std::string_view text = bytes(token);
    size_t same = 0;
    while (same < text.size() && same < before.size() && text[same] == before[same]) ++same;
    // the same bytes as the token before
    if (same == text.size() && !path.empty() && path.size() == same) {
      TokenId last = tree[path.back()].token;
      while (same_[static_cast<size_t>(last)] >= 0) last = same_[static_cast<size_t>(last)];
      same_[static_cast<size_t>(last)] = token;
      continue;
    }
    close(same);
    for (size_t i = same; i < text.size(); ++i) {
      path.push_back(static_cast<uint32_t>(tree.size()));
      tree.push_back({.next = 0,
                      .token = -1,
                      .depth = static_cast<uint16_t>(i),
                      .byte = static_cast<uint8_t>(text[i]),
                      .most_plain = 0});
    }
    tree.back().token = token;
    tree.back().most_plain = characters_[static_cast<size_t>(token)];
    before = text;
  }
  close(0);
  tree.shrink_to_fit();
}

std::span<const uint64_t> Vocabulary::PlainOfAtMost(uint32_t characters) const {
  LARDER_CHECK(characters > 0);
  return plain_of_[std::min(characters, kPlainLevels + 1) - 1];
}

bool Vocabulary::IsEnd(TokenId token) const {
  return std::find(ends_.begin(), ends_.end(), token) != ends_.end();
}

std::string_view Vocabulary::ControlText(TokenId token) const {
  for (const auto& [text, id] : controls_) {
    if (id == token) return text;
  }
  return {};
}

}  // namespace larder::serving::constraint
