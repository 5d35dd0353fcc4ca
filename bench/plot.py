#!/usr/bin/env python3
"""Turns the benches' JSON into markdown tables, and ratios into an SVG of bars, for docs/.

Usage: plot.py FILE.json... [--svg FILE.svg] > docs/NAME.md

The JSON is Google Benchmark's (--benchmark_out=FILE.json --benchmark_out_format=json). Of a row
with repetitions the median is taken. Rows of one kind (the name without its arguments) become one
table, arguments first, then the counters. Only what is there is written: no figure is computed
here.
"""

import argparse
import html
import json
import sys
import textwrap
from pathlib import Path

# What Google Benchmark writes besides the counters.
_OWN = {
    "name", "family_index", "per_family_instance_index", "run_name", "run_type", "repetitions",
    "repetition_index", "threads", "iterations", "real_time", "cpu_time", "time_unit",
    "aggregate_name", "aggregate_unit", "label", "error_occurred", "error_message", "big_o", "rms"
}
# Counters drawn as bars: shares of a limit.
_SHARES = ("best of read", "best of peak", "best of limit", "best of heads")
# And of comparisons, each a bar of its own.
_COMPARED = ("best / one core", "best / two cores")


class Row:
    """One benchmark: kind ("gemv/resident/avx2"), args {"K": "1024"}, counters {"GB/s": 31.0},
    error.
    """

    def __init__(self, entry):
        parts = [
            part for part in entry["run_name"].split("/")
            if part not in ("manual_time", "real_time",
                            "process_time") and not part.startswith("repeats:")
        ]
        self.kind = "/".join(part for part in parts if ":" not in part)
        self.args = dict(part.split(":", 1) for part in parts if ":" in part)
        self.counters = {key: value for key, value in entry.items() if key not in _OWN}
        self.error = entry.get("error_message") if entry.get("error_occurred") else None


def medians(report):
    """The rows of a report: the median of those with repetitions, the run itself of those
    without.
    """
    entries = report["benchmarks"]
    with_median = {e["run_name"] for e in entries if e.get("aggregate_name") == "median"}
    return [Row(e) for e in entries
            if e.get("aggregate_name") == "median"
            or (e.get("run_type") == "iteration" and e["run_name"] not in with_median)]


def number(value):
    if value is None:
        return ""
    if value != value or value in (float("inf"), float("-inf")):
        return str(value)
    if value == int(value) and abs(value) < 1e6:
        return f"{int(value)}"
    size = abs(value)
    return f"{value:,.0f}" if size >= 1000 else f"{value:.1f}" if size >= 100 else f"{value:.3g}"


def ordered(dictionaries):
    """All their keys, in order of first appearance."""
    return list(dict.fromkeys(key for d in dictionaries for key in d))


def table(rows):
    args, counters = ordered(row.args for row in rows), ordered(row.counters for row in rows)
    lines = ["| " + " | ".join(args + counters) + " |", "|" + "--:|" * (len(args) + len(counters))]
    for row in rows:
        if row.error:
            cells = [row.args.get(key, "")
                     for key in args] + [row.error] + [""] * (len(counters) - 1)
        else:
            cells = [row.args.get(key, "")
                     for key in args] + [number(row.counters.get(key)) for key in counters]
        lines.append("| " + " | ".join(cells) + " |")
    return lines


def markdown(report):
    context, kinds = report["context"], {}
    for row in medians(report):
        kinds.setdefault(row.kind, []).append(row)
    program = Path(context.get("executable", "bench")).name
    lines = [f"# {program}", ""]
    facts = [
        str(context[key]) for key in ("date", "cpu_model", "l3_groups", "isa") if key in context
    ]
    if "load_avg" in context and context["load_avg"]:
        facts.append(f"load average {context['load_avg'][0]:.2f}")
    lines += [*textwrap.wrap("Medians. " + "; ".join(facts) + ".", 100, break_on_hyphens=False), ""]
    for kind, rows in kinds.items():
        lines += [f"## {kind}", "", *table(rows), ""]
    return "\n".join(lines)


def svg(reports):
    """Horizontal bars of every row's share of its limit, or of what it is compared with; the line
    is the whole of that.
    """
    bars = []
    for report in reports:
        for row in medians(report):
            share = next((row.counters[key] for key in _SHARES if key in row.counters), None)
            if row.error:
                continue
            name = " ".join([row.kind, *[f"{k}={v}" for k, v in row.args.items()]])
            if share is not None:
                bars.append((name, share))
            bars += [(name + key.removeprefix("best"), row.counters[key]) for key in _COMPARED
                     if key in row.counters]
    left, width, height = 380, 400, 16
    top = max([1.0, *[share for _, share in bars]])
    scale = width / top
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 60}" '
        f'height="{height * len(bars) + 24}" font-family="sans-serif" font-size="11">'
    ]
    for i, (name, share) in enumerate(bars):
        y = i * height + 4
        out.append(
            f'<text x="{left - 6}" y="{y + 11}" text-anchor="end">{html.escape(name)}</text>')
        out.append(f'<rect x="{left}" y="{y + 2}" width="{share * scale:.1f}" height="{height - 4}"'
                   ' fill="#4477aa"/>')
        out.append(f'<text x="{left + share * scale + 4:.1f}" y="{y + 11}">{share:.2f}</text>')
    x = left + scale
    out.append(
        f'<line x1="{x:.1f}" y1="0" x2="{x:.1f}" y2="{height * len(bars) + 4}" stroke="#cc3311"/>')
    out.append(
        f'<text x="{x:.1f}" y="{height * len(bars) + 18}" text-anchor="middle">limit, or other'
        ' form, of the same run</text>')
    return "\n".join(out + ["</svg>"]) + "\n"


def main(argv):
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--svg", type=Path, help="write the shares of limits as bars")
    args = parser.parse_args(argv)
    reports = []
    for path in args.files:
        try:
            report = json.loads(path.read_text())
            report["context"], report["benchmarks"]
            reports.append(report)
        except (OSError, ValueError, LookupError, TypeError) as error:
            print(f"plot.py: {path}: not a report of Google Benchmark: {error}", file=sys.stderr)
            return 1
    print("\n".join(markdown(report) for report in reports))
    if args.svg:
        args.svg.write_text(svg(reports))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
