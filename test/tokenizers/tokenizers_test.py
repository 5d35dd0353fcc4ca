#!/usr/bin/env python3
"""Larder's pre-tokenizers and vocabularies against Hugging Face's library, over our own texts and
strings made by chance.

    tokenizers_test.py --program build/bench/tokenize_texts [--strings N] [--seed N]

Needs a Python with tokenizers and gguf: this one, or LARDER_ORACLE. LARDER_TOKENIZERS, where
vocabularies.py put them.
"""
import argparse
import importlib.util
import os
import pathlib
import struct
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent))
from larder_testing import programs  # noqa: E402

import families  # noqa: E402
import texts  # noqa: E402
import vocabularies  # noqa: E402


def ours(program, what, of, strings):
    given = b"".join(
        struct.pack("<I", len(text)) + text for text in (text.encode() for text in strings))
    run = subprocess.run([program, what, of], input=given, stdout=subprocess.PIPE)
    if run.returncode != 0:
        sys.exit(f"{program} {what} {of} ended with {run.returncode}")
    numbers, at, lists = memoryview(run.stdout).cast("I"), 0, []
    for _ in strings:
        lists.append(list(numbers[at + 1:at + 1 + numbers[at]]))
        at += 1 + numbers[at]
    return lists


def differences(what, strings, expected, found):
    """Says how many lists differ, and shows the shortest text of these."""
    wrong = [i for i in range(len(strings)) if expected[i] != found[i]]
    print(f"{what}: {len(strings)} texts, {len(wrong)} different", flush=True)
    if wrong:
        i = min(wrong, key=lambda n: len(strings[n]))
        print(f"  {strings[i]!r}\n  expected {expected[i]}\n  found    {found[i]}")
    return len(wrong)


def word_lengths(pre_tokenizer, strings):
    return [[len(word.encode()) for word, _ in pre_tokenizer.pre_tokenize_str(text)]
            for text in strings]


def check_words(program, strings):
    """The words of every name; names that publish the same are compared with each other."""
    expected, found, wrong = {}, {}, 0
    for name, published in families.BY_NAME.items():
        mine, key = ours(program, "words", name, strings), str(published)
        if key not in expected:
            expected[key], found[key] = word_lengths(families.pre_tokenizer(name), strings), mine
            wrong += differences(f"words of {name}", strings, expected[key], mine)
        elif mine != found[key]:
            wrong += differences(f"words of {name}", strings, expected[key], mine)
    # A comparison that can't fail is none: of two families that differ.
    if families.BY_NAME["qwen2"] and found[str(families.QWEN2)] == expected[str(families.LLAMA3)]:
        sys.exit("the texts do not tell qwen2 from llama-bpe")
    return wrong


def check_names(program):
    """The names here are the names of the program: it lists them when it refuses one."""
    refused = subprocess.run([program, "words", "no such name"], input="", capture_output=True,
                             text=True)
    listed = refused.stderr.strip().split(": ")[-1].split(", ")
    if sorted(listed) != sorted(families.BY_NAME):
        sys.exit("only in one of families.py and families.cc:"
                 f" {sorted(set(listed) ^ set(families.BY_NAME))}")


def check_ids(program, folder, scratch, strings):
    wrong = 0
    for vocabulary in vocabularies.VOCABULARIES:
        path = vocabularies.path_of(folder, vocabulary) if folder else None
        if path is None or not path.exists():
            print(
                f"skipped: ids of {vocabulary.package}: not in LARDER_TOKENIZERS; vocabularies.py"
                " gets it", flush=True,
            )
            continue
        tokenizer = vocabularies.reference(path)
        gguf = vocabularies.write_gguf(path, vocabulary.pre,
                                       pathlib.Path(scratch, f"{vocabulary.name}.gguf"))
        expected = [
            encoding.ids for encoding in tokenizer.encode_batch(strings, add_special_tokens=False)
        ]
        wrong += differences(f"ids of {vocabulary.name} ({vocabulary.pre})", strings, expected,
                             ours(program, "ids", str(gguf), strings))
    return wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--program", required=True)
    parser.add_argument("--strings", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    if any(importlib.util.find_spec(package) is None for package in ("tokenizers", "gguf")):
        oracle = os.environ.get("LARDER_ORACLE")
        if not oracle or os.environ.get("LARDER_IS_ORACLE"):
            programs.skip(
                "no tokenizers and gguf here or in LARDER_ORACLE: test/tokenizers/README.md")
        os.execve(oracle, [oracle, "-B", *sys.argv], {**os.environ, "LARDER_IS_ORACLE": "1"})
    strings = texts.fixed() + texts.every_character() + texts.by_chance(
        options.strings, options.seed)
    check_names(options.program)
    wrong = check_words(options.program, strings)
    with tempfile.TemporaryDirectory() as scratch:
        wrong += check_ids(options.program, os.environ.get("LARDER_TOKENIZERS"), scratch, strings)
    if wrong:
        sys.exit(f"{wrong} differences")


if __name__ == "__main__":
    main()
