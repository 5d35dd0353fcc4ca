#!/usr/bin/env python3
"""The one form of table of docs/benchmarks.md: prints its rows from what the benches write, and
checks that the document has no other.

Usage: results.py FILE.json... [--peer FILE.json...]
       results.py --check docs/benchmarks.md

FILE.json is from `larder bench -o json`, `larder bench-serve -o json` or `bench/compare --json`.
--peer: what the same command wrote of another server, file by file. Speeds are medians; a ratio
above 1 says that Larder is faster, also where the figure is a time. Of compare's pairs it is the
median of their ratios, and what stands in brackets are the lowest and the highest; the last column
compares the best samples.
"""

import argparse
import json
import re
import statistics
import sys
from pathlib import Path

import plot

HEAD = "| work | figure | peer | Larder | ratio | best |"
RULE = "|---|---|--:|--:|--:|--:|"
# Of bench-serve's figures: key, how the table names it, whether more is better.
SERVED = (("output_throughput", "tokens/s", True), ("median_ttft_ms", "TTFT, ms", False),
          ("median_tpot_ms", "TPOT, ms", False))
SECTION = re.compile(r"## (\d{4}-\d{2}-\d{2}): ")
RATIO = re.compile(r"([\d.]+) \[([\d.]+)\.\.([\d.]+)\]|[\d.]+( to [\d.]+)?|-")
COMMIT = re.compile(r"\bcommits? [0-9a-f]{7,}\b")


def number(value):
    return f"{value:,.0f}" if value >= 1000 else plot.number(value)


def row(work, figure, peer, larder, ratio="-", best="-"):
    cells = [value if isinstance(value, str) else number(value) for value in (peer, larder)]
    return f"| {work} | {figure} | {cells[0]} | {cells[1]} | {ratio} | {best} |"


def rows_of_bench(tests):
    for test in tests:
        work = test["test"] + (f" x {test['n_batch_sequences']}"
                               if test["n_batch_sequences"] > 1 else "")
        if test["n_depth"]:
            work += f" after {test['n_depth']} tokens"
        yield row(f"{test['model_type']}, {work}", "tokens/s", "-", test["median_ts"])


def rows_of_serving(report, peer):
    tokens = report["total_input_tokens"] / max(report["completed"], 1)
    work = f"{report['max_concurrency'] or 'any number of'} clients, prompts of {number(tokens)}"
    for key, figure, more_is_better in SERVED:
        theirs, ours = peer and peer[key], report[key]
        ratio = "-"
        if theirs and ours:
            ratio = f"{ours / theirs if more_is_better else theirs / ours:.2f}"
        yield row(work, figure, theirs if peer else "-", ours, ratio)


def rows_of_compare(report):
    for test in report["tests"]:
        medians = [[statistics.median(samples) for samples in pair] for pair in test["pairs"]]
        ratios = [ours / theirs for theirs, ours in medians]
        best = [max(max(pair[side]) for pair in test["pairs"]) for side in (0, 1)]
        yield row(f"{report['model']}, {test['name']}", "tokens/s",
                  statistics.median(theirs for theirs, _ in medians),
                  statistics.median(ours for _, ours in medians),
                  f"{statistics.median(ratios):.2f} [{min(ratios):.2f}..{max(ratios):.2f}]",
                  f"{best[1] / best[0]:.2f}")


def rows_of(report, peer=None):
    if isinstance(report, list):
        return list(rows_of_bench(report))
    if "output_throughput" in report:
        return list(rows_of_serving(report, peer))
    return list(rows_of_compare(report))


def problems(text):
    """What is wrong with a document: (line, why)."""
    heads, section, dates, named = False, None, [], True
    lines = text.split("\n")
    for at, line in enumerate(lines, 1):
        if line.startswith("## "):
            if not named:
                yield section, "no commit is named in this section"
            section, named = at, False
            if date := SECTION.match(line):
                if dates and date[1] > dates[-1]:
                    yield at, f"{date[1]} is newer than the section above: the newest comes first"
                dates.append(date[1])
            else:
                yield at, "expected '## YYYY-MM-DD: MACHINE'"
        named = named or COMMIT.search(line) is not None
        if not line.startswith("|"):
            heads = False
        elif not heads:
            heads = True
            if line != HEAD:
                yield at, f"expected the table's head {HEAD}"
        elif line != RULE:
            cells = [cell.strip() for cell in line.strip("|").split("|")]
            if len(cells) != HEAD.count("|") - 1:
                yield at, f"{len(cells)} cells, expected {HEAD.count('|') - 1}"
            elif not (ratio := RATIO.fullmatch(cells[4])):
                yield at, f"ratio '{cells[4]}': expected R, R [LOW..HIGH], LOW to HIGH or -"
            elif ratio[1] and not float(ratio[2]) <= float(ratio[1]) <= float(ratio[3]):
                yield at, f"ratio '{cells[4]}': the median is outside of its range"
    if not named:
        yield section, "no commit is named in this section"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--peer", nargs="+", type=Path, default=[])
    parser.add_argument("--check", action="store_true")
    args = parser.parse_args(argv)
    if args.peer and len(args.peer) != len(args.files):
        parser.error(f"{len(args.peer)} files of a peer for {len(args.files)}: one for each")
    if args.check:
        found = [f"{path}:{line}: {why}"
                 for path in args.files for line, why in problems(path.read_text())]
        print("\n".join(found + [f"results.py: {len(found)} problems"]))
        return 1 if found else 0
    rows = []
    for i, path in enumerate(args.files):
        try:
            peer = json.loads(args.peer[i].read_text()) if args.peer else None
            rows += rows_of(json.loads(path.read_text()), peer)
        except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            print(f"results.py: {path}: not what a bench writes as JSON: {error!r}",
                  file=sys.stderr)
            return 1
    print("\n".join([HEAD, RULE, *rows]))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
