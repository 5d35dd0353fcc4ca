#!/usr/bin/env python3
"""Holds the C++ sources against .clang-format, and all other code against its width. To mend what
it finds in C++: clang-format -i FILE...

Usage: check_format.py [TREE]

Python, shell and CMake are as wide as C++, whose string literals the formatter does not break. Not
counted is what has no place to break: a line without spaces, the lines of a long text of Python or
of a raw string (a template, another program), and what clang-format is told to leave alone.
"""

import io
import re
import subprocess
import tokenize

import tree

_WIDTH = 100
_CODE = (".py", ".sh", ".cmake", "CMakeLists.txt")
_BETWEEN = {tokenize.NL, tokenize.COMMENT}
_BEFORE_STATEMENT = {tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, None}


def rows_of_texts(python):
    """The numbers of the lines that a string of several lines covers, but for docstrings."""
    rows, before = set(), None
    for token in tokenize.generate_tokens(io.StringIO(python).readline):
        if token.type == tokenize.STRING and token.end[0] > token.start[0]:
            if before not in _BEFORE_STATEMENT:
                rows.update(range(token.start[0], token.end[0] + 1))
        if token.type not in _BETWEEN:
            before = token.type
    return rows


_LEFT_ALONE = re.compile(r'R"([^()\s]*)\(.*?\)\1"|// clang-format off.*?(// clang-format on|\Z)',
                         re.DOTALL)


def rows_left_alone(cpp):
    """The numbers of the lines that raw strings cover, or that clang-format leaves alone."""
    rows = set()
    for match in _LEFT_ALONE.finditer(cpp):
        first = cpp.count("\n", 0, match.start()) + 1
        rows.update(range(first, first + match.group().count("\n") + 1))
    return rows


def too_wide(path, text):
    exempt = ()
    if path.suffix in tree.SOURCE:
        exempt = rows_left_alone(text)
    elif path.suffix == ".py" or re.match("#!.*python", text):
        exempt = rows_of_texts(text)
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > _WIDTH and " " in line.strip() and number not in exempt:
            yield f"{path}:{number}: {len(line)} characters; wrap at {_WIDTH}"


def main():
    root = tree.root_from_args()
    paths = list(tree.files(root, tree.SOURCE))
    found, checked = [], len(paths)
    if paths:
        run = subprocess.run(["clang-format", "--dry-run", *map(str, paths)], cwd=root,
                             capture_output=True, text=True, check=True)
        lines = dict.fromkeys(re.findall(r"^(\S+:\d+):\d+: warning", run.stderr, re.MULTILINE))
        found = [f"{line}: not as clang-format has it" for line in lines]
    for path in tree.files(root, ""):
        with open(root / path, "rb") as file:
            starts = file.read(2)
        if path.name.endswith(_CODE + tree.SOURCE) or starts == b"#!":
            checked += path.suffix not in tree.SOURCE
            found += too_wide(path, (root / path).read_text())
    tree.finish("format", found, checked)


if __name__ == "__main__":
    main()
