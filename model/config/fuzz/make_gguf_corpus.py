#!/usr/bin/env python3
"""Writes the corpus of gguf_fuzz.cc into gguf/ beside this script: small whole models and metadata
of every type.
"""
import pathlib
import struct

U8, I8, U16, I16, U32, I32, F32, BOOL, STRING, ARRAY, U64, I64, F64 = range(13)
PACK = {
    U8: "B", I8: "b", U16: "H", I16: "h", U32: "I", I32: "i", F32: "f", BOOL: "B", U64: "Q",
    I64: "q", F64: "d"
}
TYPE_F32, TYPE_F16, TYPE_Q4_0, TYPE_Q8_0, TYPE_BF16 = 0, 1, 2, 8, 30
TYPE_Q5_1, TYPE_IQ4_NL, TYPE_MXFP4 = 7, 20, 39
# Weights and bytes of a block of each quantised type.
BLOCKS = {
    TYPE_Q4_0: (32, 18), 3: (32, 20), 6: (32, 22), TYPE_Q5_1: (32, 24), 10: (256, 84),
    11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210), TYPE_IQ4_NL: (32, 18),
    23: (256, 136), TYPE_MXFP4: (32, 17)
}
ALIGNMENT = 32


def text(s):
    return struct.pack("<Q", len(s.encode())) + s.encode()


def value(kind, v):
    if kind == STRING:
        return text(v)
    if kind == ARRAY:  # (element kind, values)
        return struct.pack("<IQ", v[0], len(v[1])) + b"".join(value(v[0], x) for x in v[1])
    return struct.pack("<" + PACK[kind], v)


def pad(b):
    return b + bytes(-len(b) % ALIGNMENT)


def gguf(keys, tensors=(), version=3):
    head = b"GGUF" + struct.pack("<IQQ", version, len(tensors), len(keys))
    for name, kind, v in keys:
        head += text(name) + struct.pack("<I", kind) + value(kind, v)
    data = b""
    for name, dims, kind, raw in tensors:
        head += text(name) + struct.pack("<I", len(dims)) + struct.pack(f"<{len(dims)}Q", *dims)
        head += struct.pack("<IQ", kind, len(data))
        data += pad(raw)
    return pad(head) + data


def tensor(name, dims, kind):
    n = 1
    for d in dims:
        n *= d
    if kind in BLOCKS:
        weights, size = BLOCKS[kind]
        return name, dims, kind, bytes(range(1, 17)) * (n // weights * size // 16) + bytes(
            n // weights * size % 16)
    raw = {
        TYPE_F32: struct.pack("<f", 0.5) * n,
        TYPE_F16: struct.pack("<H", 0x3800) * n,
        TYPE_BF16: struct.pack("<H", 0x3F00) * n,
        TYPE_Q8_0: (struct.pack("<H", 0x3800) + b"\x01" * 32) * (n // 32),
    }[kind]
    return name, dims, kind, raw


def quantised_model():
    """Matrices of several types in blocks of 32, as mixtures have them."""
    keys = [
        ("general.architecture", STRING, "llama"),
        ("llama.block_count", U32, 1),
        ("llama.context_length", U32, 64),
        ("llama.embedding_length", U32, 32),
        ("llama.feed_forward_length", U32, 32),
        ("llama.attention.head_count", U32, 2),
        ("llama.attention.head_count_kv", U32, 1),
        ("llama.attention.layer_norm_rms_epsilon", F32, 1e-5),
        # a set of one part
        ("split.no", U16, 0),
        ("split.count", U16, 1),
        ("split.tensors.count", I32, 12),
    ]
    b = "blk.0."
    return gguf(keys, [
        tensor("token_embd.weight", [32, 3], TYPE_IQ4_NL),
        tensor("output.weight", [32, 3], TYPE_Q8_0),
        tensor("output_norm.weight", [32], TYPE_F32),
        tensor(b + "attn_norm.weight", [32], TYPE_F32),
        tensor(b + "attn_q.weight", [32, 32], TYPE_Q4_0),
        tensor(b + "attn_k.weight", [32, 16], TYPE_Q4_0),
        tensor(b + "attn_v.weight", [32, 16], TYPE_Q5_1),
        tensor(b + "attn_output.weight", [32, 32], TYPE_MXFP4),
        tensor(b + "ffn_norm.weight", [32], TYPE_F32),
        tensor(b + "ffn_gate.weight", [32, 32], TYPE_Q4_0),
        tensor(b + "ffn_up.weight", [32, 32], TYPE_Q4_0),
        tensor(b + "ffn_down.weight", [32, 32], TYPE_Q5_1),
    ])


# Of model("llama"), as model/config/description.cc writes it.
DESCRIPTION = """architecture 0 llama
layers 1
first_layer 0
ends true
dim 4
vocab 3
trained_context 64
norm_epsilon 1e-05
tied_embeddings true
kind 0
layer.dim 4
ffn 8
heads 2
kv_heads 1
head_size 2
layer.norm_epsilon 1e-05
tensor 0 attn_norm.weight norm 1 x 4
tensor 1 attn_q.weight matrix 4 x 4
tensor 2 attn_k.weight matrix 2 x 4
tensor 3 attn_v.weight matrix 2 x 4
tensor 9 attn_output.weight matrix 4 x 4
tensor 10 ffn_norm.weight norm 1 x 4
tensor 11 ffn_gate.weight matrix 8 x 4
tensor 12 ffn_up.weight matrix 8 x 4
tensor 13 ffn_down.weight matrix 4 x 8
op rms_norm attn_norm.weight
op qkv attn_norm.weight
op attention attn_norm.weight
op o attn_norm.weight
op rms_norm ffn_norm.weight
op silu_gate attn_norm.weight
op down attn_norm.weight
rope.pairing interleaved
rope.dim 2
rope.base 10000
rope.scaling none
rope.scale_factor 1
rope.original_context 64
rope.yarn_ext_factor 1
rope.yarn_attn_factor 1
rope.yarn_beta_fast 32
rope.yarn_beta_slow 1
rope.freq_factors 
attention_divisor 1.4142135623730951
kind_of 0
type.embedding F32
type.head F32
type.layer 0 {types}
"""


def model(arch, extra_keys=(), extra_tensors=(), part=None, without=()):
    def k(suffix):
        return f"{arch}.{suffix}"

    keys = [
        ("general.architecture", STRING, arch),
        (k("block_count"), U32, 1),
        (k("context_length"), U32, 64),
        (k("embedding_length"), U32, 4),
        (k("feed_forward_length"), U32, 8),
        (k("attention.head_count"), U32, 2),
        (k("attention.head_count_kv"), U32, 1),
        (k("attention.layer_norm_epsilon" if arch in ("command-r", "cohere2") else
           "attention.layer_norm_rms_epsilon"), F32, 1e-5),
    ]
    extra = [(k(name), kind, v) for name, kind, v in extra_keys]
    keys = [key for key in keys if key[0] not in [name for name, _, _ in extra]] + extra
    b = "blk.0."
    tensors = [
        tensor("token_embd.weight", [4, 3], TYPE_F32),
        tensor("output_norm.weight", [4], TYPE_F32),
        tensor(b + "attn_norm.weight", [4], TYPE_F32),
        tensor(b + "attn_q.weight", [4, 4], TYPE_F16),
        tensor(b + "attn_k.weight", [4, 2], TYPE_F16),
        tensor(b + "attn_v.weight", [4, 2], TYPE_F16),
        tensor(b + "attn_output.weight", [4, 4], TYPE_F16),
        tensor(b + "ffn_norm.weight", [4], TYPE_F32),
        tensor(b + "ffn_gate.weight", [4, 8], TYPE_BF16),
        tensor(b + "ffn_up.weight", [4, 8], TYPE_BF16),
        tensor(b + "ffn_down.weight", [8, 4], TYPE_F16),
    ]
    tensors = [t for t in tensors if not t[0].endswith(tuple(without))] + list(extra_tensors)
    if part is not None:  # as `larder split` writes it
        f32 = " ".join(["F32"] * 14)
        own = ("F32 F16 F16 F16 F32 F32 F32 F32 F32 F16 F32 BF16 BF16 F16"
               if part == "stage" else f32)
        description = DESCRIPTION.format(types=own)
        stage = part == "stage"
        tensors = [t for t in tensors if t[0].startswith("blk.") == stage]
        keys += [("larder.split.part", STRING, part), ("larder.split.index", U32, 0),
                 ("larder.split.count", U32, 1), ("larder.split.first_layer", U32, 0),
                 ("larder.split.layers", U32, int(stage)), ("larder.split.vocab", U32, 3),
                 ("larder.split.tied", BOOL, 1), ("larder.split.qkv_bias", BOOL, 0),
                 ("larder.split.fingerprint", U64, 7),
                 ("larder.split.types", ARRAY, (I32, [0] * (2 + 14))),
                 ("larder.split.description", STRING, description)]
    return gguf(keys, tensors)


def with_experts(arch, extra_tensors=(), shared=0, bias=False, gated=False, count=3, keys=(),
                 without=(), block=0):
    b = f"blk.{block}."
    tensors = [
        tensor(b + "ffn_gate_inp.weight", [4, count], TYPE_F32),
        tensor(b + "ffn_gate_exps.weight", [4, 32, count], TYPE_F16),
        tensor(b + "ffn_up_exps.weight", [4, 32, count], TYPE_F16),
        tensor(b + "ffn_down_exps.weight", [32, 4, count], TYPE_Q8_0),
    ]
    if bias:
        tensors += [tensor(b + "exp_probs_b.bias", [count], TYPE_F32)]
    if shared:
        tensors += [tensor(b + "ffn_gate_shexp.weight", [4, shared], TYPE_F16),
                    tensor(b + "ffn_up_shexp.weight", [4, shared], TYPE_F16),
                    tensor(b + "ffn_down_shexp.weight", [shared, 4], TYPE_Q8_0)]
    if gated:
        tensors += [tensor(b + "ffn_gate_inp_shexp.weight", [4], TYPE_F32)]
    keys = [("expert_count", U32, count), ("expert_used_count", U32, 2),
            ("expert_feed_forward_length", U32, 32), ("expert_gating_func", U32, 1 + bias), *keys]
    if shared:
        keys += [("expert_shared_feed_forward_length", U32, shared)]
    tensors = [t for t in tensors if not t[0].endswith(tuple(without))]
    return model(arch, keys, [*extra_tensors, *tensors],
                 without=("ffn_gate.weight", "ffn_up.weight", "ffn_down.weight", *without))


def families():
    """A file of each family that has more than llama, or less."""
    def norm(name, n=4):
        return tensor(f"blk.0.{name}.weight", [n], TYPE_F32)

    def biases():
        return [tensor(f"blk.0.attn_{x}.bias", [n], TYPE_F32)
                for x, n in (("q", 4), ("k", 2), ("v", 2))]

    behind = [norm("post_attention_norm"), norm("post_ffw_norm")]
    heads = [norm("attn_q_norm", 2), norm("attn_k_norm", 2)]
    rows = [norm("attn_q_norm", 4), norm("attn_k_norm", 2)]
    up = tensor("blk.0.ffn_up.weight", [4, 16], TYPE_BF16)
    before, gate_up = ("attn_norm.weight", "ffn_norm.weight"), ("ffn_gate.weight", "ffn_up.weight")
    mamba = [("ssm.conv_kernel", U32, 2), ("ssm.state_size", U32, 16),
             ("ssm.group_count", U32, 1), ("ssm.time_step_rank", U32, 1),
             ("ssm.inner_size", U32, 32)]
    delta = mamba + [("full_attention_interval", U32, 4)]
    delta_rule = [
        norm("post_attention_norm"), norm("ssm_norm", 32),
        tensor("blk.0.ssm_conv1d.weight", [2, 64], TYPE_F32),
        tensor("blk.0.ssm_dt.bias", [1], TYPE_F32),
        ("blk.0.ssm_a", [1], TYPE_F32, struct.pack("<f", -0.5)),
        tensor("blk.0.ssm_out.weight", [32, 4], TYPE_F16)
    ]
    projections = [tensor("blk.0.attn_qkv.weight", [4, 64], TYPE_F16),
                   tensor("blk.0.attn_gate.weight", [4, 32], TYPE_F16)]
    rates = [tensor("blk.0.ssm_alpha.weight", [4, 1], TYPE_F32),
             tensor("blk.0.ssm_beta.weight", [4, 1], TYPE_F32)]
    both_rates = tensor("blk.0.ssm_ba.weight", [4, 2], TYPE_F32)
    attention = ("attn_q.weight", "attn_k.weight", "attn_v.weight", "attn_output.weight")
    convolution = [("attention.head_count_kv", ARRAY, (I32, [0])), ("shortconv.l_cache", U32, 3)]
    short_convolution = [
        tensor("token_embd_norm.weight", [4], TYPE_F32),
        tensor("blk.0.shortconv.in_proj.weight", [4, 12], TYPE_F16),
        tensor("blk.0.shortconv.out_proj.weight", [4, 4], TYPE_F16),
        tensor("blk.0.shortconv.conv.weight", [3, 4], TYPE_F32)
    ]
    state_space = [
        tensor("blk.0.ssm_in.weight", [4, 97], TYPE_F16),
        tensor("blk.0.ssm_out.weight", [32, 4], TYPE_F16),
        tensor("blk.0.ssm_conv1d.weight", [2, 64], TYPE_F32),
        tensor("blk.0.ssm_conv1d.bias", [64], TYPE_F32),
        tensor("blk.0.ssm_dt.bias", [1], TYPE_F32),
        ("blk.0.ssm_a", [1, 1], TYPE_F32, struct.pack("<f", -0.5)),
        tensor("blk.0.ssm_d", [1, 1], TYPE_F32),
    ]
    context = ("rope.scaling.original_context_length", U32, 16)
    window = ("attention.sliding_window", U32, 32)
    return {
        "arcee": model("arcee", without=("ffn_gate.weight",)),
        "command-r": model("command-r", [("logit_scale", F32, 0.25)], without=("ffn_norm.weight",)),
        "command-r-norms": model("command-r", [], [
            tensor("blk.0.attn_q_norm.weight", [2, 2], TYPE_F32),
            tensor("blk.0.attn_k_norm.weight", [2, 1], TYPE_F32)
        ], without=("ffn_norm.weight",)),
        "ernie4_5": model("ernie4_5"),
        "exaone4": model("exaone4", [], behind + heads, without=before),
        "exaone4-windows": model("exaone4", [
            ("attention.sliding_window", U32, 32), ("rope.freq_base_swa", F32, 5e4),
            ("attention.sliding_window_pattern", ARRAY, (BOOL, [1]))], behind + heads,
                                 without=before),
        "cohere2": model("cohere2", [("logit_scale", F32, 0.25), window],
                         without=("ffn_norm.weight",)),
        "gemma": model("gemma"),
        "gemma2": model("gemma2", [("attn_logit_softcapping", F32, 50.0),
                                   ("final_logit_softcapping", F32, 30.0), window], behind),
        "gemma3": model("gemma3", [("rope.scaling.factor", F32, 8.0), window,
                                   ("rope.freq_base_swa", F32, 1e4)], behind + heads),
        "gemma4": model("gemma4", [("final_logit_softcapping", F32, 30.0), window,
                                   ("attention.sliding_window_pattern", ARRAY, (BOOL, [0])),
                                   ("attention.key_length_swa", U32, 2),
                                   ("attention.value_length_swa", U32, 2),
                                   ("rope.dimension_count_swa", U32, 2)],
                        behind + heads + [norm("layer_output_scale", 1),
                                          tensor("rope_freqs.weight", [1], TYPE_F32)],
                        without=("attn_v.weight",)),
        "gemma4-e2b": model("gemma4", [
            ("block_count", U32, 2), ("attention.shared_kv_layers", U32, 1),
            ("embedding_length_per_layer_input", U32, 3)
        ], [
            *behind, *heads, norm("layer_output_scale", 1),
            *(tensor(f"blk.{i}.{name}.weight", dims, TYPE_F32) for i in (0, 1)
              for name, dims in (("inp_gate", [4, 3]), ("proj", [3, 4]), ("post_norm", [4]))),
            *(tensor(f"blk.1.{name}.weight", dims, TYPE_F32)
              for name, dims in (("attn_norm", [4]), ("attn_q", [4, 4]), ("attn_output", [4, 4]),
                                 ("attn_q_norm", [2]), ("ffn_norm", [4]), ("ffn_gate", [4, 8]),
                                 ("ffn_up", [4, 8]), ("ffn_down", [8, 4]),
                                 ("post_attention_norm", [4]), ("post_ffw_norm", [4]),
                                 ("layer_output_scale", [1]))),
            tensor("per_layer_token_embd.weight", [6, 3], TYPE_F32),
            tensor("per_layer_model_proj.weight", [4, 6], TYPE_F32),
            tensor("per_layer_proj_norm.weight", [3], TYPE_F32)
        ]),
        "gemma4-experts": with_experts("gemma4", [
            *behind, *heads, norm("layer_output_scale", 1), *map(norm, (
                "pre_ffw_norm_2", "post_ffw_norm_1", "post_ffw_norm_2")),
            tensor("blk.0.ffn_gate_inp.scale", [4], TYPE_F32),
            tensor("blk.0.ffn_down_exps.scale", [3], TYPE_F32),
            *(tensor(f"blk.0.{name}.weight", dims, TYPE_F32)
              for name, dims in (("ffn_gate", [4, 8]), ("ffn_up", [4, 8]), ("ffn_down", [8, 4])))
        ]),
        "glm4": model("glm4", [("rope.dimension_count", U32, 2)], behind + biases() + [up],
                      without=gate_up),
        "granite": model("granite", [("embedding_scale", F32, 6.0), ("residual_scale", F32, 0.5),
                                     ("attention.scale", F32, 0.25), ("logit_scale", F32, 4.0),
                                     ("rope.scaling.finetuned", BOOL, 0)]),
        "hunyuan-dense": model("hunyuan-dense", [], heads),
        "mistral3": model("mistral3", [context, ("rope.scaling.type", STRING, "yarn"),
                                       ("rope.scaling.factor", F32, 4.0),
                                       ("rope.scaling.yarn_log_multiplier", F32, 1.0),
                                       ("attention.temperature_scale", F32, 0.1)]),
        "mistral-windows": model("llama", [("attention.sliding_window", U32, 32),
                                           ("attention.sliding_window_pattern", U32, 2)]),
        "olmo2": model("olmo2", [], behind + [norm("attn_q_norm", 4), norm("attn_k_norm", 2)],
                       without=before),
        "phi3": model("phi3", [context, ("rope.scaling.attn_factor", F32, 1.2)], [
            tensor("blk.0.attn_qkv.weight", [4, 8], TYPE_F16), up,
            tensor("rope_factors_short.weight", [1], TYPE_F32),
            tensor("rope_factors_long.weight", [1], TYPE_F32)
        ], without=("attn_q.weight", "attn_k.weight", "attn_v.weight", *gate_up)),
        "qwen35": model("qwen35", delta, [*delta_rule, *projections, *rates],
                        without=(*attention, "ffn_norm.weight")),
        "qwen35moe": with_experts("qwen35moe", [*delta_rule, *projections, *rates], shared=32,
                                  gated=True, keys=delta, without=(*attention, "ffn_norm.weight")),
        "qwen3next": with_experts("qwen3next", [*delta_rule, *projections, both_rates], shared=32,
                                  gated=True, keys=delta, without=(*attention, "ffn_norm.weight")),
        "qwen3next-old": with_experts(
            "qwen3next", [*delta_rule, tensor("blk.0.ssm_in.weight", [4, 96], TYPE_F16),
                          both_rates], shared=32, gated=True, keys=delta,
            without=(*attention, "ffn_norm.weight")),
        "falcon-h1": model("falcon-h1", mamba + [
            ("attention.key_length", U32, 16), ("attention.value_length", U32, 16)
        ], [
            tensor("blk.0.attn_q.weight", [4, 32], TYPE_F16),
            tensor("blk.0.attn_k.weight", [4, 16], TYPE_F16),
            tensor("blk.0.attn_v.weight", [4, 16], TYPE_F16),
            tensor("blk.0.attn_output.weight", [32, 4], TYPE_F16),
            tensor("blk.0.ffn_norm", [4], TYPE_F32), *state_space
        ], without=(*attention, "ffn_norm.weight")),
        "granitehybrid": model("granitehybrid", mamba + [
            ("attention.head_count_kv", ARRAY, (I32, [0])), ("residual_scale", F32, 0.5)
        ], [*state_space, norm("ssm_norm", 32)], without=attention),
        "granitehybrid-experts": with_experts("granitehybrid",
                                              [*state_space, norm("ssm_norm", 32)], shared=32,
                                              keys=mamba + [("attention.head_count_kv", ARRAY,
                                                             (I32, [0]))], without=attention),
        "lfm2": model("lfm2", convolution, short_convolution,
                      without=(*attention, "output_norm.weight")),
        "lfm2moe": with_experts("lfm2moe", short_convolution, bias=True, keys=convolution,
                                without=(*attention, "output_norm.weight")),
        "glm4moe": with_experts("glm4moe", [norm("post_attention_norm"), *biases()], shared=32,
                                bias=True, without=("ffn_norm.weight",)),
        "bailingmoe2": with_experts("bailingmoe2", [
            tensor("blk.0.attn_qkv.weight", [4, 8], TYPE_F16), *heads
        ], shared=32, bias=True, count=4, keys=[("expert_group_count", U32, 2),
                                                ("expert_group_used_count", U32, 1)],
                                    without=attention[:3]),
        "mixtral-apart": with_experts("llama", [
            tensor(f"blk.0.ffn_{x}.{e}.weight", dims, kind) for e in range(3)
            for x, dims, kind in (("gate", [4, 32], TYPE_F16), ("up", [4, 32], TYPE_F16),
                                  ("down", [32, 4], TYPE_Q8_0))
        ], without=("_exps.weight",)),
        "mixtral-fused": with_experts("llama", [tensor("blk.0.ffn_gate_up_exps.weight",
                                                       [4, 64, 3], TYPE_F16)],
                                      without=("ffn_gate_exps.weight", "ffn_up_exps.weight")),
        "deepseek2": with_experts("deepseek2", [
            tensor("blk.0.attn_q_a.weight", [4, 3], TYPE_F16),
            tensor("blk.0.attn_q_a_norm.weight", [3], TYPE_F32),
            tensor("blk.0.attn_q_b.weight", [3, 10], TYPE_F16),
            tensor("blk.0.attn_kv_a_mqa.weight", [4, 6], TYPE_F16),
            tensor("blk.0.attn_kv_a_norm.weight", [4], TYPE_F32),
            tensor("blk.0.attn_k_b.weight", [3, 4, 2], TYPE_F16),
            tensor("blk.0.attn_v_b.weight", [4, 2, 2], TYPE_F16),
        ], shared=32, bias=True, keys=[
            ("attention.key_length", U32, 6), ("attention.value_length", U32, 4),
            ("attention.key_length_mla", U32, 5), ("attention.value_length_mla", U32, 2),
            ("attention.kv_lora_rank", U32, 4), ("attention.q_lora_rank", U32, 3),
            ("rope.dimension_count", U32, 2), context, ("rope.scaling.type", STRING, "yarn"),
            ("rope.scaling.factor", F32, 4.0), ("rope.scaling.yarn_log_multiplier", F32, 0.1)
        ], without=("attn_q.weight", "attn_k.weight", "attn_v.weight")),
        "dots1": with_experts("dots1", heads, shared=32, bias=True),
        "nemotron_h": model("nemotron_h", mamba + [
            ("block_count", U32, 2), ("attention.head_count_kv", ARRAY, (I32, [0, 0])),
            ("feed_forward_length", ARRAY, (I32, [0, 8]))
        ], [*state_space, norm("ssm_norm", 32), tensor("blk.1.attn_norm.weight", [4], TYPE_F32),
            tensor("blk.1.ffn_up.weight", [4, 8], TYPE_BF16),
            tensor("blk.1.ffn_down.weight", [8, 4], TYPE_F16)],
                            without=(*attention, "ffn_norm.weight", "ffn_gate.weight",
                                     "ffn_up.weight", "ffn_down.weight")),
        "nemotron_h_moe": with_experts("nemotron_h_moe", [
            *state_space, norm("ssm_norm", 32), tensor("blk.1.attn_norm.weight", [4], TYPE_F32)
        ], shared=32, bias=True, block=1, keys=mamba + [
            ("block_count", U32, 2), ("attention.head_count_kv", ARRAY, (I32, [0, 0])),
            ("feed_forward_length", ARRAY, (I32, [0, 32]))
        ], without=(*attention, "ffn_norm.weight", "ffn_gate_exps.weight",
                    "ffn_gate_shexp.weight")),
        "ernie4_5-moe": with_experts("ernie4_5-moe", shared=32, bias=True),
        "granitemoe": with_experts("granitemoe", shared=32),
        "gpt-oss": with_experts("gpt-oss", [
            *biases(), norm("post_attention_norm"), norm("attn_sinks", 2),
            tensor("blk.0.attn_output.bias", [4], TYPE_F32),
            tensor("blk.0.ffn_gate_inp.bias", [3], TYPE_F32),
            tensor("blk.0.ffn_gate_exps.bias", [32, 3], TYPE_F32),
            tensor("blk.0.ffn_up_exps.bias", [32, 3], TYPE_F32),
            tensor("blk.0.ffn_down_exps.bias", [4, 3], TYPE_F32)
        ], without=("ffn_norm.weight",), keys=[
            window, context, ("rope.scaling.type", STRING, "yarn"),
            ("rope.scaling.factor", F32, 4.0)]),
        "minimax-m2": with_experts("minimax-m2", rows, bias=True),
        "mixtral": with_experts("llama"),
        "olmoe": with_experts("olmoe", rows),
        "qwen2moe": with_experts("qwen2moe", biases(), shared=32, gated=True),
        "qwen3moe": with_experts("qwen3moe", heads),
        "seed_oss": model("seed_oss", [], biases() + [norm("post_attention_norm")],
                          without=("ffn_norm.weight",)),
        "smollm3": model("smollm3", [("rope.freq_base", F32, 2e6)]),
    }


def main():
    every_type = [("u8", U8, 1), ("i8", I8, -1), ("u16", U16, 2), ("i16", I16, -2), ("u32", U32, 3),
                  ("i32", I32, -3), ("f32", F32, 0.5), ("bool", BOOL, 1),
                  ("string", STRING, "text"), ("u64", U64, 4), ("i64", I64, -4), ("f64", F64, 0.25),
                  ("strings", ARRAY, (STRING, ["a", "", "bc"])), ("ints", ARRAY, (I32, [-1, 2])),
                  ("floats", ARRAY, (F32, [0.5])),
                  ("nested", ARRAY, (ARRAY, [(U8, [1, 2]), (STRING, ["x"])])),
                  ("general.alignment", U32, 64), ]
    yarn = [
        ("rope.scaling.type", STRING, "yarn"), ("rope.scaling.factor", F32, 4.0),
        ("rope.scaling.original_context_length", U32, 16), ("rope.freq_base", F32, 1e6),
    ]
    files = {
        "every-type": gguf(every_type),
        "version-2": gguf([("general.architecture", STRING, "llama")], version=2),
        **families(),
        "llama": model("llama", extra_tensors=[tensor("rope_freqs.weight", [1], TYPE_F32),
                                               tensor("output.weight", [4, 3], TYPE_F32)]),
        "llama-linear": model("llama", [("rope.scale_linear", F32, 2.0),
                                        ("attention.sliding_window", U32, 64)]),
        "qwen2-yarn": model("qwen2", yarn, [tensor("blk.0.attn_q.bias", [4], TYPE_F32),
                                            tensor("blk.0.attn_k.bias", [2], TYPE_F32),
                                            tensor("blk.0.attn_v.bias", [2], TYPE_F32)]),
        "qwen3": model("qwen3", [("attention.key_length", U32, 2),
                                 ("attention.value_length", U32, 2)], [
                                     tensor("blk.0.attn_q_norm.weight", [2], TYPE_F32),
                                     tensor("blk.0.attn_k_norm.weight", [2], TYPE_F32)
                                 ]),
        "q8": gguf([], [tensor("q", [64, 2], TYPE_Q8_0), ("k", [256, 1], 12, bytes(144))]),
        "quantised": quantised_model(),
        "blocks": gguf(
            [], [tensor(f"t{kind}", [weights, 2], kind) for kind, (weights, _) in BLOCKS.items()]),
        "part-stage": model("llama", part="stage"),
        "part-serving": model("llama", part="serving"),
        "truncated": model("llama")[:300],
        "vocabulary": gguf([("tokenizer.ggml.model", STRING, "llama"),
                            ("tokenizer.ggml.tokens", ARRAY,
                             (STRING, ["<unk>", "<s>", "</s>", "<0x0A>", "\u2581a"])),
                            ("tokenizer.ggml.scores", ARRAY, (F32, [0, 0, 0, 0, -1])),
                            ("tokenizer.ggml.token_type", ARRAY, (I32, [2, 3, 3, 6, 1]))]),
    }
    folder = pathlib.Path(__file__).parent / "gguf"
    folder.mkdir(exist_ok=True)
    for name, content in files.items():
        (folder / name).write_bytes(content)


if __name__ == "__main__":
    main()
