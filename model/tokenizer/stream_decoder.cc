#include <algorithm>
#include <utility>

#include "model/pretokenizer/utf8.h"
#include "model/tokenizer/tokenizer.h"

namespace larder::model::inline tokenizer {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";  // U+FFFD

}  // namespace

StreamDecoder::StreamDecoder(std::shared_ptr<const Tokenizer> tokenizer, bool special,
                             bool continues, Exceptions exceptions)
    : tokenizer_(std::move(tokenizer)),
      special_(special),
      first_(!continues && tokenizer_->drops_leading_space()),
      exceptions_(std::move(exceptions)) {}

std::string StreamDecoder::Add(TokenId id) {
  const auto has = [id](const std::vector<TokenId>& ids) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
  };
  std::string piece;
  if (special_ || !has(exceptions_.hidden))
    piece = tokenizer_->Piece(id, special_ || has(exceptions_.shown));
  if (first_ && !piece.empty() && !tokenizer_->IsControl(id)) {
    if (piece[0] == ' ') piece.erase(0, 1);
    first_ = false;
  }
  held_ += piece;

  std::string text;
  std::string_view rest = held_;
  while (!rest.empty()) {
    const Utf8Step step = NextUtf8(rest);
    if (step.kind == Utf8Kind::kIncomplete) break;
    text += step.kind == Utf8Kind::kCharacter ? rest.substr(0, step.bytes) : kReplacement;
    rest.remove_prefix(step.bytes);
  }
  held_.erase(0, held_.size() - rest.size());
  return text;
}

std::string StreamDecoder::Finish() {
  const std::string text(held_.empty() ? std::string_view() : kReplacement);
  held_.clear();
  return text;
}

}  // namespace larder::model::tokenizer
