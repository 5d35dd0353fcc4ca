"""Reads a GGUF file independently of what wrote it and of PyTorch, and tells stories with it: numpy
only.

    python3 check.py                       stories for a few prompts, greedily, with their smallest
        margins
    python3 check.py --json greedy.json    the same as a file: prompt -> ids, for tests to compare
        with
    python3 check.py --temp 0.8 -p "..."   samples
    python3 check.py --loss 20             nats a token on stories that were not trained on

Weights are dequantised; all arithmetic is in float64. Only what these models need: architecture
llama, with or without experts, F32 and Q8_0, SPM.
"""
import argparse
import json
import os
import struct

import numpy as np

PROMPTS = [
    "Once upon a time",
    "One day, a little fox",
    "Once upon a time, there was a little girl named " "Lily.",
    "Long ago, there was",
    "One morning, a brave little mouse",
    "Once upon a time, there was a kind little boy named Tom. " "One day, Tom",
    "In a land far away, a",
    "There once was a little owl named",
]


def read_gguf(path):
    with open(path, "rb") as f:
        data = f.read()
    at = 0

    def take(form):
        nonlocal at
        value = struct.unpack_from("<" + form, data, at)[0]
        at += struct.calcsize("<" + form)
        return value

    def string():
        nonlocal at
        length = take("Q")
        at += length
        return data[at - length : at].decode()

    def value(kind):
        if kind == 8:
            return string()
        if kind == 9:
            element, count = take("I"), take("Q")
            return [value(element) for _ in range(count)]
        return take({
            0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"
        }[kind])

    assert data[:4] == b"GGUF", "not a GGUF file"
    at = 4
    assert take("I") == 3, "not GGUF version 3"
    tensors, pairs = take("Q"), take("Q")
    meta = {}
    for _ in range(pairs):
        key = string()
        assert key not in meta, key
        meta[key] = value(take("I"))
    infos = []
    for _ in range(tensors):
        name = string()
        infos.append((name, [take("Q") for _ in range(take("I"))][::-1], take("I"), take("Q")))
    base = -(-at // 32) * 32
    weights = {}
    for name, shape, kind, offset in infos:
        count = int(np.prod(shape))
        if kind == 0:
            values = np.frombuffer(data, "<f4", count, base + offset)
        else:
            assert kind == 8 and shape[-1] % 32 == 0, name
            blocks = np.frombuffer(data, [("d", "<f2"), ("q", "i1", 32)], count // 32,
                                   base + offset)
            values = blocks["d"].astype(np.float64)[:, None] * blocks["q"]
        assert np.isfinite(values).all(), name
        weights[name] = values.astype(np.float64).reshape(shape)
    return meta, weights


class Spm:
    """SentencePiece's greedy merge of the whole text: the adjacent pair that makes the best piece
    first.
    """

    def __init__(self, meta):
        self.pieces, self.scores = meta["tokenizer.ggml.tokens"], meta["tokenizer.ggml.scores"]
        self.types = meta["tokenizer.ggml.token_type"]
        self.ids = {p: i for i, (p, t) in enumerate(zip(self.pieces, self.types)) if t == 1}
        self.byte = {
            int(p[3:5], 16): i for i, (p, t) in enumerate(zip(self.pieces, self.types)) if t == 6
        }

    def encode(self, text):
        symbols = list("\u2581" + text.replace(" ", "\u2581"))
        while True:
            best, where = None, -1
            for i in range(len(symbols) - 1):
                piece = self.ids.get(symbols[i] + symbols[i + 1])
                if piece is not None and (best is None or self.scores[piece] > best):
                    best, where = self.scores[piece], i
            if best is None:
                break
            symbols[where : where + 2] = [symbols[where] + symbols[where + 1]]
        return [
            t
            for s in symbols
            for t in ([self.ids[s]] if s in self.ids else [self.byte[b] for b in s.encode()])
        ]

    def decode(self, ids):
        out = b""
        for i in ids:
            if self.types[i] == 6:
                out += bytes([int(self.pieces[i][3:5], 16)])
            elif self.types[i] == 1:
                out += self.pieces[i].replace("\u2581", " ").encode()
        return out.decode(errors="replace")


FFN = ["ffn_gate", "ffn_up", "ffn_down"]


class Transformer:
    def __init__(self, meta, weights):
        self.w = weights
        get = lambda key: meta["llama." + key]
        self.layers, self.dim, self.heads = (
            get("block_count"),
            get("embedding_length"),
            get("attention.head_count"),
        )
        self.kv_heads, self.epsilon = get("attention.head_count_kv"), get(
            "attention.layer_norm_rms_epsilon")
        self.context, self.head = get("context_length"), self.dim // self.heads
        self.used = meta.get("llama.expert_used_count", 0)
        pairs = np.arange(0, get("rope.dimension_count"), 2) / get("rope.dimension_count")
        self.inverse = get("rope.freq_base") ** -pairs
        assert weights["token_embd.weight"].shape == (get("vocab_size"), self.dim)
        self.reset()

    def reset(self):
        self.position, self.cache = 0, [([], []) for _ in range(self.layers)]

    def norm(self, x, name):
        return x / np.sqrt(np.mean(x * x) + self.epsilon) * self.w[name]

    def rope(self, x):
        angle = self.position * self.inverse
        cos, sin, out = np.cos(angle), np.sin(angle), np.empty_like(x)
        out[:, 0::2] = x[:, 0::2] * cos - x[:, 1::2] * sin
        out[:, 1::2] = x[:, 0::2] * sin + x[:, 1::2] * cos
        return out

    def ffn(self, h, b):
        """b: the beginning of the layer's names. Of experts, as many as are used have their outputs
        added, each times its part of the softmax over their logits."""
        if self.used == 0:
            matrices, share = [[self.w[b + n + ".weight"]] for n in FFN], [1.0]
        else:
            logits = self.w[b + "ffn_gate_inp.weight"] @ h
            order = np.argsort(-logits)
            chosen = order[: self.used]
            share = np.exp(logits[chosen] - logits[chosen[0]])
            share /= share.sum()
            matrices = [self.w[b + n + "_exps.weight"][chosen] for n in FFN]
        out = 0
        for part, gate, up, down in zip(share, *matrices):
            g = gate @ h
            out = out + part * (down @ (g / (1 + np.exp(-g)) * (up @ h)))
        return out

    def step(self, token):
        """Logits after one more token."""
        x = self.w["token_embd.weight"][token]
        for layer, (keys, values) in enumerate(self.cache):
            b = f"blk.{layer}."
            h = self.norm(x, b + "attn_norm.weight")
            q, k, v = (
                (self.w[b + n + ".weight"] @ h).reshape(-1, self.head)
                for n in ("attn_q", "attn_k", "attn_v")
            )
            keys.append(self.rope(k))
            values.append(v)
            q, past_k, past_v, out = self.rope(q), np.stack(keys), np.stack(values), []
            for i in range(self.heads):
                g = i // (self.heads // self.kv_heads)
                s = past_k[:, g] @ q[i] / np.sqrt(self.head)
                p = np.exp(s - s.max())
                out.append(p / p.sum() @ past_v[:, g])
            x = x + self.w[b + "attn_output.weight"] @ np.concatenate(out)
            x = x + self.ffn(self.norm(x, b + "ffn_norm.weight"), b)
        self.position += 1
        return self.w.get("output.weight", self.w["token_embd.weight"]) @ self.norm(
            x, "output_norm.weight")


def generate(model, prompt, eos, limit, temperature, rng):
    """Ids after the prompt, EOS included, and the smallest lead (logits) of a greedy choice."""
    model.reset()
    for token in prompt:
        logits = model.step(token)
    ids, margin = [], float("inf")
    while len(ids) < limit and model.position < model.context:
        if temperature > 0:
            p = np.exp((logits - logits.max()) / temperature)
            ids.append(int(rng.choice(len(p), p=p / p.sum())))
        else:
            second, first = np.partition(logits, -2)[-2:]
            margin = min(margin, float(first - second))
            ids.append(int(logits.argmax()))
        if ids[-1] == eos:
            break
        logits = model.step(ids[-1])
    return ids, margin


def held_out_loss(model, spm, meta, count):
    import grammar

    total = tokens = 0
    for text in grammar.stories(count, grammar.HELD_OUT_SEED):
        ids = ([meta["tokenizer.ggml.bos_token_id"]] + spm.encode(text) +
               [meta["tokenizer.ggml.eos_token_id"]])
        model.reset()
        for token, target in zip(ids, ids[1:]):
            logits = model.step(token)
            top = logits.max()
            total += top + np.log(np.exp(logits - top).sum()) - logits[target]
            tokens += 1
    return total / tokens


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument(
        "-m", default=os.path.join(os.path.dirname(os.path.abspath(__file__)), "..",
                                   "larder-stories.gguf"))
    options.add_argument("-p", action="append", help="prompt (may be repeated)")
    options.add_argument("-n", type=int, default=400, help="tokens at most")
    options.add_argument("--temp", type=float, default=0.0)
    options.add_argument("--seed", type=int, default=1)
    options.add_argument("--json", help="write the greedy continuations here")
    options.add_argument("--loss", type=int, default=0,
                         help="held-out stories to measure the loss on")
    options = options.parse_args()
    meta, weights = read_gguf(options.m)
    model, spm, rng = Transformer(meta, weights), Spm(meta), np.random.default_rng(options.seed)
    if options.loss:
        print(f"{held_out_loss(model, spm, meta, options.loss):.4f} nats a token")
        return
    eos, found = meta["tokenizer.ggml.eos_token_id"], []
    for prompt in options.p or PROMPTS:
        ids = [meta["tokenizer.ggml.bos_token_id"]] + spm.encode(prompt)
        story, margin = generate(model, ids, eos, options.n, options.temp, rng)
        text = spm.decode(story)
        ending = "ends" if story[-1] == eos else "DOES NOT END"
        print(f"{prompt}{text}\n[{len(story)} tokens, {ending}, smallest margin {margin:.3f}]\n",
              flush=True)
        found.append(
            {
                "prompt": prompt,
                "prompt_ids": ids,
                "greedy_ids": story,
                "text": text,
                "smallest_margin": round(margin, 4),
            }
        )
    if options.json:
        with open(options.json, "w") as f:
            f.write("[\n" + ",\n".join(json.dumps(item) for item in found) + "\n]\n")


if __name__ == "__main__":
    main()
