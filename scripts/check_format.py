#!/usr/bin/env python3
"""Holds the C++ sources against .clang-format. To mend what it finds: clang-format -i FILE...

Usage: check_format.py [TREE]
"""

import re
import subprocess

import tree


def main():
    root = tree.root_from_args()
    paths = list(tree.files(root, tree.SOURCE))
    found = []
    if paths:
        run = subprocess.run(["clang-format", "--dry-run", *map(str, paths)], cwd=root, capture_output=True, text=True, check=True)
        lines = dict.fromkeys(re.findall(r"^(\S+:\d+):\d+: warning", run.stderr, re.MULTILINE))
        found = [f"{line}: not as clang-format has it" for line in lines]
    tree.finish("format", found, len(paths))


if __name__ == "__main__":
    main()
