"""What the check scripts share: the files of a tree, C++ text without comments, and reporting."""

import os
import re
import sys
from pathlib import Path

SOURCE = (".h", ".cc")


def root_from_args():
    """The tree to check: the first argument, or the one this script lies in."""
    return Path(sys.argv[1]).resolve() if len(
        sys.argv) > 1 else Path(__file__).resolve().parent.parent


def files(root, suffixes):
    """Paths relative to root, without build folders and hidden ones (but .ci)."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(d for d in folders
                            if d == ".ci" or not d.startswith((".", "build", "__")))
        for name in sorted(names):
            if name.endswith(suffixes):
                yield (Path(folder) / name).relative_to(root)


_NOT_CODE = re.compile(r"""
    //[^\n]* | /\*.*?\*/                          # comments
  | R"(?P<delimiter>[^()\s]*)\(.*?\)(?P=delimiter)"   # raw strings
  | "(?:\\.|[^"\\\n])*"                           # strings
  | (?<![0-9a-fA-F])'(?:\\.|[^'\\\n])+'           # characters, but not the ' in 1'000
""", re.VERBOSE | re.DOTALL)


def code_only(text):
    """C++ text with comments and literals blanked; line numbers stay."""
    return _NOT_CODE.sub(lambda m: re.sub(r"[^\n]", " ", m.group()), text)


def finish(name, found, checked):
    """Prints what was found, one line each, and exits: 1 if there is anything. Checking nothing is
    an error.
    """
    for line in found:
        print(line)
    if not checked:
        sys.exit(f"{name}: nothing to check here: is this the right tree?")
    print(f"{name}: {checked} files, {len(found)} violations")
    sys.exit(1 if found else 0)
