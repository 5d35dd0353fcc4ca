// AnswerFormat: how a family of models writes thoughts and tool calls into its text. Chosen by the
// chat template that the model was trained with, or by --tool-parser. Constant tables; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace larder::serving::inline answer {

// Every format, in the order in which a chat template is compared with them.
// serving/answer/formats/ has the functions (HarmonyFormat, ...) that say all about each.
#define LARDER_ANSWER_FORMATS(FORMAT) \
  FORMAT(Harmony)                     \
  FORMAT(Gemma4)                      \
  FORMAT(SeedOss)                     \
  FORMAT(MiniMaxM2)                   \
  FORMAT(DeepSeekV4)                  \
  FORMAT(DeepSeekV3)                  \
  FORMAT(DeepSeekV31)                 \
  FORMAT(KimiK2)                      \
  FORMAT(CommandR7b)                  \
  FORMAT(CommandR)                    \
  FORMAT(MistralArgs)                 \
  FORMAT(Mistral)                     \
  FORMAT(Lfm2)                        \
  FORMAT(GigaChat)                    \
  FORMAT(FireFunction)                \
  FORMAT(MiroThinker)                 \
  FORMAT(Hunyuan)                     \
  FORMAT(Apriel)                      \
  FORMAT(Functionary32)               \
  FORMAT(Nemotron)                    \
  FORMAT(Phi4Mini)                    \
  FORMAT(Granite)                     \
  FORMAT(Olmo3)                       \
  FORMAT(QwenXml)                     \
  FORMAT(Functionary31)               \
  FORMAT(Glm)                         \
  FORMAT(Hermes)                      \
  FORMAT(Llama3)                      \
  FORMAT(Generic)

#define LARDER_FORMAT(name) k##name,
enum class AnswerFormat : uint8_t { LARDER_ANSWER_FORMATS(LARDER_FORMAT) };
#undef LARDER_FORMAT

// The format that a template's text asks for; kGeneric if it names none.
AnswerFormat DetectAnswerFormat(std::string_view chat_template);

// For --tool-parser: vLLM's names where it has one ("hermes", "qwen3_coder", "llama3_json",
// "mistral", ...).
std::string_view AnswerFormatName(AnswerFormat);
std::optional<AnswerFormat> AnswerFormatByName(std::string_view name);
std::vector<std::string_view> AnswerFormatNames();

// Texts that may be tokens of their own: markers of thoughts and calls, which the parser must see
// although they are control tokens, and separators, which are never text. parse_tools: calls are
// looked for.
struct FormatTokens {
  std::vector<std::string_view> shown, hidden;
};
FormatTokens TokensOf(AnswerFormat, bool parse_tools);

// Texts that open and end a thought, and the pair that the model of this template writes.
struct ThoughtForm {
  std::vector<std::string_view> begins, ends;
  std::string_view begin, end;
};
ThoughtForm ThoughtFormOf(AnswerFormat, std::string_view chat_template);

// The rendered prompt ends inside a thought ("<think>\n"):
// AnswerParserOptions::starts_in_reasoning.
bool StartsInReasoning(AnswerFormat, std::string_view prompt);
// The model thinks before every answer, whether or not it is asked to.
bool AlwaysThinks(AnswerFormat);
// The reasoning_effort that the model was trained with and that stands for this one.
std::string_view TrainedEffort(AnswerFormat, std::string_view effort);

}  // namespace larder::serving::answer
