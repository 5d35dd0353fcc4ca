// Test support: an answer parsed whole, byte by byte and in random pieces, with the same result.
// Included by tests and fuzzers only.
#pragma once

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "serving/answer/answer_parser.h"
#include "serving/answer/markers.h"

namespace larder::serving::inline answer {

struct ParsedCall {
  std::string name, id, arguments;
  bool ended = false;
};

struct ParsedAnswer {
  std::string content, reasoning;
  std::vector<ParsedCall> calls;
};

// Appends, and merges neighbours of one kind.
inline void Merge(std::vector<AnswerDelta>& all, const std::vector<AnswerDelta>& more) {
  using Kind = AnswerDelta::Kind;
  for (const AnswerDelta& delta : more) {
    const bool text = delta.kind == Kind::kContent || delta.kind == Kind::kReasoning ||
                      delta.kind == Kind::kArguments;
    if (text && !all.empty() && all.back().kind == delta.kind) {
      all.back().text += delta.text;
    } else {
      all.push_back(delta);
    }
  }
}

// `cuts`: how long the pieces may be; 0: all in one piece.
inline std::vector<AnswerDelta> DeltasOf(const AnswerParserOptions& options, std::string_view text,
                                         size_t cuts, unsigned seed = 0) {
  AnswerParser parser(options);
  std::minstd_rand random(seed);
  std::vector<AnswerDelta> all;
  while (!text.empty()) {
    const size_t length = cuts == 0 ? text.size() : 1 + random() % cuts;
    Merge(all, parser.Add(text.substr(0, length)));
    text.remove_prefix(std::min(length, text.size()));
  }
  Merge(all, parser.Finish());
  return all;
}

inline ParsedAnswer Collect(const std::vector<AnswerDelta>& deltas) {
  using Kind = AnswerDelta::Kind;
  ParsedAnswer answer;
  for (const AnswerDelta& delta : deltas) {
    switch (delta.kind) {
      case Kind::kContent:
        answer.content += delta.text;
        break;
      case Kind::kReasoning:
        answer.reasoning += delta.text;
        break;
      case Kind::kCallBegin:
        LARDER_CHECK(
            delta.call == answer.calls.size() && (delta.call == 0 || answer.calls.back().ended),
            "calls are numbered and do not overlap");
        answer.calls.push_back({.name = delta.text, .id = delta.id, .arguments = {}});
        break;
      case Kind::kArguments:
      case Kind::kCallEnd:
        LARDER_CHECK(delta.call + 1 == answer.calls.size() && !answer.calls.back().ended,
                     "the call is open");
        answer.calls.back().arguments += delta.text;
        answer.calls.back().ended = delta.kind == Kind::kCallEnd;
        break;
    }
  }
  LARDER_CHECK(answer.calls.empty() || answer.calls.back().ended, "every call ends");
  return answer;
}

inline ParsedAnswer ParseAnswer(const AnswerParserOptions& options, std::string_view text) {
  const auto whole = DeltasOf(options, text, 0);
  LARDER_CHECK(DeltasOf(options, text, 1) == whole, "byte by byte");
  for (unsigned seed = 1; seed <= 5; ++seed) {
    LARDER_CHECK(DeltasOf(options, text, 3 * seed, seed) == whole, "cut with seed {}", seed);
  }
  return Collect(whole);
}

inline nlohmann::ordered_json SomeTools() {
  return nlohmann::ordered_json::parse(
      R"([{"type": "function", "function": {"name": "f", "parameters": {
    "type": "object", "properties": {"a": {"type": "string"}, "b": {"type": "integer"}}}}}])");
}

inline std::string WithoutSpace(std::string_view text) {
  std::string bare(text);
  std::erase_if(bare, IsJsonSpace);
  return bare;
}

// Whether `kept` is `text` without some of its markers. Markers may touch but not overlap; white
// space does not count.
inline bool OnlyMarkersAreMissing(std::string_view text, std::string_view kept,
                                  const std::vector<Marker>& markers) {
  const std::string from = WithoutSpace(text), to = WithoutSpace(kept);
  std::vector<std::string> removable;
  for (const Marker& marker : markers) {
    if (std::string bare = WithoutSpace(marker.text); !bare.empty())
      removable.push_back(std::move(bare));
  }
  // reached[i]: how much of `to` the first i bytes of `from` can have become.
  std::vector<std::set<size_t>> reached(from.size() + 1);
  reached[0].insert(0);
  for (size_t i = 0; i < from.size(); ++i) {
    if (reached[i].empty()) continue;
    for (const size_t j : reached[i]) {
      if (j < to.size() && from[i] == to[j]) reached[i + 1].insert(j + 1);
    }
    for (const std::string& marker : removable) {
      if (from.compare(i, marker.size(), marker) == 0)
        reached[i + marker.size()].insert(reached[i].begin(), reached[i].end());
    }
  }
  return reached[from.size()].contains(to.size());
}

// Checks what holds for any text: the pieces do not matter, calls are numbered and end, and without
// a call nothing but markers is lost.
inline void CheckAnyText(const AnswerParserOptions& options, std::string_view text, unsigned seed) {
  const auto whole = DeltasOf(options, text, 0);
  LARDER_CHECK(DeltasOf(options, text, 1) == whole, "byte by byte");
  LARDER_CHECK(DeltasOf(options, text, 1 + seed % 32, seed) == whole, "in pieces");
  const ParsedAnswer answer = Collect(whole);
  if (!answer.calls.empty() || options.format == AnswerFormat::kHarmony) return;
  const auto markers = MarkersOf(options.format, true, true);
  std::string all;  // in order: content, and thoughts
  for (const AnswerDelta& delta : whole) all += delta.text;
  LARDER_CHECK(OnlyMarkersAreMissing(text, all, markers), "lost text of {}", text);
}

}  // namespace larder::serving::answer
