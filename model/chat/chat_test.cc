// The chat formats against texts written out by hand, and how a format is recognised.
#include "model/chat/chat.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"
#include "model/chat/chat_text.h"

namespace larder::model::inline chat {
namespace {

using Chat = std::vector<ChatMessage>;

const Chat kQuestion = {{"user", " Why? \n"}};
const Chat kTurns = {
    {"system", "Be brief.\n"}, {"user", "Hi"}, {"assistant", " Hello! "}, {"user", "Grüß 🦙"}};

std::string Render(ChatFormat format, const Chat& chat, bool prompt = true) {
  ChatOptions options;
  options.add_generation_prompt = prompt;
  return RenderChat(format, chat, options);
}

TEST(Chat, Llama2) {
  EXPECT_EQ(Render(ChatFormat::kLlama2, kQuestion), "[INST] Why? [/INST]");
  EXPECT_EQ(Render(ChatFormat::kLlama2, kTurns),
            "[INST] <<SYS>>\nBe brief.\n\n<</SYS>>\n\nHi [/INST] Hello! </s><s>[INST] Grüß 🦙 [/INST]");
  EXPECT_THROW(Render(ChatFormat::kLlama2, {{"system", "Be brief."}}), Error);
  EXPECT_THROW(Render(ChatFormat::kLlama2, {{"user", "a"}, {"user", "b"}}), Error);
  EXPECT_THROW(Render(ChatFormat::kLlama2, {{"assistant", "a"}}), Error);
}

TEST(Chat, Llama3) {
  const std::string header =
      "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n";
  EXPECT_EQ(
      Render(ChatFormat::kLlama3, kQuestion),
      header +
          "Today Date: 26 Jul 2024\n\n<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nWhy?<|eot_id|>"
          "<|start_header_id|>assistant<|end_header_id|>\n\n");
  EXPECT_EQ(RenderChat(ChatFormat::kLlama3, kTurns, {.add_generation_prompt = false, .date = "01 Jan 2026"}),
            header +
                "Today Date: 01 Jan 2026\n\nBe "
                "brief.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
                "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
                "<|start_header_id|>user<|end_header_id|>\n\nGrüß 🦙<|eot_id|>");
  EXPECT_EQ(Render(ChatFormat::kLlama30, kTurns),
            "<|start_header_id|>system<|end_header_id|>\n\nBe brief.<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nHi<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\nHello!<|eot_id|>"
            "<|start_header_id|>user<|end_header_id|>\n\nGrüß 🦙<|eot_id|>"
            "<|start_header_id|>assistant<|end_header_id|>\n\n");
}

TEST(Chat, ChatMlAndItsSystemPrompts) {
  const std::string question = "<|im_start|>user\n Why? \n<|im_end|>\n";
  const std::string prompt = "<|im_start|>assistant\n";
  EXPECT_EQ(Render(ChatFormat::kChatMl, kQuestion), question + prompt);
  EXPECT_EQ(Render(ChatFormat::kChatMl, kQuestion, false), question);
  EXPECT_EQ(Render(ChatFormat::kQwen2, kQuestion),
            "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n" + question + prompt);
  EXPECT_EQ(
      Render(ChatFormat::kQwen25, kQuestion),
      "<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n" +
          question + prompt);
  const std::string turns =
      "<|im_start|>system\nBe brief.\n<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n "
      "Hello! <|im_end|>\n"
      "<|im_start|>user\nGrüß 🦙<|im_end|>\n<|im_start|>assistant\n";
  EXPECT_EQ(Render(ChatFormat::kChatMl, kTurns), turns);
  EXPECT_EQ(Render(ChatFormat::kQwen25, kTurns), turns);
}

TEST(Chat, Qwen3) {
  const std::string prompt = "<|im_start|>assistant\n";
  EXPECT_EQ(Render(ChatFormat::kQwen3, {{"user", "a"}}), "<|im_start|>user\na<|im_end|>\n" + prompt);
  EXPECT_EQ(RenderChat(ChatFormat::kQwen3, Chat{{"user", "a"}}, {.enable_thinking = false}),
            "<|im_start|>user\na<|im_end|>\n" + prompt + "<think>\n\n</think>\n\n");
  // Thoughts before the last question are dropped, those after it are kept.
  const std::string answer = "<think>\nhmm\n</think>\n\nyes";
  EXPECT_EQ(
      Render(ChatFormat::kQwen3, {{"user", "a"}, {"assistant", answer}, {"user", "b"}}),
      "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nyes<|im_end|>\n<|im_start|>user\nb<|im_end|>\n" +
          prompt);
  EXPECT_EQ(Render(ChatFormat::kQwen3, {{"user", "a"}, {"assistant", answer}}, false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n" + answer + "<|im_end|>\n");
  EXPECT_EQ(Render(ChatFormat::kQwen3, {{"user", "a"}, {"assistant", "yes"}}, false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\n<think>\n\n</think>\n\nyes<|im_end|>\n");
}

TEST(Chat, RefusesWhatNoFormatKnows) {
  for (const ChatFormat format : {ChatFormat::kLlama2, ChatFormat::kLlama3, ChatFormat::kChatMl}) {
    EXPECT_THROW(Render(format, {}), Error);
    EXPECT_THROW(Render(format, {{"user", "a"}, {"wizard", "b"}}), Error);
  }
}

TEST(Chat, NamesGoThereAndBack) {
  for (const ChatFormat format :
       {ChatFormat::kLlama2, ChatFormat::kLlama3, ChatFormat::kLlama30, ChatFormat::kQwen2,
        ChatFormat::kQwen25, ChatFormat::kQwen3, ChatFormat::kChatMl}) {
    EXPECT_EQ(ChatFormatByName(ChatFormatName(format)), format);
  }
  EXPECT_EQ(ChatFormatName(ChatFormat::kQwen25), "qwen2.5");
  EXPECT_EQ(ChatFormatByName("alpaca"), std::nullopt);
}

TEST(Chat, DetectsTheFormatOfATemplate) {
  EXPECT_EQ(DetectChatFormat("{{ '<|start_header_id|>' }} Cutting Knowledge Date"), ChatFormat::kLlama3);
  EXPECT_EQ(DetectChatFormat("{{ '<|start_header_id|>' }}"), ChatFormat::kLlama30);
  EXPECT_EQ(DetectChatFormat("{{ '[INST] <<SYS>>' }}"), ChatFormat::kLlama2);
  EXPECT_EQ(DetectChatFormat("{{ '<|im_start|>' + message['role'] }}"), ChatFormat::kChatMl);
  EXPECT_EQ(DetectChatFormat("{{ '<|im_start|>system\\nYou are a helpful assistant.<|im_end|>\\n' }}"),
            ChatFormat::kQwen2);
  EXPECT_EQ(DetectChatFormat("<|im_start|> <think> enable_thinking"), ChatFormat::kQwen3);
  EXPECT_EQ(DetectChatFormat("<|im_start|> <think>"), std::nullopt);
  EXPECT_EQ(DetectChatFormat("{{ '[INST] ' }}"), std::nullopt);  // Mistral
  EXPECT_EQ(DetectChatFormat("{{'<|user|>'}}"), std::nullopt);
  EXPECT_EQ(DetectChatFormat(""), std::nullopt);
}

TEST(ChatText, Strips) {
  EXPECT_EQ(StripSpace(" \t\u3000a b\u00A0\u2028\n"), "a b");
  EXPECT_EQ(StripSpace("\u200Ba\u0085"), "\u200Ba");  // U+200B is not white space
  EXPECT_EQ(StripSpace("à"), "à");                    // ends in byte A0, which alone is not a character
  EXPECT_EQ(StripSpace(" \n "), "");
  EXPECT_EQ(StripSpace("\xFF \xFF "), "\xFF \xFF");
  EXPECT_EQ(StripLeadingNewlines("\n\n a\n"), " a\n");
  EXPECT_EQ(StripTrailingNewlines("\n a\n\n"), "\n a");
  EXPECT_EQ(StripTrailingNewlines("\n\n"), "");
  EXPECT_EQ(StripLeadingNewlines("\n\n"), "");
}

}  // namespace
}  // namespace larder::model::chat
