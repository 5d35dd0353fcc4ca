// Chat templates: renders Llama-2, Llama-3.x and ChatML (Qwen2.5, Qwen3) natively, as the model cards publish
// them. The format is recognised by the GGUF's tokenizer.chat_template text; an unknown template is an Error
// that says so (use -p with your own text).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace larder::model::inline chat {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

// kLlama3: 3.1 and later, with the "Cutting Knowledge Date" header; kLlama30: the first Llama 3, without it.
// kQwen2, kQwen25: ChatML with a default system prompt for conversations without one.
enum class ChatFormat { kLlama2, kLlama3, kQwen25, kQwen3, kChatMl, kLlama30, kQwen2 };

std::optional<ChatFormat> DetectChatFormat(std::string_view chat_template);
std::string_view ChatFormatName(ChatFormat);
std::optional<ChatFormat> ChatFormatByName(std::string_view);

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string date = "26 Jul 2024";  // Llama-3.x templates print it ("Today Date")
  bool enable_thinking = true;       // Qwen3
};
// Throws Error for no messages, for a role that is none of the three, and for roles that do not alternate if
// the format requires it (Llama-2). The text does not start with BOS; the tokenizer adds it: Encode(text,
// wants_bos(), /*parse_special=*/true).
std::string RenderChat(ChatFormat, std::span<const ChatMessage>, const ChatOptions&);

}  // namespace larder::model::chat
