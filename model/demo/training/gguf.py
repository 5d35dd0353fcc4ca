"""Writes a GGUF v3 file: metadata, then tensors as F32 or Q8_0 (blocks of 32 in a row: f16 scale,
int8).
"""
import struct

import numpy as np

ALIGNMENT = 32
U32, I32, F32, BOOL, STRING, ARRAY = 4, 5, 6, 7, 8, 9  # metadata value types
TENSOR_F32, TENSOR_Q8_0 = 0, 8


def text(s):
    data = s.encode()
    return struct.pack("<Q", len(data)) + data


def scalar(kind, value):
    return (
        text(value)
        if kind == STRING
        else struct.pack({U32: "<I", I32: "<i", F32: "<f", BOOL: "<?"}[kind], value)
    )


def entry(key, kind, value):
    """kind is a value type, or (ARRAY, element type)."""
    if isinstance(kind, tuple):
        body = struct.pack("<IQ", kind[1], len(value)) + b"".join(scalar(kind[1], v) for v in value)
        return text(key) + struct.pack("<I", ARRAY) + body
    return text(key) + struct.pack("<I", kind) + scalar(kind, value)


def quantise(rows):
    """Q8_0 bytes of matrices [...][rows][columns], columns a multiple of 32: d = amax / 127, q =
    round(x / d).
    """
    blocks = rows.astype(np.float32).reshape(-1, 32)
    scale = np.abs(blocks).max(axis=1, keepdims=True) / 127.0
    inverse = np.divide(1.0, scale, out=np.zeros_like(scale), where=scale > 0)
    out = np.empty(len(blocks), dtype=[("d", "<f2"), ("q", "i1", 32)])
    out["d"] = scale[:, 0]
    out["q"] = np.rint(blocks * inverse)
    return out.tobytes()


def write(path, metadata, tensors):
    """metadata: (key, kind, value); tensors: name -> float array, [n], [rows][columns] or
    [experts][rows][columns]. Routers stay F32.
    """
    infos, data = b"", b""
    for name, array in tensors.items():
        q8 = array.ndim > 1 and array.shape[-1] % 32 == 0 and "ffn_gate_inp" not in name
        infos += (
            text(name)
            + struct.pack("<I", array.ndim)
            + b"".join(struct.pack("<Q", n) for n in array.shape[::-1])
        )
        infos += struct.pack("<IQ", TENSOR_Q8_0 if q8 else TENSOR_F32, len(data))
        data += quantise(array) if q8 else array.astype("<f4").tobytes()
        data += bytes(-len(data) % ALIGNMENT)
    head = (
        b"GGUF"
        + struct.pack("<IQQ", 3, len(tensors), len(metadata))
        + b"".join(entry(*m) for m in metadata)
        + infos
    )
    with open(path, "wb") as f:
        f.write(head + bytes(-len(head) % ALIGNMENT) + data)
