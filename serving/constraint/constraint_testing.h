// A vocabulary with pieces of JSON, for tests: bytes, words, tokens that end in the middle of a
// character or of a string, and control tokens.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/bpe.h"
#include "model/tokenizer/tokenizer_data.h"
#include "model/tokenizer/tokenizer_fixture.h"
#include "serving/constraint/automaton.h"
#include "serving/constraint/vocabulary.h"

namespace larder::serving::inline constraint {

inline std::shared_ptr<const model::Tokenizer> JsonTokenizer() {
  static const auto tokenizer = [] {
    model::TokenizerData data = model::TinyBpe("llama-bpe");
    const auto add = [&](std::string_view bytes) {
      std::string text = model::AlphabetFromBytes(bytes);
      for (const std::string& known : data.tokens) {
        if (known == text) return;
      }
      model::AddToken(data, std::move(text));
    };
    for (const char* piece : {"\":",
                              "\",",
                              "\": \"",
                              "\",\"",
                              "{\"",
                              "\"}",
                              "\"]",
                              "[\"",
                              "}}",
                              "]]",
                              "},{",
                              "], [",
                              " {",
                              ", ",
                              ": ",
                              "\n",
                              "\n  ",
                              "\n    ",
                              "  ",
                              "    ",
                              "true",
                              "false",
                              "null",
                              "tr",
                              "ue",
                              "fal",
                              "se",
                              "name",
                              "na",
                              "me\"",
                              "age",
                              "a\"",
                              "ab\\",
                              "\\n",
                              "\\u00",
                              "\\\"",
                              "\\\\\"",
                              "é",
                              "日本",
                              "\xe6\x97",
                              "\xa5\xe6\x9c\xac",
                              "x\xe6",
                              "10",
                              "123",
                              "0.5",
                              "-1",
                              "1e",
                              "e+",
                              ".0",
                              "00",
                              "a b",
                              "abc",
                              "abcdefghijklmnop",
                              "the quick brown fox jumps over",
                              "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
                              "(",
                              ")",
                              "((",
                              "<call>x",
                              "x<call>",
                              "ll>"})
      add(piece);
    for (char a = 'a'; a <= 'z'; ++a) {
      for (const char b : {'a', 'e', 'r', '"', '1', ' '}) add(std::string{a, b});
    }
    for (int i = 0; i < 100; ++i) add(fmt::format("{:02}", i));
    model::AddToken(data, "<|tool|>", model::TokenType::kControl);
    return model::Tokenizer::FromData(std::move(data));
  }();
  return tokenizer;
}

inline std::shared_ptr<const Vocabulary> JsonVocabulary() {
  // Two tokens more in the logits than in the vocabulary.
  static const auto vocabulary =
      std::make_shared<const Vocabulary>(*JsonTokenizer(), JsonTokenizer()->size() + 2);
  return vocabulary;
}

inline bool Bit(std::span<const uint64_t> mask, TokenId token) {
  return (mask[static_cast<size_t>(token) / 64] >> static_cast<size_t>(token) % 64 & 1) != 0;
}

// Byte by byte.
inline bool Accepts(const std::shared_ptr<const Grammar>& grammar, std::string_view text) {
  Automaton automaton(grammar, JsonVocabulary());
  const StateId state = automaton.Step(automaton.start(), text);
  return state > Automaton::kTooMany && automaton.complete(state);
}

// Token by token, each of which the masks must allow; the tokens are the longest of the vocabulary
// that fit, or single bytes.
inline bool AcceptsTokens(const std::shared_ptr<const Grammar>& grammar, std::string_view text,
                          bool longest) {
  const auto vocabulary = JsonVocabulary();
  Automaton automaton(grammar, vocabulary);
  StateId state = automaton.start();
  std::vector<uint64_t> mask(vocabulary->words());
  while (!text.empty()) {
    TokenId best = -1;
    size_t length = 0;
    for (TokenId token = 0; static_cast<size_t>(token) < vocabulary->size(); ++token) {
      const std::string_view bytes = vocabulary->bytes(token);
      if (bytes.empty() || !text.starts_with(bytes)) continue;
      if (best < 0 || (longest ? bytes.size() > length : bytes.size() < length)) {
        best = token;
        length = bytes.size();
      }
    }
    if (!automaton.Mask(state, mask) || !Bit(mask, best)) return false;
    state = automaton.StepToken(state, best);
    text.remove_prefix(length);
  }
  if (!automaton.Mask(state, mask)) return false;
  return Bit(mask, vocabulary->end_of_generation()[0]);
}

}  // namespace larder::serving::constraint
