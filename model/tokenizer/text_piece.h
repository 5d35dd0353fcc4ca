// TextPiece: text that says where it comes from. A rendered chat template is a list of them, and
// Tokenizer::EncodePieces makes tokens of it. Plain data, owned by whoever made it.
#pragma once

#include <span>
#include <string>

namespace larder::model::inline tokenizer {

struct TextPiece {
  std::string text;
  // It comes from the model's template, not from a message. Only trusted text can spell control
  // tokens.
  bool trusted = false;

  bool operator==(const TextPiece&) const = default;
};

inline std::string JoinPieces(std::span<const TextPiece> pieces) {
  std::string text;
  for (const TextPiece& piece : pieces) text += piece.text;
  return text;
}

}  // namespace larder::model::tokenizer
