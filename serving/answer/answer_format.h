// AnswerFormat: how a family of models writes thoughts and tool calls into its text. Chosen by the
// chat template that the model was trained with, or by --tool-parser. Constant tables; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace larder::serving::inline answer {

enum class AnswerFormat : uint8_t {
  kGeneric,  // the template knows no tools: a message that consists of {"tool_call": {"name",
             // "arguments"}}
  kHermes,   // <tool_call>{"name", "arguments"}</tool_call>: Hermes, Qwen 2.5 and 3, and many more
  kQwenXml,  // <tool_call><function=name><parameter=k>v</parameter></function></tool_call>:
             // Qwen3-Coder
  kSeedOss,  // the same in <seed:tool_call>
  kLlama3,   // a message that consists of {"name", "parameters"}; <|python_tag|>name.call(k="v")
  kMistral,  // [TOOL_CALLS][{"name", "arguments"}]
  kMistralArgs,  // [TOOL_CALLS]name[ARGS]{...}
  kDeepSeekV3,  // <｜tool▁call▁begin｜>function<｜tool▁sep｜>name\n```json\n{...}\n```: V3, R1
  kDeepSeekV31,    // <｜tool▁call▁begin｜>name<｜tool▁sep｜>{...}
  kDeepSeekV4,     // <｜DSML｜invoke name="name"><｜DSML｜parameter name="k" string="true">v
  kGlm,            // <tool_call>name<arg_key>k</arg_key><arg_value>v</arg_value></tool_call>
  kGemma4,         // <|tool_call>call:name{k:<|"|>v<|"|>}<tool_call|>
  kHarmony,        // <|channel|>commentary to=functions.name<|message|>{...}<|call|>: gpt-oss
  kCommandR,       // Action: ```json [{"tool_name", "parameters"}]```
  kCommandR7b,     // <|START_ACTION|>[{"tool_call_id", "tool_name", "parameters"}]<|END_ACTION|>
  kKimiK2,         // <|tool_call_begin|>functions.name:0<|tool_call_argument_begin|>{...}
  kApriel,         // <tool_calls>[{"name", "arguments"}]</tool_calls>, [BEGIN FINAL RESPONSE]
  kGigaChat,       // <|function_call|>{"name", "arguments"}
  kFunctionary31,  // <function=name>{...}</function>
  kFunctionary32,  // >>>name\n{...}
  kFireFunction,   // functools[{"name", "arguments"}]
  kMiroThinker,    // <use_mcp_tool><tool_name>name</tool_name><arguments>{...}</arguments>
  kLfm2,           // <|tool_call_start|>[name(k="v")]<|tool_call_end|>
};

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

}  // namespace larder::serving::answer
