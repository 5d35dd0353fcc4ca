// The chat formats against their published Jinja templates, rendered by python3 with jinja2 if both are
// installed.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "base/temporary_folder_testing.h"
#include "base/test_data_testing.h"
#include "model/chat/chat.h"

namespace larder::model::inline chat {
namespace {

using Chat = std::vector<ChatMessage>;

// Reads chats, one per line: options, then roles and contents alternately, in hexadecimal. Writes the
// renderings, one per line, in hexadecimal.
constexpr char kScript[] = R"(
import sys
from jinja2.sandbox import ImmutableSandboxedEnvironment
environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True)
template = environment.from_string(open(sys.argv[1], encoding='utf-8').read())
for line in open(sys.argv[2]):
    prompt, thinking, *words = line.split(' ')[:-1]
    words = [bytes.fromhex(word).decode() for word in words]
    messages = [{'role': r, 'content': c} for r, c in zip(words[::2], words[1::2])]
    text = template.render(messages=messages, add_generation_prompt=prompt == '1', bos_token='',
                           date_string='02 Mar 2025', enable_thinking=thinking == '1')
    print(text.encode().hex())
)";

const Chat kChats[] = {
    {{"user", "Hi"}},
    {{"user", ""}},
    {{"system", "You are terse."}, {"user", "Hi"}},
    {{"system", "  spaces \n"}, {"user", "\n\t trim me \u3000"}},
    {{"system", "only"}},
    {{"user", "a"}, {"assistant", "b"}, {"user", "c"}},
    {{"system", "s"}, {"user", "a"}, {"assistant", " b "}, {"user", "c"}, {"assistant", "\nd\n"}},
    {{"user", "Grüße 東京 👩‍🚀"}, {"assistant", "«½»"}, {"user", "{{ not a template }} {% if %}"}},
    {{"user", "a"}, {"assistant", "<think>\nfirst\n\n</think>\n\nb"}, {"user", "c"}},
    {{"user", "a"}, {"assistant", "<think>\nlast\n</think>\n\nb"}},
    {{"user", "a"}, {"assistant", "<think>\none"}, {"assistant", "x<think>two\n</think>y</think>\n\nz"}},
    {{"user", "a"}, {"assistant", "<think></think>"}, {"assistant", "</think>\n"}, {"assistant", ""}},
    {{"user", "a"},
     {"assistant", "b"},
     {"user", "<tool_response>\n7\n</tool_response>"},
     {"assistant", "<think>t</think>c"}},
    {{"assistant", "I begin."}, {"assistant", "<think>\n\nhm\n\n</think>and go on"}},
    {{"user", "a"}, {"system", "late"}, {"user", "b"}},
};

std::string ToHex(std::string_view text) {
  std::string hex;
  for (const char c : text) {
    hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
  }
  return hex;
}

struct Published {
  const char* file;
  ChatFormat format;
};

class ChatJinja : public testing::TestWithParam<Published> {};

TEST_P(ChatJinja, RendersAsPublished) {
  const std::filesystem::path path = TestData(std::string("templates/") + GetParam().file);
  LARDER_NEEDS_TEST_DATA(path);
  if (std::system("python3 -c 'import jinja2' 2>/dev/null") != 0)
    GTEST_SKIP() << "python3-jinja2 is not installed";

  std::ifstream file(path, std::ios::binary);
  const std::string published(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(DetectChatFormat(published), GetParam().format);

  const TemporaryFolder folder;
  const std::string base = folder / "chat";
  std::ofstream(base + ".py") << kScript;
  std::vector<std::string> expected;
  {
    std::ofstream chats(base + ".chats");
    for (const Chat& chat : kChats) {
      for (const bool prompt : {false, true}) {
        for (const bool thinking : {false, true}) {
          chats << prompt << ' ' << thinking << ' ';
          for (const ChatMessage& message : chat)
            chats << ToHex(message.role) << ' ' << ToHex(message.content) << ' ';
          chats << '\n';
          ChatOptions options;
          options.add_generation_prompt = prompt;
          options.date = "02 Mar 2025";
          options.enable_thinking = thinking;
          expected.push_back(RenderChat(GetParam().format, chat, options));
        }
      }
    }
  }
  const std::string command =
      "python3 '" + base + ".py' '" + path.string() + "' '" + base + ".chats' > '" + base + ".out'";
  ASSERT_EQ(std::system(command.c_str()), 0);
  std::ifstream rendered(base + ".out");
  for (const std::string& text : expected) {
    std::string hex;
    ASSERT_TRUE(std::getline(rendered, hex));
    EXPECT_EQ(ToHex(text), hex) << text;
  }
}

INSTANTIATE_TEST_SUITE_P(
    All, ChatJinja,
    testing::Values(Published{"meta-llama-Llama-3.1-8B-Instruct.jinja", ChatFormat::kLlama3},
                    Published{"meta-llama-Llama-3.2-3B-Instruct.jinja", ChatFormat::kLlama3},
                    Published{"Qwen-Qwen2.5-7B-Instruct.jinja", ChatFormat::kQwen25},
                    Published{"Qwen-Qwen3-0.6B.jinja", ChatFormat::kQwen3}),
    [](const auto& param) { return fmt::format("template{}", param.index); });

}  // namespace
}  // namespace larder::model::chat
