// Vocabularies small enough to follow by hand, for tests and the fuzzer.
#pragma once

#include <fmt/format.h>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/tokenizer_data.h"

namespace larder::model::inline tokenizer {

inline TokenId AddToken(TokenizerData& data, std::string text, TokenType type = TokenType::kNormal,
                        float score = 0) {
  data.tokens.push_back(std::move(text));
  data.types.push_back(type);
  data.scores.push_back(score);
  return static_cast<TokenId>(data.tokens.size()) - 1;
}

// SPM: 0 <unk>, 1 <s>, 2 </s>, 3..258 bytes, then a few words.
inline TokenizerData TinySpm() {
  TokenizerData data;
  data.source = "tiny-spm";
  data.model = "llama";
  AddToken(data, "<unk>", TokenType::kUnknown);
  AddToken(data, "<s>", TokenType::kControl);
  AddToken(data, "</s>", TokenType::kControl);
  for (int b = 0; b < 256; ++b) AddToken(data, fmt::format("<0x{:02X}>", b), TokenType::kByte);
  float score = 0;
  for (const char* word :
       {"he", "ll", "hell", "hello", "▁hello", "▁w", "or", "ld", "world", "▁▁", "s>", "ü"}) {
    AddToken(data, word, TokenType::kNormal, --score);
  }
  for (const char* letter : {"▁", "h", "e", "l", "o", "w", "r", "d", "s", "<", ">"}) {
    AddToken(data, letter, TokenType::kNormal, --score);
  }
  AddToken(data, "<tool>", TokenType::kUserDefined);
  AddToken(data, "<|eot_id|>", TokenType::kNormal);  // as some converters write it
  data.bos = 1;
  data.eos = 2;
  data.unk = 0;
  return data;
}

// The same with ranks: "world" has no merge, and "ll" comes before "he".
inline TokenizerData TinySpmByRank() {
  TokenizerData data = TinySpm();
  data.source = "tiny-gemma4";
  data.model = kSpmByRank;
  data.scores.clear();
  data.merges = {"l l", "h e", "he ll", "hell o", "▁ hello", "▁ w", "o r", "l d", "▁ ▁"};
  AddToken(data, "<turn|>", TokenType::kControl);
  data.scores.clear();
  data.bos = 2;
  data.eos = 1;
  return data;
}

// BPE: token b is byte b, then a few words and special tokens.
inline TokenizerData TinyBpe(std::string pre) {
  TokenizerData data;
  data.source = "tiny-bpe";
  data.model = "gpt2";
  data.pre = std::move(pre);
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    AddToken(data, AlphabetFromBytes({&byte, 1}));
  }
  for (const char* word : {"he", "ll", "hell", "hello", "Ġhello", "12", "ĠĠ"}) AddToken(data, word);
  data.merges = {"h e", "l l", "he ll", "hell o", "Ġ hello", "1 2", "Ġ Ġ"};
  AddToken(data, "world");  // no merges lead to it
  AddToken(data, "<tool>", TokenType::kUserDefined);
  data.bos = AddToken(data, "<|begin|>", TokenType::kControl);
  data.eos = AddToken(data, "<|eot_id|>", TokenType::kControl);
  data.scores.clear();
  return data;
}

}  // namespace larder::model::tokenizer
