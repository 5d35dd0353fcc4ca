#!/usr/bin/env python3
"""Compiles each header alone, twice in one unit: it includes all that it needs and guards itself.

Usage: check_headers.py [TREE]        $CXX is the compiler (default: clang++, the faster at this, or c++)
"""

import os
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor

import tree

# The project's own warnings (cmake/larder.cmake); an unused inline function of a header is none.
FLAGS = ["-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Wshadow", "-Wno-missing-field-initializers", "-Werror",
         '-DLARDER_SOURCE_DIR="."', '-DLARDER_BINARY_DIR="."', '-DLARDER_PROGRAM="."']  # what tests get from cmake/larder.cmake


def compile_alone(compiler, root, path):
    unit = f'#include "{path}"\n#include "{path}"\n'
    run = subprocess.run([compiler, *FLAGS, f"-I{root}", "-x", "c++", "-"], input=unit, capture_output=True, text=True,
                         check=False)
    if run.returncode == 0:
        return []
    errors = [line for line in run.stderr.splitlines() if "error:" in line]
    return [f"{path}: does not compile alone: {(errors or run.stderr.splitlines() or ['?'])[0]}"]


def main():
    root = tree.root_from_args()
    compiler = os.environ.get("CXX") or shutil.which("clang++") or "c++"
    paths = list(tree.files(root, ".h"))
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        results = pool.map(lambda path: compile_alone(compiler, root, path), paths)
        found = [line for lines in results for line in lines]
    tree.finish("headers", found, len(paths))


if __name__ == "__main__":
    main()
