"""Trains a demo model and writes it. No input, no network: all follows from the seed.

    OPENBLAS_NUM_THREADS=1 /usr/bin/python3 train.py --out ../larder-stories.gguf
    OPENBLAS_NUM_THREADS=1 /usr/bin/python3 train.py --experts --out ../larder-stories-experts.gguf

A Llama-shaped transformer (RMSNorm, interleaved RoPE, grouped-query attention, SwiGLU, tied
embeddings) in plain PyTorch, in float32 on one thread. With --experts each FFN is a mixture as
Mixtral's: a router chooses some experts for each token and weights them with the softmax of their
logits. Stories of like length share a batch, each from its BOS at position 0 to its EOS.
"""
import argparse
import collections
import math
import random
import time

import torch
from torch import nn
from torch.nn import functional as F

import chat_template
import gguf
import grammar
from grammar import HELD_OUT_SEED, TRAIN_SEED
from tokenizer import BOS, EOS, UNKNOWN, Tokenizer

VOCAB, DIM, LAYERS, HEADS, KV_HEADS, HEAD, CONTEXT = 2048, 192, 5, 6, 2, 32, 512
Ffn = collections.namedtuple("Ffn", "length experts used")  # length: of each expert
DENSE, MIXTURE = Ffn(512, 0, 0), Ffn(64, 12, 2)
# What the loss that keeps experts equally busy weighs (Fedus et al., 2021, section 2.2)
BALANCE = 0.01
EPSILON, ROPE_BASE = 1e-5, 10000.0
STORIES, BATCH_TOKENS, RATE, MATRIX_RATE = 40000, 2400, 3e-3, 0.02
# The rate is constant until that many steps before the end, then falls to 0 in a line
DECAY_STEPS = 300


def orthogonal(x):
    """A matrix with its singular values near 1, or each of a stack of them."""
    if x.ndim == 3:
        return torch.stack([orthogonal(matrix) for matrix in x])
    tall = x.shape[0] > x.shape[1]
    x = x.T if tall else x
    x = x / (x.norm() + 1e-7)
    for _ in range(5):
        square = x @ x.T
        x = 3.4445 * x + (-4.7750 * square + 2.0315 * square @ square) @ x
    return x.T if tall else x


class Muon(torch.optim.Optimizer):
    """Momentum whose step is orthogonalised by Newton-Schulz, a hidden matrix at a time (Jordan et
    al., 2024): after 180,000 tokens the loss is 1.9 where that of AdamW was 3.1."""

    def __init__(self, matrices, momentum=0.95, weight_decay=0.02):
        super().__init__(matrices, {"lr": 0.0, "momentum": momentum, "weight_decay": weight_decay})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                velocity = self.state[p].setdefault("velocity", torch.zeros_like(p))
                velocity.lerp_(p.grad, 1 - group["momentum"])
                x = orthogonal(p.grad.lerp(velocity, group["momentum"]))
                p.mul_(1 - group["lr"] * group["weight_decay"])
                p.add_(x, alpha=-group["lr"] * max(1.0, p.shape[-2] / p.shape[-1]) ** 0.5)


class Norm(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(DIM))

    def forward(self, x):
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + EPSILON) * self.weight


def rope_table(length):
    angle = torch.arange(length)[:, None] * ROPE_BASE ** (-torch.arange(0, HEAD, 2) / HEAD)[None, :]
    return angle.cos(), angle.sin()


def rotate(x, cos, sin):
    """x [batch][heads][time][HEAD]: turns the pair (2i, 2i + 1) by angle i."""
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), -1).flatten(-2)


def linear(rows, columns):
    return nn.Linear(columns, rows, bias=False)


class Stack(nn.Module):
    """The matrices of all experts."""

    def __init__(self, experts, rows, columns):
        super().__init__()
        self.weight = nn.Parameter(torch.empty(experts, rows, columns))


class Block(nn.Module):
    def __init__(self, ffn):
        super().__init__()
        self.used = ffn.used
        self.attn_norm, self.ffn_norm = Norm(), Norm()
        self.attn_q, self.attn_output = linear(HEADS * HEAD, DIM), linear(DIM, HEADS * HEAD)
        self.attn_k, self.attn_v = linear(KV_HEADS * HEAD, DIM), linear(KV_HEADS * HEAD, DIM)
        if ffn.experts == 0:
            self.ffn_gate, self.ffn_up = linear(ffn.length, DIM), linear(ffn.length, DIM)
            self.ffn_down = linear(DIM, ffn.length)
            return
        self.ffn_gate_inp = linear(ffn.experts, DIM)
        self.ffn_gate_exps = Stack(ffn.experts, ffn.length, DIM)
        self.ffn_up_exps = Stack(ffn.experts, ffn.length, DIM)
        self.ffn_down_exps = Stack(ffn.experts, DIM, ffn.length)

    def mixture(self, h):
        """h [rows][DIM]: what the chosen experts give, and the loss of an uneven choice, which is 1
        where all experts are equally busy.
        """
        logits = self.ffn_gate_inp(h)
        chosen_logits, chosen = logits.topk(self.used)
        share, out = chosen_logits.softmax(-1), torch.zeros_like(h)
        stacks = zip(self.ffn_gate_exps.weight, self.ffn_up_exps.weight, self.ffn_down_exps.weight)
        for expert, (gate, up, down) in enumerate(stacks):
            rows, ranks = (chosen == expert).nonzero(as_tuple=True)
            x = h[rows]
            y = (F.silu(x @ gate.T) * (x @ up.T)) @ down.T
            out = out.index_add(0, rows, y * share[rows, ranks, None])
        experts = logits.shape[-1]
        busy = chosen.flatten().bincount(minlength=experts) / chosen.numel()
        return out, experts * (busy * logits.softmax(-1).mean(0)).sum()

    def forward(self, x, cos, sin, mask):
        batch, length, _ = x.shape
        h = self.attn_norm(x)
        q, k, v = (
            m(h).view(batch, length, -1, HEAD).transpose(1, 2)
            for m in (self.attn_q, self.attn_k, self.attn_v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        group = HEADS // KV_HEADS
        q = q.reshape(
            batch, KV_HEADS, group * length, HEAD
        )  # the query heads of a KV head, one under another
        scores = (q @ k.transpose(-1, -2)).view(batch, KV_HEADS, group, length, length) / math.sqrt(
            HEAD
        ) + mask
        out = scores.softmax(-1).view(batch, KV_HEADS, group * length, length) @ v
        out = out.view(batch, HEADS, length, HEAD).transpose(1, 2).reshape(batch, length, -1)
        x = x + self.attn_output(out)
        h = self.ffn_norm(x)
        if self.used == 0:
            return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h)), x.new_zeros(())
        out, uneven = self.mixture(h.view(-1, DIM))
        return x + out.view_as(x), uneven


class Model(nn.Module):
    def __init__(self, ffn):
        super().__init__()
        self.token_embd = nn.Embedding(VOCAB, DIM)
        self.blk = nn.ModuleList(Block(ffn) for _ in range(LAYERS))
        self.output_norm = Norm()
        for name, p in self.named_parameters():
            if p.ndim > 1:
                deep = name.endswith(
                    ("attn_output.weight", "ffn_down.weight", "ffn_down_exps.weight")
                )
                nn.init.normal_(p, std=0.04 / (math.sqrt(2 * LAYERS) if deep else 1.0))

    def forward(self, tokens):
        """Logits, and the mean loss of the layers' uneven choices of experts."""
        length = tokens.shape[1]
        cos, sin = rope_table(length)
        mask = torch.full((length, length), float("-inf")).triu(1)
        x, uneven = self.token_embd(tokens), 0
        for block in self.blk:
            x, more = block(x, cos, sin, mask)
            uneven = uneven + more / LAYERS
        return self.output_norm(x) @ self.token_embd.weight.T, uneven


def batches(encoded, rng):
    """Indices of stories of like length, padded size at most BATCH_TOKENS, in random order."""
    order = sorted(range(len(encoded)), key=lambda i: (len(encoded[i]), rng.random()))
    groups, group = [], []
    for i in order:
        if group and (len(group) + 1) * len(encoded[i]) > BATCH_TOKENS:
            groups.append(group)
            group = []
        group.append(i)
    rng.shuffle(groups)
    return groups


def loss_of(model, stories, reduction="mean"):
    """The loss of the tokens, and that of the uneven choice of experts."""
    length = max(map(len, stories))
    tokens = torch.full((len(stories), length), -1)
    for row, story in zip(tokens, stories):
        row[: len(story)] = torch.tensor(story)
    logits, uneven = model(tokens[:, :-1].clamp(min=0))
    loss = F.cross_entropy(
        logits.reshape(-1, VOCAB), tokens[:, 1:].reshape(-1), ignore_index=-1, reduction=reduction
    )
    return loss, uneven


def export(model, ffn, tokenizer, path):
    names = {"token_embd.weight": model.token_embd.weight, **dict(model.named_parameters())}
    key = lambda k, kind, v: ("llama." + k, kind, v)
    gguf.write(
        path,
        [
            ("general.architecture", gguf.STRING, "llama"),
            (
                "general.name",
                gguf.STRING,
                "Larder Stories of Experts" if ffn.experts else "Larder Stories",
            ),
            (
                "general.description",
                gguf.STRING,
                # The bytes of the file that the tree holds: another path would make another file.
                "Small stories from a grammar; made by model/demo/train.py of Larder",
            ),
            ("general.file_type", gguf.U32, 7),
            key("context_length", gguf.U32, CONTEXT),
            key("embedding_length", gguf.U32, DIM),
            key("block_count", gguf.U32, LAYERS),
            key("feed_forward_length", gguf.U32, ffn.length),
            *(
                [
                    key("expert_count", gguf.U32, ffn.experts),
                    key("expert_used_count", gguf.U32, ffn.used),
                ]
                if ffn.experts
                else []
            ),
            key("attention.head_count", gguf.U32, HEADS),
            key("attention.head_count_kv", gguf.U32, KV_HEADS),
            key("attention.layer_norm_rms_epsilon", gguf.F32, EPSILON),
            key("rope.dimension_count", gguf.U32, HEAD),
            key("rope.freq_base", gguf.F32, ROPE_BASE),
            key("vocab_size", gguf.U32, VOCAB),
            ("tokenizer.ggml.model", gguf.STRING, "llama"),
            ("tokenizer.ggml.tokens", (gguf.ARRAY, gguf.STRING), tokenizer.pieces),
            ("tokenizer.ggml.scores", (gguf.ARRAY, gguf.F32), tokenizer.scores),
            ("tokenizer.ggml.token_type", (gguf.ARRAY, gguf.I32), tokenizer.types),
            ("tokenizer.ggml.bos_token_id", gguf.U32, BOS),
            ("tokenizer.ggml.eos_token_id", gguf.U32, EOS),
            ("tokenizer.ggml.unknown_token_id", gguf.U32, UNKNOWN),
            ("tokenizer.ggml.add_bos_token", gguf.BOOL, True),
            (chat_template.KEY, gguf.STRING, chat_template.TEMPLATE),
        ],
        {name: p.detach().numpy() for name, p in names.items()},
    )


def main():
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--steps", type=int, default=1490)
    options.add_argument("--experts", action="store_true", help="with mixtures of experts")
    options.add_argument("--out", default="larder-stories.gguf")
    options = options.parse_args()
    ffn = MIXTURE if options.experts else DENSE
    torch.set_num_threads(1)
    torch.manual_seed(TRAIN_SEED)
    rng = random.Random(TRAIN_SEED)
    texts = grammar.stories(STORIES, TRAIN_SEED)
    tokenizer = Tokenizer(texts[:4000], VOCAB)
    encoded = [[BOS] + tokenizer.encode(t) + [EOS] for t in texts]
    held_out = [[BOS] + tokenizer.encode(t) + [EOS] for t in grammar.stories(64, HELD_OUT_SEED)]
    print(
        f"{sum(map(len, encoded)) / len(encoded):.1f} tokens a story, longest"
        f" {max(map(len, encoded))}", flush=True,
    )
    model = Model(ffn)
    print(f"{sum(p.numel() for p in model.parameters())} parameters", flush=True)
    of_rows = lambda n, p: p.ndim == 1 or n.endswith(("token_embd.weight", "ffn_gate_inp.weight"))
    hidden = [p for n, p in model.named_parameters() if not of_rows(n, p)]
    others = [p for n, p in model.named_parameters() if of_rows(n, p)]
    optimisers = [Muon(hidden), torch.optim.AdamW(others, betas=(0.9, 0.98), weight_decay=0.0)]
    start, seen, queue = time.time(), 0, []
    for step in range(options.steps):
        rate = min(1.0, (step + 1) / 30, (options.steps - step) / DECAY_STEPS)
        for optimiser, peak in zip(optimisers, (MATRIX_RATE, RATE)):
            for group in optimiser.param_groups:
                group["lr"] = rate * peak
        queue = queue or batches(encoded, rng)
        stories = [encoded[i] for i in queue.pop()]
        loss, uneven = loss_of(model, stories)
        model.zero_grad(set_to_none=True)
        (loss + BALANCE * uneven).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimiser in optimisers:
            optimiser.step()
        seen += sum(map(len, stories))
        if step % 25 == 0:
            print(
                f"step {step} loss {loss.item():.4f} uneven {uneven.item():.3f} "
                f"tokens/s {seen / (time.time() - start):.0f} "
                f"minutes {(time.time() - start) / 60:.1f}",
                flush=True,
            )
        if step % 250 == 249:
            export(model, ffn, tokenizer, options.out)
    with torch.no_grad():
        total = sum(loss_of(model, [s], "sum")[0].item() for s in held_out)
    print(
        f"held-out loss {total / sum(len(s) - 1 for s in held_out):.4f} nats a token, {seen} tokens"
        " seen", flush=True,
    )
    export(model, ffn, tokenizer, options.out)


if __name__ == "__main__":
    main()
