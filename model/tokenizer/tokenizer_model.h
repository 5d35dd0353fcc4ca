// TextModel: how one kind of tokenizer (SPM, BPE) turns text without special tokens into ids.
// Immutable, thread-safe.
#pragma once

#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline tokenizer {

class TextModel {
 public:
  virtual ~TextModel() = default;

  // Appends the ids of `text`, which is not empty and below 2 GiB. `after_special`: `text` is the
  // start of the whole text or follows a special token.
  virtual void Encode(std::string_view text, bool after_special,
                      std::vector<TokenId>& out) const = 0;
};

}  // namespace larder::model::tokenizer
