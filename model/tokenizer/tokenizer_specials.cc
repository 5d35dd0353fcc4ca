#include "model/tokenizer/tokenizer_specials.h"

#include <algorithm>
#include <string>

#include "base/error.h"

namespace larder::model::inline tokenizer {

SpecialTokens::SpecialTokens(const TokenizerData& data) : data_(data) {
  std::vector<TokenId> specials;
  size_t all_bytes = 0;
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const TokenType type = data.types[i];
    if (type != TokenType::kUserDefined && type != TokenType::kControl &&
        type != TokenType::kUnknown)
      continue;
    const size_t bytes = data.tokens[i].size();
    if (bytes == 0) continue;
    all_bytes += bytes;
    if (bytes > kMaxBytes || all_bytes > kMaxAllBytes) {
      throw Error(
          "{}: key 'tokenizer.ggml.tokens': special token {} has {} bytes, with those before it "
          "{}; expected at most {} each and {} in all",
          data.source, i, bytes, all_bytes, kMaxBytes, kMaxAllBytes);
    }
    specials.push_back(static_cast<TokenId>(i));
  }
  const auto text_of = [&](TokenId id) -> const std::string& {
    return data.tokens[static_cast<size_t>(id)];
  };
  std::stable_sort(specials.begin(), specials.end(), [&](TokenId a, TokenId b) {
    return std::lexicographical_compare(
        text_of(a).rbegin(), text_of(a).rend(), text_of(b).rbegin(), text_of(b).rend(),
        [](char x, char y) { return static_cast<uint8_t>(x) < static_cast<uint8_t>(y); });
  });

  // Breadth first. A node is a common start of a range of the sorted tokens.
  struct Range {
    size_t begin, end, depth;
  };
  std::vector<Range> ranges = {{0, specials.size(), 0}};
  nodes_.emplace_back();
  byte_.push_back(0);
  for (size_t node = 0; node < ranges.size(); ++node) {
    size_t begin = ranges[node].begin;
    const size_t end = ranges[node].end, depth = ranges[node].depth;
    nodes_[node].first_child = static_cast<uint32_t>(nodes_.size());
    // Tokens that end at this depth come first, equal ones in the order of the vocabulary.
    for (; begin < end && text_of(specials[begin]).size() == depth; ++begin) {
      const TokenId id = specials[begin];
      if (nodes_[node].any < 0) nodes_[node].any = id;
      const bool always = data.types[static_cast<size_t>(id)] == TokenType::kUserDefined;
      if (always && nodes_[node].always < 0) nodes_[node].always = id;
    }
    while (begin < end) {
      const auto byte_of = [&](size_t i) {
        return static_cast<uint8_t>(
            *(text_of(specials[i]).rbegin() + static_cast<ptrdiff_t>(depth)));
      };
      const uint8_t byte = byte_of(begin);
      size_t same = begin + 1;
      while (same < end && byte_of(same) == byte) ++same;
      const auto child = static_cast<uint32_t>(nodes_.size());
      if (node == 0) of_root_[byte] = child;
      nodes_.emplace_back().fail = static_cast<uint32_t>(node);  // its parent, until the pass below
      byte_.push_back(byte);
      ranges.push_back({begin, same, depth + 1});
      begin = same;
    }
  }
  nodes_.emplace_back().first_child = static_cast<uint32_t>(byte_.size());

  // A node's link needs the links of less deep nodes, which lie before it.
  for (uint32_t node = 1; node < byte_.size(); ++node) {
    const uint32_t parent = nodes_[node].fail;
    uint32_t fail = 0;
    for (uint32_t from = parent; from != 0 && fail == kNone;) {
      from = nodes_[from].fail;
      fail = Child(from, byte_[node]);
    }
    nodes_[node].fail = fail;
    // Among the tokens that end here, the node's own is the longest.
    if (nodes_[node].any < 0) nodes_[node].any = nodes_[fail].any;
    if (nodes_[node].always < 0) nodes_[node].always = nodes_[fail].always;
  }
}

uint32_t SpecialTokens::Child(uint32_t node, uint8_t byte) const {
  if (node == 0) return of_root_[byte];
  const auto begin = byte_.begin() + nodes_[node].first_child,
             end = byte_.begin() + nodes_[node + 1].first_child;
  const auto found = std::lower_bound(begin, end, byte);
  return found == end || *found != byte ? kNone : static_cast<uint32_t>(found - byte_.begin());
}

std::vector<SpecialTokens::Fragment> SpecialTokens::Split(std::string_view text, bool parse_special,
                                                          size_t* steps) const {
  struct Match {
    size_t begin;
    TokenId id;
  };
  std::vector<Match> matches;  // the longest token at each place, from the text's end
  size_t work = text.size();
  uint32_t node = 0;
  for (size_t i = text.size(); i-- > 0;) {
    const auto byte = static_cast<uint8_t>(text[i]);
    uint32_t child = Child(node, byte);
    // Each iteration makes the node less deep, and each byte makes it at most one deeper. So there
    // are no more iterations in all than bytes.
    for (; child == kNone && node != 0; ++work) {
      node = nodes_[node].fail;
      child = Child(node, byte);
    }
    node = child;
    const TokenId id = parse_special ? nodes_[node].any : nodes_[node].always;
    if (id >= 0) matches.push_back({i, id});
  }

  std::vector<Fragment> fragments;
  size_t done = 0;
  for (auto match = matches.rbegin(); match != matches.rend(); ++match) {
    const auto [begin, id] = *match;
    ++work;
    if (begin < done) continue;
    if (begin > done) fragments.push_back({text.substr(done, begin - done), -1});
    const std::string_view special = data_.tokens[static_cast<size_t>(id)];
    fragments.push_back({text.substr(begin, special.size()), id});
    done = begin + special.size();
  }
  if (done < text.size()) fragments.push_back({text.substr(done), -1});
  if (steps != nullptr) *steps += work;
  return fragments;
}

}  // namespace larder::model::tokenizer
