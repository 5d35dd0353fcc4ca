#include "model/tokenizer/tokenizer_data.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <initializer_list>
#include <limits>

#include "base/error.h"
#include "model/pretokenizer/pretokenizer.h"

namespace larder::model::inline tokenizer {
namespace {

constexpr std::string_view kEndOfTurnTexts[] = {
    "<|eot_id|>",    "<|eom_id|>",    "<|end_of_text|>", "<|im_end|>",      "<|end|>",
    "<|endoftext|>", "<end_of_turn>", "<|eot|>",         "<|end_of_turn|>", "<turn|>"};

// The key of a fill-in-the-middle token, the older one, and the names that Qwen, CodeLlama,
// StarCoder, CodeGemma, DeepSeek, Granite and Codestral give it.
struct FimName {
  TokenId FimTokens::*field;
  std::string_view key, older_key;
  std::initializer_list<std::string_view> texts;
};
const FimName kFimNames[] = {
    {&FimTokens::prefix,
     "fim_pre_token_id",
     "prefix_token_id",
     {"<|fim_prefix|>", "\u2581<PRE>", "<PRE>", "<fim_prefix>", "<fim-prefix>", "<｜fim▁begin｜>"}},
    {&FimTokens::suffix,
     "fim_suf_token_id",
     "suffix_token_id",
     {"<|fim_suffix|>", "\u2581<SUF>", "<SUF>", "<fim_suffix>", "<fim-suffix>", "<｜fim▁hole｜>"}},
    {&FimTokens::middle,
     "fim_mid_token_id",
     "middle_token_id",
     {"<|fim_middle|>", "\u2581<MID>", "<MID>", "<fim_middle>", "<fim-middle>", "<｜fim▁end｜>"}},
    {&FimTokens::repository,
     "fim_rep_token_id",
     "",
     {"<|repo_name|>", "<reponame>", "<repo_name>"}},
    {&FimTokens::file, "fim_sep_token_id", "", {"<|file_sep|>", "<file_sep>", "<filename>"}},
};

// Converters write "none" as -1, some of them in an unsigned 32-bit number.
TokenId FindId(const GgufFile& file, std::string_view key) {
  const std::optional<int64_t> id = file.FindSigned(key);
  if (!id || *id == -1 || *id == std::numeric_limits<uint32_t>::max()) return -1;
  if (*id < 0 || *id > std::numeric_limits<TokenId>::max()) {
    throw Error(
        "{}: key '{}' is {}, expected a token id of the vocabulary; convert the model again",
        file.path(), key, *id);
  }
  return static_cast<TokenId>(*id);
}

std::vector<std::string> Copy(const std::optional<std::vector<std::string_view>>& strings) {
  if (!strings) return {};
  return {strings->begin(), strings->end()};
}

void CheckId(const TokenizerData& data, std::string_view key, TokenId id) {
  if (id < -1 || id >= static_cast<TokenId>(data.tokens.size())) {
    throw Error("{}: key 'tokenizer.ggml.{}' is {}, expected an id below the vocabulary's size, {}",
                data.source, key, id, data.tokens.size());
  }
}

// SentencePiece's ids, for files that leave them out.
void DefaultSpmIds(TokenizerData& data) {
  const auto fill = [&](TokenId& field, TokenId id, TokenType type) {
    if (field < 0 && static_cast<size_t>(id) < data.types.size() && data.types[id] == type)
      field = id;
  };
  fill(data.unk, 0, TokenType::kUnknown);
  fill(data.bos, 1, TokenType::kControl);
  fill(data.eos, 2, TokenType::kControl);
}

}  // namespace

bool CheckIsSpm(std::string_view model, std::string_view source) {
  if (model == "llama" || model == kSpmByRank) return true;
  if (model == "gpt2") return false;
  throw Error(
      "{}: key 'tokenizer.ggml.model' is '{}', supported are 'llama' and '{}' (SPM) and 'gpt2' "
      "(byte-level BPE)",
      source, model, kSpmByRank);
}

bool IsEndOfTurnText(std::string_view token_text) {
  return std::find(std::begin(kEndOfTurnTexts), std::end(kEndOfTurnTexts), token_text) !=
         std::end(kEndOfTurnTexts);
}

TokenizerData ReadTokenizerData(const GgufFile& file) {
  TokenizerData data;
  data.source = file.path();
  data.model = file.GetString("tokenizer.ggml.model");
  data.pre = file.FindString("tokenizer.ggml.pre").value_or("");
  data.tokens = Copy(file.FindStrings("tokenizer.ggml.tokens"));
  data.merges = Copy(file.FindStrings("tokenizer.ggml.merges"));
  data.scores = file.FindFloats("tokenizer.ggml.scores").value_or(std::vector<float>{});
  if (const auto types = file.FindInts("tokenizer.ggml.token_type")) {
    data.types.reserve(types->size());
    for (const int32_t type : *types) data.types.push_back(static_cast<TokenType>(type));
  }
  data.bos = FindId(file, "tokenizer.ggml.bos_token_id");
  data.eos = FindId(file, "tokenizer.ggml.eos_token_id");
  data.eot = FindId(file, "tokenizer.ggml.eot_token_id");
  data.eom = FindId(file, "tokenizer.ggml.eom_token_id");
  data.unk = FindId(file, "tokenizer.ggml.unknown_token_id");
  for (const FimName& name : kFimNames) {
    for (const std::string_view key : {name.key, name.older_key}) {
      if (data.fim.*name.field < 0 && !key.empty())
        data.fim.*name.field = FindId(file, fmt::format("tokenizer.ggml.{}", key));
    }
  }
  data.add_bos = file.FindBool("tokenizer.ggml.add_bos_token");
  data.add_eos = file.FindBool("tokenizer.ggml.add_eos_token");
  data.add_space_prefix = file.FindBool("tokenizer.ggml.add_space_prefix");
  data.chat_template = file.FindString("tokenizer.chat_template").value_or("");
  data.tool_use_template = file.FindString("tokenizer.chat_template.tool_use").value_or("");
  return data;
}

void CheckTokenizerIsKnown(const GgufFile& file) {
  const auto model = file.FindString("tokenizer.ggml.model");
  if (!model) return;
  if (!CheckIsSpm(*model, file.path()))
    FindFamily(file.FindString("tokenizer.ggml.pre").value_or(""), file.path());
}

void CheckTokenizerData(TokenizerData& data) {
  const bool spm = CheckIsSpm(data.model, data.source);
  const size_t size = data.tokens.size();
  if (size == 0 || size > std::numeric_limits<TokenId>::max()) {
    throw Error("{}: key 'tokenizer.ggml.tokens' has {} tokens, expected a vocabulary", data.source,
                size);
  }
  if (data.types.empty()) data.types.assign(size, TokenType::kNormal);
  if (data.types.size() != size) {
    throw Error("{}: key 'tokenizer.ggml.token_type' has {} entries, expected one per token, {}",
                data.source, data.types.size(), size);
  }
  for (size_t i = 0; i < size; ++i) {
    const auto type = static_cast<int32_t>(data.types[i]);
    // 0 is "undefined"; llama.cpp treats it as a normal token.
    if (type == 0) data.types[i] = TokenType::kNormal;
    if (type < 0 || type > static_cast<int32_t>(TokenType::kByte)) {
      throw Error("{}: key 'tokenizer.ggml.token_type' is {} for token {}, expected 1 to 6",
                  data.source, type, i);
    }
    if (data.types[i] == TokenType::kNormal && IsEndOfTurnText(data.tokens[i]))
      data.types[i] = TokenType::kControl;
  }
  const bool by_score = spm && data.model != kSpmByRank;
  if (by_score) {
    if (data.scores.size() != size) {
      throw Error("{}: key 'tokenizer.ggml.scores' has {} entries, expected one per token, {}",
                  data.source, data.scores.size(), size);
    }
    for (size_t i = 0; i < size; ++i) {
      if (std::isnan(data.scores[i]))
        throw Error("{}: key 'tokenizer.ggml.scores' is NaN for token {}", data.source, i);
    }
  }
  CheckId(data, "bos_token_id", data.bos);
  CheckId(data, "eos_token_id", data.eos);
  CheckId(data, "eot_token_id", data.eot);
  CheckId(data, "eom_token_id", data.eom);
  CheckId(data, "unknown_token_id", data.unk);
  for (const FimName& name : kFimNames) {
    CheckId(data, name.key, data.fim.*name.field);
    for (const std::string_view text : name.texts) {
      if (data.fim.*name.field >= 0) break;
      const auto found = std::find(data.tokens.begin(), data.tokens.end(), text);
      if (found != data.tokens.end())
        data.fim.*name.field = static_cast<TokenId>(found - data.tokens.begin());
    }
  }
  if (by_score) DefaultSpmIds(data);
  if (!data.add_eos) data.add_eos = false;
  if (!data.add_space_prefix) data.add_space_prefix = by_score;
}

}  // namespace larder::model::tokenizer
