// PreTokenizer: cuts text into the words that BPE merges within, by the rules that a model family
// publishes (split_rules.h, families.cc). Immutable, thread-safe.
#pragma once

#include <array>
#include <functional>
#include <string_view>
#include <vector>

#include "model/pretokenizer/split_rules.h"

namespace larder::model::inline pretokenizer {

class PreTokenizer {
 public:
  // `name` as in tokenizer.ggml.pre. Throws an Error that begins with `source` for an unknown name.
  PreTokenizer(std::string_view name, std::string_view source);

  // Calls `word` for each word; the words together are `text`, byte for byte. A run of bytes that
  // are not UTF-8 is a word of its own; the text before it is split as if it ended there, the text
  // after it as if it began there. Time is linear in the text, whatever it is.
  void Split(std::string_view text, const std::function<void(std::string_view)>& word) const;

  // Whether a word that is in the vocabulary becomes that token, whatever the merges say.
  bool ignore_merges() const { return family_.ignore_merges; }
  // Whether prompts begin with BOS if the file does not say.
  bool add_bos() const { return family_.add_bos; }

 private:
  // For each stage and kind of a first character the rules that may match, a bit each.
  using Starts = std::array<uint32_t, kKinds>;
  class Run;

  const Family& family_;
  std::vector<Starts> starts_;
};

// Throws the Error of PreTokenizer's constructor.
const Family& FindFamily(std::string_view name, std::string_view source);

}  // namespace larder::model::pretokenizer
