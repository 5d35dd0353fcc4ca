"""Prints the expected logits in reference_test.cc: the three architectures once more, from their
papers, in pure Python.

    python3 model/reference/reference_golden.py

Written to share nothing with reference.cc: rotations are complex products, attention goes over
whole columns, all in float64. The weights are a hash of the tensor's name and the element's index,
the same in both languages.
"""
import cmath
import math
import struct

LAYERS, VOCAB, DIM, FFN = 2, 13, 12, 20
TOKENS = [1, 5, 3, 12, 0, 7]
EPSILON = struct.unpack("f", struct.pack("f", 1e-5))[0]
CASES = {
    "llama": dict(heads=4, kv=2, head=6, rotary=4, base=1e4, factors=[1.0, 2.5], scale=1,
                  tied=False, pairs="neighbours"),
    "qwen2": dict(heads=3, kv=1, head=4, rotary=4, base=1e4, factors=[1, 1], scale=4, tied=True,
                  pairs="halves"),
    "qwen3": dict(heads=4, kv=4, head=10, rotary=10, base=1e6, factors=[1] * 5, scale=1, tied=True,
                  pairs="halves"),
}


def element(name, i):
    h = 2166136261
    for byte in name.encode():
        h = (h ^ byte) * 16777619 % 2**32
    h = (h ^ (i + 1) * 2654435761) % 2**32
    h ^= h >> 15
    h = h * 3266489917 % 2**32
    h ^= h >> 13
    return (h >> 8) / 2**24 * 2 - 1


def vector(name, n, around=0.0):
    return [around + element(name, i) / (2 if around else 1) for i in range(n)]


def matrix(name, rows, cols):
    return [[element(name, r * cols + c) for c in range(cols)] for r in range(rows)]


def times(m, x):
    return [sum(w * v for w, v in zip(row, x)) for row in m]


def norm(x, w):
    root = math.sqrt(sum(v * v for v in x) / len(x) + EPSILON)
    return [v / root * g for v, g in zip(x, w)]


def rotate(head, position, case):
    n, out = case["rotary"] // 2, list(head)
    for j in range(n):
        a, b = (2 * j, 2 * j + 1) if case["pairs"] == "neighbours" else (j, j + n)
        angle = position / case["scale"] / case["base"]**(2 * j /
                                                          case["rotary"]) / case["factors"][j]
        z = complex(head[a], head[b]) * cmath.exp(1j * angle)
        out[a], out[b] = z.real, z.imag
    return out


def split(x, size):
    return [x[i : i + size] for i in range(0, len(x), size)]


def layer(xs, prefix, arch, case):
    size = case["head"]
    inputs = [norm(x, vector(prefix + "attn_norm.weight", DIM, 1)) for x in xs]

    def heads(kind, count):
        m, per_position = matrix(f"{prefix}attn_{kind}.weight", count * size, DIM), []
        for position, x in enumerate(inputs):
            y = times(m, x)
            if arch == "qwen2":
                y = [a + b for a, b in zip(y, vector(f"{prefix}attn_{kind}.bias", count * size))]
            y = split(y, size)
            if arch == "qwen3" and kind != "v":
                y = [norm(h, vector(f"{prefix}attn_{kind}_norm.weight", size, 1)) for h in y]
            if kind != "v":
                y = [rotate(h, position, case) for h in y]
            per_position.append(y)
        return per_position

    q, k, v = heads("q", case["heads"]), heads("k", case["kv"]), heads("v", case["kv"])
    o = matrix(prefix + "attn_output.weight", DIM, case["heads"] * size)
    gate, up = (matrix(f"{prefix}ffn_{kind}.weight", FFN, DIM) for kind in ("gate", "up"))
    down = matrix(prefix + "ffn_down.weight", DIM, FFN)
    out = []
    for position, x in enumerate(xs):
        mixed = []
        for h in range(case["heads"]):
            shared = h * case["kv"] // case["heads"]
            scores = [
                sum(a * b for a, b in zip(q[position][h], k[t][shared])) / math.sqrt(size)
                for t in range(position + 1)
            ]
            weights = [math.exp(s) for s in scores]
            for i in range(size):
                mixed.append(sum(w * v[t][shared][i] for t, w in enumerate(weights)) / sum(weights))
        x = [a + b for a, b in zip(x, times(o, mixed))]
        hidden = norm(x, vector(prefix + "ffn_norm.weight", DIM, 1))
        hidden = [
            g / (1 + math.exp(-g)) * u for g, u in zip(times(gate, hidden), times(up, hidden))
        ]
        out.append([a + b for a, b in zip(x, times(down, hidden))])
    return out


def main():
    table = matrix("token_embd.weight", VOCAB, DIM)
    for arch, case in CASES.items():
        xs = [table[token] for token in TOKENS]
        for i in range(LAYERS):
            xs = layer(xs, f"blk.{i}.", arch, case)
        head = table if case["tied"] else matrix("output.weight", VOCAB, DIM)
        logits = times(head, norm(xs[-1], vector("output_norm.weight", DIM, 1)))
        print(arch, ", ".join(f"{v:.6f}" for v in logits))


if __name__ == "__main__":
    main()
