#!/usr/bin/env python3
"""Reading a request takes bounded CPU and memory, whatever stands in its fields: each field of each
route with the shapes of larder_testing/costly_inputs.py, from two thousand bytes to a megabyte.

    test/hostile/inputs_test.py --program build/bench/request_cost --model
        model/demo/larder-stories.gguf [--all] [--only NAME]

One process reads them all, by the code of the server, and says what each took of its own CPU, which
a busy machine does not change, and of memory. The bounds are far above what the server allows
itself: they find what nothing counts.
"""
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs
from larder_testing.costly_inputs import FIELDS, SHAPES, WHOLE, compact
from meter import Meter

MOST_S = 2.0  # CPU of reading a request, or of one of its masks
MOST_BYTES = 128 << 20  # memory of either
MOST_KEPT = 64 << 20  # of all requests that have ended: compiled grammars
LIMIT_S = 10.0  # of one request: it is taken to never end
SIZES = [2_000, 60_000, 1_000_000]
MOST_TEXT = 1_030_000  # of a body of a megabyte
SOME = 4  # shapes in each field that is not the first of its kind
# How calls are written: as JSON, and each parameter by itself
MODEL_OPTIONS = [["chatml", ""], ["qwen3", "qwen3_coder"]]


def text_of(shape, size, most):
    """The largest text of the shape, of about the size, that a request may have."""
    size = min(size, most)
    while len(compact(text := shape(size)).encode()) > min(most * 1.1 + 2_000, MOST_TEXT):
        size = size * 3 // 4
    return text


def inputs(everything):
    """(field, shape, size)."""
    firsts = {}
    for field in FIELDS:  # texts reach furthest: an object is read once
        if field.kind not in firsts or (field.as_text and not firsts[field.kind].as_text):
            firsts[field.kind] = field
    for kind, shapes in SHAPES.items():
        for i, field in enumerate(field for field in FIELDS if field.kind == kind):
            for j, shape in enumerate(shapes):
                if everything or field is firsts[kind] or j < 2 or (
                        j - i * (SOME - 2)) % len(shapes) < SOME - 2:
                    for size in SIZES if everything or field is firsts[kind] else SIZES[-1:]:
                        yield field, shape, size
    for field, shape in WHOLE:
        for size in SIZES:
            yield field, shape, size


class Judge:
    def __init__(self):
        self.failures, self.worst = [], []
        self.measured = 0

    def add(self, name, cost):
        self.measured += 1
        seconds = max(cost.read_s, cost.mask_s)
        self.worst.append((LIMIT_S if cost.ended else seconds, cost.bytes, f"{name}: {cost}"))
        if cost.ended or seconds > MOST_S or cost.bytes > MOST_BYTES:
            self.failures.append(f"{name}: {cost}")
            print("FAILED", self.failures[-1], flush=True)

    def report(self):
        for what, key in (("CPU", lambda one: one[0]), ("memory", lambda one: one[1])):
            print(f"the most {what}:",
                  *(line for _, _, line in sorted(self.worst, key=key, reverse=True)[:8]),
                  sep="\n  ")
        print(f"{self.measured} requests, {len(self.failures)} of them cost more than {MOST_S} s "
              f"or {MOST_BYTES >> 20} MiB")


def run(meter, judge, chosen):
    kept, known = 0, set()
    for field, shape, size in chosen:
        text = text_of(shape, size, field.most_bytes)
        # A shape that does not grow
        if (str(field), field.line_of_batch, shape, len(text)) in known:
            continue
        known.add((str(field), field.line_of_batch, shape, len(text)))
        body = field.body(text)
        cost = meter.cost(field.route, body, limit_s=LIMIT_S)
        kept = 0 if cost.ended else kept + cost.kept
        judge.add(
            f"{shape.__name__}, {len(body)} bytes, {field}" +
            (", a line of a batch" if field.line_of_batch else ""), cost)
    if kept > MOST_KEPT:
        judge.failures.append(f"requests that have ended keep {kept / 1e6:.0f} MB")


def main():
    parser = programs.parser(__doc__, "program", "model")
    parser.add_argument("--all", action="store_true",
                        help="every shape in every field, which takes many minutes")
    parser.add_argument("--only", default="", help="fields and shapes with this in their names")
    parser.add_argument(
        "--print", action="store_true",
        help="judge only whether the process survives: with a sanitizer times say little")
    args = parser.parse_args()
    judge = Judge()
    for i, options in enumerate(MODEL_OPTIONS):
        of_calls = (
            lambda field, shape: i == 0 or args.all or "tools" in field.where + shape.__name__)
        chosen = [(field, shape, size) for field, shape, size in inputs(args.all)
                  if args.only in f"{field} {shape.__name__}" and of_calls(field, shape)]
        with Meter(args.program, args.model, *options, limited=not args.print) as meter:
            run(meter, judge, chosen)
    judge.report()
    failures = [
        failure for failure in judge.failures
        if not args.print or "killed" in failure or "ended" in failure
    ]
    print(*failures[:40], sep="\n")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
