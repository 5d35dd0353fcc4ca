#include "model/tokenizer/bpe.h"

#include <optional>

#include "base/error.h"
#include "model/pretokenizer/utf8.h"

namespace larder::model::inline tokenizer {
namespace {

constexpr bool IsPrintable(int byte) {
  return (byte >= '!' && byte <= '~') || (byte >= 0xA1 && byte <= 0xAC) ||
         (byte >= 0xAE && byte <= 0xFF);
}

// Printable Latin-1 bytes are written as themselves, the 68 others as U+0100 onwards in byte order.
struct Alphabet {
  std::array<char32_t, 256> character{};
  std::array<int16_t, 256 + 68> byte{};  // -1: not in the alphabet

  constexpr Alphabet() {
    byte.fill(-1);
    char32_t next = 256;
    for (int b = 0; b < 256; ++b) {
      character[b] = IsPrintable(b) ? static_cast<char32_t>(b) : next++;
      byte[character[b]] = static_cast<int16_t>(b);
    }
  }
};
constexpr Alphabet kAlphabet;

// Bytes of characters that Unicode has. Vocabularies that were made from text (DeepSeek-LLM,
// Refact) lack some others: C0, C1, F5 and above are no UTF-8, F1 and F2 begin planes without
// characters.
constexpr bool IsOfText(int byte) {
  return byte != 0xC0 && byte != 0xC1 && byte != 0xF1 && byte != 0xF2 && byte < 0xF5;
}

bool IsWrittenAsIs(TokenType type) {
  return type == TokenType::kControl || type == TokenType::kUnknown ||
         type == TokenType::kUserDefined;
}

}  // namespace

std::string BytesFromAlphabet(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const Utf8Step step = NextUtf8(text);
    const bool known = step.kind == Utf8Kind::kCharacter && step.code < kAlphabet.byte.size() &&
                       kAlphabet.byte[step.code] >= 0;
    if (known) {
      bytes += static_cast<char>(kAlphabet.byte[step.code]);
    } else {
      bytes.append(text, 0, step.bytes);
    }
    text.remove_prefix(step.bytes);
  }
  return bytes;
}

std::string AlphabetFromBytes(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) AppendUtf8(text, kAlphabet.character[static_cast<uint8_t>(byte)]);
  return text;
}

std::vector<std::string> BpePieces(const TokenizerData& data) {
  std::vector<std::string> pieces(data.tokens.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i] = IsWrittenAsIs(data.types[i]) ? data.tokens[i] : BytesFromAlphabet(data.tokens[i]);
  }
  return pieces;
}

TokenId BpeModel::Intern(std::string_view bytes) {
  if (const auto it = ids_.find(bytes); it != ids_.end()) return it->second;
  const TokenId id = size_ + static_cast<TokenId>(extra_.size());
  ids_.emplace(extra_.emplace_back(bytes), id);
  return id;
}

BpeModel::BpeModel(const TokenizerData& data, const std::vector<std::string>& pieces)
    : pre_tokenizer_(data.pre, data.source), size_(static_cast<TokenId>(data.tokens.size())) {
  ids_.reserve(pieces.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!IsWrittenAsIs(data.types[i]) && !pieces[i].empty())
      ids_[pieces[i]] = static_cast<TokenId>(i);
  }
  for (int b = 0; b < 256; ++b) {
    const char byte = static_cast<char>(b);
    byte_symbols_[b] = Intern(std::string_view(&byte, 1));
    byte_ids_[b] = byte_symbols_[b] < size_ ? byte_symbols_[b] : data.unk;
    if (byte_ids_[b] < 0 && IsOfText(b)) {
      throw Error(
          "{}: the vocabulary has no token '{}' for byte 0x{:02X} and no unknown token; convert "
          "the model again",
          data.source, AlphabetFromBytes({&byte, 1}), b);
    }
  }

  merges_.reserve(data.merges.size());
  for (size_t rank = 0; rank < data.merges.size(); ++rank) {
    const std::string_view merge = data.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      throw Error(
          "{}: key 'tokenizer.ggml.merges' has '{}' at {}, expected two symbols with a space "
          "between",
          data.source, merge, rank);
    }
    const std::string left = BytesFromAlphabet(merge.substr(0, space));
    const std::string right = BytesFromAlphabet(merge.substr(space + 1));
    merges_.try_emplace(PairKey(Intern(left), Intern(right)),
                        Merger::Merge{static_cast<double>(rank), Intern(left + right)});
  }
}

void BpeModel::Encode(std::string_view text, bool /*after_special*/,
                      std::vector<TokenId>& out) const {
  const auto find = [&](const Merger::Symbol& left,
                        const Merger::Symbol& right) -> std::optional<Merger::Merge> {
    const auto it = merges_.find(PairKey(left.id, right.id));
    if (it == merges_.end()) return std::nullopt;
    return it->second;
  };
  const auto emit = [&](const Merger::Symbol& symbol) {
    if (symbol.id < size_) {
      out.push_back(symbol.id);
    } else {
      for (const char byte : symbol.text) {
        const TokenId id = byte_ids_[static_cast<uint8_t>(byte)];
        if (id >= 0) out.push_back(id);
      }
    }
  };

  Merger merger;
  pre_tokenizer_.Split(text, [&](std::string_view word) {
    if (pre_tokenizer_.ignore_merges()) {
      if (const auto it = ids_.find(word); it != ids_.end() && it->second < size_) {
        out.push_back(it->second);
        return;
      }
    }
    merger.Clear();
    for (size_t i = 0; i < word.size(); ++i) {
      merger.Append(word.substr(i, 1), byte_symbols_[static_cast<uint8_t>(word[i])]);
    }
    merger.Run(find, emit);
  });
}

}  // namespace larder::model::tokenizer
