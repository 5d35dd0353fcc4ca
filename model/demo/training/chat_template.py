"""The demo model's chat template, and a program that writes it into the model's file.

The model knows no questions, only stories: the template makes the beginning of one. A message that
begins as a story does is gone on with; one that names an animal gets a story of it; for any other
the model begins itself.

Usage: chat_template.py FILE.gguf        sets tokenizer.chat_template in place; nothing else of the
file changes
"""
import struct
import sys
from pathlib import Path

import cast

KEY = "tokenizer.chat_template"
BEGINNINGS = ("Once", "One ", "Long ago", "In a land", "There once")
TEMPLATE = """\
{#- Only the last message counts: this model tells stories of about 180 words, and its context is 512 tokens. #}
{%- set ns = namespace(asked='', begun='', animal='') %}
{%- for message in messages %}
{%- if message.role == 'assistant' %}
{%- set ns.begun = message.content %}
{%- elif message.role == 'user' %}
{%- set ns.asked = message.content %}
{%- set ns.begun = '' %}
{%- endif %}
{%- endfor %}
{%- if ns.begun %}
{{- ns.begun }}
{%- elif ns.asked.startswith(BEGINNINGS) %}
{{- ns.asked }}
{%- else %}
{%- for word in ns.asked.lower().replace('.', ' ').replace(',', ' ').replace('?', ' ').replace('!', ' ').split() %}
{%- if not ns.animal and word in ANIMALS %}
{%- set ns.animal = word %}
{%- endif %}
{%- endfor %}
{%- if ns.animal %}
{{- 'Once upon a time, there was a little ' + ns.animal }}
{%- endif %}
{%- endif %}""".replace("BEGINNINGS", repr(BEGINNINGS)).replace("ANIMALS", repr(list(cast.ANIMALS)))

# GGUF's metadata value types, as in py, which wants numpy.
STRING, ARRAY, ALIGNMENT = 8, 9, 32
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def end_of_text(data, at):
    return at + 8 + struct.unpack_from("<Q", data, at)[0]


def end_of_value(data, at, kind):
    if kind == STRING:
        return end_of_text(data, at)
    if kind != ARRAY:
        return at + SIZES[kind]
    element, count = struct.unpack_from("<IQ", data, at)
    at += 12
    if element in SIZES:
        return at + count * SIZES[element]
    for _ in range(count):
        at = end_of_value(data, at, element)
    return at


def with_template(data):
    """The bytes of a GGUF file, with the template as the last of its metadata."""
    magic, version, tensors, entries = struct.unpack_from("<4sIQQ", data, 0)
    assert (magic, version) == (b"GGUF", 3)
    at, kept = 24, []
    for _ in range(entries):
        begin = at
        at = end_of_text(data, at)
        key = data[begin + 8 : at].decode()
        at = end_of_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
        if key != KEY:
            kept.append(data[begin:at])
    infos = at
    for _ in range(tensors):
        at = end_of_text(data, at)
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 12
    kept.append(text(KEY) + struct.pack("<I", STRING) + text(TEMPLATE))
    head = struct.pack("<4sIQQ", magic, version, tensors,
                       len(kept)) + b"".join(kept) + data[infos:at]
    body = data[at + -at % ALIGNMENT :]
    return head + bytes(-len(head) % ALIGNMENT) + body


def main():
    path = Path(sys.argv[1])
    path.write_bytes(with_template(path.read_bytes()))


if __name__ == "__main__":
    main()
