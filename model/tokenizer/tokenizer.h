// Tokenizer: text <-> token ids, as the model's GGUF file defines it (tokenizer.ggml.*): SPM
// (`llama`) and byte-level BPE (`gpt2`, with the pre-tokenizers of model/pretokenizer). Immutable
// after construction; thread-safe.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/gguf/gguf.h"
#include "model/tokenizer/text_piece.h"

namespace larder::model::inline tokenizer {

using TokenId = int32_t;

struct TokenizerData;  // model/tokenizer/tokenizer_data.h

// Tokens by which models of code fill in the middle; -1: none.
struct FimTokens {
  TokenId prefix = -1, suffix = -1, middle = -1;
  TokenId repository = -1, file = -1;  // begin a repository's name, a file's name
};

class Tokenizer {
 public:
  // Throws Error for an unknown tokenizer model or pre-tokenizer (it names those supported), a
  // missing vocabulary, or ids out of range.
  static std::shared_ptr<const Tokenizer> FromGguf(const GgufFile&);
  static std::shared_ptr<const Tokenizer> FromData(TokenizerData);  // the same, from plain data
  virtual ~Tokenizer() = default;

  // parse_special: special tokens that the text spells out ("<|eot_id|>") become their ids; without
  // it they are plain text. add_bos adds BOS in front, and EOS at the end if the file's
  // add_eos_token is true; wants_bos() (the file's add_bos_token) says whether a prompt should have
  // it. Any bytes are accepted; those that are not UTF-8 become byte tokens (or nothing, in BPE
  // vocabularies that have none for them). Plain text never becomes a control token, even where
  // merges could spell one.
  std::vector<TokenId> Encode(std::string_view text, bool add_bos, bool parse_special) const;

  // The same for a text of pieces: control tokens are found only where one piece that is trusted,
  // or several that adjoin, spell them wholly. What untrusted text spells is plain text. Everything
  // else is as for the whole text: words run across the pieces. With add_bos, a text that begins
  // with BOS gets no second one.
  std::vector<TokenId> EncodePieces(std::span<const TextPiece>, bool add_bos) const;

  // The bytes of one token (byte tokens give one byte; control tokens nothing unless `special`).
  std::string Piece(TokenId, bool special = false) const;
  std::string Decode(std::span<const TokenId>,
                     bool special = false) const;  // leading-space rule of SPM applied

  size_t size() const;
  TokenId bos() const;  // -1: none
  TokenId eos() const;
  const FimTokens& fim() const;  // by the file's fim_* keys, else by the names that families give
                                 // them
  bool wants_bos() const;
  bool wants_eos() const;  // whether EOS ends a text to be embedded (the file's add_eos_token)
  bool IsEndOfGeneration(TokenId) const;  // eos, eot, <|eot_id|>, <|im_end|>, <|end|> ...
  bool IsControl(TokenId) const;
  bool IsUserDefined(TokenId) const;  // found in every text, trusted or not
  bool drops_leading_space() const;   // SPM: Encode puts a space before the text, Decode removes it
                                      // again
  TokenId Find(std::string_view token_text) const;  // exact vocabulary entry, -1 if none
  std::string_view chat_template() const;           // tokenizer.chat_template or empty
  std::string_view tool_use_template() const;       // tokenizer.chat_template.tool_use or empty
  std::string_view model_name() const;              // "llama", "gemma4", "gpt2"
  std::string_view pre_name() const;

 protected:
  struct Impl;
  std::shared_ptr<const Impl> impl_;
};

// StreamDecoder: bytes go in token by token, whole UTF-8 characters come out. An incomplete
// character is held until it is complete; bytes that cannot become a character come out as U+FFFD.
// One per sequence. SPM drops the leading space of a text's first token; to stream text that
// continues a prompt ("Once upon" -> " a time"), set `continues`.
class StreamDecoder {
 public:
  // Tokens that are not treated like others of their type: control tokens that are shown, others
  // that are hidden.
  struct Exceptions {
    std::vector<TokenId> shown, hidden;
  };
  // special: shows all control tokens, without exceptions.
  explicit StreamDecoder(std::shared_ptr<const Tokenizer>, bool special = false,
                         bool continues = false, Exceptions exceptions = {});
  std::string Add(TokenId);
  std::string Finish();  // returns U+FFFD for an incomplete character

 private:
  std::shared_ptr<const Tokenizer> tokenizer_;
  bool special_ = false;
  bool first_ = true;
  Exceptions exceptions_;
  std::string held_;
};

}  // namespace larder::model::tokenizer
