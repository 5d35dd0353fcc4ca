#include "model/tokenizer/spm.h"

#include <charconv>
#include <cstring>

#include "base/error.h"
#include "model/pretokenizer/utf8.h"

namespace larder::model::inline tokenizer {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581

// The first character, or one byte if it is not UTF-8.
std::string_view FirstSymbol(std::string_view text) {
  const Utf8Step step = NextUtf8(text);
  return text.substr(0, step.kind == Utf8Kind::kCharacter ? step.bytes : 1);
}

// A pair of symbols as a number; a symbol has at most four bytes.
uint64_t CharactersKey(std::string_view left, std::string_view right) {
  uint32_t packed[2] = {0, 0};
  std::memcpy(&packed[0], left.data(), left.size());
  std::memcpy(&packed[1], right.data(), right.size());
  return uint64_t{packed[0]} << 32 | packed[1];
}

std::optional<uint8_t> ByteOf(std::string_view token) {
  if (token.size() != 6 || token.substr(0, 3) != "<0x" || token[5] != '>') return std::nullopt;
  uint8_t byte = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, byte, 16);
  if (error != std::errc() || end != token.data() + 5) return std::nullopt;
  return byte;
}

std::string Replace(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  result.reserve(text.size() + text.size() / 2);
  size_t done = 0;
  for (size_t at; (at = text.find(from, done)) != std::string_view::npos; done = at + from.size()) {
    result.append(text, done, at - done).append(to);
  }
  return result.append(text, done);
}

}  // namespace

SpmModel::SpmModel(const TokenizerData& data) : data_(data), by_rank_(data.model == kSpmByRank) {
  byte_ids_.fill(-1);
  ids_.reserve(data.tokens.size());
  joined_.reserve(data.tokens.size());
  for (size_t i = 0; i < data.tokens.size(); ++i) {
    const std::string_view token = data.tokens[i];
    const TokenType type = data.types[i];
    if (type == TokenType::kByte) {
      const std::optional<uint8_t> byte = ByteOf(token);
      if (!byte)
        throw Error("{}: byte token {} is '{}', expected '<0x00>' to '<0xFF>'", data.source, i,
                    token);
      byte_ids_[*byte] = static_cast<TokenId>(i);
    }
    if (type == TokenType::kByte || type == TokenType::kControl || type == TokenType::kUnknown ||
        token.empty())
      continue;
    ids_[token] = static_cast<TokenId>(i);
    std::string_view left = FirstSymbol(token);
    for (size_t at = left.size(); at < token.size();) {
      const std::string_view right = FirstSymbol(token.substr(at));
      joined_.insert(CharactersKey(left, right));
      left = right;
      at += right.size();
    }
  }
  for (int byte = 0; byte < 256; ++byte) {
    if (byte_ids_[byte] < 0) byte_ids_[byte] = data.unk;
    if (byte_ids_[byte] < 0) {
      throw Error(
          "{}: the vocabulary has no token '<0x{:02X}>' and no unknown token; convert the model "
          "again",
          data.source, byte);
    }
  }
  if (by_rank_) ReadMerges();
}

void SpmModel::ReadMerges() {
  merges_.reserve(data_.merges.size());
  for (size_t rank = 0; rank < data_.merges.size(); ++rank) {
    const std::string_view merge = data_.merges[rank];
    const size_t space = merge.find(' ', 1);
    const std::string_view left = merge.substr(0, space);
    const std::string_view right = space < merge.size() ? merge.substr(space + 1) : "";
    const auto of_left = ids_.find(left), of_right = ids_.find(right);
    const auto joined = ids_.find(std::string(left).append(right));
    if (of_left == ids_.end() || of_right == ids_.end() || joined == ids_.end()) {
      throw Error(
          "{}: key 'tokenizer.ggml.merges' has '{}' at {}, expected two tokens with a space "
          "between that are a token together",
          data_.source, merge, rank);
    }
    merges_.try_emplace(PairKey(of_left->second, of_right->second),
                        Merger::Merge{static_cast<double>(rank), joined->second});
  }
}

std::optional<Merger::Merge> SpmModel::Find(const Merger::Symbol& left,
                                            const Merger::Symbol& right) const {
  if (by_rank_) {
    const auto it = merges_.find(PairKey(left.id, right.id));
    if (it == merges_.end()) return std::nullopt;
    return it->second;
  }
  const auto it =
      ids_.find(std::string_view(left.text.data(), left.text.size() + right.text.size()));
  if (it == ids_.end()) return std::nullopt;
  return Merger::Merge{-static_cast<double>(data_.scores[it->second]), it->second};
}

void SpmModel::Encode(std::string_view text, bool after_special, std::vector<TokenId>& out) const {
  std::string escaped =
      after_special && *data_.add_space_prefix ? std::string(kSpace) : std::string();
  escaped += Replace(text, " ", kSpace);

  const auto find = [&](const Merger::Symbol& left, const Merger::Symbol& right) {
    return Find(left, right);
  };
  const auto emit = [&](const Merger::Symbol& symbol) {
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
    } else {
      for (const char byte : symbol.text) out.push_back(byte_ids_[static_cast<uint8_t>(byte)]);
    }
  };

  Merger merger;
  std::string_view last;
  for (std::string_view rest = escaped; !rest.empty();) {
    const std::string_view symbol = FirstSymbol(rest);
    if (!merger.empty() && !joined_.contains(CharactersKey(last, symbol))) {
      merger.Run(find, emit);
      merger.Clear();
    }
    const auto it = ids_.find(symbol);
    merger.Append(symbol, it == ids_.end() ? -1 : it->second);
    last = symbol;
    rest.remove_prefix(symbol.size());
  }
  merger.Run(find, emit);
}

std::vector<std::string> SpmPieces(const TokenizerData& data) {
  std::vector<std::string> pieces(data.tokens.size());
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (data.types[i] == TokenType::kByte) {
      pieces[i] = static_cast<char>(ByteOf(data.tokens[i]).value_or(0));
    } else if (data.types[i] == TokenType::kNormal || data.types[i] == TokenType::kUnused) {
      pieces[i] = Replace(data.tokens[i], kSpace, " ");
    } else {
      pieces[i] = data.tokens[i];
    }
  }
  return pieces;
}

}  // namespace larder::model::tokenizer
