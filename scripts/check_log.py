#!/usr/bin/env python3
"""Checks the subjects of the commits since the one named below: at most 72 characters, no full stop
at the end, nothing unfinished (fixup!, squash!, amend!, WIP).

Usage: check_log.py [TREE] [--since COMMIT]

Where git, the repository or that commit is missing (an archive, a shallow clone, another history),
it says so and passes.
"""

import argparse
import re
import subprocess
import sys
from pathlib import Path

_START = "fbc3234c4b8b419c7cd160ff8a8fd7b7bf097c75"
_MOST = 72
_UNFINISHED = re.compile(r"(fixup|squash|amend)!|wip\b", re.IGNORECASE)


def unchecked(reason):
    print(f"log: not checked: {reason}")
    sys.exit(0)


def git(root, *args):
    """(exit status, output)"""
    try:
        run = subprocess.run(["git", "-C", root, *args], capture_output=True, text=True,
                             check=False, errors="replace")
    except FileNotFoundError:
        unchecked("git is not installed")
    return run.returncode, run.stdout


def problems(subject):
    """The subject is the whole first paragraph of a message, as git has it."""
    if not subject:
        yield "no subject"
    if len(subject) > _MOST:
        yield (f"{len(subject)} characters, at most {_MOST}: say one thing, "
               "and the reasons below an empty line")
    if subject.endswith("."):
        yield "ends with a full stop"
    if unfinished := _UNFINISHED.match(subject):
        yield f"{unfinished[0]} is not finished: squash it"


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", nargs="?", default=Path(__file__).resolve().parent.parent)
    parser.add_argument("--since", metavar="COMMIT", default=_START)
    options = parser.parse_args()

    status, top = git(options.tree, "rev-parse", "--show-toplevel")
    if status or Path(top.rstrip("\n")) != Path(options.tree).resolve():
        unchecked("this is no git repository of its own")
    if git(options.tree, "merge-base", "--is-ancestor", options.since, "HEAD")[0]:
        unchecked(f"{options.since} is not among the ancestors of HEAD here")
    _, log = git(options.tree, "log", "--no-merges", "--format=%h %s", f"{options.since}..HEAD")

    commits, violations = log.splitlines(), 0
    for commit in commits:
        abbreviation, _, subject = commit.partition(" ")
        for problem in problems(subject):
            print(f"{abbreviation} {subject!r}: {problem}")
            violations += 1
    print(f"log: {len(commits)} commits, {violations} violations")
    sys.exit(1 if violations else 0)


if __name__ == "__main__":
    main()
