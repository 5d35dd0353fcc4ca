#!/usr/bin/env python3
"""Checks the *.md files: the paths that they name exist, each folder has a README.md, links lead
somewhere; and that the files exist that comments of *.h and *.cc name.

Usage: check_docs.py [TREE]

A path is what stands in backticks or in a code block and begins with a folder of the repository, or
ends like one of its files (`wait.h`: beside the document or at the root). What a build makes
(build*/...) is not looked for.
"""

import re

import tree

_FENCE = re.compile(r"^\s*(```|~~~)")
_CODE = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
_LINK = re.compile(r"\[[^\]\n]*\]\(([^)\s]+)\)")
_OURS = re.compile(r"^[\w.*-]+\.(h|cc|cmake|md|py)$")
_COMMENT = re.compile(r"//(.*)")
_NAMED = re.compile(r"(?<![\w/.<*-])((?:[\w-]+/)*[\w-]+\.(?:h|cc|cmake|md|py|toml|service))\b")
_PLACEHOLDER = re.compile(
    r"[<>{}$%]|\.\.\.|(?<![A-Za-z])(FILE|PATH|NAME|FOLDER|DIR|ROOM)(?![A-Za-z])")
# Folders without a README of their own.
_NO_README = {"cmake", ".ci"}


def words_of(line, in_block):
    """(word, is it alone in its backticks)."""
    for code in [line] if in_block else _CODE.findall(line):
        words = code.split()
        for word in words:
            yield word, not in_block and len(words) == 1


def exists(root, folder, word):
    if "*" in word:
        return any(any(root.glob(pattern)) for pattern in (word, f"{folder}/{word}", f"*/{word}"))
    return (root / word).exists() or (root / folder / word).exists()


_WIDTH = 100  # of lines, but tables' and blocks' of code


def check_document(root, path, folders):
    in_block = False
    for number, line in enumerate((root / path).read_text().split("\n"), 1):
        if _FENCE.match(line):
            in_block = not in_block
            continue
        if len(line) > _WIDTH and not in_block and not line.lstrip().startswith(
            ("|", "#")) and not line.startswith("    ") and " " in line.strip():
            yield f"{path}:{number}: {len(line)} characters; wrap at {_WIDTH}"
        for word, alone in words_of(line, in_block):
            word = re.sub(r"^\./", "", word.strip("\"'(),;:")).split("#")[0].rstrip(".")
            word = re.sub(r":\d+$", "", word)
            if _PLACEHOLDER.search(word):
                continue
            rooted = "/" in word and word.split("/")[0] in folders
            if (rooted or (alone and _OURS.match(word))) and not exists(root, path.parent, word):
                yield f"{path}:{number}: {word} does not exist"
        for target in _LINK.findall(line) if not in_block else ():
            target = target.split("#")[0]
            if target and "://" not in target and not target.startswith("mailto:"):
                if not (root / path.parent / target).exists():
                    yield f"{path}:{number}: the link to {target} leads nowhere"


def check_comments(root, path):
    for number, line in enumerate((root / path).read_text().split("\n"), 1):
        for comment in _COMMENT.findall(line):
            for name in _NAMED.findall(comment):
                if not re.search(r"NAME|FILE", name) and not exists(root, path.parent, name):
                    yield f"{path}:{number}: {name} does not exist"


def main():
    root = tree.root_from_args()
    folders = {
        p.name for p in root.iterdir()
        if p.is_dir() and (p.name == ".ci" or not p.name.startswith((".", "build")))
    }
    found, checked = [], 0
    for path in tree.files(root, ".md"):
        checked += 1
        found += check_document(root, path, folders)
    for path in tree.files(root, tree.SOURCE):
        found += check_comments(root, path)
    if not (root / "README.md").exists():
        found.append("README.md: missing")
    rooms = {path.parent.as_posix() for path in tree.files(root, "CMakeLists.txt")} - {"."}
    for folder in sorted(folders - _NO_README | rooms):
        if any((root / folder).iterdir()) and not (root / folder / "README.md").exists():
            found.append(
                f"{folder}/: has no README.md (ten lines: purpose, what it may include, which file"
                " to read first)")
    tree.finish("docs", found, checked)


if __name__ == "__main__":
    main()
