#include "serving/answer/markers.h"

namespace larder::serving::inline answer {
namespace {

using enum Marker::Action;
using enum Marker::Where;
using Made = std::unique_ptr<CallMachine>;

Made JsonBlock(CallSink& sink, const ToolTable& tools) { return MakeJsonCalls(sink, tools, false); }
Made JsonMessage(CallSink& sink, const ToolTable& tools) {
  return MakeJsonCalls(sink, tools, true);
}
Made PythonBlock(CallSink& sink, const ToolTable& tools) { return MakePythonCalls(sink, tools); }
Made GemmaBlock(CallSink& sink, const ToolTable&) { return MakeGemmaCall(sink); }

template <NamedForm form>
Made NamedBlock(CallSink& sink, const ToolTable& tools) {
  return MakeNamedCall(sink, tools, form);
}

template <XmlForm form>
Made XmlBlock(CallSink& sink, const ToolTable& tools) {
  return MakeXmlCall(sink, tools, form);
}

std::vector<Marker> ThoughtMarkers(AnswerFormat format) {
  // Text may well speak of <think>, so it opens a thought only where a thought can be.
  std::vector<Marker> markers = {{"<think>", kThink, kFresh}, {"</think>", kThinkEnd, kFresh}};
  const auto add = [&](std::string_view open, std::string_view close,
                       Marker::Where where = kAnywhere) {
    markers.push_back({open, kThink, where});
    markers.push_back({close, kThinkEnd, where});
  };
  switch (format) {
    case AnswerFormat::kSeedOss:
      add("<seed:think>", "</seed:think>");
      break;
    case AnswerFormat::kMistral:
    case AnswerFormat::kMistralArgs:
      add("[THINK]", "[/THINK]");
      break;
    case AnswerFormat::kCommandR7b:
      add("<|START_THINKING|>", "<|END_THINKING|>");
      break;
    case AnswerFormat::kGemma4:
      add("<|channel>thought\n", "<channel|>");
      break;
    case AnswerFormat::kKimiK2:
      add("◁think▷", "◁/think▷", kFresh);
      break;
    case AnswerFormat::kApriel:
      add("<thinking>", "</thinking>", kFresh);
      add("Here are my reasoning steps:", "[BEGIN FINAL RESPONSE]", kFresh);
      markers.push_back({"[END FINAL RESPONSE]", kSkip, kAnywhere});
      break;
    default:
      break;
  }
  return markers;
}

std::vector<Marker> CallMarkers(AnswerFormat format) {
  switch (format) {
    case AnswerFormat::kGeneric:
      return {{"{", kCall, kFresh, JsonMessage, 1},
              {"```json\n", kCall, kFresh, JsonMessage},
              {"```", kSkip, kAfterCall}};
    case AnswerFormat::kHermes:
      // Qwen2.5-Coder writes the JSON alone, in a fence or in the tags of the list that it was
      // given.
      return {{"<tool_call>", kCall, kAnywhere, JsonBlock},
              {"</tool_call>", kSkip, kAfterCall},
              {"{", kCall, kFresh, JsonMessage, 1},
              {"```json\n", kCall, kFresh, JsonMessage},
              {"```", kSkip, kAfterCall},
              {"<tools>", kCall, kFresh, JsonMessage},
              {"</tools>", kSkip, kAfterCall}};
    case AnswerFormat::kQwenXml:
      return {{"<tool_call>", kCall, kAnywhere, XmlBlock<XmlForm::kQwen>},
              {"<function=", kCall, kAnywhere, XmlBlock<XmlForm::kQwen>, 10},
              {"</tool_call>", kSkip, kAfterCall}};
    case AnswerFormat::kSeedOss:
      return {{"<seed:tool_call>", kCall, kAnywhere, XmlBlock<XmlForm::kSeed>},
              {"</seed:tool_call>", kSkip, kAfterCall}};
    case AnswerFormat::kLlama3:
      return {{"<|python_tag|>", kCall, kAnywhere, PythonBlock},
              {"{", kCall, kFresh, JsonMessage, 1},
              {";", kSkip, kAfterCall}};
    case AnswerFormat::kMistral:
    case AnswerFormat::kMistralArgs:
      return {{"[TOOL_CALLS]", kCall, kAnywhereEven, NamedBlock<NamedForm::kMistral>}};
    case AnswerFormat::kDeepSeekV3:
    case AnswerFormat::kDeepSeekV31:
      return {{"<｜tool▁calls▁begin｜>", kSkip, kAnywhereEven},
              {"<｜tool_calls_begin｜>", kSkip, kAnywhereEven},
              {"<｜tool▁call▁begin｜>", kCall, kAnywhereEven, NamedBlock<NamedForm::kDeepSeek>},
              {"<｜tool_call_begin｜>", kCall, kAnywhereEven, NamedBlock<NamedForm::kDeepSeek>},
              {"```", kSkip, kAfterCall},
              {"<｜tool▁call▁end｜>", kSkip, kAnywhere},
              {"<｜tool_call_end｜>", kSkip, kAnywhere},
              {"<｜tool▁calls▁end｜>", kSkip, kAnywhere},
              {"<｜tool_calls_end｜>", kSkip, kAnywhere}};
    case AnswerFormat::kDeepSeekV4:
      return {{"<｜DSML｜tool_calls>", kSkip, kAnywhereEven},
              {"<｜DSML｜function_calls>", kSkip, kAnywhereEven},
              {"<｜DSML｜invoke name=\"", kCall, kAnywhereEven, XmlBlock<XmlForm::kDeepSeekV4>},
              {"</｜DSML｜tool_calls>", kSkip, kAnywhere},
              {"</｜DSML｜function_calls>", kSkip, kAnywhere}};
    case AnswerFormat::kGlm:
      return {{"<tool_call>", kCall, kAnywhere, XmlBlock<XmlForm::kGlm>}};
    case AnswerFormat::kGemma4:
      return {{"<|tool_call>", kCall, kAnywhereEven, GemmaBlock},
              {"<tool_call|>", kSkip, kAnywhere},
              {"<|tool_response>", kSkip, kAnywhere}};
    case AnswerFormat::kHarmony:
      return {};  // has a parser of its own
    case AnswerFormat::kCommandR:
      return {{"Action: ```json", kCall, kAnywhere, JsonBlock},
              {"Action:```json", kCall, kAnywhere, JsonBlock},
              {"Action:\n```json", kCall, kAnywhere, JsonBlock},
              {"```", kSkip, kAfterCall}};
    case AnswerFormat::kCommandR7b:
      return {{"<|START_ACTION|>", kCall, kAnywhereEven, JsonBlock},
              {"<|END_ACTION|>", kSkip, kAnywhere}};
    case AnswerFormat::kKimiK2:
      return {{"<|tool_calls_section_begin|>", kSkip, kAnywhereEven},
              {"<|tool_call_begin|>", kCall, kAnywhereEven, NamedBlock<NamedForm::kKimi>},
              {"<|tool_call_end|>", kSkip, kAnywhere},
              {"<|tool_calls_section_end|>", kSkip, kAnywhere}};
    case AnswerFormat::kApriel:
      return {{"<tool_calls>", kCall, kAnywhere, JsonBlock}, {"</tool_calls>", kSkip, kAfterCall}};
    case AnswerFormat::kGigaChat:
      return {{"<|function_call|>", kCall, kAnywhere, JsonBlock},
              {"function call<|role_sep|>", kCall, kAnywhere, JsonBlock}};
    case AnswerFormat::kFunctionary31:
      return {{"<function=", kCall, kAnywhere, NamedBlock<NamedForm::kFunctionary31>},
              {"</function>", kSkip, kAfterCall}};
    case AnswerFormat::kFunctionary32:
      return {{">>>", kCall, kAnywhere, NamedBlock<NamedForm::kFunctionary32>},
              {"", kCall, kFresh, NamedBlock<NamedForm::kFunctionary32>}};
    case AnswerFormat::kFireFunction:
      return {{"functools[", kCall, kAnywhere, JsonBlock, 1},
              {" functools[", kCall, kAnywhere, JsonBlock, 1}};
    case AnswerFormat::kMiroThinker:
      return {{"<use_mcp_tool>", kCall, kAnywhere, NamedBlock<NamedForm::kMiro>},
              {"<server_name>", kCall, kAfterCall, NamedBlock<NamedForm::kMiro>},
              {"</arguments>", kSkip, kAfterCall},
              {"</use_mcp_tool>", kSkip, kAfterCall}};
    case AnswerFormat::kLfm2:
      return {{"<|tool_call_start|>", kCall, kAnywhereEven, PythonBlock},
              {"<|tool_call_end|>", kSkip, kAnywhere}};
  }
  return {};
}

// Tokens that stand between or behind the parts: they are never text.
std::vector<std::string_view> TextsBetween(AnswerFormat format) {
  switch (format) {
    case AnswerFormat::kHermes:
    case AnswerFormat::kQwenXml:
    case AnswerFormat::kKimiK2:
    case AnswerFormat::kLfm2:
      return {"<|im_end|>"};
    case AnswerFormat::kLlama3:
    case AnswerFormat::kFunctionary31:
    case AnswerFormat::kFunctionary32:
    case AnswerFormat::kFireFunction:
      return {"<|eot_id|>", "<|eom_id|>"};
    case AnswerFormat::kDeepSeekV3:
    case AnswerFormat::kDeepSeekV31:
    case AnswerFormat::kDeepSeekV4:
      return {"<｜end▁of▁sentence｜>"};
    case AnswerFormat::kGlm:
      return {"<|observation|>", "<|user|>", "<|endoftext|>"};
    case AnswerFormat::kGemma4:
      return {"<turn|>"};
    case AnswerFormat::kCommandR:
    case AnswerFormat::kCommandR7b:
      return {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",
              "<|END_OF_TURN_TOKEN|>"};
    case AnswerFormat::kApriel:
      return {"<|end|>"};
    case AnswerFormat::kGigaChat:
      return {"<|message_sep|>"};
    case AnswerFormat::kSeedOss:
      return {"<seed:eos>"};
    default:
      return {};
  }
}

// Parts of markers, and what stands inside calls and is a token in some vocabularies.
std::vector<std::string_view> TextsInside(AnswerFormat format) {
  switch (format) {
    case AnswerFormat::kMistral:
    case AnswerFormat::kMistralArgs:
      return {"[ARGS]", "[CALL_ID]"};
    case AnswerFormat::kDeepSeekV3:
    case AnswerFormat::kDeepSeekV31:
      return {"<｜tool▁sep｜>", "<｜tool_sep｜>"};
    case AnswerFormat::kDeepSeekV4:
      return {"｜DSML｜"};
    case AnswerFormat::kGlm:
      return {"</tool_call>", "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
    case AnswerFormat::kGemma4:
      return {"<|\"|>"};
    case AnswerFormat::kKimiK2:
      return {"<|tool_call_argument_begin|>"};
    case AnswerFormat::kGigaChat:
      return {"<|role_sep|>"};
    default:
      return {};
  }
}

}  // namespace

std::vector<Marker> MarkersOf(AnswerFormat format, bool parse_tools, bool parse_reasoning) {
  std::vector<Marker> markers;
  if (parse_reasoning) markers = ThoughtMarkers(format);
  if (parse_tools) {
    for (const Marker& marker : CallMarkers(format)) markers.push_back(marker);
  }
  if (format == AnswerFormat::kFunctionary32) {  // names the recipient of a text
    markers.push_back({"all\n", kSkip, kFresh});
    markers.push_back({">>>all\n", kSkip, kAnywhere});
  }
  return markers;
}

FormatTokens TokensOf(AnswerFormat format, bool parse_tools) {
  FormatTokens tokens;
  if (format == AnswerFormat::kHarmony) {
    tokens.shown.assign(kHarmonyTokens.begin(), kHarmonyTokens.end());
    return tokens;
  }
  tokens.hidden = TextsBetween(format);
  for (const Marker& marker : MarkersOf(format, parse_tools, true))
    tokens.shown.push_back(marker.text);
  if (format == AnswerFormat::kGemma4) tokens.shown.push_back("<|channel>");
  if (!parse_tools) return tokens;
  for (const std::string_view text : TextsInside(format)) tokens.shown.push_back(text);
  return tokens;
}

}  // namespace larder::serving::answer
