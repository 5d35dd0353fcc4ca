#!/usr/bin/env python3
"""Holds every #include, every namespace and every larder_folder() line against the table of floors
(DESIGN.md).

Usage: check_includes.py [TREE]
"""

import re

import tree

# Floor, and what a folder's sources may include. "folder" is all its headers, "folder/x.h" that one
# only. A folder of several subjects has rooms, "folder/room", and floors among them.
_RUNTIME = ["base", "model", "sync", "topology", "threadpool", "kernels"]
_NODES = ["weight_node", "attention_node"]
FLOORS = {
    "base": (0, []),
    "model/gguf": (1.0, ["base"]),
    "model/layer": (1.0, ["base"]),
    "model/families": (1.05, ["base", "model/layer"]),
    "model/step": (1.0, ["base"]),
    "model/config": (1.1, ["base", "model/gguf", "model/layer", "model/families"]),
    "model/pretokenizer": (1.15, ["base"]),
    "model/tokenizer": (1.2, ["base", "model/gguf", "model/pretokenizer"]),
    "model/jinja_language": (1.1, ["base"]),
    "model/jinja": (1.25, ["base", "model/tokenizer/text_piece.h", "model/jinja_language"]),
    "model/chat": (1.3, ["base", "model/tokenizer", "model/jinja_language", "model/jinja"]),
    "model/synth": (1.4, ["base", "model/gguf", "model/layer", "model/families", "model/config"]),
    "model/reference": (1.5,
                        ["base", "model/gguf", "model/layer", "model/families", "model/config",
                         "model/tokenizer"]),
    "sync": (1, ["base"]),
    "topology": (1, ["base"]),
    "threadpool": (2, ["base", "sync", "topology"]),
    "kernels/formats": (2.0, ["base", "model/gguf/formats.h"]),
    "kernels/jit": (2.1, ["base", "kernels/formats"]),
    "kernels/rows": (2.2, ["base", "kernels/formats", "kernels/jit"]),
    "kernels/recurrent": (2.3, ["base", "kernels/formats", "kernels/jit", "kernels/rows"]),
    "kernels/gemm": (2.3, ["base", "kernels/formats", "kernels/jit"]),
    "kernels/tune": (2.4, [
        "base", "model/gguf/formats.h", "kernels/formats", "kernels/rows", "kernels/gemm"
    ]),
    "rdma/common": (2.0, ["base", "sync", "topology"]),
    "rdma/proof": (2.1, ["base", "sync", "rdma/common"]),
    "rdma/control": (2.2, ["base", "sync", "rdma/common", "rdma/proof"]),
    "rdma/shm": (2.3, ["base", "sync", "rdma/common", "rdma/control"]),
    "rdma/tcp": (2.4, ["base", "sync", "topology", "rdma/common", "rdma/proof", "rdma/shm"]),
    "rdma/verbs": (2.5, ["base", "sync", "topology", "rdma/common", "rdma/shm", "rdma/tcp"]),
    "rdma/link": (2.6, [
        "base", "sync", "topology", "rdma/common", "rdma/proof", "rdma/control", "rdma/shm",
        "rdma/tcp", "rdma/verbs"
    ]),
    "weight_node/routing": (3.0, ["base", "model", "kernels"]),
    "weight_node": (3.1, _RUNTIME + ["weight_node/routing"]),
    "attention_node": (3, _RUNTIME),
    "pipeline/manifest": (4.0, ["base", "kernels/formats", "rdma", "attention_node/kv_region.h"]),
    "pipeline/prediction": (4.05, ["base", "model", "weight_node", "pipeline/manifest"]),
    "pipeline/plan": (4.1, _RUNTIME + ["rdma"] + _NODES +
                      ["pipeline/manifest", "pipeline/prediction"]),
    "pipeline/kv": (4.15, ["base", "model", "topology/scattered_bytes.h"]),
    "pipeline/kv_store": (4.2, ["base", "kernels", "topology", "pipeline/kv"]),
    "pipeline/residency": (4.25, [
        "base", "model", "topology", "threadpool", "pipeline/plan"]),
    "pipeline/stage": (4.3, _RUNTIME + ["rdma"] + _NODES + [
        "pipeline/plan", "pipeline/kv", "pipeline/kv_store", "pipeline/residency"]),
    "pipeline/chain": (
        4.4, _RUNTIME +
        ["rdma", "weight_node/routing/expert_counters.h", "pipeline/manifest", "pipeline/plan",
         "pipeline/kv", "pipeline/stage"]),
    "pipeline/engine": (
        4.5, _RUNTIME +
        ["rdma", "attention_node", "pipeline/plan", "pipeline/kv", "pipeline/kv_store",
         "pipeline/stage", "pipeline/chain"]),
    "pipeline/sequences": (4.6, [
        "base", "model", "pipeline/kv", "pipeline/kv_store", "pipeline/stage", "pipeline/engine"]),
    "pipeline/simulation": (4.65, ["base", "model", "topology", "attention_node", "pipeline/plan",
                                   "pipeline/kv", "pipeline/chain", "pipeline/engine"]),
    "pipeline/scheduler": (4.7, _RUNTIME + [
        "pipeline/plan", "pipeline/kv", "pipeline/kv_store", "pipeline/stage", "pipeline/chain",
        "pipeline/engine", "pipeline/sequences"]),
    "serving/sampling": (5.0, ["base", "model"]),
    "serving/grammar": (5.03, ["base"]),
    "serving/constraint": (5.06, ["base", "model", "sync", "serving/grammar"]),
    "serving/admission": (5.1, ["base"]),
    "serving/metrics": (5.2, ["base", "serving/admission"]),
    "serving/generation": (5.3, [
        "base", "model", "sync", "pipeline/sequences/request.h", "serving/sampling",
        "serving/grammar", "serving/constraint", "serving/admission", "serving/metrics"
    ]),
    "serving/answer": (5.35, ["base", "serving/grammar"]),
    "serving/fields": (5.38, ["base", "serving/sampling", "serving/grammar", "serving/generation"]),
    "serving/history": (5.39, ["base", "serving/admission"]),
    "serving/api": (5.4, [
        "base", "model", "serving/sampling", "serving/grammar", "serving/admission",
        "serving/generation", "serving/answer", "serving/fields", "serving/history"
    ]),
    "serving/reply": (5.42, [
        "base", "model", "serving/sampling", "serving/generation", "serving/answer",
        "serving/fields", "serving/api"
    ]),
    "serving/batch": (5.45, [
        "base", "model", "pipeline/sequences/request.h", "serving/admission", "serving/metrics",
        "serving/generation", "serving/fields", "serving/api", "serving/reply"
    ]),
    "serving/page": (5.5, ["base"]),
    "serving/http": (5.6, ["base", "serving/fields", "serving/api"]),
    "serving/stored": (5.65, [
        "base", "serving/admission", "serving/fields", "serving/history", "serving/api",
        "serving/reply", "serving/batch", "serving/http"
    ]),
    "serving/net": (5.7, ["base", "model", "serving"]),
    "node/service": (6.0, ["base", "topology", "threadpool", "rdma", "pipeline", "serving"]),
    "node/loadgen": (6.1, ["base", "serving"]),
    "node/remote": (6.15, ["base", "model", "serving", "node/loadgen"]),
    "node/options": (6.2, _RUNTIME + ["rdma", "pipeline", "serving", "node/service"]),
    "node/machine": (6.22, _RUNTIME + ["attention_node", "pipeline", "node/options"]),
    "node/loading": (6.25, _RUNTIME + ["rdma", "weight_node", "pipeline", "node/service",
                                       "node/options", "node/machine"]),
    "node/simulate": (6.28, ["base", "model", "topology", "pipeline", "node/loadgen",
                             "node/options", "node/loading"]),
    "node/tasks": (6.3, _RUNTIME + ["rdma"] + _NODES +
                   ["pipeline", "serving", "node/service", "node/options", "node/loading"]),
    "node/commands": (6.4, _RUNTIME + ["rdma"] + _NODES + [
        "pipeline", "serving", "node/service", "node/loadgen", "node/remote", "node/options",
        "node/loading", "node/machine", "node/simulate", "node/tasks"
    ]),
    "bench": (7, _RUNTIME + ["rdma"] + _NODES + ["pipeline", "serving", "node"]),
    "deploy": (7, []),
}
# What a folder may never touch although the header is a common one. Tests may: they start threads.
_THREADS = {"thread", "condition_variable", "future", "pthread.h"}
NEVER = {
    "model": _THREADS | {"atomic", "mutex", "shared_mutex"},
    "kernels": _THREADS,  # a lock around the making of kernels is set-up and may be
    "pipeline": {"model/tokenizer/tokenizer.h", "model/chat/chat_template.h"},
}

# Third-party headers (a prefix of the include) and the folders that they are confined to; None:
# any.
_INTRINSICS = [
    "immintrin.h", "x86intrin.h", "xmmintrin.h", "emmintrin.h", "nmmintrin.h", "arm_neon.h",
    "arm_sve.h"
]
THIRD_PARTY = {
    "fmt/": None,
    "hwloc": ["topology"], "numa.h": ["topology"], "numaif.h": ["topology"],
    "asmjit/": ["kernels"], **{name: ["kernels"] for name in _INTRINSICS},
    "infiniband/": ["rdma"], "rdma/": ["rdma"],
    "sodium": ["rdma", "serving/admission", "serving/api", "serving/reply"],
    "CLI/": ["node"], "spdlog/": ["node"], "systemd/": ["node"],
    "xxhash.h": ["pipeline"],
    "prometheus/": ["serving"], "boost/": ["serving"],
    "nlohmann/": ["base", "model", "pipeline", "serving", "node", "bench"],
    "toml++/": ["pipeline", "node"],
    "benchmark/": ["bench"], "llama.h": ["bench"], "ggml": ["bench"],
    "gtest/": [], "gmock/": [],
}
# Tests, fuzz targets, and the headers that only they share.
TEST_FILE = re.compile(r"_(test|fuzz|stress)\.cc$|_(testing|fixture|conformance)\.h$")
# What tests of any folder may use besides: it says nothing about how the program is built.
TEST_LIBRARIES = ("gtest/", "gmock/", "nlohmann/")
# The C library, POSIX and Linux; a name without a dot is C++'s own.
SYSTEM = re.compile(
    r"[a-z_0-9]+$|(sys|linux|netinet|arpa|net|bits)/[\w/]+\.h$"
    r"|(cpuid|dirent|dlfcn|endian|errno|fcntl|ifaddrs|link|malloc|netdb|poll|pthread|pwd|sched|signal|spawn|stdint|stdio"
    r"|stdlib|string|syscall|termios|time|ucontext|unistd)\.h$")

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', re.MULTILINE)
_NAMESPACE = re.compile(r"^namespace (larder[\w: ]*?) *\{", re.MULTILINE)
_FOLDER = re.compile(r"^\s*larder_folder\(\s*([\w/]+)([^)]*)\)", re.MULTILINE)


def room_of(path):
    """The folder of the table that a path is of, or its first part if that is none."""
    parts = path.split("/")
    room = "/".join(parts[:2])
    return room if room in FLOORS else parts[0]


def floors(folder, other):
    """Of two folders, comparable: floors of rooms count within their folder only."""
    if folder.split("/")[0] == other.split("/")[0]:
        return FLOORS[folder][0], FLOORS[other][0]
    return int(FLOORS[folder][0]), int(FLOORS[other][0])


def is_among(target, names):
    return target in names or target.split("/")[0] in names


def check_project(path, header, target, may, is_test):
    """What is wrong with including the project's `header` from `path`, or None."""
    folder = room_of(path.as_posix())
    if header in NEVER.get(path.parts[0], ()) and not is_test:
        return f"{folder}/ never includes {header}"
    if TEST_FILE.search(header) and not is_test:
        return f"{header} is for tests only"
    if target == folder or is_among(target, may) or header in may:
        return None
    own, other = floors(folder, target)
    if is_test and other < own:
        return None
    if own == other:
        return f"{header} is on the same floor as {folder}/: never sideways"
    if own < other:
        return f"{header} is on a higher floor than {folder}/"
    allowed = ", ".join(may) or "nothing of the project but itself"
    return f"{folder}/ may include {allowed}; not {header}"


def check_system(path, header, is_test):
    folder = path.parts[0]
    if header in NEVER.get(folder, ()) and not is_test:
        return f"{folder}/ never includes <{header}>"
    if is_test and header.startswith(TEST_LIBRARIES):
        return None
    for prefix, folders in THIRD_PARTY.items():
        if header.startswith(prefix):
            if folders is None or folder in folders or "/".join(path.parts[:2]) in folders:
                return None
            return f"<{header}> belongs in {' or '.join(f + '/' for f in folders) or 'tests'} only"
    if SYSTEM.match(header):
        return None
    return (f"<{header}> is a dependency that scripts/check_includes.py does not know: add it there"
            " with its folder")


def check_source(root, path):
    """The violations of one file, and the folders that it includes."""
    folder = room_of(path.as_posix())
    is_test = bool(TEST_FILE.search(path.name))
    found, used = [], set()
    text = (root / path).read_text()
    for match in _INCLUDE.finditer(text):
        quote, header = match.groups()
        problem = None
        if ".." in header.split("/"):
            problem = f'"{header}": includes are rooted at the repository, never "../"'
        elif quote == "<":
            target = room_of(header)
            if "/" in header and target in FLOORS and (root / header).exists():
                problem = f'<{header}> is ours: write "{header}"'
            else:
                problem = check_system(path, header, is_test)
        elif room_of(header) not in FLOORS or "/" not in header:
            problem = (
                f'"{header}" is not rooted at the repository: write "{folder}/{header}", or <> if'
                ' not ours')
        elif not (root / header).exists():
            problem = f'"{header}" does not exist'
        else:
            target = room_of(header)
            problem = check_project(path, header, target, FLOORS[folder][1], is_test)
            if not problem and not is_test and target != folder:
                used.add(target)
        if problem:
            found.append(f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {problem}")
    return found + check_namespaces(folder, path, text), used


def namespace_of(folder):
    """A room's namespace is inline: its folder's users need not say the room, its symbols do."""
    if folder == "base":
        return "larder"
    top, _, room = folder.partition("/")
    return f"larder::{top}::inline {room}" if room else f"larder::{top}"


def check_namespaces(folder, path, text):
    expected, found = namespace_of(folder), []
    for match in _NAMESPACE.finditer(text):
        if match[1] != expected and not match[1].startswith(expected + "::"):
            line = text.count("\n", 0, match.start()) + 1
            found.append(f"{path}:{line}: namespace {match[1]}: in {folder}/ it is {expected}")
    return found


def check_cmake(root, folder, used):
    """larder_folder()'s list: nothing that the table forbids, and all that the sources include."""
    lists = root / folder / "CMakeLists.txt"
    if not lists.exists():
        return ([f"{folder}/CMakeLists.txt: missing, though {folder}/ has sources"]
                if used is not None else [])
    match = _FOLDER.search(lists.read_text())
    if not match:
        return []
    found = []
    name, listed = match.group(1), match.group(2).split()
    if name != folder:
        found.append(f"{folder}/CMakeLists.txt: larder_folder({name}) in {folder}/")
    allowed = {
        entry.rsplit("/", 1)[0] if entry.endswith(".h") else entry for entry in FLOORS[folder][1]
    }
    for other in listed:
        if not is_among(other, allowed):
            found.append(f"{folder}/CMakeLists.txt: {folder} may not link {other}")
    for other in sorted(other for other in (used or set()) - {folder}
                        if not is_among(other, listed)):
        found.append(
            f"{folder}/CMakeLists.txt: {folder}'s sources include {other}/ but do not link {other}")
    return found


_MOST_ENTRIES = 28  # of a folder: more want rooms
_LISTS = {"model/families"}  # one file for each entry of a table, as many as there are


def check_sizes(paths):
    """Folders with so many sources that nobody finds anything."""
    counts = {}
    for path in paths:
        counts.setdefault(path.parent, []).append(path)
    return [
        f"{folder}/: {len(found)} sources; above {_MOST_ENTRIES} it wants rooms"
        for folder, found in sorted(counts.items())
        if len(found) > _MOST_ENTRIES and folder.as_posix() not in _LISTS
    ]


def main():
    root = tree.root_from_args()
    found, used, checked = [], {}, 0
    for path in tree.files(root, tree.SOURCE):
        folder = room_of(path.as_posix())
        checked += 1
        if folder not in FLOORS:
            found.append(
                f"{path}: no floor: {folder} is not in the table of scripts/check_includes.py")
            continue
        violations, includes = check_source(root, path)
        found += violations
        used.setdefault(folder, set()).update(includes)
    for folder in FLOORS:
        found += check_cmake(root, folder, used.get(folder))
    found += check_sizes(tree.files(root, tree.SOURCE))
    tree.finish("includes", found, checked)


if __name__ == "__main__":
    main()
