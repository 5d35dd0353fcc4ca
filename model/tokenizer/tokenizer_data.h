// TokenizerData: what a GGUF file says about its tokenizer (tokenizer.*), as plain values. Tests
// also make it by hand.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/gguf/gguf.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline tokenizer {

// By GGUF's numbers.
enum class TokenType : int32_t { kNormal = 1, kUnknown, kControl, kUserDefined, kUnused, kByte };

// SPM whose merges have ranks, not scores.
inline constexpr std::string_view kSpmByRank = "gemma4";

struct TokenizerData {
  std::string source;  // the file, for messages
  std::string model;   // "llama", "gemma4" (SPM) or "gpt2" (byte-level BPE)
  std::string pre;     // BPE: the pre-tokenizer's name
  std::vector<std::string> tokens;
  std::vector<TokenType> types;     // empty: all normal
  std::vector<float> scores;        // SPM (but gemma4): the higher, the earlier a merge
  std::vector<std::string> merges;  // BPE, gemma4: "left right", the first is merged first
  TokenId bos = -1;                 // -1: none, here and below
  TokenId eos = -1;
  TokenId eot = -1;
  TokenId eom = -1;
  TokenId unk = -1;
  FimTokens fim;
  std::optional<bool> add_bos;           // unset: true for SPM, BPE by its family
  std::optional<bool> add_eos;           // unset: false
  std::optional<bool> add_space_prefix;  // unset: true for "llama"; BPE never has one
  std::string chat_template;
  std::string tool_use_template;  // tokenizer.chat_template.tool_use: another one for chats with
                                  // tools
};

// Throws the Errors of Tokenizer::FromGguf for keys that are missing or of a wrong type.
TokenizerData ReadTokenizerData(const GgufFile&);

// Throws the Error of Tokenizer::FromGguf for a kind of tokenizer or of pre-tokenizer that is not
// supported. Reads two keys; a file without a tokenizer passes.
void CheckTokenizerIsKnown(const GgufFile&);

// Whether the tokenizer is SPM, else it is BPE. Throws Error if it is neither.
bool CheckIsSpm(std::string_view model, std::string_view source);

// Throws Error if lengths differ, a type or a score is invalid, or an id is outside the vocabulary.
// Fills the unset fields. Turns well-known end-of-turn tokens, which some converters write as
// normal tokens, into control tokens.
void CheckTokenizerData(TokenizerData&);

// Tokens that end a turn or a text in the model families we know, by their text.
bool IsEndOfTurnText(std::string_view token_text);

}  // namespace larder::model::tokenizer
