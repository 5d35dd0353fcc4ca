// SPM: SentencePiece's BPE (tokenizer.ggml.model "llama"). Spaces are U+2581. Characters are merged
// by score; characters that the vocabulary lacks become byte tokens <0xXX>.
#pragma once

#include <array>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/tokenizer/tokenizer_data.h"
#include "model/tokenizer/tokenizer_model.h"

namespace larder::model::inline tokenizer {

class SpmModel final : public TextModel {
 public:
  // `data` must be checked (CheckTokenizerData) and outlive this. Throws Error if a byte has no
  // token and there is no unknown token.
  explicit SpmModel(const TokenizerData& data);

  void Encode(std::string_view text, bool after_special, std::vector<TokenId>& out) const override;

 private:
  const TokenizerData& data_;
  std::unordered_map<std::string_view, TokenId> ids_;  // what merging may make: no control, unknown
                                                       // or byte tokens
  std::array<TokenId, 256> byte_ids_;
  // Pairs of neighbouring characters that occur inside a token. Between other characters no merge
  // is possible, so the text is cut there first and each piece is merged alone. The result is the
  // same, with a heap of the size of a word instead of the text.
  std::unordered_set<uint64_t> joined_;
};

// The bytes that each token stands for.
std::vector<std::string> SpmPieces(const TokenizerData& data);

}  // namespace larder::model::tokenizer
