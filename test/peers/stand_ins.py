"""Models that stand in for those of llama.cpp's tests that can't be had, where a test looks at the
shape of answers: stories260K with what else the file of such a model has. Written for one run, into
the folder that the shim looks in (LARDER_SHIM_MODELS).
"""
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "model/demo/training"))
from chat_template import end_of_value  # of a GGUF file
from larder_testing.scripted_model import U32, entry, text_of

F32_TENSOR = 0
ALIGNMENT = 32
WIDTH = 64  # of stories260K
BYTE_TOKENS = 3  # the first one's id, in a vocabulary of Llama's


def extended(data, entries, tensors):
    """A GGUF file, bytes, with more entries (name, type, value) and tensors {name: (columns, rows,
    values)}, in F32.
    """
    tensor_count, entry_count = struct.unpack_from("<QQ", data, 8)
    at = 24
    for _ in range(entry_count):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at = end_of_value(data, at + 4, struct.unpack_from("<I", data, at)[0])
    end_of_entries = at
    for _ in range(tensor_count):
        at += 8 + struct.unpack_from("<Q", data, at)[0]
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4 + 8
    body = data[-(-at // ALIGNMENT) * ALIGNMENT:]
    infos = b""
    for name, (columns, rows, values) in tensors.items():
        body += bytes(-len(body) % ALIGNMENT)
        infos += text_of(name) + struct.pack("<IQQIQ", 2, columns, rows, F32_TENSOR, len(body))
        body += struct.pack(f"<{len(values)}f", *values)
    counts = struct.pack("<QQ", tensor_count + len(tensors), entry_count + len(entries))
    head = data[:8] + counts + data[24:end_of_entries]
    head += b"".join(entry(*one) for one in entries) + data[end_of_entries:at] + infos
    return head + bytes(-len(head) % ALIGNMENT) + body


def write(source, folder):
    """stories260K (`source`) and two of its kind: one that ranks, by a head of its own, and one
    that has tokens for filling in.
    """
    data = source.read_bytes()
    (folder / source.name).symlink_to(source)
    weights = [(i * 37 % WIDTH - 31.5) / WIDTH for i in range(WIDTH)]
    head = {"cls.output.weight": (WIDTH, 1, weights)}
    (folder / "stories260K-rank.gguf").write_bytes(extended(data, [], head))
    tokens = [(f"tokenizer.ggml.fim_{name}_token_id", U32, BYTE_TOKENS + i)
              for i, name in enumerate(("pre", "suf", "mid"))]
    (folder / "stories260K-infill.gguf").write_bytes(extended(data, tokens, {}))
