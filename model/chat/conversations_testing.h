// Test support: conversations of all shapes that clients send. Included by tests only.
#pragma once

namespace larder::model::inline chat {

constexpr char kTools[] = R"([
  {"type": "function", "function": {"name": "get_weather", "description": "The weather of a place.\nNow.", "parameters": {
    "type": "object", "properties": {"place": {"type": "string", "description": "A town <&>'\""},
      "unit": {"type": "string", "enum": ["C", "F"]}, "days": {"type": "integer", "default": 1}}, "required": ["place"]}}},
  {"type": "function", "function": {"name": "add", "description": "Adds numbers", "parameters": {
    "type": "object", "properties": {"numbers": {"type": "array", "items": {"type": "number"}},
      "options": {"type": "object", "properties": {"round": {"type": ["boolean", "null"]}}}}, "required": []},
    "return": {"type": "number", "description": "The sum"}}},
  {"type": "function", "function": {"name": "now", "description": "", "parameters": {"type": "object", "properties": {}}}}
])";

constexpr char kConversations[] = R"({
  "plain user": [{"role": "user", "content": "Hi"}],
  "plain empty": [{"role": "user", "content": ""}],
  "plain system": [{"role": "system", "content": "You are terse."}, {"role": "user", "content": "Hi"}],
  "plain spaces": [{"role": "system", "content": "  spaces \n"}, {"role": "user", "content": "\n\t trim me \u3000"}],
  "plain turns": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}],
  "plain long": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"}, {"role": "assistant", "content": " b "},
    {"role": "user", "content": "c"}, {"role": "assistant", "content": "\nd\n"}, {"role": "user", "content": "e"}],
  "plain unicode": [{"role": "user", "content": "Grüße 東京 👩‍🚀"}, {"role": "assistant", "content": "«½»"},
    {"role": "user", "content": "{{ not a template }} {% if %}"}],
  "plain prefill": [{"role": "user", "content": "Count"}, {"role": "assistant", "content": "one, two,"}],
  "only system": [{"role": "system", "content": "only"}],
  "empty": [],
  "assistant first": [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "ok"}],
  "two users": [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}],
  "late system": [{"role": "user", "content": "a"}, {"role": "system", "content": "late"}, {"role": "user", "content": "b"}],
  "developer": [{"role": "developer", "content": "dev"}, {"role": "user", "content": "b"}],
  "unknown role": [{"role": "robot", "content": "beep"}, {"role": "user", "content": "b"}],
  "thoughts in text": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\nfirst\n\n</think>\n\nb"},
    {"role": "user", "content": "c"}, {"role": "assistant", "content": "<think>\nsecond\n</think>\n\nd"}],
  "odd thoughts": [{"role": "user", "content": "a"}, {"role": "assistant", "content": "<think>\none"},
    {"role": "user", "content": "a"}, {"role": "assistant", "content": "x<think>two\n</think>y</think>\n\nz"}],
  "reasoning": [{"role": "system", "content": "s"}, {"role": "user", "content": "a"},
    {"role": "assistant", "content": "b", "reasoning_content": "because\n"}, {"role": "user", "content": "c"},
    {"role": "assistant", "content": "d", "reasoning_content": "hence", "thinking": "hence"}],
  "parts": [{"role": "system", "content": [{"type": "text", "text": "sys"}]},
    {"role": "user", "content": [{"type": "text", "text": "one "}, {"type": "text", "text": "two"}]},
    {"role": "assistant", "content": [{"type": "text", "text": "ans"}]}, {"role": "user", "content": "x"}],
  "image": [{"role": "user", "content": [{"type": "image"}, {"type": "text", "text": "what?"}]}],
  "call": [{"role": "user", "content": "weather?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {
      "name": "get_weather", "arguments": {"place": "Zürich \"x\"", "unit": "C", "days": 2}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": "{\"t\": 21}"},
    {"role": "assistant", "content": "21 degrees"}, {"role": "user", "content": "thanks"}],
  "call text": [{"role": "user", "content": "weather?"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {
      "name": "get_weather", "arguments": "{\"place\": \"Z\u00fcrich\", \"days\": 2}"}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": "{\"t\": 21}"}],
  "call null": [{"role": "user", "content": "weather?"},
    {"role": "assistant", "content": null, "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {
      "name": "get_weather", "arguments": {"place": "Rom"}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "content": "warm"}],
  "call without content": [{"role": "system", "content": "s"}, {"role": "user", "content": "weather?"},
    {"role": "assistant", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {
      "name": "get_weather", "arguments": {"place": "Rom"}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": "warm"}],
  "parallel": [{"role": "user", "content": "both"},
    {"role": "assistant", "content": "I look.", "tool_calls": [
      {"id": "abcdefgh1", "type": "function", "function": {"name": "get_weather", "arguments": {"place": "Rom"}}},
      {"id": "abcdefgh2", "type": "function", "function": {"name": "add", "arguments": {"numbers": [1, 2.5, -3], "options": {"round": null}}}},
      {"id": "abcdefgh3", "type": "function", "function": {"name": "now", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": "warm"},
    {"role": "tool", "tool_call_id": "abcdefgh2", "name": "add", "content": "0.5"},
    {"role": "tool", "tool_call_id": "abcdefgh3", "name": "now", "content": "12:00"},
    {"role": "assistant", "content": "Warm, 0.5, noon."}],
  "thinking call": [{"role": "user", "content": "weather?"},
    {"role": "assistant", "content": "", "reasoning_content": "I must call.", "tool_calls": [{"id": "abcdefgh1", "type": "function",
      "function": {"name": "get_weather", "arguments": {"place": "Rom"}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "get_weather", "content": "warm"},
    {"role": "assistant", "content": "Warm.", "reasoning_content": "It says warm."},
    {"role": "user", "content": "And then?"}],
  "bare calls": [{"role": "user", "content": "x"},
    {"role": "assistant", "content": "", "tool_calls": [{"name": "now", "arguments": {}}]},
    {"role": "tool", "content": "12:00"}],
  "result parts": [{"role": "user", "content": "x"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {"name": "now", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "content": [{"type": "text", "text": "12:00"}]}],
  "result object": [{"role": "user", "content": "x"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "abcdefgh1", "type": "function", "function": {"name": "now", "arguments": {}}}]},
    {"role": "tool", "tool_call_id": "abcdefgh1", "name": "now", "content": {"time": "12:00", "ok": true}}]
})";

}  // namespace larder::model::chat
