#include "model/tokenizer_specials.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <tuple>

namespace larder::model {

SpecialTokens::SpecialTokens(const TokenizerData& data) {
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const TokenType type = data.types[i];
    const bool always = type == TokenType::kUserDefined;
    if (!always && type != TokenType::kControl && type != TokenType::kUnknown) continue;
    if (data.tokens[i].empty()) continue;
    sorted_.push_back({data.tokens[i], static_cast<TokenId>(i), always});
    first_byte_[static_cast<uint8_t>(data.tokens[i][0])] = true;
  }
  std::stable_sort(sorted_.begin(), sorted_.end(),
                   [](const Special& a, const Special& b) { return a.text < b.text; });
}

std::vector<SpecialTokens::Fragment> SpecialTokens::Split(std::string_view text, bool parse_special) const {
  struct Match {
    size_t begin;
    const Special* special;
  };
  std::vector<Match> matches;
  for (size_t begin = 0; begin < text.size(); ++begin) {
    if (!first_byte_[static_cast<uint8_t>(text[begin])]) continue;
    // Narrow the sorted list byte by byte: [low, high) are the tokens that begin with text[begin, begin +
    // length).
    auto low = sorted_.begin();
    auto high = sorted_.end();
    for (size_t length = 1; low != high && begin + length <= text.size(); ++length) {
      const auto byte = static_cast<uint8_t>(text[begin + length - 1]);
      const auto at = [&](const Special& s) { return static_cast<uint8_t>(s.text[length - 1]); };
      low = std::partition_point(low, high, [&](const Special& s) { return at(s) < byte; });
      high = std::partition_point(low, high, [&](const Special& s) { return at(s) == byte; });
      while (low != high && low->text.size() == length) {
        if (parse_special || low->always) matches.push_back({begin, &*low});
        ++low;
      }
    }
  }

  std::sort(matches.begin(), matches.end(), [](const Match& a, const Match& b) {
    return std::tuple(b.special->text.size(), a.special->id, a.begin) <
           std::tuple(a.special->text.size(), b.special->id, b.begin);
  });
  std::map<size_t, const Special*> taken;  // by where they begin; they do not overlap
  for (const Match& match : matches) {
    const auto next = taken.lower_bound(match.begin);
    if (next != taken.end() && next->first < match.begin + match.special->text.size()) continue;
    if (next != taken.begin()) {
      const auto before = std::prev(next);
      if (before->first + before->second->text.size() > match.begin) continue;
    }
    taken.emplace_hint(next, match.begin, match.special);
  }

  std::vector<Fragment> fragments;
  size_t done = 0;
  for (const auto& [begin, special] : taken) {
    if (begin > done) fragments.push_back({text.substr(done, begin - done), -1});
    fragments.push_back({special->text, special->id});
    done = begin + special->text.size();
  }
  if (done < text.size()) fragments.push_back({text.substr(done), -1});
  return fragments;
}

}  // namespace larder::model
