"""Writes small stories from a grammar. `python3 grammar.py [count] [seed]` prints some.

cast.py holds who and what there is, story.py how a template becomes text, plots.py what happens.
"""
import random
import sys

from plots import PLOTS
from story import Story

TRAIN_SEED, HELD_OUT_SEED = 7, 8


def write(rng):
    """One story: paragraphs separated by a newline."""
    s = Story(rng)
    s.vars["mood"] = s.pick(["happy", "curious", "bored", "cheerful", "hungry"])
    plot = s.pick(list(PLOTS))
    s.cast_member("h", not_good_at=PLOTS[plot][0], not_kinds=PLOTS[plot][1])
    plot(s)
    return s.text()


def stories(count, seed):
    rng = random.Random(seed)
    return [write(rng) for _ in range(count)]


if __name__ == "__main__":
    for text in stories(
        int(sys.argv[1]) if len(sys.argv) > 1 else 3, int(sys.argv[2]) if len(sys.argv) > 2 else 1
    ):
        print(text + "\n")
