#!/usr/bin/env python3
"""A model whose output is forced: a GGUF file that Larder loads like any other, written with the
standard library alone.

It is a llama of one layer whose attention and feed-forward weights are zero, so that a token's
logits depend on that token alone: row t of the embeddings is one-hot, and in the head the row of
the token that follows t has its only weight in t's column. Each piece of a script
(scripts_of_model.py) is a token of its own, so the tokens are a chain: the opener that the prompt
ends with, the pieces of the turn, <|im_end|>. All other tokens are followed by <|im_end|>. The
logits are so far apart that it says the same at any usual temperature. Text that is not the model's
own is one token a byte.

Usage: scripted_model.py FILE
"""
import struct
import sys

if __name__ == "__main__":
    import pathlib
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing.scripts_of_model import ENDLESS, SCRIPTS, chat_template, opener

BLOCK = 32  # of Q8_0: an f16 scale and 32 int8
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # types of values
NORMAL, CONTROL = 1, 3  # types of tokens
END, START = "<|im_end|>", "<|im_start|>"
CONTEXT = 1 << 18
PIECE_BYTES = 4  # of a script, or a few more where a piece is in use
HEAD_WEIGHT = 8.0  # a logit of 8 * sqrt(width), some 200, against 0


def byte_alphabet():
    """The character that stands for each byte in a byte-level vocabulary: printable ones for
    themselves.
    """
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(256, 512))
    return [chr(byte if byte in printable else next(others)) for byte in range(256)]


ALPHABET = byte_alphabet()


def cut(text, used):
    """The pieces of a text, bytes, none of which is in `used`; they are added to it."""
    pieces, rest = [], text.encode()
    while rest:
        size = PIECE_BYTES
        while size < len(rest) and rest[:size] in used:
            size += 1
        piece, rest = rest[:size], rest[size:]
        while piece in used or len(piece) == 1:  # the end of a script: with the piece before it
            used.discard(pieces[-1])
            piece = pieces.pop() + piece
        used.add(piece)
        pieces.append(piece)
    return pieces


class Vocabulary:
    """Tokens, and the token that follows each."""

    def __init__(self):
        self.texts = [*ALPHABET, START, END]
        self.types = [NORMAL] * 256 + [CONTROL] * 2
        self.end = self.texts.index(END)
        self.next = {}
        used = set()
        for name, turns in SCRIPTS.items():
            for turn, text in enumerate(turns):
                self.chain(opener(name, turn), cut(text, used))
        self.chain(opener("endless", 0), cut(ENDLESS, used), endless=True)

    def add(self, text, kind):
        self.texts.append(text)
        self.types.append(kind)
        return len(self.texts) - 1

    def chain(self, begin, pieces, endless=False):
        first = last = self.add(begin, CONTROL)
        for piece in pieces:
            token = self.add("".join(ALPHABET[byte] for byte in piece), NORMAL)
            self.next[last] = token
            last = token
        self.next[last] = first + 1 if endless else self.end


def row(width, places, value):
    """A row of Q8_0: `value` in those columns, else 0."""
    data = bytearray(width // BLOCK * 34)
    for place in places:
        block = place // BLOCK * 34
        data[block:block + 2] = struct.pack("<e", value / 127)
        data[block + 2 + place % BLOCK] = 127
    return bytes(data)


def text_of(value):
    data = value.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return text_of(value) if kind == STRING else struct.pack(
        {U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)


def entry(key, kind, value):
    head = text_of(key) + struct.pack("<I", ARRAY if isinstance(value, list) else kind)
    if isinstance(value, list):
        return head + struct.pack("<IQ", kind, len(value)) + b"".join(
            scalar(kind, part) for part in value)
    return head + scalar(kind, value)


def write(path):
    vocabulary = Vocabulary()
    width = -(-len(vocabulary.texts) // BLOCK) * BLOCK
    before = [[] for _ in vocabulary.texts]  # the tokens that a token follows
    for token in range(len(vocabulary.texts)):
        before[vocabulary.next.get(token, vocabulary.end)].append(token)
    head_size, ffn = BLOCK, BLOCK
    entries = [("general.architecture", STRING, "llama"), ("general.name", STRING, "scripted"),
               ("general.file_type", U32, 7), ("llama.block_count", U32, 1),
               ("llama.context_length", U32, CONTEXT), ("llama.embedding_length", U32, width),
               ("llama.feed_forward_length", U32, ffn), ("llama.attention.head_count", U32, 1),
               ("llama.attention.head_count_kv", U32, 1),
               ("llama.attention.key_length", U32, head_size),
               ("llama.attention.value_length", U32, head_size),
               ("llama.attention.layer_norm_rms_epsilon", F32, 1e-6),
               ("llama.rope.dimension_count", U32, head_size),
               ("tokenizer.ggml.model", STRING, "gpt2"), ("tokenizer.ggml.pre", STRING, "qwen2"),
               ("tokenizer.ggml.tokens", STRING, vocabulary.texts),
               ("tokenizer.ggml.token_type", I32, vocabulary.types),
               ("tokenizer.ggml.merges", STRING, []),
               ("tokenizer.ggml.eos_token_id", U32, vocabulary.end),
               ("tokenizer.ggml.add_bos_token", BOOL, False),
               ("tokenizer.chat_template", STRING, chat_template()), ]

    def ones(count):
        return ([count], 0, struct.pack("<f", 1) * count)

    def zeros(rows, columns):
        return ([columns, rows], 8, row(columns, [], 0) * rows)
    tensors = {
        "token_embd.weight": ([width, len(vocabulary.texts)], 8, b"".join(
            row(width, [t], 1) for t in range(len(vocabulary.texts))),
                              ), "output.weight": ([width, len(vocabulary.texts)], 8, b"".join(
                                  row(width, places, HEAD_WEIGHT) for places in before),
                                                   ), "output_norm.weight": ones(width),
        "blk.0.attn_norm.weight": ones(width), "blk.0.ffn_norm.weight": ones(width),
        "blk.0.attn_q.weight": zeros(head_size, width), "blk.0.attn_k.weight": zeros(
            head_size, width), "blk.0.attn_v.weight": zeros(head_size, width),
        "blk.0.attn_output.weight": zeros(width,
                                          head_size), "blk.0.ffn_gate.weight": zeros(ffn, width),
        "blk.0.ffn_up.weight": zeros(ffn, width), "blk.0.ffn_down.weight": zeros(width, ffn),
    }
    infos, data = b"", b""
    for name, (sizes, kind, body) in tensors.items():
        infos += text_of(name) + struct.pack(f"<I{len(sizes)}QIQ", len(sizes), *sizes, kind,
                                             len(data))
        data += body + bytes(-len(body) % 32)
    file = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join(
        entry(*e) for e in entries) + infos
    with open(path, "wb") as out:
        out.write(file + bytes(-len(file) % 32) + data)


if __name__ == "__main__":
    write(sys.argv[1])
