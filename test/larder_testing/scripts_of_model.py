"""What the scripted model says, and the template that chooses what it says (scripted_model.py makes
the model).

A script is what the model answers, turn by turn: turn 0 to the user's message, turn 1 when the
results of turn 0's tools have come, and so on; behind the last turn the last is said again. The
user's message names its script with a number sign ("#weather please"); without one the model says
`plain`.
"""

CALL = '<tool_call>\n{"name": "%s", "arguments": %s}\n</tool_call>'

SCRIPTS = {
    "plain": ["Hello from Larder: a short answer with an é, a 🦊 and a full stop."],
    # A loop of three turns: one call, then two at once, then the answer.
    "weather": [
        "I will look at Oslo first.\n" + CALL % ("get_weather",
                                                 '{"city": "Oslo", "unit": "celsius"}'),
        CALL % ("get_weather", '{"city": "Bergen", "unit": "celsius"}') + "\n" + CALL % (
            "get_time", '{"zone": "Europe/Oslo"}'),
        "Oslo has 7 degrees, Bergen has 11, and it is noon there.",
    ],
    # A call and nothing else, as `tool_choice` demands it.
    "call": [CALL % ("get_time", '{"zone": "UTC"}'), "It is noon at Greenwich."],
    "person_call": [
        CALL % ("person", '{"name": "Grace Hopper", "age": 85, "languages": ["COBOL"]}')
    ],
    "think": ["<think>\nNobody asked how, so I need not say how.\n</think>\n\nForty-two."],
    "think_call": [
        "<think>\nThe clock knows.\n</think>\n\n" + CALL % ("get_time", '{"zone": "Asia/Tokyo"}'),
        "Tokyo sleeps.",
    ],
    # The form of Qwen3-Coder: what a parameter is, is looked up in the tool's schema.
    "xml_call": [
        "<tool_call>\n<function=f>\n" + "".join(f"<parameter=q>\n{i}\n</parameter>\n"
                                                for i in range(4)) + "</function>\n</tool_call>",
        "So be it."
    ],
    # What an agent does: it reads, writes, then runs two things at once, one of them a tool of an
    # MCP server; then it reports.
    "repair": [
        "<think>\nA test fails, so the sum is read first.\n</think>\n\nI will read it.\n" + CALL % (
            "read_file", '{"path": "src/sum.py", "offset": 18446744073709551615}'),
        CALL % ("write_file",
                ('{"path": "src/sum.py", "content": "def total(a, b):\\n    return a + b  # '
                 '\\"<ü>\\"\\n"}'),
                ),
        CALL % ("mcp__tests__run", '{"names": ["test_sum"]}') + "\n" + CALL % (
            "shell", '{"command": ["git", "diff"]}'),
        "The sum adds up now, and its tests pass.",
    ],
    # One of whom a call is demanded at every step; the last one is the answer.
    "steps": [
        CALL % ("shell", '{"command": ["ls"]}'),
        CALL % ("final_answer", '{"answer": "There is one file."}'),
    ],
    "json": ['{"name": "Ada Lovelace", "age": 36, "languages": ["French", "Analytical Engine"]}'],
}
# Said round and round until somebody stops it.
ENDLESS = (
    " And so it went on and on, over the hills, along the river and back again, for no one said "
    "that it should end.")
NAMES = [*SCRIPTS, "endless"]


def opener(name, turn):
    """The control token that a prompt ends with."""
    return f"<|{name}.{turn}|>"


def chat_template():
    """Qwen's form of messages, tools, calls and results; then the opener."""
    turns = ", ".join(f"'{name}': {len(SCRIPTS.get(name, [0]))}" for name in NAMES)
    return TEMPLATE.replace("TURNS", "{" + turns + "}")


TEMPLATE = r"""
{%- macro text(content) -%}
  {%- if content is string -%}{{- content -}}
  {%- elif content is iterable -%}
    {%- for part in content -%}{%- if part.type == 'text' -%}{{- part.text -}}{%- endif -%}{%- endfor -%}
  {%- endif -%}
{%- endmacro -%}
{%- set turns = TURNS -%}
{%- set ns = namespace(script='plain', turn=0) -%}
{%- if tools -%}
  {{- '<|im_start|>system\n' -}}
  {%- if messages[0].role == 'system' -%}{{- text(messages[0].content) + '\n\n' -}}{%- endif -%}
  {{- '# Tools\n\n<tools>' -}}
  {%- for tool in tools -%}{{- '\n' -}}{{- tool | tojson -}}{%- endfor -%}
  {{- '\n</tools>\n\nReturn a call as <tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call><|im_end|>\n' -}}
{%- elif messages[0].role == 'system' -%}
  {{- '<|im_start|>system\n' + text(messages[0].content) + '<|im_end|>\n' -}}
{%- endif -%}
{%- for message in messages -%}
  {%- if message.role == 'user' -%}
    {%- set said = text(message.content) -%}
    {%- set ns.turn = 0 -%}
    {%- for name in turns -%}
      {%- if ('#' + name) in said -%}{%- set ns.script = name -%}{%- endif -%}
    {%- endfor -%}
    {{- '<|im_start|>user\n' + said + '<|im_end|>\n' -}}
  {%- elif message.role == 'assistant' -%}
    {%- set ns.turn = ns.turn + 1 -%}
    {{- '<|im_start|>assistant\n' -}}
    {%- if message.reasoning_content -%}{{- '<think>\n' + message.reasoning_content + '\n</think>\n\n' -}}{%- endif -%}
    {{- text(message.content) -}}
    {%- for call in message.tool_calls or [] -%}
      {%- set function = call.function or call -%}
      {{- '\n<tool_call>\n{"name": "' + function.name + '", "arguments": ' -}}
      {%- if function.arguments is string -%}{{- function.arguments -}}{%- else -%}{{- function.arguments | tojson -}}{%- endif -%}
      {{- '}\n</tool_call>' -}}
    {%- endfor -%}
    {{- '<|im_end|>\n' -}}
  {%- elif message.role == 'tool' -%}
    {{- '<|im_start|>user\n<tool_response>\n' + text(message.content) + '\n</tool_response><|im_end|>\n' -}}
  {%- elif message.role == 'system' and not loop.first -%}
    {{- '<|im_start|>system\n' + text(message.content) + '<|im_end|>\n' -}}
  {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}
  {%- if ns.script == 'think' and enable_thinking is defined and not enable_thinking -%}{%- set ns.script = 'plain' -%}{%- endif -%}
  {%- set last = turns[ns.script] - 1 -%}
  {{- '<|im_start|>assistant\n<|' + ns.script + '.' + ((ns.turn if ns.turn < last else last) | string) + '|>' -}}
{%- endif -%}
""".strip("\n")
