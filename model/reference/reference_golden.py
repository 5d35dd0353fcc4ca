"""Prints the expected logits in reference_test.cc: the families once more, from their papers and
published definitions, in pure Python.

    python3 model/reference/reference_golden.py

Written to share nothing with reference.cc: rotations are complex products, attention goes over
whole columns, all in float64. The weights are a hash of the tensor's name and the element's index,
the same in both languages.
"""
import cmath
import math
import struct

VOCAB, DIM, FFN = 13, 12, 20
TOKENS = [1, 5, 3, 12, 0, 7]
EPSILON = struct.unpack("f", struct.pack("f", 1e-5))[0]


def case(heads, kv, head, rotary, base, pairs, tied=False, layers=2, factors=None, scale=1,
         **others):
    return dict(heads=heads, kv=kv, head=head, rotary=rotary, base=base, pairs=pairs, tied=tied,
                layers=layers, factors=factors or [1] * (rotary // 2), scale=scale, **others)


CASES = {
    "llama": case(4, 2, 6, 4, 1e4, "neighbours", factors=[1.0, 2.5]),
    "qwen2": case(3, 1, 4, 4, 1e4, "halves", tied=True, scale=4, bias=True),
    "qwen3": case(4, 4, 10, 10, 1e6, "halves", tied=True, qk="heads"),
    "ernie4_5": case(4, 2, 4, 4, 5e5, "neighbours", tied=True),
    "seed_oss": case(4, 2, 4, 4, 1e6, "halves", bias=True, ffn_norm="post_attention_norm"),
    "smollm3": case(4, 2, 4, 4, 1e6, "neighbours", tied=True, layers=4, still=[3]),
    "granite": case(4, 2, 4, 4, 1e6, "neighbours", tied=True, embedding=3.0, residual=0.375,
                    score=0.1875, logits=1 / 2.5),
    "hunyuan-dense": case(4, 2, 4, 4, 1e4, "halves", tied=True, qk="heads after rotation"),
    "mistral3": case(4, 2, 4, 4, 1e6, "neighbours", yarn=(4.0, 2, 1.0), warmth=(0.5, 2)),
    "olmo2": case(4, 2, 4, 4, 5e5, "halves", qk="rows", pre=False, post=True),
    "exaone4": case(4, 2, 4, 4, 1e6, "halves", qk="heads", pre=False, post=True),
    "phi3 short": case(4, 2, 6, 4, 1e4, "halves", fused_qkv=True, fused_ffn=True,
                       factors=[1.5, 3.0], magnitude=1.25),
    "phi3 long": case(4, 2, 6, 4, 1e4, "halves", fused_qkv=True, fused_ffn=True,
                      factors=[3.0, 6.0], magnitude=1.25),
    "glm4": case(4, 2, 4, 2, 1e4, "neighbours", bias=True, post=True, fused_ffn=True),
    "llama, windows": case(4, 2, 4, 4, 1e4, "neighbours", window=3),
    "phi3, windows": case(4, 2, 6, 4, 1e4, "halves", fused_qkv=True, fused_ffn=True,
                          factors=[1.5, 3.0], magnitude=1.25, window=2),
    "olmo3": case(4, 2, 4, 4, 5e5, "halves", qk="rows", pre=False, post=True, layers=4, window=2,
                  full=[3], yarn=(4.0, 2, 0.0)),
    "exaone4, windows": case(4, 2, 4, 4, 1e6, "halves", qk="heads", pre=False, post=True, layers=4,
                             window=2, full=[3], still=[3]),
    "gemma": case(4, 1, 6, 6, 1e4, "halves", tied=True, embedding=math.sqrt(DIM), gate="gelu"),
    "gemma2": case(4, 2, 4, 4, 1e4, "halves", tied=True, embedding=math.sqrt(DIM), gate="gelu",
                   post=True, window=2, full=[1], score_cap=2.0, logit_cap=3.0),
    "gemma3": case(4, 2, 4, 4, 1e6, "halves", tied=True, embedding=math.sqrt(DIM), gate="gelu",
                   post=True, layers=6, qk="heads", window=2, full=[5], scale=8, window_base=1e4),
    "gemma4": case(4, 2, 6, 6, 1e6, "halves", tied=True, embedding=math.sqrt(DIM), gate="gelu",
                   post=True, layers=6, qk="heads", score=1.0, logit_cap=3.0, value_norm=True,
                   value_is_key=[5], output_scale=True, factors=[1.0, 2.5, 1e30], window=2,
                   full=[5], window_base=1e4, window_head=4),
    "gemma4, layer inputs": case(4, 2, 6, 6, 1e6, "halves", tied=True, embedding=math.sqrt(DIM),
                                 gate="gelu", post=True, layers=12, qk="heads", score=1.0,
                                 logit_cap=3.0, value_norm=True, value_is_key=[5],
                                 output_scale=True, factors=[1.0, 2.5, 1e30], window=2,
                                 full=[5, 11], window_base=1e4, window_head=4, inputs=5,
                                 kv_of={6: 4, 7: 4, 8: 4, 9: 4, 10: 4, 11: 5}),
    "gemma4, experts": case(4, 2, 6, 6, 1e6, "halves", tied=True, embedding=math.sqrt(DIM),
                            gate="gelu", post=True, layers=6, qk="heads", score=1.0, logit_cap=3.0,
                            value_norm=True, value_is_key=[5], output_scale=True,
                            factors=[1.0, 2.5, 1e30], window=2, full=[5], window_base=1e4,
                            window_head=4, experts=dict(count=5, used=2, ffn=8, beside=True)),
    "cohere2": case(4, 2, 4, 4, 5e4, "neighbours", tied=True, centred=True, parallel=True,
                    logits=0.0625, layers=4, window=2, full=[3], still=[3]),
    "command-r": case(4, 2, 4, 4, 1e4, "neighbours", tied=True, centred=True, parallel=True,
                      logits=0.0625),
    "command-r, norms": case(4, 2, 4, 4, 1e4, "neighbours", tied=True, centred=True, parallel=True,
                             logits=0.0625, qk="each head"),
    "qwen35": case(4, 2, 6, 4, 1e7, "halves", qk="heads", ffn_norm="post_attention_norm",
                   gated=True, recurrent=[0],
                   delta=dict(keys=2, heads=4, key=16, value=32, taps=3)),
    "lfm2": case(4, 2, 6, 6, 1e6, "halves", tied=True, qk="heads", recurrent=[0], taps=3,
                 output_norm="token_embd_norm"),
    "granitehybrid": case(4, 2, 4, 4, 1e6, "neighbours", tied=True, embedding=3.0, residual=0.375,
                          score=0.1875, logits=1 / 2.5, recurrent=[0],
                          mamba=dict(groups=2, heads=4, state=16, size=16, taps=3)),
    "mixtral": case(4, 2, 4, 4, 1e4, "neighbours", experts=dict(count=4, used=2, ffn=8)),
    "qwen3moe": case(4, 2, 4, 4, 1e6, "halves", qk="heads",
                     experts=dict(count=6, used=3, ffn=8)),
    "qwen2moe": case(4, 2, 4, 4, 1e6, "halves", bias=True,
                     experts=dict(count=5, used=2, ffn=8, shared=16, gated=True, plain=True)),
    "granitemoe": case(4, 2, 4, 4, 1e6, "neighbours", tied=True, embedding=3.0, residual=0.375,
                       score=0.1875, logits=1 / 2.5,
                       experts=dict(count=5, used=2, ffn=8, shared=16)),
    "olmoe": case(4, 2, 4, 4, 1e4, "halves", qk="rows",
                  experts=dict(count=5, used=2, ffn=8, plain=True)),
    "minimax-m2": case(4, 2, 4, 2, 5e6, "halves", qk="rows",
                       experts=dict(count=5, used=2, ffn=8, sigmoid=True, bias=True)),
    "ernie4_5-moe": case(4, 2, 4, 4, 5e5, "neighbours", tied=True, layers=3,
                         experts=dict(count=5, used=2, ffn=8, shared=16, dense=1, bias=True)),
    "dots1": case(4, 4, 4, 4, 1e4, "halves", qk="heads", layers=3,
                  experts=dict(count=5, used=2, ffn=8, shared=16, dense=1, sigmoid=True, bias=True,
                               scale=2.5)),
    "arcee": case(4, 2, 4, 4, 1e4, "neighbours", gate=None),
    "nemotron_h": case(4, 2, 4, 4, 1e4, "halves", gate=None, blocks="M-*M-",
                       mamba=dict(groups=2, heads=4, state=16, size=16, taps=3)),
    "nemotron_h_moe": case(4, 2, 4, 4, 1e4, "halves", gate=None, blocks="ME*ME",
                           mamba=dict(groups=2, heads=4, state=16, size=16, taps=3),
                           experts=dict(count=5, used=2, ffn=8, shared=16, sigmoid=True,
                                        bias=True, scale=2.5)),
    "lfm2moe": case(4, 2, 6, 6, 1e6, "halves", tied=True, qk="heads", recurrent=[0], taps=3,
                    output_norm="token_embd_norm",
                    experts=dict(count=5, used=2, ffn=8, sigmoid=True, bias=True)),
    "qwen35moe": case(4, 2, 6, 4, 1e7, "halves", qk="heads", ffn_norm="post_attention_norm",
                      gated=True, recurrent=[0],
                      delta=dict(keys=2, heads=4, key=16, value=32, taps=3),
                      experts=dict(count=6, used=3, ffn=8, shared=16, gated=True)),
    "qwen3next": case(4, 2, 6, 4, 1e7, "halves", qk="heads", ffn_norm="post_attention_norm",
                      gated=True, recurrent=[0],
                      delta=dict(keys=2, heads=4, key=16, value=32, taps=3, in_order=True),
                      experts=dict(count=6, used=3, ffn=8, shared=16, gated=True)),
    "granitehybrid, experts": case(4, 2, 4, 4, 1e6, "neighbours", tied=True, embedding=3.0,
                                   residual=0.375, score=0.1875, logits=1 / 2.5, recurrent=[0],
                                   mamba=dict(groups=2, heads=4, state=16, size=16, taps=3),
                                   experts=dict(count=4, used=2, ffn=8, shared=16)),
    "glm4moe": case(4, 2, 4, 2, 1e4, "halves", bias=True, qk="heads",
                    ffn_norm="post_attention_norm", layers=3,
                    experts=dict(count=5, used=2, ffn=8, shared=16, dense=1, sigmoid=True,
                                 bias=True, scale=2.5)),
    "bailingmoe2": case(4, 2, 4, 2, 1e4, "halves", qk="heads", fused_qkv=True, layers=3,
                        experts=dict(count=9, used=3, ffn=8, shared=16, dense=1, sigmoid=True,
                                     bias=True, scale=2.5, groups=3, groups_used=2)),
    "gpt-oss": case(4, 2, 4, 4, 30.0, "halves", bias=True, o_bias=True, gate="clamped",
                    ffn_norm="post_attention_norm", sinks=True, window=2, full=[1],
                    window_turns=True, yarn=(4.0, 64, 0.0), exact_ramp=True,
                    experts=dict(count=5, used=2, ffn=8, biased=True)),
    "deepseek2": case(4, 4, 12, 4, 1e4, "neighbours", layers=3, yarn=(4.0, 2, 1.0),
                      score=(1 + 0.1 * math.log(4))**2 / math.sqrt(10),
                      latent=dict(rank=8, query=5, key=6, value=7),
                      experts=dict(count=6, used=2, ffn=8, shared=16, dense=1, sigmoid=True,
                                   bias=True, scale=2.5, groups=2, groups_used=1)),
    "deepseek2, lite": case(4, 4, 12, 4, 1e4, "neighbours", score=1 / math.sqrt(10),
                            latent=dict(rank=8, query=0, key=6, value=7),
                            experts=dict(count=5, used=2, ffn=8, shared=16, plain=True)),
    "falcon-h1": case(4, 2, 8, 8, 1e11, "halves", beside=True,
                      mamba=dict(groups=1, heads=2, state=16, size=16, taps=4)),
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


def norm(x, w, centred=False):
    """With `centred`, LayerNorm."""
    mean = sum(x) / len(x) if centred else 0
    root = math.sqrt(sum((v - mean)**2 for v in x) / len(x) + EPSILON)
    return [(v - mean) / root * g for v, g in zip(x, w)]


def capped(x, cap):
    return cap * math.tanh(x / cap) if cap else x


def gate_of(g, case):
    if case.get("gate") == "gelu":  # with tanh
        return g / 2 * (1 + math.tanh(math.sqrt(2 / math.pi) * (g + 0.044715 * g**3)))
    return g / (1 + math.exp(-g))


def gated(g, u, case):
    if case.get("gate") == "clamped":
        g, u = min(g, 7), max(-7, min(u, 7)) + 1
        return g * u / (1 + math.exp(-1.702 * g))
    if case.get("gate", "silu") is None:
        return max(0, u)**2
    return gate_of(g, case) * u


def yarn(j, case):
    """The angle of a position, by section 3.2 of the paper: high frequencies stay, low ones are
    interpolated."""
    factor, context, _ = case["yarn"]
    base, n = case["base"], case["rotary"]

    def pair(turns):
        return n * math.log(context / (turns * 2 * math.pi)) / (2 * math.log(base))

    first, last = pair(32), pair(1)
    if not case.get("exact_ramp"):
        first, last = math.floor(first), math.ceil(last)
    low, high = max(0, first), min(n - 1, last)
    ramp = min(1, max(0, (j - low) / max(0.001, high - low)))
    own = base**(-2 * j / n)
    return own / factor * ramp + own * (1 - ramp)


def rotate(head, position, case):
    n, out, magnitude = case["rotary"] // 2, list(head), case.get("magnitude", 1)
    if "yarn" in case:
        factor, _, m = case["yarn"]
        magnitude = (1 + 0.1 * math.log(factor)) / (1 + 0.1 * m * math.log(factor))
    for j in range(n):
        a, b = (2 * j, 2 * j + 1) if case["pairs"] == "neighbours" else (j, j + n)
        angle = position / case["scale"] / case["base"]**(2 * j /
                                                          case["rotary"]) / case["factors"][j]
        if "yarn" in case:
            angle = position * yarn(j, case)
        z = complex(head[a], head[b]) * cmath.rect(magnitude, angle)
        out[a], out[b] = z.real, z.imag
    return out


def split(x, size):
    return [x[i : i + size] for i in range(0, len(x), size)]


def delta_rule(inputs, prefix, case):
    """What the gated delta rule gives for each position: the sum over all earlier tokens of what
    each has written, as far as later ones have not decayed or overwritten it, in the definition's
    order. Value head h belongs to key head h modulo their number; or they are in order, and so are
    the rows of a product of both betas and alphas, key head by key head."""
    keys, heads, key, value, taps = (case["delta"][name]
                                     for name in ("keys", "heads", "key", "value", "taps"))
    in_order = case["delta"].get("in_order")
    channels = 2 * keys * key + heads * value
    projected = [times(matrix(prefix + "attn_qkv.weight", channels, DIM), x) for x in inputs]
    filters = matrix(prefix + "ssm_conv1d.weight", channels, taps)
    decay = [-1 + element(prefix + "ssm_a", h) / 2 for h in range(heads)]
    bias = vector(prefix + "ssm_dt.bias", heads)
    weight = vector(prefix + "ssm_norm.weight", value, 1)

    def silu(x):
        return x / (1 + math.exp(-x))

    def unit(x):
        return [v / math.sqrt(sum(w * w for w in x) + 1e-6) for v in x]

    states = [[[0.0] * value for _ in range(key)] for _ in range(heads)]
    out = []
    for t, x in enumerate(inputs):
        c = [silu(sum(filters[ch][taps - 1 - back] * projected[t - back][ch]
                      for back in range(min(taps, t + 1)))) for ch in range(channels)]
        gate = times(matrix(prefix + "attn_gate.weight", heads * value, DIM), x)
        if in_order:
            both = split(times(matrix(prefix + "ssm_ba.weight", 2 * heads, DIM), x), heads // keys)
            beta, alpha = sum(both[::2], []), sum(both[1::2], [])
        else:
            alpha = times(matrix(prefix + "ssm_alpha.weight", heads, DIM), x)
            beta = times(matrix(prefix + "ssm_beta.weight", heads, DIM), x)
        row = []
        for h in range(heads):
            g = h * keys // heads if in_order else h % keys
            q = [v / math.sqrt(key) for v in unit(c[g * key : (g + 1) * key])]
            k = unit(c[(keys + g) * key : (keys + g + 1) * key])
            first = 2 * keys * key + h * value
            v = c[first : first + value]
            kept = math.exp(decay[h] * math.log(1 + math.exp(alpha[h] + bias[h])))
            rate = 1 / (1 + math.exp(-beta[h]))
            s = [[kept * e for e in line] for line in states[h]]
            known = [sum(s[a][e] * k[a] for a in range(key)) for e in range(value)]
            states[h] = [[s[a][e] + k[a] * rate * (v[e] - known[e]) for e in range(value)]
                         for a in range(key)]
            o = [sum(states[h][a][e] * q[a] for a in range(key)) for e in range(value)]
            z = gate[h * value : (h + 1) * value]
            row += [n * silu(b) for n, b in zip(norm(o, weight), z)]
        out.append(row)
    return out


def mamba2(inputs, prefix, case):
    """What a state space of Mamba-2 gives for each position, by the definition's other form: a sum
    over all earlier tokens, each with the product of the decays since then."""
    groups, heads, state, size, taps = (case["mamba"][name]
                                        for name in ("groups", "heads", "state", "size", "taps"))
    inner = heads * size
    channels = inner + 2 * groups * state
    projected = [times(matrix(prefix + "ssm_in.weight", inner + channels + heads, DIM), x)
                 for x in inputs]
    filters = matrix(prefix + "ssm_conv1d.weight", channels, taps)
    biases = vector(prefix + "ssm_conv1d.bias", channels)
    rate = [-1 + element(prefix + "ssm_a", h) / 2 for h in range(heads)]
    skip, dt = vector(prefix + "ssm_d", heads), vector(prefix + "ssm_dt.bias", heads)
    weight = vector(prefix + "ssm_norm.weight", inner, 1)

    def silu(x):
        return x / (1 + math.exp(-x))

    z = [p[:inner] for p in projected]
    conv = [[silu(biases[c] + sum(filters[c][taps - 1 - back] * projected[t - back][inner + c]
                                  for back in range(min(taps, t + 1)))) for c in range(channels)]
            for t in range(len(inputs))]
    step = [[math.log(1 + math.exp(p[inner + channels + h] + dt[h])) for h in range(heads)]
            for p in projected]
    out = []
    for t in range(len(inputs)):
        row = []
        for h in range(heads):
            first = inner + h // (heads // groups) * state
            c = conv[t][first + groups * state : first + (groups + 1) * state]
            y = [skip[h] * v for v in conv[t][h * size : (h + 1) * size]]
            for past in range(t + 1):
                b = conv[past][first : first + state]
                decay = math.exp(rate[h] * sum(step[u][h] for u in range(past + 1, t + 1)))
                weighted = decay * step[past][h] * sum(i * j for i, j in zip(b, c))
                y = [a + weighted * v for a, v in zip(y, conv[past][h * size : (h + 1) * size])]
            row += [a * silu(g) for a, g in zip(y, z[t][h * size : (h + 1) * size])]
        out.append(sum((norm(part, w) for part, w in zip(split(row, inner // groups),
                                                        split(weight, inner // groups))), []))
    return out


def convolved(inputs, prefix, case):
    """What a gated short convolution gives for each position: B, C and x are thirds of a product;
    C times the sum over the last tokens of a weight times B times x, channel by channel."""
    taps, projection = case["taps"], matrix(prefix + "shortconv.in_proj.weight", 3 * DIM, DIM)
    filters = matrix(prefix + "shortconv.conv.weight", DIM, taps)
    thirds = [split(times(projection, x), DIM) for x in inputs]
    written = [[b * x for b, x in zip(of_b, of_x)] for of_b, _, of_x in thirds]
    return [[thirds[t][1][c] * sum(filters[c][taps - 1 - back] * written[t - back][c]
                                   for back in range(min(taps, t + 1))) for c in range(DIM)]
            for t in range(len(inputs))]


def latent(inputs, prefix, case):
    """Queries, keys and values of each position and head, as the definition has them before
    anything is absorbed."""
    of, heads, rotated = case["latent"], case["heads"], case["rotary"]
    rank, query, key, value = (of[name] for name in ("rank", "query", "key", "value"))
    down = matrix(prefix + "attn_kv_a_mqa.weight", rank + rotated, DIM)
    up_keys = split(matrix(prefix + "attn_k_b.weight", heads * rank, key), rank)
    up_values = split(matrix(prefix + "attn_v_b.weight", heads * value, rank), value)
    rows = heads * (key + rotated)
    qs, ks, vs = [], [], []
    for position, x in enumerate(inputs):
        if query:
            small = times(matrix(prefix + "attn_q_a.weight", query, DIM), x)
            small = norm(small, vector(prefix + "attn_q_a_norm.weight", query, 1))
            q = times(matrix(prefix + "attn_q_b.weight", rows, query), small)
        else:
            q = times(matrix(prefix + "attn_q.weight", rows, DIM), x)
        c = times(down, x)
        turned = rotate(c[rank:], position, case)
        c = norm(c[:rank], vector(prefix + "attn_kv_a_norm.weight", rank, 1))
        qs.append([h[:key] + rotate(h[key:], position, case) for h in split(q, key + rotated)])
        ks.append([[sum(up[r][j] * c[r] for r in range(rank)) for j in range(key)] + turned
                   for up in up_keys])
        vs.append([times(up, c) for up in up_values])
    return qs, ks, vs


def experts_of(x, prefix, case, asked=None):
    """What a token's experts give: each of them is asked whether enough others are better. `asked`
    is what the router sees, where that is not x."""
    of = case["experts"]
    count, used, ffn = of["count"], of["used"], of["ffn"]
    scores = times(matrix(prefix + "ffn_gate_inp.weight", count, DIM), asked or x)
    scales = vector(prefix + "ffn_down_exps.scale", count, 1) if asked else [1] * count
    if of.get("biased"):
        scores = [s + b for s, b in zip(scores, vector(prefix + "ffn_gate_inp.bias", count))]
    if of.get("sigmoid"):
        p = [1 / (1 + math.exp(-s)) for s in scores]
    else:
        p = [math.exp(s) / sum(math.exp(t) for t in scores) for s in scores]
    order = [v + b for v, b in zip(p, vector(prefix + "exp_probs_b.bias", count))]
    rank = order if of.get("bias") else p
    if "groups" in of:  # what is not in one of the best groups ranks behind all others
        size = count // of["groups"]
        best = [sum(sorted(g)[-2:]) for g in split(rank, size)]
        rank = [r if sum(o > best[e // size] for o in best) < of["groups_used"] else -math.inf
                for e, r in enumerate(rank)]
    chosen = [e for e in range(count)
              if sum(rank[o] > rank[e] or (rank[o] == rank[e] and o < e)
                     for o in range(count)) < used]
    total = 1 if of.get("plain") else sum(p[e] for e in chosen)

    def swiglu(gate, up, down, biases=None):
        g, u = times(gate, x), times(up, x)
        if not biases:
            return times(down, [gated(a, b, case) for a, b in zip(g, u)])
        hidden = [gated(a + i, b + j, case) for a, i, b, j in zip(g, biases[0], u, biases[1])]
        return [a + b for a, b in zip(times(down, hidden), biases[2])]

    def biases_of(e):
        if not of.get("biased"):
            return None
        rows = (("gate", ffn), ("up", ffn), ("down", DIM))
        return [vector(f"{prefix}ffn_{kind}_exps.bias", count * n)[e * n : (e + 1) * n]
                for kind, n in rows]

    def matrices(suffix, experts, rows):
        gate, up = (matrix(f"{prefix}ffn_{kind}_{suffix}.weight", experts * rows, DIM)
                    for kind in ("gate", "up"))
        down = matrix(f"{prefix}ffn_down_{suffix}.weight", experts * DIM, rows)
        return [(gate[e * rows : (e + 1) * rows], up[e * rows : (e + 1) * rows],
                 down[e * DIM : (e + 1) * DIM]) for e in range(experts)]

    everyone = matrices("exps", count, ffn)
    y = [0.0] * DIM
    for e in chosen:
        weight = p[e] / total * of.get("scale", 1) * scales[e]
        y = [a + weight * b for a, b in zip(y, swiglu(*everyone[e], biases_of(e)))]
    if "shared" in of:
        weight = 1
        if of.get("gated"):
            z = times(matrix(prefix + "ffn_gate_inp_shexp.weight", 1, DIM), x)[0]
            weight = 1 / (1 + math.exp(-z))
        y = [a + weight * b for a, b in zip(y, swiglu(*matrices("shexp", 1, of["shared"])[0]))]
    return y


def inputs_of(token, x, case):
    """What each layer gets of a token beside the residual, x being its embedding."""
    size, layers = case["inputs"], case["layers"]
    p = split([v / math.sqrt(DIM) for v in times(matrix("per_layer_model_proj.weight",
                                                        layers * size, DIM), x)], size)
    own = split(matrix("per_layer_token_embd.weight", VOCAB, layers * size)[token], size)
    weight = vector("per_layer_proj_norm.weight", size, 1)
    return [[(a + math.sqrt(size) * b) / math.sqrt(2) for a, b in zip(norm(part, weight), row)]
            for part, row in zip(p, own)]


def layer(xs, i, case):
    prefix, queries, keys = f"blk.{i}.", case["heads"], case["kv"]
    windowed = "window" in case and i not in case.get("full", [])
    size = case.get("window_head", case["head"]) if windowed else case["head"]
    rows = {"q": queries * size, "k": keys * size, "v": keys * size}
    output_scale = case.get("output_scale")
    recurrent, output_gate = i in case.get("recurrent", []), case.get("gated")
    sinks = vector(prefix + "attn_sinks.weight", queries)
    qk, residual = case.get("qk"), case.get("residual", 1)
    windowed = "window" in case and i not in case.get("full", [])
    of_layer = dict(case)
    if windowed and not case.get("window_turns"):  # without YaRN and without a factor
        of_layer.pop("yarn", None)
        of_layer.update(scale=1, base=case.get("window_base", case["base"]))
        if "window_head" in case:
            of_layer.update(rotary=size, factors=[1] * (size // 2))

    def before(x, name):
        if not case.get("pre", True):
            return x
        suffix = "" if case.get("beside") and name == "ffn_norm" else ".weight"
        return norm(x, vector(prefix + name + suffix, DIM, 1), case.get("centred"))

    def after(y, name):
        return norm(y, vector(f"{prefix}{name}.weight", DIM, 1)) if case.get("post") else y

    def part(kind):
        if kind == "v" and i in case.get("value_is_key", []):
            kind = "k"
        if not case.get("fused_qkv"):
            return matrix(f"{prefix}attn_{kind}.weight", rows[kind], DIM)
        first = {"q": 0, "k": rows["q"], "v": rows["q"] + rows["k"]}[kind]
        fused = matrix(f"{prefix}attn_qkv.weight", sum(rows.values()), DIM)
        return fused[first : first + rows[kind]]

    inputs = [before(x, "attn_norm") for x in xs]

    gates = []

    def heads(kind):
        if output_gate and kind == "q":
            both = split(matrix(f"{prefix}attn_q.weight", 2 * rows["q"], DIM), size)
            m = sum(both[::2], [])
            gates.extend(times(sum(both[1::2], []), x) for x in inputs)
        else:
            m = part(kind)
        per_position = []
        for position, x in enumerate(inputs):
            y = times(m, x)
            if case.get("bias"):
                y = [a + b for a, b in zip(y, vector(f"{prefix}attn_{kind}.bias", rows[kind]))]
            if qk == "rows" and kind != "v":
                y = norm(y, vector(f"{prefix}attn_{kind}_norm.weight", rows[kind], 1))
            y = split(y, size)
            if kind == "v" and case.get("value_norm"):
                y = [norm(h, [1] * size) for h in y]
            if qk == "each head" and kind != "v":
                own = vector(f"{prefix}attn_{kind}_norm.weight", rows[kind], 1)
                y = [norm(h, w, True) for h, w in zip(y, split(own, size))]
            if qk == "heads" and kind != "v":
                y = [norm(h, vector(f"{prefix}attn_{kind}_norm.weight", size, 1)) for h in y]
            if kind != "v" and i not in case.get("still", []):
                y = [rotate(h, position, of_layer) for h in y]
            if qk == "heads after rotation" and kind != "v":
                y = [norm(h, vector(f"{prefix}attn_{kind}_norm.weight", size, 1)) for h in y]
            if kind == "q" and "warmth" in case:
                beta, length = case["warmth"]
                y = [[v * (1 + beta * math.log(1 + position // length)) for v in h] for h in y]
            per_position.append(y)
        return per_position

    if recurrent and "taps" in case:
        state = convolved(inputs, prefix, case)
        o = matrix(prefix + "shortconv.out_proj.weight", DIM, DIM)
    elif recurrent:
        state = (mamba2 if "mamba" in case else delta_rule)(inputs, prefix, case)
        o = matrix(prefix + "ssm_out.weight", DIM, len(state[0]))
    elif "latent" in case:
        q, k, v = latent(inputs, prefix, case)
        size = case["latent"]["value"]
        o = matrix(prefix + "attn_output.weight", DIM, queries * size)
    else:
        if i in case.get("kv_of", {}):
            q, (k, v) = heads("q"), case["kept"][case["kv_of"][i]]
        else:
            q, k, v = heads("q"), heads("k"), heads("v")
        case.setdefault("kept", {})[i] = k, v
        o = matrix(prefix + "attn_output.weight", DIM, queries * size)
    has_experts = "experts" in case and i >= case["experts"].get("dense", 0)
    beside = mamba2(inputs, prefix, case) if case.get("beside") else None
    if case.get("fused_ffn"):
        both = matrix(f"{prefix}ffn_up.weight", 2 * FFN, DIM)
        gate, up = both[:FFN], both[FFN:]
    else:
        gate, up = (matrix(f"{prefix}ffn_{kind}.weight", FFN, DIM) for kind in ("gate", "up"))
    down = matrix(prefix + "ffn_down.weight", DIM, FFN)
    score = case.get("score", 1 / math.sqrt(size))
    out = []
    for position, x in enumerate(xs):
        mixed = []
        for h in [] if recurrent else range(queries):
            shared = h * keys // queries
            seen = [t for t in range(position + 1)
                    if not windowed or position - t < case["window"]]
            scores = [sum(a * b for a, b in zip(q[position][h], k[t][shared])) * score
                      for t in seen]
            weights = [math.exp(capped(s, case.get("score_cap"))) for s in scores]
            total = sum(weights) + (math.exp(sinks[h]) if case.get("sinks") else 0)
            for e in range(size):
                mixed.append(sum(w * v[t][shared][e] for t, w in zip(seen, weights)) / total)
        if recurrent:
            mixed = state[position]
        elif output_gate:
            mixed = [m / (1 + math.exp(-g)) for m, g in zip(mixed, gates[position])]
        branch = times(o, mixed)
        if case.get("o_bias"):
            branch = [a + b for a, b in zip(branch, vector(prefix + "attn_output.bias", DIM))]
        branch = after(branch, "post_attention_norm")
        if beside:
            other = matrix(prefix + "ssm_out.weight", DIM, len(beside[0]))
            branch = [a + b for a, b in zip(branch, times(other, beside[position]))]
        x = [a + residual * b for a, b in zip(x, branch)]
        hidden = (inputs[position] if case.get("parallel") else
                  before(x, case.get("ffn_norm", "ffn_norm")))
        if has_experts and not case["experts"].get("beside"):
            branch = experts_of(hidden, prefix, case)
        else:
            hidden = [gated(g, u, case) for g, u in zip(times(gate, hidden), times(up, hidden))]
            branch = times(down, hidden)
            if has_experts:
                asked = norm(x, [w / math.sqrt(DIM)
                                 for w in vector(f"{prefix}ffn_gate_inp.scale", DIM, 1)])
                other = experts_of(before(x, "pre_ffw_norm_2"), prefix, case, asked)
                branch = [a + b for a, b in zip(after(branch, "post_ffw_norm_1"),
                                                after(other, "post_ffw_norm_2"))]
            branch = after(branch, "post_ffw_norm")
        scale = vector(f"{prefix}layer_output_scale.weight", 1, 1)[0] if output_scale else 1
        x = [a + residual * b for a, b in zip(x, branch)]
        if "inputs" in case:
            given = case["given"][position][i]
            g = times(matrix(f"{prefix}inp_gate.weight", len(given), DIM), x)
            hidden = [gated(a, b, case) for a, b in zip(g, given)]
            proj = matrix(f"{prefix}proj.weight", DIM, len(given))
            branch = after(times(proj, hidden), "post_norm")
            x = [a + b for a, b in zip(x, branch)]
        out.append([a * scale for a in x])
    return out


def block(xs, i, case):
    """One of Nemotron-H's blocks: x += Mamba-2, attention or an FFN, of norm(x)."""
    prefix, kind = f"blk.{i}.", case["blocks"][i]
    inputs = [norm(x, vector(prefix + "attn_norm.weight", DIM, 1)) for x in xs]
    if kind == "M":
        states = mamba2(inputs, prefix, case)
        o = matrix(prefix + "ssm_out.weight", DIM, len(states[0]))
        out = [times(o, s) for s in states]
    elif kind == "*":
        size, queries, keys = case["head"], case["heads"], case["kv"]
        q, k, v = ([split(times(matrix(f"{prefix}attn_{n}.weight", heads * size, DIM), x), size)
                    for x in inputs] for n, heads in (("q", queries), ("k", keys), ("v", keys)))
        o = matrix(prefix + "attn_output.weight", DIM, queries * size)
        out = []
        for p in range(len(xs)):
            mixed = []
            for h in range(queries):
                g = h * keys // queries
                w = [math.exp(sum(a * b for a, b in zip(q[p][h], k[t][g])) / math.sqrt(size))
                     for t in range(p + 1)]
                mixed += [sum(w[t] * v[t][g][e] for t in range(p + 1)) / sum(w)
                          for e in range(size)]
            out.append(times(o, mixed))
    elif kind == "E":
        out = [experts_of(x, prefix, case) for x in inputs]
    else:
        up = matrix(prefix + "ffn_up.weight", FFN, DIM)
        down = matrix(prefix + "ffn_down.weight", DIM, FFN)
        out = [times(down, [max(0, u)**2 for u in times(up, x)]) for x in inputs]
    return [[a + b for a, b in zip(x, y)] for x, y in zip(xs, out)]


def main():
    table = matrix("token_embd.weight", VOCAB, DIM)
    for name, of in CASES.items():
        xs = [[v * of.get("embedding", 1) for v in table[token]] for token in TOKENS]
        if "inputs" in of:
            of["given"] = [inputs_of(token, x, of) for token, x in zip(TOKENS, xs)]
        for i in range(len(of["blocks"]) if "blocks" in of else of["layers"]):
            xs = (block if "blocks" in of else layer)(xs, i, of)
        head = table if of["tied"] else matrix("output.weight", VOCAB, DIM)
        weight = vector(of.get("output_norm", "output_norm") + ".weight", DIM, 1)
        last = norm(xs[-1], weight, of.get("centred"))
        logits = times(head, last)
        logits = [capped(v * of.get("logits", 1), of.get("logit_cap")) for v in logits]
        print(name, ", ".join(f"{v:.6f}f" for v in logits))


if __name__ == "__main__":
    main()
