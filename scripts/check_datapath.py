#!/usr/bin/env python3
"""Scans *_datapath.cc, and what these inline, for what may not run between a frame's arrival and
the next frame's departure.

Usage: check_datapath.py [TREE]

Allocation, locks, exceptions, indirection that allocates, text, logging, clocks (but CounterNs, for
the counters of a frame) and system calls. What is needed
nevertheless says so on its line or the line above:  // datapath-ok: REASON
LARDER_CHECK may stand: its text is made only when the program is about to abort.
"""

import re
from pathlib import Path

import tree

# A free function, not a member, not another namespace's
_CALL = r"(?<![\w.>:])(?:::|std::)?(?:{})\s*\("
_OWNERS = r"vector|deque|list|map|set|multimap|multiset|unordered_map|unordered_set"
_SYSTEM_CALLS = (
    "syscall|futex|read|write|pread|pwrite|readv|writev|open|openat|close|ioctl|fcntl|mmap|munmap|mprotect|madvise|mbind"
    "|mlock|send|sendto|sendmsg|recv|recvfrom|recvmsg|accept|connect|poll|ppoll|select|epoll_wait|epoll_ctl"
    "|eventfd_read|eventfd_write|usleep|nanosleep|sleep|sched_yield|sched_setaffinity|getpid|gettid|kill|exit|abort"
    "|fork|pthread_create|pthread_join|getenv")

FORBIDDEN = [(what, re.compile(pattern)) for what, pattern in [
    ("allocation", r"\bnew\b|(?<!= )(?<!=)\bdelete\b"),
    ("allocation",
     _CALL.format("malloc|calloc|realloc|free|aligned_alloc|posix_memalign|strdup|alloca")),
    ("allocation", r"\bstd::(make_unique|make_shared|shared_ptr|any|pmr)\b"),
    ("a container that may grow",
     r"(\.|->)(push_back|push_front|emplace\w*|resize|reserve|insert|append|assign)\s*\("),
    ("a container of its own", rf"\bstd::({_OWNERS})<[^;&*]*>\s+\w"),
    ("a lock", r"\bstd::(recursive_|shared_|timed_)?mutex\b"
               r"|\bstd::(lock_guard|unique_lock|scoped_lock|shared_lock)\b"),
    ("a lock", r"\bstd::(condition_variable|call_once|counting_semaphore|binary_semaphore)\b"
               r"|\bpthread_(mutex|cond|rwlock|once)\w*"),
    ("an exception", r"\bthrow\b|\btry\b|\bcatch\b|(?<!\w)Error\s*\("),
    ("indirection", r"\bstd::(function|bind)\b|\bvirtual\b|\bdynamic_cast\b|\btypeid\b"),
    ("text", r"\bstd::(string|to_string|ostringstream|stringstream)\b|\bstd::format\b|\bfmt::"),
    ("printing", _CALL.format(r"f?printf|v?s?n?printf|puts|fputs|putchar|fwrite|fflush|perror")),
    ("printing or logging", r"\bstd::(cout|cerr|clog|endl|ofstream)\b|\bspdlog::|\bSPDLOG_\w+"),
    ("a clock", r"\bstd::chrono\b|\b(clock_gettime|gettimeofday|time|clock)\s*\(|\bNow\w*\s*\("),
    ("a system call", _CALL.format(_SYSTEM_CALLS)),
    ("a system call", r"\bstd::(this_thread|thread|jthread|filesystem)\b"),
]]
_INCLUDE = re.compile(
    r"#\s*include\s*<(mutex|shared_mutex|condition_variable|functional|string|iostream|sstream|fstream"
    r"|chrono|thread|future|new|exception|stdexcept|fmt/.*|spdlog/.*|unistd\.h|sys/.*)>")
# Headers whose functions the data path calls for each row, flag or message.
INLINED = [
    "rdma/shm/shm_link.h", "sync/barrier.h", "sync/epoch_flag.h", "sync/spsc_ring.h", "sync/wait.h"
]
_OK = re.compile(r"//\s*datapath-ok:\s*(\S.*)?")


def check(root, path):
    text = (root / path).read_text()
    lines, code = text.split("\n"), tree.code_only(text).split("\n")
    allowed = set()
    for number, line in enumerate(lines):
        ok = _OK.search(line)
        if ok and not ok.group(1):
            yield f"{path}:{number + 1}: datapath-ok without a reason"
        elif ok:
            allowed.update((number, number + 1) if not code[number].strip() else (number,))
    for number, line in enumerate(code):
        if number in allowed:
            continue
        include = _INCLUDE.search(line)
        if include:
            yield f"{path}:{number + 1}: <{include.group(1)}> has no use on the data path"
        for what, pattern in FORBIDDEN:
            match = pattern.search(line)
            if match:
                yield f"{path}:{number + 1}: {what} on the data path: {match.group().strip()}"


def main():
    root = tree.root_from_args()
    paths = list(tree.files(
        root, "_datapath.cc")) + [path for path in map(Path, INLINED) if (root / path).exists()]
    tree.finish("data path", [line for path in paths for line in check(root, path)], len(paths))


if __name__ == "__main__":
    main()
