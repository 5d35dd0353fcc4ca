// Chat templates, rendered natively as the model cards publish them: Llama-2, Llama-3.x, ChatML (Qwen2.5, Qwen3). Which one is
// found from the GGUF's tokenizer.chat_template text; unknown templates are an Error that says so (use -p with your own text).
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace larder::model {

struct ChatMessage {
  std::string role;  // "system", "user", "assistant"
  std::string content;
};

enum class ChatFormat { kLlama2, kLlama3, kQwen25, kQwen3, kChatMl };

std::optional<ChatFormat> DetectChatFormat(std::string_view chat_template);
std::string_view ChatFormatName(ChatFormat);
std::optional<ChatFormat> ChatFormatByName(std::string_view);

struct ChatOptions {
  bool add_generation_prompt = true;
  std::string date = "26 Jul 2024";  // Llama-3.x templates print it ("Today Date")
  bool enable_thinking = true;       // Qwen3
};
std::string RenderChat(ChatFormat, std::span<const ChatMessage>, const ChatOptions&);

}  // namespace larder::model
