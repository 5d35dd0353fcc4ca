// PreTokenizer: cuts text into the words that BPE merges within, by the regular expression that a model
// family publishes. Immutable, thread-safe.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

namespace larder::model {

class PreTokenizer {
 public:
  // `name` as in tokenizer.ggml.pre. Throws Error, which begins with `source`, for one that is not known.
  PreTokenizer(std::string_view name, std::string_view source);
  ~PreTokenizer();

  // Calls `word` for each word; together the words are `text`, byte for byte. A run of bytes that are not
  // UTF-8 is a word of its own, and the text on its either side is split as if it ended and began there.
  void Split(std::string_view text, const std::function<void(std::string_view)>& word) const;

  // Whole words that are in the vocabulary are taken as they are, whatever the merges say.
  bool ignore_merges() const { return ignore_merges_; }

 private:
  struct Regex;
  std::unique_ptr<const Regex> regex_;
  bool ignore_merges_ = false;
};

}  // namespace larder::model
