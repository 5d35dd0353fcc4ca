// SPM: SentencePiece's BPE (tokenizer.ggml.model "llama"). Spaces are U+2581; characters are merged by score;
// what the vocabulary lacks becomes byte tokens <0xXX>.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/tokenizer/tokenizer_data.h"
#include "model/tokenizer/tokenizer_model.h"

namespace larder::model {

class SpmModel final : public TextModel {
 public:
  // `data` is checked (CheckTokenizerData) and outlives this. Throws Error if a byte has neither token nor
  // unknown token.
  explicit SpmModel(const TokenizerData& data);

  void Encode(std::string_view text, bool after_special, std::vector<TokenId>& out) const override;

 private:
  const TokenizerData& data_;
  std::unordered_map<std::string_view, TokenId>
      ids_;  // what merging may make: no control, unknown or byte tokens
  std::array<TokenId, 256> byte_ids_;
  // Neighbouring characters that some token has inside it. Between any others no merge can ever happen, so
  // the text is cut there first, and each piece merged alone: the same result, with a heap of a word's size
  // in place of the text's.
  std::unordered_set<uint64_t> joined_;
};

// The bytes that each token stands for.
std::vector<std::string> SpmPieces(const TokenizerData& data);

}  // namespace larder::model
