// SPM: SentencePiece's BPE (tokenizer.ggml.model "llama"). Spaces are U+2581. Characters are merged
// by score; characters that the vocabulary lacks become byte tokens <0xXX>. In "gemma4" the order
// of tokenizer.ggml.merges is that of merging, and pairs that are not in it are not merged.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/tokenizer/tokenizer_data.h"
#include "model/tokenizer/tokenizer_merge.h"
#include "model/tokenizer/tokenizer_model.h"

namespace larder::model::inline tokenizer {

class SpmModel final : public TextModel {
 public:
  // `data` must be checked (CheckTokenizerData) and outlive this. Throws Error if a byte has no
  // token and there is no unknown token, or for a merge that is malformed or not of tokens.
  explicit SpmModel(const TokenizerData& data);

  void Encode(std::string_view text, bool after_special, std::vector<TokenId>& out) const override;

 private:
  // What two symbols become, if they may be merged.
  std::optional<Merger::Merge> Find(const Merger::Symbol& left, const Merger::Symbol& right) const;
  void ReadMerges();

  const TokenizerData& data_;
  const bool by_rank_;
  std::unordered_map<std::string_view, TokenId> ids_;  // what merging may make: no control, unknown
                                                       // or byte tokens
  std::array<TokenId, 256> byte_ids_;
  std::unordered_map<uint64_t, Merger::Merge> merges_;  // by_rank_: of two ids
  // Pairs of neighbouring characters that occur inside a token. Between other characters no merge
  // is possible, so the text is cut there first and each piece is merged alone. The result is the
  // same, with a heap of the size of a word instead of the text.
  std::unordered_set<uint64_t> joined_;
};

// The bytes that each token stands for.
std::vector<std::string> SpmPieces(const TokenizerData& data);

}  // namespace larder::model::tokenizer
