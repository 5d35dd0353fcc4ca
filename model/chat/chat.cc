#include "model/chat/chat.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "model/chat/chat_text.h"

namespace larder::model::inline chat {
namespace {

using Messages = std::span<const ChatMessage>;

struct FormatName {
  ChatFormat format;
  std::string_view name;
};
constexpr FormatName kNames[] = {
    {ChatFormat::kLlama2, "llama2"}, {ChatFormat::kLlama3, "llama3"},  {ChatFormat::kLlama30, "llama3.0"},
    {ChatFormat::kQwen2, "qwen2"},   {ChatFormat::kQwen25, "qwen2.5"}, {ChatFormat::kQwen3, "qwen3"},
    {ChatFormat::kChatMl, "chatml"},
};

constexpr std::string_view kQwen2System = "You are a helpful assistant.";
constexpr std::string_view kQwen25System =
    "You are Qwen, created by Alibaba Cloud. You are a helpful assistant.";

bool IsSystem(const ChatMessage& message) { return message.role == "system"; }
bool IsUser(const ChatMessage& message) { return message.role == "user"; }

void CheckMessages(Messages messages) {
  if (messages.empty()) throw Error("chat: no messages, expected at least one");
  for (size_t i = 0; i < messages.size(); ++i) {
    const std::string& role = messages[i].role;
    if (role != "system" && role != "user" && role != "assistant") {
      throw Error("chat: message {} has the role '{}', expected 'system', 'user' or 'assistant'", i, role);
    }
  }
}

// [INST] <<SYS>> system <</SYS>> user [/INST] answer </s><s>[INST] ...: the system prompt is inside the first
// user turn, and each user turn begins a new text. The end of a user turn is the generation prompt.
std::string RenderLlama2(Messages messages) {
  std::string system;
  if (IsSystem(messages[0])) {
    system = "<<SYS>>\n" + messages[0].content + "\n<</SYS>>\n\n";
    messages = messages.subspan(1);
  }
  if (messages.empty())
    throw Error("chat: Llama-2's format puts the system prompt into the first user message; there is none");
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    const bool user = i % 2 == 0;
    if (messages[i].role != (user ? "user" : "assistant")) {
      throw Error(
          "chat: Llama-2's format wants user and assistant in turn, message {} after the system prompt is "
          "from '{}'",
          i, messages[i].role);
    }
    const std::string content = i == 0 ? system + messages[i].content : messages[i].content;
    if (user) {
      text.append(i == 0 ? "" : "<s>").append("[INST] ").append(StripSpace(content)).append(" [/INST]");
    } else {
      text.append(" ").append(StripSpace(content)).append(" </s>");
    }
  }
  return text;
}

void AppendLlama3Turn(std::string& text, std::string_view role, std::string_view before,
                      std::string_view content) {
  text.append("<|start_header_id|>").append(role).append("<|end_header_id|>\n\n");
  text.append(before).append(StripSpace(content)).append("<|eot_id|>");
}

std::string RenderLlama3(Messages messages, const ChatOptions& options, bool date_header) {
  std::string text;
  if (date_header) {
    std::string_view system;
    if (IsSystem(messages[0])) {
      system = messages[0].content;
      messages = messages.subspan(1);
    }
    const std::string header = "Cutting Knowledge Date: December 2023\nToday Date: " + options.date + "\n\n";
    AppendLlama3Turn(text, "system", header, system);
  }
  for (const ChatMessage& message : messages) AppendLlama3Turn(text, message.role, "", message.content);
  if (options.add_generation_prompt) text += "<|start_header_id|>assistant<|end_header_id|>\n\n";
  return text;
}

void AppendChatMlTurn(std::string& text, std::string_view role, std::string_view content) {
  text.append("<|im_start|>").append(role).append("\n").append(content).append("<|im_end|>\n");
}

std::string RenderChatMl(Messages messages, const ChatOptions& options, std::string_view default_system) {
  std::string text;
  if (!default_system.empty() && !IsSystem(messages[0])) AppendChatMlTurn(text, "system", default_system);
  for (const ChatMessage& message : messages) AppendChatMlTurn(text, message.role, message.content);
  if (options.add_generation_prompt) text += "<|im_start|>assistant\n";
  return text;
}

// A tool's answer is sent in a user turn, but does not count as a question.
bool IsToolResponse(std::string_view content) {
  return content.starts_with("<tool_response>") && content.ends_with("</tool_response>");
}

struct Thought {
  std::string_view reasoning;
  std::string_view answer;
};

// Splits into the text after the last </think>, and the thought between the first </think> and the last
// <think> before it.
Thought SplitThought(std::string_view content) {
  constexpr std::string_view kBegin = "<think>", kEnd = "</think>";
  const size_t first_end = content.find(kEnd);
  if (first_end == std::string_view::npos) return {"", content};
  std::string_view reasoning = StripTrailingNewlines(content.substr(0, first_end));
  if (const size_t begin = reasoning.rfind(kBegin); begin != std::string_view::npos) {
    reasoning.remove_prefix(begin + kBegin.size());
  }
  const std::string_view answer = content.substr(content.rfind(kEnd) + kEnd.size());
  return {StripTrailingNewlines(StripLeadingNewlines(reasoning)), StripLeadingNewlines(answer)};
}

// ChatML that keeps an assistant's thoughts only after the last question; earlier turns keep only their
// answers.
std::string RenderQwen3(Messages messages, const ChatOptions& options) {
  size_t last_question = messages.size() - 1;
  for (size_t i = 0; i < messages.size(); ++i) {
    if (IsUser(messages[i]) && !IsToolResponse(messages[i].content)) last_question = i;
  }
  std::string text;
  for (size_t i = 0; i < messages.size(); ++i) {
    const ChatMessage& message = messages[i];
    if (message.role != "assistant") {
      AppendChatMlTurn(text, message.role, message.content);
      continue;
    }
    const Thought thought = SplitThought(message.content);
    const bool last = i + 1 == messages.size();
    std::string content(thought.answer);
    if (i > last_question && (last || !thought.reasoning.empty())) {
      content.assign("<think>\n").append(thought.reasoning).append("\n</think>\n\n");
      content.append(StripLeadingNewlines(thought.answer));
    }
    AppendChatMlTurn(text, message.role, content);
  }
  if (options.add_generation_prompt) {
    text += "<|im_start|>assistant\n";
    if (!options.enable_thinking) text += "<think>\n\n</think>\n\n";
  }
  return text;
}

}  // namespace

std::optional<ChatFormat> DetectChatFormat(std::string_view chat_template) {
  const auto has = [&](std::string_view text) { return chat_template.find(text) != std::string_view::npos; };
  if (has("<|start_header_id|>"))
    return has("Cutting Knowledge Date") ? ChatFormat::kLlama3 : ChatFormat::kLlama30;
  if (has("<|im_start|>")) {
    if (has("enable_thinking")) return ChatFormat::kQwen3;
    if (has("<think>")) return std::nullopt;  // has other rules for thoughts (QwQ, Qwen3-Thinking)
    if (has(kQwen25System)) return ChatFormat::kQwen25;
    if (has("system\\nYou are a helpful assistant.<|im_end|>")) return ChatFormat::kQwen2;
    return ChatFormat::kChatMl;
  }
  // Mistral's templates have [INST] too, but no <<SYS>>.
  if (has("[INST]") && has("<<SYS>>")) return ChatFormat::kLlama2;
  return std::nullopt;
}

std::string_view ChatFormatName(ChatFormat format) {
  return std::find_if(std::begin(kNames), std::end(kNames),
                      [&](const FormatName& n) { return n.format == format; })
      ->name;
}

std::optional<ChatFormat> ChatFormatByName(std::string_view name) {
  for (const FormatName& known : kNames) {
    if (known.name == name) return known.format;
  }
  return std::nullopt;
}

std::string RenderChat(ChatFormat format, std::span<const ChatMessage> messages, const ChatOptions& options) {
  CheckMessages(messages);
  switch (format) {
    case ChatFormat::kLlama2:
      return RenderLlama2(messages);
    case ChatFormat::kLlama3:
      return RenderLlama3(messages, options, true);
    case ChatFormat::kLlama30:
      return RenderLlama3(messages, options, false);
    case ChatFormat::kQwen2:
      return RenderChatMl(messages, options, kQwen2System);
    case ChatFormat::kQwen25:
      return RenderChatMl(messages, options, kQwen25System);
    case ChatFormat::kQwen3:
      return RenderQwen3(messages, options);
    case ChatFormat::kChatMl:
      return RenderChatMl(messages, options, "");
  }
  throw Error("chat: no such format");
}

}  // namespace larder::model::chat
