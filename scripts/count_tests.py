#!/usr/bin/env python3
"""Says of a run of ctest how many tests ran, how many were skipped, and for which reasons.

Usage: count_tests.py RESULTS.xml [--minimum FILE]     RESULTS.xml: of ctest --output-junit

--minimum: a number of tests in a file (lines that begin with # are comments). Exit status 1 if
fewer ran.
"""

import argparse
import collections
import re
import sys
import xml.etree.ElementTree
from pathlib import Path

# GoogleTest says "FILE:LINE: Skipped" and on the next line why; scripts say "skipped: why" and end
# with 77.
REASONS = (re.compile(r"^\S.*:\d+: Skipped\n(.*)$",
                      re.MULTILINE), re.compile(r"^skipped: (.*)$", re.MULTILINE))


def reason_of(output):
    """Why a test was skipped. Paths and numbers are left out, so that tests that lack the same
    count together.
    """
    for expression in REASONS:
        if found := expression.search(output):
            return re.sub(r"\d+", "N", re.sub(r'"/[^"]*"|/\S*[^\s:,;.]', "FILE",
                                              found[1].strip())) or "no reason given"
    return "no reason given"


def count(results):
    """(how many ran, {reason: names of the skipped tests})"""
    ran, skipped = 0, collections.defaultdict(list)
    for test in xml.etree.ElementTree.parse(results).getroot().iter("testcase"):
        if test.find("skipped") is not None or test.get("status") in ("notrun", "disabled"):
            skipped[reason_of(test.findtext("system-out") or "")].append(test.get("name"))
        else:
            ran += 1
    return ran, skipped


def read_minimum(file):
    lines = [line.strip() for line in Path(file).read_text().splitlines()]
    numbers = [line for line in lines if line and not line.startswith("#")]
    if len(numbers) != 1 or not numbers[0].isdigit():
        sys.exit(
            f"count_tests: {file}: expected one number of tests beside comments, got {numbers}")
    return int(numbers[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("results")
    parser.add_argument("--minimum")
    options = parser.parse_args()
    try:
        ran, skipped = count(options.results)
    except (OSError, xml.etree.ElementTree.ParseError) as error:
        sys.exit(f"count_tests: {options.results}: no results of ctest --output-junit: {error}")
    print(f"tests: {ran} ran, {sum(map(len, skipped.values()))} skipped")
    for reason, names in sorted(skipped.items(), key=lambda item: (-len(item[1]), item[0])):
        print(f"  {len(names):4} skipped: {reason} ({names[0]}{', ...' if len(names) > 1 else ''})")
    if options.minimum and ran < (least := read_minimum(options.minimum)):
        sys.exit(f"count_tests: {ran} tests ran, fewer than the {least} of {options.minimum}: was a"
                 " folder left out, or does this machine lack what every one has?")


if __name__ == "__main__":
    main()
