#!/usr/bin/env python3
"""Compiles each header twice at the beginning of a unit: it includes all that it needs and guards
itself.

Left out is what the build itself proves: a guarded header that its own source file includes before
anything else. What most headers include themselves, directly or not, is parsed once for them.
Before a header in a unit there may be others that it includes: each of them is sufficient by
itself, so they bring nothing that it would not get from them anyway. Usage: check_headers.py [TREE]
$CXX is the compiler (default: clang++, the faster at this, or c++)
"""

import os
import re
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import tree

# The project's own warnings (cmake/larder.cmake); an unused inline function of a header is none.
FLAGS = [
    "-std=c++20",
    "-fsyntax-only",
    "-Wall",
    "-Wextra",
    "-Wshadow",
    "-Wno-missing-field-initializers",
    "-Werror",
    # what tests get from cmake/larder.cmake
    '-DLARDER_SOURCE_DIR="."',
    '-DLARDER_BINARY_DIR="."',
    '-DLARDER_PROGRAM="."',
]


# Each takes a second or more to compile.
COMMON = ["base/error.h", "nlohmann/json.hpp", "gtest/gtest.h"]  # the first with {fmt}


def compile_alone(compiler, root, paths, parsed):
    """What is wrong with the headers, each of which includes those before it."""
    unit = "".join(f'#include "{path}"\n' * 2 for path in paths)
    run = subprocess.run([compiler, *FLAGS, f"-I{root}", *parsed, "-x", "c++", "-"], input=unit,
                         capture_output=True, text=True, check=False)
    if run.returncode == 0:
        return []
    if len(paths) > 1:
        return [
            problem for path in paths for problem in compile_alone(compiler, root, [path], parsed)
        ]
    errors = [line for line in run.stderr.splitlines() if "error:" in line]
    return [
        f"{paths[0]}: does not compile alone: {(errors or run.stderr.splitlines() or ['?'])[0]}"
    ]


class Parsed:
    """The options that give a unit the names of COMMON as if it had included them first; none of
    another compiler than clang.
    """

    def __init__(self, compiler, root, folder):
        self.compiler, self.root, self.folder, self.made = compiler, root, folder, {}

    def of(self, names):
        if not names or "clang" not in self.compiler:
            return []
        if names not in self.made:
            parsed = f"{self.folder}/common{len(self.made)}.pch"
            run = subprocess.run([
                self.compiler, *(flag for flag in FLAGS if flag != "-fsyntax-only"),
                f"-I{self.root}", "-x", "c++-header", "-", "-o", parsed
            ], input="".join(f"#include <{name}>\n" for name in names), text=True,
                                 capture_output=True, check=False)
            self.made[names] = ["-include-pch", parsed] if run.returncode == 0 else []
        return self.made[names]


def includes(root, path, known):
    """What a file includes, directly or not."""
    if path not in known:
        known[path] = set()
        if (root / path).is_file():
            for name in re.findall(r'^#include ["<](.*)[">]', (root / path).read_text(),
                                   re.MULTILINE):
                known[path] |= {name} | includes(root, name, known)
    return known[path]


def chains(paths, included):
    """(names of COMMON, headers): all paths, in lists in which each includes those before it and
    the same names.
    """
    result = []
    for path in sorted(paths, key=lambda path: (len(included[path]), path)):
        names = tuple(name for name in COMMON if name in included[path])
        fitting = [chain for of, chain in result if of == names and chain[-1] in included[path]]
        if fitting:
            max(fitting, key=lambda chain: len(included[chain[-1]])).append(path)
        else:
            result.append((names, [path]))
    return result


def bundled_folders(root):
    """Whose source files the build translates several at a time, so that a header may profit from
    what stands before it.
    """
    rules = root / "cmake/larder.cmake"
    if not rules.exists():
        return set()
    return set(
        re.search(r"set\(larder_unity_folders ([^)]*)\)", rules.read_text()).group(1).split())


def proven(root, path, bundled):
    source = root / path.with_suffix(".cc")
    if not source.exists() or (path.parts[0] in bundled and not source.stem.endswith("_datapath")):
        return False
    first = re.search(r'^#include ["<](.*)[">]', source.read_text(), re.MULTILINE)
    return first is not None and first.group(1) == path.as_posix() and "#pragma once" in (
        root / path).read_text()


def main():
    root = tree.root_from_args()
    compiler = os.environ.get("CXX") or shutil.which("clang++") or "c++"
    paths = list(tree.files(root, ".h"))
    bundled = bundled_folders(root)
    alone = [path.as_posix() for path in paths if not proven(root, path, bundled)]
    known = {}
    units = chains(alone, {path: includes(root, path, known) for path in alone})
    with tempfile.TemporaryDirectory() as folder, ThreadPoolExecutor(os.cpu_count()) as pool:
        parsed = Parsed(compiler, root, folder)
        options = [parsed.of(names) for names, _ in units]
        results = pool.map(lambda unit, given: compile_alone(compiler, root, unit[1], given), units,
                           options)
        found = [line for lines in results for line in lines]
    tree.finish("headers", found, len(paths))


if __name__ == "__main__":
    main()
