"""JSON schemas for tests: some written by hand, as people send them, and any number made at random
from a seed.
"""
import random

STRING = {"type": "string", "maxLength": 24}
INTEGER = {"type": "integer"}
WORDS = [
    "red", "green", "blue", "small", "large", "north", "yes", "no", "cat", "\"quoted\"", "é", "a/b"
]
KEYS = [
    "id", "name", "age", "kind", "size", "tags", "note", "x", "y", "first name", "é", "a\"b",
    "items", "ok"
]
PATTERNS = [
    "^[a-z]+$", "^[A-Z][a-z]{2,8}$", "^\\d{3}-\\d{4}$", "^(cat|dog|bird)s?$", "^#[0-9a-f]{6}$",
    "^[^\\s]{1,12}$", "^\\w+@\\w+\\.org$", "^v\\d+(\\.\\d+){0,2}$", "^[-+]?\\d{1,5}$",
    "^\\(\\d{3}\\) \\d{3}$", "^a.b$"
]
FORMATS = [
    "date", "time", "date-time", "duration", "uuid", "email", "ipv4", "ipv6", "hostname", "uri",
    "json-pointer"
]


def by_hand():
    def thing(**properties):
        return {
            "type": "object", "properties": properties, "required": list(properties),
            "additionalProperties": False
        }

    yield thing(name=STRING, date={"type": "string", "format": "date"},
                participants={"type": "array", "items": STRING, "maxItems": 4})
    yield thing(location=STRING, unit={"type": "string", "enum": ["celsius", "fahrenheit"]})
    yield thing(
        steps={
            "type": "array", "minItems": 1, "maxItems": 4,
            "items": thing(explanation=STRING, output=STRING)
        }, final_answer=STRING)
    yield thing(sentiment={"enum": ["positive", "neutral", "negative"]},
                score={"type": "number", "minimum": 0, "maximum": 1})
    yield thing(value={"type": ["string", "null"], "maxLength": 9},
                count={"type": ["integer", "null"]})
    yield {"type": "object", "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER}}
    yield {
        "type": "object", "properties": {"a": INTEGER, "b": INTEGER, "c": INTEGER},
        "required": ["b"], "additionalProperties": False
    }
    yield {
        "$ref": "#/$defs/node", "$defs": {
            "node": thing(value=INTEGER,
                          next={"anyOf": [{"type": "null"}, {"$ref": "#/$defs/node"}]})
        }
    }
    yield {
        "$defs": {"point": thing(x={"type": "number"}, y={"type": "number"})}, "type": "array",
        "items": {"$ref": "#/$defs/point"}, "minItems": 2, "maxItems": 3
    }
    yield {
        "definitions": {"size": {"type": "integer", "minimum": 1, "maximum": 64}},
        **thing(width={"$ref": "#/definitions/size"}, height={"$ref": "#/definitions/size"}),
    }
    yield {
        "anyOf": [
            thing(kind={"const": "circle"}, radius={"type": "number", "exclusiveMinimum": 0}),
            thing(kind={"const": "box"}, width=INTEGER, height=INTEGER),
        ]
    }
    yield {
        "oneOf": [
            thing(card=STRING),
            thing(iban={"type": "string", "pattern": "^[A-Z]{2}[0-9]{8,12}$"}),
        ]
    }
    yield {
        "allOf": [{"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"]},
                  {
                      "properties": {"id": {"minimum": 10, "maximum": 99}, "name": STRING},
                      "required": ["name"],
                  }, ]
    }
    yield {
        "type": "object", "properties": {
            "email": {"type": "string", "format": "email"},
            "phone": {"type": "string", "pattern": "^[0-9]{6}$"}
        }, "anyOf": [{"required": ["email"]}, {"required": ["phone"]}]
    }
    yield {
        "type": "array", "prefixItems": [{"type": "string", "maxLength": 5}, {"type": "integer"}],
        "items": False, "minItems": 2
    }
    yield {
        "type": "array", "prefixItems": [{"const": "add"}, {"type": "integer"}],
        "items": {"type": "integer"}, "minItems": 3, "maxItems": 5
    }
    yield {
        "type": "object", "patternProperties": {"^x-[a-z]{1,8}$": {"type": "boolean"}},
        "additionalProperties": False
    }
    yield {
        "type": "object", "properties": {"id": INTEGER}, "required": ["id"],
        "additionalProperties": {"type": "string", "maxLength": 3}
    }
    yield {"enum": ["a", 1, None, True, {"deep": [1, 2, {"x": "y"}]}, [], "with \"quotes\" and \\"]}
    yield {"const": {"b": 1, "a": [None, "é"]}}
    yield {"type": "string", "minLength": 3, "maxLength": 3}
    yield {"type": "string", "pattern": "^ca", "maxLength": 6}
    yield {"type": "integer", "minimum": -5, "maximum": 5}
    yield {"type": "integer", "exclusiveMinimum": 999, "exclusiveMaximum": 1002}
    yield {"type": "number", "minimum": -1.5, "maximum": 2.25}
    yield {"type": "boolean"}
    yield {"type": "null"}
    yield {
        "title": "T", "description": "d", "default": 1, "examples": [1], "$comment": "c",
        "type": "integer", "multipleOf": 1
    }
    yield {"type": ["integer", "boolean", "null"], "minimum": 0}
    yield {
        "type": "array", "items": {
            "type": "array",
            "items": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}, "maxItems": 2
        }, "maxItems": 2
    }
    yield {"type": "array", "maxItems": 0}
    yield {"type": "object", "additionalProperties": False}
    yield thing(function={"enum": ["get_weather", "get_time"]},
                arguments=thing(city=STRING, days={"type": "integer", "minimum": 1, "maximum": 14}))
    yield {
        "$defs": {
            "expr": {
                "anyOf": [{"type": "integer"},
                          thing(op={"enum": ["+", "*"]}, left={"$ref": "#/$defs/expr"},
                                right={"$ref": "#/$defs/expr"})]
            }
        }, "$ref": "#/$defs/expr"
    }
    for name in FORMATS:
        yield {"type": "string", "format": name}
    for pattern in PATTERNS:
        yield {"type": "string", "pattern": pattern}


class Maker:
    """Random schemas whose texts end: strings and arrays have bounds."""

    def __init__(self, seed):
        self.rng = random.Random(seed)

    def schema(self, depth=3):
        makers = [self.string, self.number, self.simple, self.enum]
        if depth > 0:
            makers += [
                self.object, self.object, self.array, self.any_of, self.all_of, self.reference
            ]
        return self.rng.choice(makers)(depth)

    def string(self, _):
        rng = self.rng
        kind = rng.randrange(4)
        if kind == 0:
            return {"type": "string", "pattern": rng.choice(PATTERNS)}
        if kind == 1:
            return {"type": "string", "format": rng.choice(FORMATS)}
        low = rng.choice([0, 0, 1, 5, 40])
        return {"type": "string", "minLength": low, "maxLength": low + rng.choice([0, 1, 10, 40])}

    def number(self, _):
        rng = self.rng
        kind = rng.choice(["integer", "integer", "number"])
        schema = {"type": kind}
        low = rng.choice([0, 1, -1, -100, 7, 995, rng.randrange(-5000, 5000)])
        if kind == "number" and rng.random() < 0.5:
            low += rng.choice([0.5, 0.25, 0.125])
        if rng.random() < 0.7:
            schema[rng.choice(["minimum", "exclusiveMinimum"])] = low
        if rng.random() < 0.7:
            schema[rng.choice(["maximum",
                               "exclusiveMaximum"])] = low + rng.choice([2, 9, 10, 1000, 3.5])
        return schema

    def simple(self, _):
        return self.rng.choice([{"type": "boolean"}, {"type": "null"}, {"type": "integer"},
                                {"type": "number"}, {"type": ["boolean", "null"]},
                                {"type": ["string", "integer"], "maxLength": 12}])

    def enum(self, _):
        rng = self.rng
        values = rng.sample(WORDS + [0, 1, -7, 2.5, None, True, ["x"], {"k": 1}],
                            rng.randrange(1, 6))
        return {"const": values[0]} if rng.random() < 0.2 else {"enum": values}

    def object(self, depth):
        rng = self.rng
        keys = rng.sample(KEYS, rng.randrange(0, 5))
        schema = {"type": "object", "properties": {key: self.schema(depth - 1) for key in keys},
                  "required": [key for key in keys if rng.random() < 0.6]}
        if rng.random() < 0.5:
            schema["additionalProperties"] = False
        elif rng.random() < 0.2:
            schema["additionalProperties"] = {"type": "boolean"}
        return schema

    def array(self, depth):
        rng = self.rng
        low = rng.choice([0, 0, 1, 2])
        schema = {
            "type": "array", "items": self.schema(depth - 1), "minItems": low,
            "maxItems": low + rng.randrange(0, 3)
        }
        if rng.random() < 0.2:
            schema["prefixItems"] = [self.schema(0) for _ in range(rng.randrange(1, 3))]
        return schema

    def any_of(self, depth):
        return {"anyOf": [self.schema(depth - 1) for _ in range(self.rng.randrange(1, 4))]}

    def all_of(self, depth):
        rng = self.rng
        return {
            "allOf": [{
                "type": "object", "properties": {"a": self.schema(depth - 1)}, "required": ["a"]
            }, {
                "type": "object", "properties": {"b": self.schema(depth - 1)},
                "required": ["b"] if rng.random() < 0.5 else []
            }]
        }

    def reference(self, depth):
        name = f"d{self.rng.randrange(1000)}"
        return {
            "$defs": {name: self.schema(depth - 1)}, "type": "object",
            "properties": {"r": self.schema(0)}
        }


def at_random(count, seed):
    maker = Maker(seed)
    for _ in range(count):
        schema = maker.schema()
        if maker.rng.random() < 0.3:  # a reference to a definition at the root
            schema = {
                "$defs": {"d": schema}, "type": "object", "required": ["p"],
                "properties": {"p": {"$ref": "#/$defs/d"}}
            }
        yield schema


def schemas(count, seed=1):
    made = list(by_hand())
    return (made + list(at_random(max(0, count - len(made)), seed)))[:count]
