// Arbitrary messages in any format are rendered or refused; a rendering contains each message's words and can
// be encoded. An input is a byte for the format and one for the options, then messages, each ended by a line
// feed, with the role as its first byte. The rest is a chat template whose format is detected.
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/error.h"
#include "model/chat/chat.h"
#include "model/tokenizer/tokenizer_fixture.h"

namespace larder::model::inline chat {
namespace {

constexpr ChatFormat kFormats[] = {ChatFormat::kLlama2, ChatFormat::kLlama3, ChatFormat::kQwen25,
                                   ChatFormat::kQwen3,  ChatFormat::kChatMl, ChatFormat::kLlama30,
                                   ChatFormat::kQwen2};

std::string Role(char byte) {
  switch (byte) {
    case 's':
      return "system";
    case 'u':
      return "user";
    case 'a':
      return "assistant";
  }
  return std::string(1, byte);
}

void Check(std::string_view input) {
  if (input.size() < 2) return;
  const ChatFormat format = kFormats[static_cast<uint8_t>(input[0]) % std::size(kFormats)];
  ChatOptions options;
  options.add_generation_prompt = (input[1] & 1) == 0;
  options.enable_thinking = (input[1] & 2) == 0;
  input.remove_prefix(2);
  std::vector<ChatMessage> messages;
  for (size_t end; messages.size() < 64 && (end = input.find('\n')) != input.npos;
       input.remove_prefix(end + 1)) {
    if (end == 0) continue;
    messages.push_back({Role(input[0]), std::string(input.substr(1, end - 1))});
  }
  if (const auto found = DetectChatFormat(input))
    LARDER_CHECK(ChatFormatByName(ChatFormatName(*found)) == found, "a format is found by its name");
  std::string text;
  try {
    text = RenderChat(format, messages, options);
  } catch (const Error&) {
    return;
  }
  size_t bytes = 0;
  for (const ChatMessage& message : messages) bytes += message.role.size() + message.content.size();
  LARDER_CHECK(text.size() <= bytes + 200 * (messages.size() + 4), "{} bytes of {}", text.size(), bytes);
  // Qwen3's format drops an assistant's thoughts; all others keep every word. Some trim white space, which
  // may end in any byte that is not a printable ASCII character.
  for (const ChatMessage& message : messages) {
    std::string_view content = message.content;
    const auto space = [](char c) { return c < '!' || c > '~'; };
    while (!content.empty() && space(content.front())) content.remove_prefix(1);
    while (!content.empty() && space(content.back())) content.remove_suffix(1);
    const bool thought = content.find("think>") != content.npos;
    LARDER_CHECK(thought || text.find(content) != text.npos, "a message is missing");
  }
  static const std::shared_ptr<const Tokenizer> tokenizers[] = {Tokenizer::FromData(TinySpm()),
                                                                Tokenizer::FromData(TinyBpe("qwen2"))};
  for (const auto& tokenizer : tokenizers) tokenizer->Encode(text, tokenizer->wants_bos(), true);
}

}  // namespace
}  // namespace larder::model::chat

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  larder::model::Check({reinterpret_cast<const char*>(data), size});
  return 0;
}
