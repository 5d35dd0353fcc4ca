// BPE: byte-level byte-pair encoding (tokenizer.ggml.model "gpt2"). A regular expression cuts the
// text into words, then each word's bytes are merged by rank. Vocabularies write bytes as printable
// characters (GPT-2's alphabet: a space is U+0120).
#pragma once

#include <array>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/pretokenizer/pretokenizer.h"
#include "model/tokenizer/tokenizer_data.h"
#include "model/tokenizer/tokenizer_merge.h"
#include "model/tokenizer/tokenizer_model.h"

namespace larder::model::inline tokenizer {

class BpeModel final : public TextModel {
 public:
  // `data` must be checked (CheckTokenizerData) and `pieces` be BpePieces(data); both must outlive
  // this. Throws Error for an unknown pre-tokenizer, a malformed merge, or a byte of characters
  // without a token if there is no unknown token.
  BpeModel(const TokenizerData& data, const std::vector<std::string>& pieces);

  void Encode(std::string_view text, bool after_special, std::vector<TokenId>& out) const override;

 private:
  TokenId Intern(std::string_view bytes);

  PreTokenizer pre_tokenizer_;
  TokenId size_;
  std::unordered_map<std::string_view, TokenId> ids_;  // bytes -> id; no control or unknown tokens
  std::array<TokenId, 256> byte_symbols_;              // where merging starts
  std::array<TokenId, 256> byte_ids_;  // written for the bytes of a symbol that is not a token;
                                       // -1: nothing, for a byte that no character has
  std::unordered_map<uint64_t, Merger::Merge> merges_;
  // Symbols that merges name but the vocabulary lacks. Their ids start at size_; if they remain
  // after merging they are written as bytes.
  std::deque<std::string> extra_;
};

// The bytes that each token stands for.
std::vector<std::string> BpePieces(const TokenizerData& data);

// Convert GPT-2's alphabet to bytes and back. Characters outside the alphabet are kept.
std::string BytesFromAlphabet(std::string_view text);
std::string AlphabetFromBytes(std::string_view bytes);

}  // namespace larder::model::tokenizer
