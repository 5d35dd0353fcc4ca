#!/usr/bin/env python3
"""Looks for requests that cost much: mutates schemas, grammars and patterns by their grammar, and
climbs on CPU and memory per byte.

    test/hostile/search.py --program build/bench/request_cost --model model/demo/larder-stories.gguf
        --seconds 600 --keep FOLDER

It begins with small sizes of the shapes of larder_testing/costly_inputs.py and with pieces of its
own, and keeps the worst inputs of each family. A family is what refused or accepted the input in
which field, so that one expensive fault does not hide the others. --keep FOLDER: the worst bodies,
as files. Deterministic for a --seed but for the measured times.
"""
import json
import pathlib
import random
import re
import sys
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import costly_inputs, programs
from meter import Meter

SIZES = [600, 2_000, 8_000, 24_000]
LIMIT_S = 6.0  # of one input
FLOOR_S = 0.05  # what costs less is worth no report
MEMORY_PER_S = 200e6  # so many bytes of memory are as bad as a second
FAMILY = 4  # inputs kept of each
WORDS = ["a", "b", "p0", "p1", "x", "aa", "\u00e9"]


# --- schemas as Python values ---

class Schemas:
    """Random schemas and changes of them."""

    def __init__(self, rng):
        self.rng = rng

    def count(self):
        return int(2 ** self.rng.uniform(0, 9))

    def name(self):
        kind = self.rng.random()
        return (self.rng.choice(WORDS) if kind < 0.6 else "n" *
                self.count() if kind < 0.8 else f"k{self.rng.randrange(400)}")

    def value(self):
        return self.rng.choice([
            1, -1, 0.5, 1e300, 10**18, "v", None, True, False, [], {}, [1, [2]], "w" * self.count(),
            {"a": "b"}
        ])

    def pattern(self, depth=0):
        rng, kind = self.rng, self.rng.randrange(8)
        if depth > 4 or kind == 0:
            return rng.choice(["a", "b+", "[a-z]", ".", "\\d", "\\w*", "[^\\x00-\\x7f]", "\u4e2d"])
        if kind < 3:
            return "(" + "|".join(self.pattern(depth + 1)
                                  for _ in range(min(self.count(), 12))) + ")"
        if kind < 5:
            least, most = rng.randrange(4), rng.choice([4, 9, 99, 9999, 999999])
            return f"({self.pattern(depth + 1)}){{{least},{most}}}"
        if kind == 5:
            return f"({self.pattern(depth + 1)})" + rng.choice("*+?")
        if kind == 6:
            return "[" + "".join(chr(0x100 + 2 * i) for i in range(self.count())) + "]"
        return self.pattern(depth + 1) + self.pattern(depth + 1)

    def reference(self):
        return {
            "$ref": self.rng.choice(
                ["#", "#/$defs/a", "#/$defs/b", "#/$defs/c", "#/$defs/d", "#/properties/p0"])
        }

    def schema(self, depth=0):
        rng = self.rng
        if depth > 5:
            return rng.choice([True, {}, {"type": "null"}, self.reference()])
        kind, many = rng.randrange(16), min(self.count(), 2 if depth > 2 else 300)
        below = lambda: self.schema(depth + 1)
        if kind == 0:
            return {
                "type": rng.choice([
                    "object", "array", "string", "number", "integer", "null", ["object", "null"],
                    ["string"] * many
                ])
            }
        if kind == 1:
            return {
                "properties": {self.name(): below() for _ in range(min(many, 30))},
                **self.sibling(depth),
            }
        if kind == 2:
            return {
                rng.choice(["anyOf", "oneOf", "allOf"]): [below() for _ in range(min(many, 6))],
                **self.sibling(depth),
            }
        if kind == 3:
            return {
                rng.choice(["anyOf", "oneOf", "allOf"]): [below()] * many, **self.sibling(depth)
            }
        if kind == 4:
            return {**self.reference(), **self.sibling(depth)}
        if kind == 5:
            return {
                rng.choice(["enum", "examples"]): [self.value() for _ in range(many)],
                **self.sibling(depth),
            }
        if kind == 6:
            return {"enum": [f"v{i}" for i in range(many)]}
        if kind == 7:
            return {"items": below(), "minItems": rng.randrange(4), "maxItems": self.count()}
        if kind == 8:
            return {"prefixItems": [below()] * min(many, 40), **self.sibling(depth)}
        if kind == 9:
            return {"additionalProperties": below(), "required": [f"r{i}" for i in range(many)]}
        if kind == 10:
            return {"patternProperties": {self.pattern(): below()}}
        if kind == 11:
            return {
                "pattern": self.pattern(),
                **({"minLength": rng.randrange(9),
                    "maxLength": self.count()} if rng.random() < 0.3 else {})
            }
        if kind == 12:
            return {"minimum": self.number(), "maximum": self.number()}
        if kind == 13:
            return {
                "format": rng.choice(
                    ["date", "email", "uri", "duration", "ipv6", "json-pointer", "uri-reference"])
            }
        if kind == 14:
            return {"const": self.value()}
        return {
            "properties": {f"p{i}": True for i in range(many)},
            "additionalProperties": rng.choice([True, False, below()]),
        }

    def number(self):
        return self.rng.choice(
            [0, 1, -1, 1.5, -0.25, 10**15, -(10**18), 123456789.123456, 1e-9, 1e39, 99999])

    def sibling(self, depth):
        rng = self.rng
        if rng.random() < 0.5:
            return {}
        made = {"x": 1} if rng.random() < 0.4 else self.schema(depth + 2)
        return {} if made in (
            True, False) else {key: value for key, value in made.items() if key != "$ref"}

    def whole(self):
        return {
            **(self.sibling(0) or {"x": 1}),
            **self.reference(), "$defs": {name: self.schema(1) for name in "abcd"}
        }

    # Changes.

    def places(self, value, path=()):
        """Every place in it, as (container, key)."""
        found, to_do = [], [value]
        while to_do and len(found) < 3000:
            one = to_do.pop()
            for key in one if isinstance(one, dict) else range(len(one)):
                found.append((one, key))
                if isinstance(one[key], (dict, list)):
                    to_do.append(one[key])
        return found

    def changed(self, value, other):
        """A changed copy; `other`: another input, pieces of which may go in."""
        value = json.loads(json.dumps(value))
        for _ in range(self.rng.randint(1, 3)):
            places = self.places(value)
            if not places:
                return self.whole()
            holder, key = self.rng.choice(places)
            piece, kind = holder[key], self.rng.randrange(10)
            if kind == 0 and isinstance(piece, list) and piece:
                piece.extend(self.rng.choices(piece, k=min(len(piece) * 2, 400)))
            elif kind == 1 and isinstance(piece, dict) and piece:
                for name in list(piece)[:200]:
                    piece[name + "x"] = piece[name]
            elif kind == 2:
                holder[key] = {
                    self.rng.choice(["anyOf", "allOf", "prefixItems"]): [piece]
                    * min(self.count(), 40)
                }
            elif kind == 3:
                holder[key] = {
                    "properties": {self.name(): piece},
                    "additionalProperties": self.rng.choice([True, piece]),
                }
            elif kind == 4 and isinstance(piece, str):
                holder[key] = piece * 4 if len(piece) < 4000 else piece[:10]
            elif kind == 5 and isinstance(piece, dict):
                piece.update(self.sibling(1))
            elif kind == 6:
                candidates = self.places(other)
                if candidates:
                    from_holder, from_key = self.rng.choice(candidates)
                    holder[key] = json.loads(json.dumps(from_holder[from_key]))
            elif kind == 7 and isinstance(piece, dict):
                piece.update(self.reference())
            elif kind == 8 and isinstance(piece, (int, float)) and not isinstance(piece, bool):
                holder[key] = self.number()
            else:
                holder[key] = self.schema(2)
        return value


class Grammars:
    """The same of GBNF: lists of rules, each a list of alternatives' texts."""

    def __init__(self, rng, schemas):
        self.rng, self.schemas = rng, schemas

    def item(self, depth=0):
        rng, kind = self.rng, self.rng.randrange(12)
        if kind < 4 or depth > 4:
            return rng.choice([
                '"a"', '"b"', '"aaaaaaaaaaaaaaaaaaaaaaaaaaaa"', "[a-z]", ".", "r0", "r1", "r2",
                "r3", "s", '"x" s', '[^"\\\\]'
            ])
        if kind < 6:
            return "(" + " | ".join(self.item(depth + 1) for _ in range(rng.randint(1, 5))) + ")"
        if kind < 8:
            return self.item(depth + 1) + rng.choice(["*", "+", "?"])
        if kind == 8:
            return (
                f"({self.item(depth + 1)}){{{rng.randrange(3)},{rng.choice([3, 9, 99, 999999])}}}")
        if kind == 9:
            return "[" + "".join(chr(0x100 + 3 * i) for i in range(self.schemas.count())) + "]"
        if kind == 10:
            return "%json " + json.dumps(self.schemas.schema(3)).replace(
                "false", "{}") if rng.random() < 0.5 else "%json {}"
        return self.item(depth + 1) + " " + self.item(depth + 1)

    def whole(self):
        count = min(self.schemas.count() + 3, 400)
        rules = [[self.item() + (f" r{i + 1}" if self.rng.random() < 0.6 else "")]
                 for i in range(count)]
        rules[-1] = ['"!"']
        return [["s"], [f'"{c}" s "{i}"' for i, c in enumerate("abc ")] + ["r0"]] + rules

    def text(self, rules):
        return ("\n".join(
            f"{'root' if i == 0 else 's' if i == 1 else f'r{i - 2}'} ::= " + " | ".join(ways)
            for i, ways in enumerate(rules)) + "".join(f'\nr{i} ::= "z"'
                                                       for i in range(len(rules) - 2, 5)) +
                f'\nr{max(len(rules) - 2, 5)} ::= "z"\n')

    def changed(self, rules, other):
        rules = [list(ways) for ways in rules]
        for _ in range(self.rng.randint(1, 3)):
            ways, kind = self.rng.choice(rules), self.rng.randrange(7)
            at = self.rng.randrange(len(ways))
            if kind == 0:
                ways.extend(ways[:100])
            elif kind == 1:
                ways[at] = f"({ways[at]}){self.rng.choice(['*', '?', '{2,3}', '{0,99}', '+'])}"
            elif kind == 2:
                ways[at] += " " + self.item()
            elif kind == 3 and len(ways[at]) < 4000:
                ways[at] = " ".join([ways[at]] * self.rng.choice([2, 3, 8]))
            elif kind == 4 and len(rules) < 800:
                rules.extend(
                    list(w) for w in self.rng.choices(rules[2:] or rules, k=min(len(rules), 200)))
            elif kind == 5:
                ways[at] = self.rng.choice(self.rng.choice(other))
            else:
                ways.append(self.item())
        return rules


class Patterns:
    def __init__(self, rng, schemas):
        self.rng, self.schemas = rng, schemas

    def whole(self):
        return [self.schemas.pattern() for _ in range(self.rng.randint(1, 20))]

    def text(self, parts):
        return "".join(parts)

    def changed(self, parts, other):
        parts, kind = list(parts), self.rng.randrange(4)
        at = self.rng.randrange(len(parts))
        if kind == 0:
            parts.extend(parts[:100])
        elif kind == 1:
            parts[at] = f"({parts[at]}){self.rng.choice(['*', '+', '{0,9}', '{2,999999}', '|a'])}"
        elif kind == 2:
            parts[at] = self.schemas.pattern()
        else:
            parts[at] = self.rng.choice(other)
        return parts


class Search:
    def __init__(self, meter, rng, keep, seeded):
        self.meter, self.rng, self.keep, self.seeded = meter, rng, keep, seeded
        schemas = Schemas(rng)
        self.makers = {
            "schema": (schemas, costly_inputs.compact),
            "grammar": (grammars := Grammars(rng, schemas), grammars.text),
            "pattern": (patterns := Patterns(rng, schemas), patterns.text),
        }
        self.fields = {
            kind: [
                field
                for field in costly_inputs.FIELDS
                if field.kind == kind
                and not field.line_of_batch
                and not field.path.endswith("input_tokens")
            ]
            for kind in self.makers
        }
        self.pool = {}  # family: [(score, kind, value, field, bytes, cost)], the worst first
        self.tried = 0

    def seeds(self):
        for shape in costly_inputs.SCHEMAS:
            for size in SIZES:
                try:
                    yield "schema", json.loads(shape(size))
                except (RecursionError, ValueError):
                    pass
        for kind in ("grammar", "pattern"):
            for shape in costly_inputs.SHAPES[kind]:
                for size in SIZES:
                    yield kind, shape(size)

    def family(self, kind, field, cost):
        what = re.sub(r"\d+|'[^']*'|/[^:]*", "", cost.refused)[:60] or cost.ended or (
            "a mask" if cost.mask_s > cost.read_s else "accepted")
        return kind, what, "tools" if "tools" in field.where else ""

    def tell(self, kind, value, field=None):
        """Measures an input and keeps it if it is among the worst of its family."""
        field = field or self.rng.choice(self.fields[kind])
        text = value if isinstance(value, str) else self.makers[kind][1](value)
        if not 0 < len(text) <= min(field.most_bytes, 120_000):
            return
        body = field.body(text)
        cost = self.meter.cost(field.route, body, masks=4, limit_s=LIMIT_S)
        self.tried += 1
        seconds = LIMIT_S if cost.ended else max(cost.read_s,
                                                 cost.mask_s) + cost.bytes / MEMORY_PER_S
        score = max(seconds - FLOOR_S / 4, 0) / (len(body) + 500)
        family = self.pool.setdefault(self.family(kind, field, cost), [])
        family.append((score, kind, value, field, len(body), cost, body))
        family.sort(key=lambda entry: -entry[0])
        if family[0][2] is value and seconds > FLOOR_S:
            print(f"{self.tried}: {score * 1000:.3f} s/KB, {len(body)} bytes, {field}: {cost}",
                  flush=True)
        del family[FAMILY:]

    def run(self, seconds):
        until = time.monotonic() + seconds
        for kind, value in self.seeds() if self.seeded else ():
            if time.monotonic() > until:
                break
            self.tell(kind, value)
        while time.monotonic() < until:
            self.step()

    def step(self):
        kind = self.rng.choices(list(self.makers), [6, 3, 1])[0]
        maker = self.makers[kind][0]
        known = [
            entry for family in self.pool.values() for entry in family
            if entry[1] == kind and not isinstance(entry[2], str)
        ]
        if not known or self.rng.random() < 0.2:
            return self.tell(kind, maker.whole())
        known.sort(key=lambda entry: -entry[0])
        # The worse an input is the likelier it is changed; now and then any.
        parent = known[min(int(self.rng.expovariate(0.15)),
                           len(known) - 1)] if self.rng.random() < 0.7 else self.rng.choice(known)
        self.tell(kind, maker.changed(parent[2],
                                      self.rng.choice(known)[2]),
                  parent[3] if self.rng.random() < 0.7 else None)

    def report(self):
        worst = sorted((family[0] for family in self.pool.values() if family),
                       key=lambda entry: -entry[0])
        print(f"\n{self.tried} inputs; the worst of each family:")
        for i, (score, kind, _, field, size, cost, body) in enumerate(worst[:40]):
            name = f"{i:02}-{kind}.json"
            print(f"{name}: {score * 1000:.3f} s/KB, {size} bytes, {field}: {cost}")
            if self.keep:
                pathlib.Path(self.keep, name).write_bytes(body)


def main():
    parser = programs.parser(__doc__, "program", "model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", help="a folder for the worst bodies")
    parser.add_argument("--from-nothing", action="store_true",
                        help="begin without the shapes that are known: for what is unlike them")
    parser.add_argument("--chat-template", default="chatml")
    parser.add_argument("--tool-parser", default="")
    args = parser.parse_args()
    if args.keep:
        pathlib.Path(args.keep).mkdir(parents=True, exist_ok=True)
    with Meter(args.program, args.model, args.chat_template, args.tool_parser) as meter:
        search = Search(meter, random.Random(args.seed), args.keep, not args.from_nothing)
        search.run(args.seconds)
        search.report()


if __name__ == "__main__":
    sys.exit(main())
