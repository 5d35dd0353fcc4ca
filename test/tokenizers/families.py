"""What the families publish as the pre-tokenizer of their tokenizer.json, as Hugging Face's library
takes it.

A list is a sequence: an expression whose matches are words, with the text between them; or one of
the library's own.
"""
DIGITS, BYTES = object(), object()  # Digits, each by itself; ByteLevel's own expression

ANY_CASE = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
SPACE = r"\s*[\r\n]+|\s+(?!\S)|\s+"
REST = r" ?[^\s\p{L}\p{N}]+"


def latin(numbers, rest=REST + r"[\r\n]*", contraction=ANY_CASE + "|",
          word=r"[^\r\n\p{L}\p{N}]?\p{L}+", space=SPACE):
    return f"{contraction}{word}|{numbers}|{rest}|{space}"


def cased(numbers, contraction=ANY_CASE + "?", rest=REST + r"[\r\n/]*", less="", before=""):
    high, low = (fr"[{kinds}\p{{Lm}}\p{{Lo}}\p{{M}}{less}]"
                 for kinds in (r"\p{Lu}\p{Lt}", r"\p{Ll}"))
    prefix = r"[^\r\n\p{L}\p{N}]?"
    return (f"{before}{prefix}{high}*{low}+{contraction}|{prefix}{high}+{low}*{contraction}|"
            f"{numbers}|{rest}|{SPACE}")


LLAMA3 = [latin(r"\p{N}{1,3}")]
QWEN2 = [latin(r"\p{N}")]
GPT2 = [BYTES]
EACH_NUMBER = [DIGITS, BYTES]
GPT4O = [cased(r"\p{N}{1,3}")]
MARK_AND_LATIN = (
    r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|""")
DEEPSEEK3_WORDS = MARK_AND_LATIN + r" ?[\p{P}\p{S}]+[\r\n]*|" + SPACE
HAN_AND_KANA = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
DEEPSEEK3 = [r"\p{N}{1,3}", HAN_AND_KANA, DEEPSEEK3_WORDS]
EAST_ASIAN = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
BLOOM = " ?[^(\\s|[.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c])]+"
CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af"
    "\u0370-\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5"
    "\u03f7-\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba"
    "\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45"
    "\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe"
    "\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102"
    "\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3"
    "\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06"
    "\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df"
    "\U0001e900-\U0001e943")

BY_NAME = {
    "default": [r"[\p{P}\$\+<=>\^~\|]+", BYTES, r"\p{N}+", r"[0-9][0-9][0-9]"],
    **dict.fromkeys(("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral",
                     "midm-2.0", "lfm2", "jina-v5-nano", "dbrx", "smaug-bpe", "chatglm-bpe",
                     "glm4"), LLAMA3),
    "jais-2": [
        latin(
            r"\p{N}{1,3}", space=r"\s*[\r\n]+|" +
            "|".join(fr"\s{{{count}}}(?!\S)"
                     for count in (512, 256, 128, 64, 32, 16, 8, 4, "1,2")) + r"|\s{1}")
    ],
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2",
                     "hunyuan", "solar-open", "grok-2"), QWEN2),
    **dict.fromkeys(("bailingmoe", "bailingmoe2", "llada-moe"), [
        r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*"
        r"|\s*[\r\n]|\s+(?!\S)|\s+"]),
    "qwen35": [
        latin(r"\p{N}", rest=r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*",
              word=r"[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+")
    ],
    "seed-coder": [latin(r"\p{N}{1}", rest=r" ?[^\s\p{L}\p{N}\r\n]+")],
    "ufakzeka": [latin(r"\p{N}", contraction="")],
    "laguna": [r"[^\n]+|[\n]+", *QWEN2],
    "minicpm5": [r"\p{N}{1,3}", latin(r"\p{N}+")],
    "exaone-moe": [
        latin(r"\p{N}", rest=REST + r"[\r\n/]?",
              word=r"[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+",
              space=r"\s*[\r\n]|\s+(?!\S)|\s+")
    ],
    **dict.fromkeys(("gpt-2", "phi-2", "mpt", "olmo", "jais", "trillion", "granite-docling",
                     "gigachat", "a.x-4.0", "mellum", "modern-bert", "exaone4", "jina-es",
                     "jina-de", "jina-v2-es", "jina-v2-de"), GPT2),
    **dict.fromkeys(("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone",
                     "minerva-7b", "mellum2"), EACH_NUMBER),
    **dict.fromkeys(("gpt-4o", "llama4", "kanana2", "minimax-m2", "talkie",
                     "granite-embed-multi-97m"), GPT4O),
    "tekken": [cased(r"\p{N}", contraction="")],
    **dict.fromkeys(("tiny_aya", "cohere2moe"), [r"\d{1,3}(?=(?:\d{3})*\b)", *GPT4O]),
    "kimi-k2": [
        cased(r"\p{N}{1,3}", rest=REST + r"[\r\n]*", less=r"&&[^\p{Han}]", before=r"[\p{Han}]+|")
    ],
    "youtu": ["[\uac00-\ud7a3\u3131-\u318e]+|"
              "[\uff01\u2026\u201c\u201d\u2018\u2019\u2014\uff1a\uff1b\uff0c\u3001-\u303f"
              "\ufe30-\ufe4f]+|[\u3105-\u312f]+|" + HAN_AND_KANA, cased(r"\p{N}")],
    "deepseek-llm": [
        "[\r\n]", fr"\s?[{CASED_LETTERS}]+", "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f"
        "\u3000-\u3002]+", r"\s+$", EAST_ASIAN, r"\p{N}+"
    ],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", EAST_ASIAN, DIGITS],
    **dict.fromkeys(("deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"), DEEPSEEK3),
    "spark2_5": [
        r"\p{N}{1,3}", HAN_AND_KANA, MARK_AND_LATIN + r" ?[\p{P}\p{S}]+|[\r\n]|\s+(?!\S)|\s+",
        DIGITS
    ],
    "afmoe": [r"\p{N}{1,3}(?=(?:\p{N}{3})*(?!\p{N}))",
              "[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff"
              "\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff"
              "\uac00-\ud7af\u1100-\u11ff]+", DEEPSEEK3_WORDS],
    "falcon": [r"[\p{P}\$\+<=>\^~\|`]+", BYTES, r"[0-9][0-9][0-9]"],
    **dict.fromkeys(("bloom", "poro-chat", "gpt3-finnish"), [BLOOM]),
    "viking": [BLOOM, DIGITS],
    "chameleon": [
        r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", r"([\t\n]|    |  )", DIGITS,
        r"[\p{P}!-/:-@\[-`{-~]", BYTES
    ],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
}


def pre_tokenizer(name):
    from tokenizers import Regex, pre_tokenizers
    own = {
        DIGITS: lambda: pre_tokenizers.Digits(individual_digits=True),
        BYTES: lambda: pre_tokenizers.Split(
            Regex(r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"),
            "isolated")
    }
    return pre_tokenizers.Sequence([
        own[step]() if step in own else pre_tokenizers.Split(Regex(step), "isolated")
        for step in BY_NAME[name]
    ])
