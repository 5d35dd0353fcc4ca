// Chat formats that people name, for models whose file has no template: our own Jinja texts of
// them. Those for which models were trained to call tools list the tools; the others leave them
// out.

#include "model/chat/chat_template.h"

namespace larder::model::inline chat {

namespace {

// ChatML with tools as Hermes and Qwen were trained for; thoughts as Qwen3's.
constexpr std::string_view kChatMl = R"({% macro turn(role, text) -%}
<|im_start|>{{ role }}
{{ text }}<|im_end|>
{% endmacro -%}
{%- for message in messages %}{{ turn(message.role, message.content) }}{% endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

constexpr std::string_view kQwenHead =
    R"({%- set first = messages[0].content if messages[0].role == 'system' else default_system %}
{%- if tools %}
{{- '<|im_start|>system\n' }}
{%- if first %}{{ first + '\n\n' }}{% endif %}
{{- '# Tools\n\nFunctions that you may call, one JSON signature a line:\n<tools>' }}
{%- for tool in tools %}{{ '\n' + tool | tojson }}{% endfor %}
{{- '\n</tools>\n\nA call is a JSON object with the name of the function and its arguments, within tags:\n<tool_call>\n{"name": <name>, "arguments": <object>}\n</tool_call><|im_end|>\n' }}
{%- elif first %}{{ '<|im_start|>system\n' + first + '<|im_end|>\n' }}{% endif %}
)";

constexpr std::string_view kQwenCalls = R"(
{%- macro calls(message, before) %}
{%- for call in message.tool_calls or [] %}
{%- set call = call.function or call %}
{{- (before if loop.first else '\n') + '<tool_call>\n{"name": ' + call.name | tojson + ', "arguments": ' }}
{{- call.arguments if call.arguments is string else call.arguments | tojson }}
{{- '}\n</tool_call>' }}
{%- endfor %}
{%- endmacro %}
{%- macro result(message, opens, closes) %}
{{- '<|im_start|>user' if opens }}{{ '\n<tool_response>\n' + message.content + '\n</tool_response>' }}
{{- '<|im_end|>\n' if closes }}
{%- endmacro %}
)";

constexpr std::string_view kQwenTurns = R"(
{%- for message in messages %}
{%- if message.role == 'tool' %}
{{- result(message, loop.first or loop.previtem.role != 'tool', loop.last or loop.nextitem.role != 'tool') }}
{%- elif not (loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\n' + (message.content or '') }}
{{- calls(message, '\n' if message.content else '') + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %})";

// An assistant's thoughts stay only behind the last question.
constexpr std::string_view kQwen3Turns = R"(
{%- set ns = namespace(question=-1) %}
{%- for message in messages %}
{%- if message.role == 'user' and not ((message.content or '').startswith('<tool_response>') and message.content.endswith('</tool_response>')) %}
{%- set ns.question = loop.index0 %}
{%- endif %}
{%- endfor %}
{%- if ns.question < 0 %}{% set ns.question = messages | length - 1 %}{% endif %}
{%- for message in messages %}
{%- set text = message.content or '' %}
{%- if message.role == 'tool' %}
{{- result(message, loop.first or loop.previtem.role != 'tool', loop.last or loop.nextitem.role != 'tool') }}
{%- elif message.role == 'assistant' %}
{%- set thought = message.reasoning_content or '' %}
{%- if not message.reasoning_content is string and '</think>' in text %}
{%- set thought = text.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
{%- set text = text.split('</think>')[-1].lstrip('\n') %}
{%- endif %}
{{- '<|im_start|>assistant\n' }}
{%- if loop.index0 > ns.question and (loop.last or thought) %}
{{- '<think>\n' + thought.strip('\n') + '\n</think>\n\n' + text.lstrip('\n') }}
{%- else %}{{ text }}{% endif %}
{{- calls(message, '\n' if text else '') + '<|im_end|>\n' }}
{%- elif not (loop.first and message.role == 'system') %}
{{- '<|im_start|>' + message.role + '\n' + text + '<|im_end|>\n' }}
{%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}{{ '<think>\n\n</think>\n\n' }}{% endif %}
{%- endif %})";

constexpr std::string_view kInTurn = R"(
{%- macro check(message, index) %}
{%- if message.role != ('user' if index % 2 == 0 else 'assistant') %}
{{- raise_exception('this format wants user and assistant in turn, but message ' ~ index ~ ' after the system prompt is from ' ~ message.role) }}
{%- endif %}
{%- endmacro %}
{%- set system = messages[0].content if messages[0].role == 'system' else '' %}
{%- set turns = messages[1:] if messages[0].role == 'system' else messages %}
{%- if not turns %}{{ raise_exception('this format puts the system prompt into the first user message; there is none') }}{% endif %}
)";

constexpr std::string_view kLlama2 = R"(
{%- for message in turns %}
{{- check(message, loop.index0) }}
{%- set text = '<<SYS>>\n' + system + '\n<</SYS>>\n\n' + message.content if loop.first and messages[0].role == 'system' else message.content %}
{%- if message.role == 'user' %}{{ bos_token + '[INST] ' + text.strip() + ' [/INST]' }}
{%- else %}{{ ' ' + text.strip() + ' ' + eos_token }}{% endif %}
{%- endfor %})";

constexpr std::string_view kMistral = R"(
{{- bos_token }}
{%- for message in turns %}
{{- check(message, loop.index0) }}
{%- if message.role == 'user' %}{{ '[INST] ' + (system + '\n\n' if loop.first and system else '') + message.content + ' [/INST]' }}
{%- else %}{{ ' ' + message.content + eos_token }}{% endif %}
{%- endfor %})";

constexpr std::string_view kLlama3Turn = R"({%- macro turn(role, text) %}
{{- '<|start_header_id|>' + role + '<|end_header_id|>\n\n' + text + '<|eot_id|>' }}
{%- endmacro %}
{{- bos_token }}
)";

constexpr std::string_view kLlama3Head = R"(
{%- set first = messages[0].content.strip() if messages[0].role == 'system' else '' %}
{%- set date = date_string if date_string is defined else strftime_now('%d %b %Y') %}
{%- set head = 'Cutting Knowledge Date: December 2023\nToday Date: ' + date + '\n\n' %}
{%- set listed %}
{%- if tools %}
{{- '\n\nFunctions that you may call:\n\n' }}
{%- for tool in tools %}{{ tool | tojson(indent=4) + '\n\n' }}{% endfor %}
{{- 'A call is nothing but a JSON object: {"name": function name, "parameters": object of arguments}.' }}
{%- endif %}
{%- endset %}
{{- turn('system', head + first + listed) }}
{%- set messages = messages[1:] if messages[0].role == 'system' else messages %}
)";

constexpr std::string_view kLlama3 = R"(
{%- for message in messages %}
{%- if message.role == 'tool' %}{{ turn('ipython', message.content) }}
{%- elif message.tool_calls %}
{%- set call = message.tool_calls[0].function or message.tool_calls[0] %}
{{- turn('assistant', '{"name": ' + call.name | tojson + ', "parameters": ' + (call.arguments if call.arguments is string else call.arguments | tojson) + '}') }}
{%- else %}{{ turn(message.role, message.content.strip()) }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}{% endif %})";

constexpr std::string_view kGemma = R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ raise_exception('this format has no system messages') }}{% endif %}
{{- '<start_of_turn>' + ('model' if message.role == 'assistant' else message.role) + '\n' + message.content.strip() + '<end_of_turn>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<start_of_turn>model\n' }}{% endif %})";

constexpr std::string_view kPhi3 = R"({%- for message in messages %}
{{- '<|' + message.role + '|>\n' + message.content + '<|end|>\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})";

constexpr std::string_view kZephyr = R"({%- for message in messages %}
{{- '<|' + message.role + '|>\n' + message.content + eos_token + '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|assistant|>\n' }}{% endif %})";

constexpr std::string_view kDeepSeek = R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ message.content + '\n\n' }}
{%- elif message.role == 'assistant' %}{{ 'Assistant: ' + message.content + eos_token }}
{%- else %}{{ 'User: ' + message.content + '\n\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'Assistant:' }}{% endif %})";

constexpr std::string_view kDeepSeek3 = R"({{- bos_token }}
{%- for message in messages %}
{%- if message.role == 'system' %}{{ message.content }}
{%- elif message.role == 'assistant' %}{{ '<｜Assistant｜>' + message.content.split('</think>')[-1] + eos_token }}
{%- else %}{{ '<｜User｜>' + message.content }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<｜Assistant｜>' }}{% endif %})";

constexpr std::string_view kVicuna = R"({%- for message in messages %}
{%- if message.role == 'system' %}{{ message.content + '\n\n' }}
{%- elif message.role == 'assistant' %}{{ 'ASSISTANT: ' + message.content + eos_token + '\n' }}
{%- else %}{{ 'USER: ' + message.content + '\n' }}{% endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{ 'ASSISTANT:' }}{% endif %})";

constexpr std::string_view kCommandR = R"({%- macro turn(who, text) -%}
<|START_OF_TURN_TOKEN|><|{{ who }}_TOKEN|>{{ text.strip() }}<|END_OF_TURN_TOKEN|>
{%- endmacro -%}
{%- for message in messages %}
{{- turn({'system': 'SYSTEM', 'user': 'USER', 'assistant': 'CHATBOT'}[message.role], message.content) }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|START_OF_TURN_TOKEN|><|CHATBOT_TOKEN|>' }}{% endif %})";

constexpr std::string_view kNames[] = {"chatml",  "llama2",   "llama3",    "llama3.1", "qwen2",
                                       "qwen2.5", "qwen3",    "mistral",   "gemma",    "phi3",
                                       "zephyr",  "deepseek", "deepseek3", "vicuna",   "command-r"};

struct BuiltIn {
  std::string_view name;
  std::string text;
};

std::string Join(std::initializer_list<std::string_view> parts) {
  std::string text;
  for (const std::string_view part : parts) text += part;
  return text;
}

std::string WithDefault(std::string_view system) {
  return "{%- set default_system = '" + std::string(system) + "' %}\n";
}

}  // namespace

std::span<const std::string_view> BuiltInTemplateNames() { return kNames; }

std::string_view BuiltInTemplate(std::string_view name) {
  static const std::vector<BuiltIn> templates = {
      {"chatml", std::string(kChatMl)},
      {"llama2", Join({kInTurn, kLlama2})},
      {"llama3", Join({kLlama3Turn, kLlama3})},
      {"llama3.1", Join({kLlama3Turn, kLlama3Head, kLlama3})},
      {"qwen2",
       Join({WithDefault("You are a helpful assistant."), kQwenHead, kQwenCalls, kQwenTurns})},
      {"qwen2.5",
       Join({WithDefault("You are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
             kQwenHead, kQwenCalls, kQwenTurns})},
      {"qwen3", Join({WithDefault(""), kQwenHead, kQwenCalls, kQwen3Turns})},
      {"mistral", Join({kInTurn, kMistral})},
      {"gemma", std::string(kGemma)},
      {"phi3", std::string(kPhi3)},
      {"zephyr", std::string(kZephyr)},
      {"deepseek", std::string(kDeepSeek)},
      {"deepseek3", std::string(kDeepSeek3)},
      {"vicuna", std::string(kVicuna)},
      {"command-r", std::string(kCommandR)},
  };
  for (const BuiltIn& known : templates) {
    if (known.name == name) return known.text;
  }
  return {};
}

std::string BuiltInTemplateList() {
  std::string list;
  for (const std::string_view name : kNames) list.append(list.empty() ? "" : ", ").append(name);
  return list;
}

}  // namespace larder::model::chat
