// Arbitrary messages in any built-in format are rendered or refused, and no word of theirs becomes
// a control token. An input is a byte for the format and one for the options, then messages, each
// ended by a line feed, with the role as its first byte. The rest is a chat template of its own.
#include <algorithm>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "model/chat/chat_template.h"
#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::model::inline chat {
namespace {

using Json = nlohmann::ordered_json;

std::string Role(char byte) {
  switch (byte) {
    case 's':
      return "system";
    case 'u':
      return "user";
    case 'a':
      return "assistant";
    case 't':
      return "tool";
  }
  return std::string(1, byte);
}

const std::vector<std::shared_ptr<const ChatTemplate>>& BuiltIns() {
  static const auto* const templates = [] {
    auto* const all = new std::vector<std::shared_ptr<const ChatTemplate>>;
    for (const std::string_view name : BuiltInTemplateNames())
      all->push_back(ChatTemplate::Parse(std::string(BuiltInTemplate(name)), std::string(name),
                                         "<s>", "</s>"));
    return all;
  }();
  return *templates;
}

size_t Controls(const Tokenizer& tokenizer, const std::vector<TokenId>& tokens) {
  return static_cast<size_t>(std::count_if(tokens.begin(), tokens.end(),
                                           [&](TokenId id) { return tokenizer.IsControl(id); }));
}

void CheckTokens(const std::vector<TextPiece>& pieces) {
  static const std::shared_ptr<const Tokenizer> tokenizers[] = {
      Tokenizer::FromData(TinySpm()), Tokenizer::FromData(TinyBpe("qwen2"))};
  for (const auto& tokenizer : tokenizers) {
    size_t trusted = 0;
    for (const TextPiece& piece : pieces) {
      if (piece.trusted)
        trusted += Controls(*tokenizer, tokenizer->Encode(piece.text, false, true));
    }
    const size_t controls = Controls(*tokenizer, tokenizer->EncodePieces(pieces, false));
    LARDER_CHECK(controls == trusted, "{} control tokens, of which {} are the template's", controls,
                 trusted);
  }
}

void Check(std::string_view input) {
  if (input.size() < 2) return;
  const ChatTemplate& chat = *BuiltIns()[static_cast<uint8_t>(input[0]) % BuiltIns().size()];
  ChatInput said;
  said.add_generation_prompt = (input[1] & 1) == 0;
  if ((input[1] & 2) != 0) said.kwargs["enable_thinking"] = false;
  said.continue_last = (input[1] & 4) != 0;
  input.remove_prefix(2);
  for (size_t end; said.messages.size() < 64 && (end = input.find('\n')) != input.npos;
       input.remove_prefix(end + 1)) {
    if (end > 0)
      said.messages.push_back(
          {{"role", Role(input[0])}, {"content", std::string(input.substr(1, end - 1))}});
  }
  const auto render = [&](const ChatTemplate& one) {
    try {
      CheckTokens(one.Render(said));
    } catch (const Error&) {  // the right answer to bad messages
    }
  };
  render(chat);
  if (input.size() > 512) return;  // templates themselves are jinja_fuzz's
  try {
    render(*ChatTemplate::Parse(std::string(input), "fuzz", "<s>", "</s>"));
  } catch (const Error&) {
  }
}

}  // namespace
}  // namespace larder::model::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::model::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
