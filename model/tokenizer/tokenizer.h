// Tokenizer: text <-> token ids, as the model's GGUF file defines it (tokenizer.ggml.*): SPM (`llama`) and
// byte-level BPE (`gpt2` with pre-tokenizer `llama-bpe` or `qwen2`). Immutable after construction;
// thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf/gguf.h"

namespace larder::model {

using TokenId = int32_t;

struct TokenizerData;  // model/tokenizer/tokenizer_data.h

class Tokenizer {
 public:
  // Throws Error: unknown tokenizer model or pre-tokenizer (names those supported), missing vocabulary, ids
  // out of range.
  static std::shared_ptr<const Tokenizer> FromGguf(const GgufFile&);
  static std::shared_ptr<const Tokenizer> FromData(TokenizerData);  // the same, from plain data
  virtual ~Tokenizer() = default;

  // parse_special: special tokens written in the text ("<|eot_id|>") become their ids; otherwise plain text.
  // Adds BOS/EOS only by add_bos (the file's add_bos_token says whether a prompt wants it: `wants_bos()`; EOS
  // follows the text only if the file's add_eos_token is true too). Any bytes are taken: what is not UTF-8
  // becomes byte tokens. Plain text never becomes a control token, even where merges could spell one.
  std::vector<TokenId> Encode(std::string_view text, bool add_bos, bool parse_special) const;

  // The bytes of one token (byte tokens give one byte; control tokens nothing unless `special`).
  std::string Piece(TokenId, bool special = false) const;
  std::string Decode(std::span<const TokenId>,
                     bool special = false) const;  // leading-space rule of SPM applied

  size_t size() const;
  TokenId bos() const;  // -1: none
  TokenId eos() const;
  bool wants_bos() const;
  bool IsEndOfGeneration(TokenId) const;  // eos, eot, <|eot_id|>, <|im_end|>, <|end|> ...
  bool IsControl(TokenId) const;
  bool drops_leading_space() const;  // SPM: Encode put a space before the text, Decode takes it away again
  TokenId Find(std::string_view token_text) const;  // exact vocabulary entry, -1 if none
  std::string_view chat_template() const;           // tokenizer.chat_template or empty
  std::string_view model_name() const;              // "llama" or "gpt2"
  std::string_view pre_name() const;

 protected:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// Streams text: bytes go in token by token, whole UTF-8 characters come out. An incomplete character is held
// until it is complete; bytes that can't become one come out as U+FFFD. One per sequence. SPM drops the
// leading space of a text's first token: to stream text that goes on from a prompt ("Once upon" -> " a
// time"), say `continues`.
class StreamDecoder {
 public:
  explicit StreamDecoder(std::shared_ptr<const Tokenizer>, bool special = false, bool continues = false);
  std::string Add(TokenId);
  std::string Finish();  // what is held, as U+FFFD

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool special_ = false;
  bool first_ = true;
  std::string held_;
};

}  // namespace larder::model
