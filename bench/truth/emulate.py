#!/usr/bin/env python3
"""What each rounding of the arithmetic costs on a real model: a llama- or qwen2-shaped forward pass
in float32 with one rounding at a time, or all, and the KL divergence of its next-token
distributions from those without any. Run by a Python that has torch and gguf.

    bench/truth/emulate.py MODEL.gguf IDS [--tokens N] [--only NAME]     IDS: token ids separated by
        spaces

Sums are float32's, in another order than Larder's: what is emulated is where values are rounded, to
how many levels, and in which blocks.
"""
import argparse
import math
import pathlib
import time

import gguf
import numpy
import torch
from divergence import divergence

BLOCK = 32      # of INT8 values with one scale
CHUNK = 256     # positions of a softmax
ROWS = 64       # of logits at a time
INT8, INT16 = 127, 32767  # levels


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)

        def key(name, otherwise=None):
            field = reader.fields.get(f"{architecture}.{name}")
            return otherwise if field is None else field.contents()

        architecture = reader.fields["general.architecture"].contents()
        self.layers, dim, self.heads = key("block_count"), key("embedding_length"), key(
            "attention.head_count")
        self.kv_heads = key("attention.head_count_kv", self.heads)
        self.head_size = key("attention.key_length", dim // self.heads)
        self.rope_base, self.epsilon = key("rope.freq_base",
                                           10000.0), key("attention.layer_norm_rms_epsilon")
        self.tensors = {}
        for tensor in reader.tensors:
            values = gguf.quants.dequantize(tensor.data, tensor.tensor_type).astype(numpy.float32)
            self.tensors[tensor.name] = torch.from_numpy(
                values.reshape([int(n) for n in reversed(tensor.shape)]))
        if architecture == "llama":  # pairs of neighbours to pairs of halves, as Larder's heads are
            order = torch.cat(
                [torch.arange(0, self.head_size, 2),
                 torch.arange(1, self.head_size, 2)])
            for name, tensor in self.tensors.items():
                for role, heads in (("attn_q.", self.heads), ("attn_k.", self.kv_heads)):
                    if role in name:
                        self.tensors[name] = tensor.view(heads, self.head_size,
                                                         -1)[:, order].reshape(tensor.shape)

    def of(self, layer, suffix):
        return self.tensors.get(f"blk.{layer}.{suffix}")

    def head_weights(self):
        return self.tensors.get("output.weight", self.tensors["token_embd.weight"])

    def rotations(self, positions):
        theta = self.rope_base**(-torch.arange(0, self.head_size, 2, dtype=torch.float64) /
                                 self.head_size)
        if "rope_freqs.weight" in self.tensors:
            theta = theta / self.tensors["rope_freqs.weight"].double()
        angles = torch.outer(torch.arange(positions, dtype=torch.float64), theta)
        return angles.cos().float(), angles.sin().float()


def hadamard(n):
    """The Walsh-Hadamard transform of n elements, as a matrix of length 1: its own inverse."""
    h = torch.ones(1, 1)
    while len(h) < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / n ** 0.5


def rounded(x, block=BLOCK, levels=INT8, half_scale=False, transformed=0):
    """The last dimension in blocks (0: one block), each with the scale of its largest element.
    transformed: elements of the Walsh-Hadamard transforms that are rounded in place of x."""
    if transformed:
        h = hadamard(transformed)
        there = (x.reshape(*x.shape[:-1], -1, transformed) @ h).reshape(x.shape)
        return (rounded(there, block, levels, half_scale).reshape(*x.shape[:-1], -1, transformed)
                @ h).reshape(x.shape)
    n = x.shape[-1]
    block = block or n
    padded = torch.nn.functional.pad(x, (0, -n % block)).reshape(*x.shape[:-1], -1, block)
    scale = padded.abs().amax(-1, keepdim=True) / levels
    codes = torch.round(torch.where(scale > 0, padded / scale, 0)).clamp(-levels, levels)
    return (codes * (scale.half().float() if half_scale else scale)).reshape(*x.shape[:-1],
                                                                             -1)[..., :n]


def norm(x, weights, epsilon):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + epsilon) * weights


def rotate(x, cos, sin):
    """x: [positions][heads][head size]."""
    half = x.shape[-1] // 2
    a, b, c, s = x[..., :half], x[..., half:], cos[:, None], sin[:, None]
    return torch.cat([a * c - b * s, a * s + b * c], -1)


def bias_scores(q, bias, cos, sin, levels):
    """q . R(p) bias of all positions p. With q = (q0, q1) and bias = (b0, b1) of a pair this is A
    cos(p t) + B sin(p t), A = q0 b0 + q1 b1, B = q1 b0 - q0 b1: a row of the rotation table, which
    all heads share, times two numbers a pair. levels: None for float32; else those of (A, B),
    turned by the first angle of a chunk, and those of the table of a chunk's positions."""
    half = q.shape[-1] // 2
    q0, q1, b0, b1 = q[:, :half], q[:, half:], bias[:half], bias[half:]
    a, b = q0 * b0 + q1 * b1, q1 * b0 - q0 * b1
    if levels is None:
        return torch.cat([a, b], -1) @ torch.cat([cos, sin], -1).T
    of_pairs, of_table = levels
    table = torch.round(torch.cat([cos[:CHUNK], sin[:CHUNK]], -1) * of_table) / of_table
    scores = []
    for begin in range(0, len(cos), CHUNK):
        c, s = cos[begin], sin[begin]
        turned = torch.cat([a * c + b * s, b * c - a * s], -1)
        scores.append(
            rounded(turned, turned.shape[-1], of_pairs) @ table[:min(CHUNK,
                                                                     len(cos) - begin)].T)
    return torch.cat(scores, -1)


def weighted_values(scores, values, levels, positions=BLOCK):
    """Softmax weights times the values' scales, rounded for some positions at a time, times the
    values' codes. values: already rounded.
    """
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    scale = values.abs().amax(-1) / INT8
    codes = torch.where(scale[:, None] > 0, values / scale[:, None], 0)
    out = rounded(weights * scale, positions, levels) @ codes
    return out / weights.sum(-1, keepdim=True)


def split_bias(bias, kv_heads, above):
    """(what stays with the keys, what is kept apart): the pairs whose bias is larger than
    `above`.
    """
    size = bias.view(kv_heads, 2, -1).pow(2).sum(1).sqrt()
    apart = (size > above)[:, None].expand(-1, 2, -1).reshape(-1)
    return torch.where(apart, 0, bias), torch.where(apart, bias, 0), int((size > above).sum())


PRODUCTS = ("qkv", "o", "ffn", "down", "head")


def hidden_states(model, ids, activations=None, products=PRODUCTS, q=None, k=None, v=None,
                  bias_above=None, bias_levels=None, balance_above=None, weights=None,
                  matrices=None):
    """The input of the last product, [positions][dim]. Each option is what `rounded` takes, or
    None: activations of `products`; queries and keys after the rotation; values. bias_above: K's
    bias pairs that are kept apart from the keys, by size; None: none. weights: those of
    `weighted_values`. balance_above: pairs of Q's bias above it give the root of what they are
    larger to the keys. matrices: the layers' weights, rounded again."""
    def maybe(x, how):
        return x if how is None else rounded(x, **how)

    def inputs(x, product):
        return maybe(x, activations if product in products else None)

    def matrix(layer, role):
        return maybe(model.of(layer, f"{role}.weight"), matrices).T

    n, group = len(ids), model.heads // model.kv_heads
    cos, sin = model.rotations(n)
    mask = torch.full((n, n), -math.inf).triu(1)
    x, apart = model.tensors["token_embd.weight"][ids].clone(), 0
    for layer in range(model.layers):
        given = inputs(norm(x, model.of(layer, "attn_norm.weight"), model.epsilon), "qkv")
        rows = {role: given @ matrix(layer, f"attn_{role}") for role in "qkv"}
        bias = {role: model.of(layer, f"attn_{role}.bias") for role in "qkv"}
        far = None
        if bias["k"] is not None and bias_above is not None:
            bias["k"], far, count = split_bias(bias["k"], model.kv_heads, bias_above)
            apart += count
        rows = {
            role: (row if bias[role] is None else row + bias[role]).view(n, -1, model.head_size)
            for role, row in rows.items()
        }
        for role in "qk":
            if model.of(layer, f"attn_{role}_norm.weight") is not None:
                rows[role] = norm(rows[role], model.of(layer, f"attn_{role}_norm.weight"),
                                  model.epsilon)
        balance = torch.ones(model.kv_heads, model.head_size)
        if balance_above is not None and bias["q"] is not None:
            norms = bias["q"].view(model.kv_heads, group, 2, -1).pow(2).sum(2).sqrt().amax(1)
            balance = (norms / balance_above).clamp(min=1).sqrt().repeat(1, 2)
        exact_q, values = rotate(rows["q"], cos, sin) * model.head_size ** -0.5, maybe(rows["v"], v)
        queries, keys = maybe(exact_q / balance.repeat_interleave(group, 0),
                              q), maybe(rotate(rows["k"], cos, sin) * balance, k)
        out = torch.empty(n, model.heads, model.head_size)
        for head in range(model.heads):
            scores = queries[:, head] @ keys[:, head // group].T
            if far is not None:
                scores += bias_scores(exact_q[:, head],
                                      far.view(model.kv_heads, -1)[head // group], cos, sin,
                                      bias_levels)
            scores += mask
            if weights is None:
                out[:, head] = torch.softmax(scores, -1) @ values[:, head // group]
            else:
                out[:, head] = weighted_values(scores, values[:, head // group], **weights)
        x = x + inputs(out.reshape(n, -1), "o") @ matrix(layer, "attn_output")
        given = inputs(norm(x, model.of(layer, "ffn_norm.weight"), model.epsilon), "ffn")
        gated = torch.nn.functional.silu(
            given @ matrix(layer, "ffn_gate")) * (given @ matrix(layer, "ffn_up"))
        x = x + inputs(gated, "down") @ matrix(layer, "ffn_down")
    return inputs(norm(x, model.tensors["output_norm.weight"], model.epsilon), "head"), apart


def compared(model, truth, other):
    """The distributions that follow from two hidden states."""
    weights = model.head_weights()
    found = divergence([states[begin:begin + ROWS] @ weights.T for states in (truth, other)]
                       for begin in range(0, len(truth), ROWS))
    return (f"mean {found['mean']:.5f}  99 % {found['p99']:.4f}  worst {found['worst']:.3f} at "
            f"{found['worst_at']}  top-1 {found['top1']:.4f}")


# Arithmetic version 3
THREE = {"activations": {}, "q": {}, "k": {"half_scale": True}, "v": {"half_scale": True}}
# Without lm_head's second plane
FOUR = {
    **THREE, "v": {"block": 0, "half_scale": True}, "bias_above": 4, "balance_above": 4,
    "weights": {"levels": 255}
}
FIVE = {**FOUR, "q": {"transformed": BLOCK}, "k": {"half_scale": True, "transformed": BLOCK}}
KEYS_AND_QUERIES = {
    name: {"bias_above": 4, "balance_above": 4, "q": how["q"], "k": how["k"]}
    for name, how in (("4", FOUR), ("5", FIVE))
}
VARIANTS = {
    **{f"only {name}": {name: how} for name, how in THREE.items()},
    **{f"only activations of {product}": {"activations": {}, "products": (product,)}
       for product in PRODUCTS},
    "3": THREE,
    "3, K's bias apart": {**THREE, "bias_above": 0},
    **{f"3, pairs of K's bias above {above} apart": {**THREE, "bias_above": above}
       for above in (1, 2, 4, 8, 16, 32)},
    "3, K's bias apart, 12 x 14 bits": {**THREE, "bias_above": 0, "bias_levels": (2047, 8191)},
    "3, K's bias apart, INT8": {**THREE, "bias_above": 0, "bias_levels": (INT8, INT8)},
    "3, Q and K in blocks of 16": {
        **THREE, "q": {"block": 16}, "k": {"block": 16, "half_scale": True}
    },
    "4": FOUR,
    "4, without balance": {**FOUR, "balance_above": None},
    "4, exact softmax weights": {**FOUR, "weights": None},
    "4, softmax weights of 7 bits": {**FOUR, "weights": {"levels": INT8}},
    "4, softmax weights of 15 bits for 256": {
        **FOUR, "weights": {"levels": INT16, "positions": CHUNK}
    },
    "4, values in blocks of 32": {**FOUR, "v": THREE["v"]},
    "4, Q of 16 bits": {**FOUR, "q": {"levels": INT16}},
    "4, K of 16 bits": {**FOUR, "k": {"levels": INT16}},
    "4, Q and K of 16 bits": {**FOUR, "q": {"levels": INT16}, "k": {"levels": INT16}},
    "5": FIVE,
    "5, Q of 16 bits": {**FIVE, "q": {"levels": INT16}},
    "5, without balance": {**FIVE, "balance_above": None},
    "5, all biases of K apart": {**FIVE, "bias_above": 0},
    "5, transforms of 64": {
        **FIVE, "q": {"transformed": 64}, "k": {"half_scale": True, "transformed": 64}
    },
    **{f"only q and k of {name}": how for name, how in KEYS_AND_QUERIES.items()},
    "only q and k of 4, Q of 16 bits": {**KEYS_AND_QUERIES["4"], "q": {"levels": INT16}},
    "only q and k of 4, blocks of 16": {
        **KEYS_AND_QUERIES["4"], "q": {"block": 16}, "k": {"block": 16, "half_scale": True}
    },
    "only q and k of 5, Q of 16 bits": {**KEYS_AND_QUERIES["5"], "q": {"levels": INT16}},
    "only q and k of 5, transforms of 64": {
        **KEYS_AND_QUERIES["5"], "q": {"transformed": 64},
        "k": {"half_scale": True, "transformed": 64}
    },
    **{f"4, exact inputs of {product}":
           {**FOUR, "products": tuple(other for other in PRODUCTS if other != product)}
       for product in PRODUCTS},
    "4, activations of 15 bits for 256": {**FOUR, "activations": {"block": 256, "levels": 16256}},
    "4, activations of 15 bits, INT8 weights, both for 256": {
        **FOUR, "activations": {"block": 256, "levels": 16256}, "matrices": {"block": 256}
    },
    "4, INT8 weights for 256": {**FOUR, "matrices": {"block": 256}},
}


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("ids", type=pathlib.Path)
    parser.add_argument("--tokens", type=int)
    parser.add_argument("--only", default="", help="variants with this in their names")
    o = parser.parse_args()
    with torch.no_grad():
        model = Model(o.model)
        ids = torch.tensor([int(word) for word in o.ids.read_text().split()])[:o.tokens]
        truth, _ = hidden_states(model, ids)
        for name, how in VARIANTS.items():
            if o.only in name:
                began = time.monotonic()
                states, apart = hidden_states(model, ids, **how)
                print(
                    f"{name:52} {compared(model, truth, states)}" +
                    (f"  ({apart} pairs)" if apart else "") + f"  {time.monotonic() - began:.0f} s",
                    flush=True)


if __name__ == "__main__":
    main()
