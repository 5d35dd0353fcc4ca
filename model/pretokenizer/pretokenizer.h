// PreTokenizer: cuts text into the words that BPE merges within, by the regular expression that a
// model family publishes. Immutable, thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

namespace larder::model::inline pretokenizer {

class PreTokenizer {
 public:
  // `name` as in tokenizer.ggml.pre. Throws an Error that begins with `source` for an unknown name.
  PreTokenizer(std::string_view name, std::string_view source);
  ~PreTokenizer();

  // Calls `word` for each word; the words together are `text`, byte for byte. A run of bytes that
  // are not UTF-8 is a word of its own; the text before it is split as if it ended there, the text
  // after it as if it began there.
  void Split(std::string_view text, const std::function<void(std::string_view)>& word) const;

  // Whether a word that is in the vocabulary becomes that token, whatever the merges say.
  bool ignore_merges() const { return ignore_merges_; }

 private:
  struct Regex;
  std::unique_ptr<const Regex> regex_;
  bool ignore_merges_ = false;
};

}  // namespace larder::model::pretokenizer
