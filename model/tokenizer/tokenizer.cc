#include "model/tokenizer/tokenizer.h"

#include <unordered_map>
#include <utility>

#include "base/error.h"
#include "model/pretokenizer/pretokenizer.h"
#include "model/tokenizer/bpe.h"
#include "model/tokenizer/spm.h"
#include "model/tokenizer/tokenizer_data.h"
#include "model/tokenizer/tokenizer_model.h"
#include "model/tokenizer/tokenizer_specials.h"

namespace larder::model::inline tokenizer {

struct Tokenizer::Impl {
  explicit Impl(TokenizerData d);

  TokenizerData data;
  std::vector<std::string> pieces;
  std::unordered_map<std::string_view, TokenId> ids;  // by the text in the vocabulary
  std::vector<bool> ends_generation;
  SpecialTokens specials;
  std::unique_ptr<const TextModel> text_model;

  // Returns whether the last fragment is a special token.
  bool Append(const std::vector<SpecialTokens::Fragment>& fragments, bool after_special,
              std::vector<TokenId>& out) const;
  bool Has(TokenId id) const { return id >= 0 && static_cast<size_t>(id) < pieces.size(); }
};

namespace {

TokenizerData Checked(TokenizerData data) {
  CheckTokenizerData(data);
  return data;
}

constexpr size_t kMaxTextBytes = size_t{1} << 29;  // symbols are counted in int32, and SPM's
                                                   // escaped spaces are 3 bytes each

}  // namespace

Tokenizer::Impl::Impl(TokenizerData d) : data(Checked(std::move(d))), specials(data) {
  const bool spm = CheckIsSpm(data.model, data.source);
  if (!data.add_bos) data.add_bos = spm || FindFamily(data.pre, data.source).add_bos;
  pieces = spm ? SpmPieces(data) : BpePieces(data);
  if (spm) {
    text_model = std::make_unique<SpmModel>(data);
  } else {
    text_model = std::make_unique<BpeModel>(data, pieces);
  }
  ids.reserve(data.tokens.size());
  ends_generation.resize(data.tokens.size());
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    ids[data.tokens[i]] = static_cast<TokenId>(i);
    ends_generation[i] = data.types[i] == TokenType::kControl && IsEndOfTurnText(data.tokens[i]);
  }
  for (const TokenId id : {data.eos, data.eot, data.eom}) {
    if (id >= 0) ends_generation[id] = true;
  }
}

bool Tokenizer::Impl::Append(const std::vector<SpecialTokens::Fragment>& fragments,
                             bool after_special, std::vector<TokenId>& out) const {
  for (const SpecialTokens::Fragment& fragment : fragments) {
    if (fragment.id >= 0) {
      out.push_back(fragment.id);
    } else {
      text_model->Encode(fragment.text, after_special, out);
    }
    after_special = fragment.id >= 0;
  }
  return after_special;
}

std::shared_ptr<const Tokenizer> Tokenizer::FromGguf(const GgufFile& file) {
  return FromData(ReadTokenizerData(file));
}

std::shared_ptr<const Tokenizer> Tokenizer::FromData(TokenizerData data) {
  auto tokenizer = std::make_shared<Tokenizer>();
  tokenizer->impl_ = std::make_shared<const Impl>(std::move(data));
  return tokenizer;
}

namespace {

void CheckTextSize(size_t bytes) {
  if (bytes > kMaxTextBytes) {
    throw Error("tokenizer: the text has {} bytes, at most {} can be tokenised at once; split it",
                bytes, kMaxTextBytes);
  }
}

}  // namespace

std::vector<TokenId> Tokenizer::Encode(std::string_view text, bool add_bos,
                                       bool parse_special) const {
  CheckTextSize(text.size());
  std::vector<TokenId> out;
  if (add_bos && bos() >= 0) out.push_back(bos());
  impl_->Append(impl_->specials.Split(text, parse_special), true, out);
  if (add_bos && *impl_->data.add_eos && eos() >= 0) out.push_back(eos());
  return out;
}

std::vector<TokenId> Tokenizer::EncodePieces(std::span<const TextPiece> pieces,
                                             bool add_bos) const {
  size_t bytes = 0;
  for (const TextPiece& piece : pieces) {
    bytes += piece.text.size();
    CheckTextSize(bytes);
  }
  const std::string text = JoinPieces(pieces);
  std::vector<TokenId> out;
  // Between control tokens lies text of both origins; `begin` is where the one that is not encoded
  // yet begins.
  size_t begin = 0, at = 0;
  bool after_special = true;
  const auto plain_until = [&](size_t end) {
    if (end == begin) return;
    const auto between = std::string_view(text).substr(begin, end - begin);
    after_special = impl_->Append(impl_->specials.Split(between, false), after_special, out);
  };
  for (size_t i = 0; i < pieces.size();) {
    size_t end = at;
    const bool trusted = pieces[i].trusted;
    for (; i < pieces.size() && pieces[i].trusted == trusted; ++i) end += pieces[i].text.size();
    if (trusted) {
      for (const auto& fragment :
           impl_->specials.Split(std::string_view(text).substr(at, end - at), true)) {
        const auto offset = static_cast<size_t>(fragment.text.data() - text.data());
        if (fragment.id < 0 || impl_->data.types[fragment.id] == TokenType::kUserDefined) continue;
        plain_until(offset);
        out.push_back(fragment.id);
        after_special = true;
        begin = offset + fragment.text.size();
      }
    }
    at = end;
  }
  plain_until(text.size());
  if (add_bos && bos() >= 0 && (out.empty() || out.front() != bos()))
    out.insert(out.begin(), bos());
  if (add_bos && *impl_->data.add_eos && eos() >= 0) out.push_back(eos());
  return out;
}

std::string Tokenizer::Piece(TokenId id, bool special) const {
  if (!impl_->Has(id)) return {};  // embeddings may have more rows than the vocabulary has tokens
  const TokenType type = impl_->data.types[id];
  if (!special && (type == TokenType::kControl || type == TokenType::kUnknown)) return {};
  return impl_->pieces[id];
}

std::string Tokenizer::Decode(std::span<const TokenId> ids, bool special) const {
  std::string text;
  bool first = drops_leading_space();
  for (const TokenId id : ids) {
    std::string piece = Piece(id, special);
    if (first && !IsControl(id) && !piece.empty()) {
      if (piece[0] == ' ') piece.erase(0, 1);
      first = false;
    }
    text += piece;
  }
  return text;
}

size_t Tokenizer::size() const { return impl_->pieces.size(); }
TokenId Tokenizer::bos() const { return impl_->data.bos; }
TokenId Tokenizer::eos() const { return impl_->data.eos; }
bool Tokenizer::wants_bos() const { return *impl_->data.add_bos && bos() >= 0; }
bool Tokenizer::wants_eos() const { return *impl_->data.add_eos && eos() >= 0; }
bool Tokenizer::IsEndOfGeneration(TokenId id) const {
  return impl_->Has(id) && impl_->ends_generation[id];
}
bool Tokenizer::IsControl(TokenId id) const {
  return impl_->Has(id) && impl_->data.types[id] == TokenType::kControl;
}
bool Tokenizer::IsUserDefined(TokenId id) const {
  return impl_->Has(id) && impl_->data.types[id] == TokenType::kUserDefined;
}
bool Tokenizer::drops_leading_space() const {
  return CheckIsSpm(impl_->data.model, impl_->data.source) && *impl_->data.add_space_prefix;
}

TokenId Tokenizer::Find(std::string_view token_text) const {
  const auto it = impl_->ids.find(token_text);
  return it == impl_->ids.end() ? -1 : it->second;
}

std::string_view Tokenizer::chat_template() const { return impl_->data.chat_template; }
const FimTokens& Tokenizer::fim() const { return impl_->data.fim; }
std::string_view Tokenizer::tool_use_template() const { return impl_->data.tool_use_template; }
std::string_view Tokenizer::model_name() const { return impl_->data.model; }
std::string_view Tokenizer::pre_name() const { return impl_->data.pre; }

}  // namespace larder::model::tokenizer
