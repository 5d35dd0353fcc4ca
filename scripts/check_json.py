#!/usr/bin/env python3
"""Finds JSON that does not come in by the one door, base/json_text.h, which bounds its depth and
its fields.

Usage: check_json.py [TREE]

Tests, fuzzers and benches may parse what they wrote themselves.
"""

import re

import tree

_DOOR = "base/json_text.cc"
_OWN = re.compile(r"(_test|_fuzz)\.cc$|_testing\.h$|^bench/")
_PARSES = re.compile(
    r"\b(?:json|Json|ordered_json|basic_json|JSON)\s*::\s*(parse|sax_parse|accept|from_\w+)\s*\("
    r"|>>\s*\w*[jJ]son\b|\b_json\b")


def check(root, path):
    for number, line in enumerate(tree.code_only((root / path).read_text()).split("\n")):
        match = _PARSES.search(line)
        if match:
            yield (f"{path}:{number + 1}: {match.group().strip()} parses JSON: use ParseJsonText or"
                   " TryParseJsonText (base/json_text.h)")


def main():
    root = tree.root_from_args()
    paths = [
        path for path in tree.files(root, tree.SOURCE)
        if str(path) != _DOOR and not _OWN.search(str(path))
    ]
    tree.finish("json", [line for path in paths for line in check(root, path)], len(paths))


if __name__ == "__main__":
    main()
