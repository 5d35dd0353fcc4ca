#include "serving/answer/answer_format.h"

#include <algorithm>
#include <array>

#include "serving/answer/markers.h"

namespace larder::serving::inline answer {
namespace {

struct FormatEntry {
  AnswerFormat format;
  std::string_view name;
  // The template has all of these texts; none: it is not detected by them. The first entry that
  // fits counts.
  std::array<std::string_view, 2> texts;
};

constexpr std::array kFormats = {
    FormatEntry{AnswerFormat::kHarmony, "openai", {"<|channel|>", "<|message|>"}},
    FormatEntry{AnswerFormat::kGemma4, "gemma4", {"<|tool_call>", "<tool_call|>"}},
    FormatEntry{AnswerFormat::kSeedOss, "seed_oss", {"<seed:", "<function="}},
    FormatEntry{AnswerFormat::kDeepSeekV4, "deepseek_v4", {"DSML", "invoke"}},
    FormatEntry{AnswerFormat::kDeepSeekV3, "deepseek_v3", {"<｜tool▁call▁begin｜>", "```json"}},
    FormatEntry{AnswerFormat::kDeepSeekV31, "deepseek_v31", {"<｜tool▁call▁begin｜>"}},
    FormatEntry{AnswerFormat::kKimiK2, "kimi_k2", {"<|tool_call_argument_begin|>"}},
    FormatEntry{AnswerFormat::kKimiK2, "kimi_k2", {"<|im_middle|>", "tool_declare"}},
    FormatEntry{AnswerFormat::kCommandR7b, "cohere2", {"<|START_ACTION|>"}},
    FormatEntry{AnswerFormat::kCommandR, "command_r", {"Action: ```json"}},
    FormatEntry{AnswerFormat::kCommandR, "command_r", {"Action:", "```json"}},
    FormatEntry{AnswerFormat::kMistralArgs, "mistral_args", {"[TOOL_CALLS]", "[ARGS]"}},
    FormatEntry{AnswerFormat::kMistral, "mistral", {"[TOOL_CALLS]"}},
    FormatEntry{AnswerFormat::kLfm2, "lfm2", {"<|tool_list_start|>"}},
    FormatEntry{AnswerFormat::kGigaChat, "gigachat", {"<|role_sep|>", "function"}},
    FormatEntry{AnswerFormat::kFireFunction, "firefunction", {"functools["}},
    FormatEntry{AnswerFormat::kMiroThinker, "mirothinker", {"<use_mcp_tool>"}},
    FormatEntry{AnswerFormat::kApriel, "apriel", {"<tool_calls>"}},
    FormatEntry{AnswerFormat::kFunctionary32, "functionary_v32", {">>>all"}},
    FormatEntry{AnswerFormat::kQwenXml, "qwen3_coder", {"<function=", "<parameter="}},
    FormatEntry{AnswerFormat::kFunctionary31, "functionary_v31", {"<function="}},
    FormatEntry{AnswerFormat::kGlm, "glm45", {"<arg_key>"}},
    FormatEntry{AnswerFormat::kHermes, "hermes", {"<tool_call>"}},
    FormatEntry{AnswerFormat::kLlama3, "llama3_json", {"<|start_header_id|>", "\"parameters\""}},
    FormatEntry{AnswerFormat::kGeneric, "generic", {}},
};

const FormatEntry& EntryOf(AnswerFormat format) {
  return *std::ranges::find(kFormats, format, &FormatEntry::format);
}

}  // namespace

AnswerFormat DetectAnswerFormat(std::string_view chat_template) {
  for (const FormatEntry& entry : kFormats) {
    const auto has = [&](std::string_view text) {
      return chat_template.find(text) != std::string_view::npos;
    };
    if (std::ranges::all_of(entry.texts, has)) return entry.format;
  }
  return AnswerFormat::kGeneric;
}

std::string_view AnswerFormatName(AnswerFormat format) { return EntryOf(format).name; }

std::optional<AnswerFormat> AnswerFormatByName(std::string_view name) {
  const auto entry = std::ranges::find(kFormats, name, &FormatEntry::name);
  if (entry == kFormats.end()) return std::nullopt;
  return entry->format;
}

std::vector<std::string_view> AnswerFormatNames() {
  std::vector<std::string_view> names;
  for (const FormatEntry& entry : kFormats) {
    if (names.empty() || names.back() != entry.name) names.push_back(entry.name);
  }
  return names;
}

ThoughtForm ThoughtFormOf(AnswerFormat format, std::string_view chat_template) {
  if (format == AnswerFormat::kHarmony) {
    constexpr std::string_view kBegin = "<|channel|>analysis<|message|>", kEnd = "<|end|>";
    return {{kBegin}, {kEnd}, kBegin, kEnd};
  }
  ThoughtForm form{{}, {}, "<think>", "</think>"};
  bool chosen = false;
  for (const Marker& marker : MarkersOf(format, false, true)) {
    if (marker.action == Marker::Action::kThink) {
      form.begins.push_back(marker.text);
      const std::string_view word = marker.text.substr(0, marker.text.find('\n'));
      chosen = chat_template.find(word) != std::string_view::npos;
      if (chosen) form.begin = marker.text;
    } else if (marker.action == Marker::Action::kThinkEnd) {  // the end of the thought form before
      form.ends.push_back(marker.text);
      if (chosen) form.end = marker.text;
    }
  }
  return form;
}

bool StartsInReasoning(AnswerFormat format, std::string_view prompt) {
  if (format == AnswerFormat::kHarmony) return prompt.ends_with("<|channel|>analysis<|message|>");
  const auto strip = [](std::string_view text) {
    const size_t last = text.find_last_not_of(" \t\r\n");
    return text.substr(0, last == std::string_view::npos ? 0 : last + 1);
  };
  prompt = strip(prompt);
  for (const Marker& marker : MarkersOf(format, false, true)) {
    if (marker.action == Marker::Action::kThink && prompt.ends_with(strip(marker.text)))
      return true;
  }
  return false;
}

}  // namespace larder::serving::answer
