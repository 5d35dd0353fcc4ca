"""Inputs that cost a server far more than their bytes, if it lets them: schemas, grammars, regular
expressions and JSON texts of any size, and the fields of requests that take one.

A shape is a function of a number of bytes, which it does not exceed by much, that returns a text:
of a JSON schema (SCHEMAS), of GBNF (GRAMMARS), a regular expression (PATTERNS), JSON (TEXTS), a
prompt (PROMPTS). A schema is a text because some are nested deeper than this interpreter's
recursion. A Field says where in a request a text of a kind may stand, and `body()` puts it there.
WHOLE are requests that cost by the number of their parts.
"""
import dataclasses
import json
import string


def compact(value):
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def many(count, make):
    return [make(i) for i in range(max(int(count), 1))]


def named(count, make):
    return {f"p{i}": make(i) for i in range(max(int(count), 1))}


# --- schemas ---

def deep_arrays(size):
    return "[" * (size // 2) + "]" * (size // 2)


def deep_objects(size):
    return '{"a":' * (size // 6) + "1" + "}" * (size // 6)


def deep_properties(size):
    one = '{"properties":{"a":'
    return one * (size // 22) + "true" + "}}" * (size // 22)


def deep_any_of(size):
    return '{"anyOf":[' * (size // 12) + "true" + "]}" * (size // 12)


def deep_examples(size):
    """Depth within what only annotates."""
    return '{"examples":' + deep_arrays(size) + "}"


def long_name(size):
    return compact({"type": "object", "properties": {"a" * size: {}}, "additionalProperties": True})


def names_that_share_a_beginning(size):
    count = max(int((size / 10) ** 0.5), 2)
    return compact({
        "properties": {"a" * (size // count // 2) + str(i): {} for i in range(count)},
        "additionalProperties": True
    })


def names_of_one_another(size):
    """Each name begins the next one."""
    count = int((2 * size) ** 0.5)
    return compact(
        {"properties": {"a" * (i + 1): True for i in range(count)}, "additionalProperties": True})


def many_names(size):
    return compact({"properties": named(size / 12, lambda i: True), "additionalProperties": True})


def long_name_over_any_of(size):
    return compact({"properties": {"n" * (size // 2): {"anyOf": many(size / 8, lambda i: {})}}})


def long_name_over_items(size):
    return compact(
        {"properties": {"n" * (size // 2): {"prefixItems": many(size / 10, lambda i: True)}}})


def copying_references(size):
    """Each level has two references to the next, which a sibling makes merge, and annotations that
    are copied with them.
    """
    levels = 4 + size.bit_length() // 2
    examples = [1] * max((size // (levels + 1) - 90) // 2, 1)
    ref = lambda i: {"$ref": f"#/$defs/a{i}", "x": 1}
    defs = {
        f"a{i}": {"anyOf": [ref(i + 1), ref(i + 1)], "examples": examples} for i in range(levels)
    }
    return compact(
        {**ref(0), "$defs": {**defs, f"a{levels}": {"type": "null", "examples": examples}}})


def references_by_the_dozen(size):
    """A small schema that doubles eighteen times, whatever its size is."""
    ref = lambda i: {"$ref": f"#/$defs/a{i}", "title": "x", "minLength": 1}
    defs = {f"a{i}": {"anyOf": [ref(i + 1), ref(i + 1)]} for i in range(18)}
    return compact(
        {**ref(0), "$defs": {**defs, "a18": {"enum": many((size - 1500) / 6, lambda i: str(i))}}})


def references_alone(size):
    levels = max(size // 55, 2)
    defs = {f"a{i}": {"anyOf": [{"$ref": f"#/$defs/a{i + 1}"}] * 2} for i in range(levels)}
    return compact({"$ref": "#/$defs/a0", "$defs": {**defs, f"a{levels}": {"type": "null"}}})


def references_through_a_chain(size):
    levels = max(size // 30, 2)
    defs = {f"a{i}": {"$ref": f"#/$defs/a{i + 1}"} for i in range(levels)}
    return compact({"$ref": "#/$defs/a0", "$defs": {**defs, f"a{levels}": {"type": "null"}}})


def reference_by_a_long_path(size):
    return compact({"anyOf": many(10, lambda i: {"$ref": "#/" + "a/" * (size // 20)})})


def references_that_unescape(size):
    return compact({
        "anyOf": many(max(size / 3000, 1), lambda i: {"$ref": "#/$defs/" + "%41" * 900 + str(i)}),
        "$defs": {}
    })


def references_to_many_properties(size):
    count = max(size // 40, 1)
    return compact({"allOf": many(count / 7, lambda i: {"$ref": "#/$defs/p", "x": i}),
                    "$defs": {"p": {"properties": named(count / 1.2, lambda i: {"type": "null"})}}})


def enum_times_enum(size):
    names = many(size / 18, lambda i: f"v{i}")
    return compact({"allOf": [{"enum": names}, {"enum": names[::-1]}]})


def enum_times_enum_of_references(size):
    names = many((size - 1000) / 18, lambda i: f"v{i}")
    ref = lambda i: ({"$ref": f"#/$defs/a{i}", "enum": names}
                     if i == 0 else {"$ref": f"#/$defs/a{i}", "x": 1})
    defs = {f"a{i}": {"anyOf": [ref(i + 1), ref(i + 1)]} for i in range(8)}
    return compact({**ref(0), "$defs": {**defs, "a8": {"enum": names[::-1]}}})


def enum_of_alike_texts(size):
    """Texts that differ at their ends, compared with one another."""
    count = max(int((size / 2) ** 0.5), 1)
    names = many(count / 2, lambda i: "v" * count + str(i))
    return compact({"allOf": [{"enum": names}, {"enum": names[::-1]}]})


def enum_of_objects(size):
    values = many(size / 60, lambda i: {"a": [i], "b": {"c": i}})
    return compact({"allOf": [{"enum": values}, {"enum": values[::-1]}]})


def large_enum(size):
    return compact({"enum": many(size / 9, lambda i: f"v{i}")})


def enum_of_prefixes(size):
    return compact({"enum": many((2 * size) ** 0.5, lambda i: "a" * i)})


def enum_of_numbers(size):
    return compact({"enum": many(size / 8, lambda i: i * 1.5)})


def type_times_enum(size):
    return compact(
        {"type": many(size / 16, lambda i: "null"), "enum": many(size / 16, lambda i: f"v{i}")})


def type_times_type(size):
    return compact({
        "allOf": [{"type": many(size / 18, lambda i: "null")},
                  {"type": many(size / 18, lambda i: "string")}]
    })


def many_types(size):
    return compact({"type": many(size / 9, lambda i: ["string", "array", "object", "null"][i % 4])})


def required_times_required(size):
    return compact({
        "allOf": [{"required": many(size / 18, lambda i: f"a{i}")},
                  {"required": many(size / 18, lambda i: f"b{i}")}]
    })


def required_times_properties(size):
    count = size / 22
    return compact(
        {"properties": named(count, lambda i: True), "required": many(count, lambda i: f"q{i}")})


def required_times_additional(size):
    """Each required name that is not listed reads what holds for additional ones again."""
    return compact({
        "required": many(size / 16, lambda i: f"a{i}"),
        "additionalProperties": {"pattern": "[" + "a" * min(size // 2, 60_000) + "]"}
    })


def required_times_enum(size):
    return compact({
        "required": many(size / 16, lambda i: f"a{i}"),
        "additionalProperties": {"enum": ["v" * (size // 2)]}
    })


def required_times_reference(size):
    return compact({
        "required": many(size / 16,
                         lambda i: f"a{i}"), "additionalProperties": {"$ref": "#/$defs/a", "x": 1},
        "$defs": {"a": {"type": "null", "examples": ["v"] * (size // 12)}}
    })


def all_of_many(size):
    return compact({"allOf": many(size / 32, lambda i: {"properties": {f"p{i}": True}})})


def all_of_nothing(size):
    return compact({"allOf": many(size / 3, lambda i: {})})


def all_of_all_of(size):
    one = {"minLength": 1}
    for _ in range(min(size // 40, 40)):
        one = {"allOf": [one, {"maxLength": 9}]}
    return compact(one)


def any_of_times_any_of(size):
    """Sixteen ways times sixteen, of what is copied for each."""
    large = {"type": "string", "examples": [1] * (size // 4)}
    return compact({"allOf": [{"anyOf": [large] + [True] * 15}, {"anyOf": [True] * 16}]})


def any_of_beside_an_enum(size):
    """Each way is merged with a copy of what stands beside them."""
    return compact({"enum": ["v" * 8] * (size // 22), "anyOf": many(size / 6, lambda i: {})})


def any_of_many(size):
    return compact({"anyOf": many(size / 16, lambda i: {"type": "null"})})


def any_of_of_patterns(size):
    return compact({"anyOf": many(size / 30, lambda i: {"pattern": f"^[a-z]{{{i % 9 + 1},99}}$"})})


def many_keywords_beside_an_enum(size):
    """Keywords are looked for by their names, for each value of an enum."""
    return compact(
        {**{f"x{i}": 1 for i in range(size // 20)}, "enum": many(size / 20, lambda i: f"v{i}")})


def many_keywords_beside_any_of(size):
    return compact(
        {**{f"x{i}": 1 for i in range(size // 20)}, "anyOf": many(size / 6, lambda i: {})})


def many_fields(size):
    """An object whose fields are searched one by one."""
    return compact({f"x{i}": 1 for i in range(size // 10)})


def fields_that_repeat(size):
    return "{" + ",".join(['"type":"null"'] * (size // 14)) + "}"


def escaped_names(size):
    return "{" + ",".join(f'"\\u0070roperti{chr(101)}s":{{"\\u0061{i}":true}}'
                          for i in range(size // 32)) + "}"


def additional_in_additional(size):
    one = {"type": "null"}
    for i in range(max((size // 50).bit_length() - 1, 1)):
        one = {"properties": {f"p{i}": one}, "additionalProperties": one}
    return compact(one)


def long_pattern(size):
    return compact({"pattern": "^" + "a" * min(size, 60_000) + "$"})


def pattern_in_every_item(size):
    return compact({"prefixItems": many(size / 30, lambda i: {"pattern": "^(a|b){1,9}$"})})


def pattern_properties(size):
    return compact({
        "patternProperties": {
            "^(" + "|".join(f"x{i}" for i in range(min(size, 60_000) // 8)) + ")$": {}
        }
    })


def many_pattern_properties(size):
    return compact({"patternProperties": named(size / 10, lambda i: {})})


def formats(size):
    kinds = ["email", "uri", "date-time", "ipv6", "duration", "uri-reference", "hostname"]
    return compact({"prefixItems": many(size / 24, lambda i: {"format": kinds[i % len(kinds)]})})


def format_and_pattern(size):
    return compact({
        "prefixItems": many(
            max(size / 60_000, 1),
            lambda i: {"format": "email", "pattern": "a" * min(size, 50_000) + "(?=b)"})
    })


def lengths(size):
    return compact({
        "prefixItems": many(
            size / 50, lambda i: {"type": "string", "minLength": i, "maxLength": 1_000_000 - i})
    })


def lengths_of_patterns(size):
    return compact({
        "prefixItems": many(
            size / 70,
            lambda i: {"pattern": "^[a-z]+$", "minLength": i % 100, "maxLength": 100_000})
    })


def bounds_of_many_digits(size):
    return '{"type":"number","minimum":' + "1" * max(size - 30, 1) + "}"


def bounds_of_large_exponents(size):
    return '{"prefixItems":[' + ",".join('{"minimum":1e-300,"maximum":1e300}'
                                         for _ in range(size // 36)) + "]}"


def bounds_of_forty_digits(size):
    return '{"prefixItems":[' + ",".join(
        '{"type":"integer","minimum":-9223372036854775807,"maximum":18446744073709551615}'
        for _ in range(size // 80)) + "]}"


def multiples(size):
    return '{"type":"integer","multipleOf":' + "9" * max(size - 40, 1) + "}"


def many_items(size):
    return compact({"prefixItems": many(size / 5, lambda i: True), "minItems": 1})


def counts(size):
    return compact({
        "prefixItems": many(
            size / 60, lambda i:
            {"type": "array", "items": {"type": "null"}, "minItems": 999, "maxItems": 99999 + i})
    })


def unsupported_late(size):
    """A keyword that is refused when all the others were read."""
    return compact(
        {"properties": {**named(size / 25, lambda i: {"type": "string"}), "last": {"not": {}}}})


def keyword_of(name, value):
    def made(size):
        return compact(
            {"properties": {f"p{i}": {name: value} for i in range(size // 40)}, name: value})
    made.__name__ = f"keyword_{name.strip('$')}"
    return made


SCHEMAS = [
    deep_arrays, deep_objects, deep_properties, deep_any_of, deep_examples, long_name,
    names_that_share_a_beginning, names_of_one_another, many_names, long_name_over_any_of,
    long_name_over_items, copying_references, references_by_the_dozen, references_alone,
    references_through_a_chain, reference_by_a_long_path, references_that_unescape,
    references_to_many_properties, enum_times_enum, enum_times_enum_of_references,
    enum_of_alike_texts, enum_of_objects, large_enum, enum_of_prefixes, enum_of_numbers,
    type_times_enum, type_times_type, many_types, required_times_required,
    required_times_properties, required_times_additional, required_times_enum,
    required_times_reference, all_of_many, all_of_nothing, all_of_all_of, any_of_times_any_of,
    any_of_beside_an_enum, any_of_many, any_of_of_patterns, many_keywords_beside_an_enum,
    many_keywords_beside_any_of, many_fields, fields_that_repeat, escaped_names,
    additional_in_additional, long_pattern, pattern_in_every_item, pattern_properties,
    many_pattern_properties, formats, format_and_pattern, lengths, lengths_of_patterns,
    bounds_of_many_digits, bounds_of_large_exponents, bounds_of_forty_digits, multiples, many_items,
    counts, unsupported_late,
    *(keyword_of(name, value)
      for name, value in [("if", {"const": 1}), ("not", {}), ("dependentRequired", {"a": ["b"]}),
                          ("dependentSchemas", {"a": {}}), ("unevaluatedProperties", False),
                          ("propertyNames", {"pattern": "a"}), ("contains", {}),
                          ("uniqueItems", True)])]


# --- GBNF ---

def chain_of_rules(size):
    """Every byte enters all rules of the chain anew."""
    count = max((size - 250) // 44, 1)
    rules = [f'r{i} ::= r{i + 1} "{"x" * 25}"' for i in range(count - 1)]
    last = " | ".join(f'"{c}" s "{i}"' for i, c in enumerate(string.ascii_lowercase + " "))
    return "\n".join(["root ::= s", "s ::= r0", *rules, f'r{count - 1} ::= {last} | "!"']) + "\n"


def nested_repeats(size):
    depth = min(size // 12, 95)
    return "root ::= " + "(" * depth + '"a"?' + "){0,9}" * depth + "\n"


def counted_repeats(size):
    return "root ::= " + " ".join(["[a-z]{0,999999}"] * (size // 16)) + "\n"


def repeats_of_repeats(size):
    return "root ::= " + "(" + " ".join(['("a"{1,99} | "b"?){0,48}'] *
                                        (size // 26)) + "){1,1000000}\n"


def rules_that_are_copied(size):
    """A rule that is small enough to be copied to where it is used, and a class of many ranges in
    it.
    """
    ranges = "".join(chr(0x100 + 3 * i) for i in range(min(size // 5, 18_000)))
    return f"root ::= {'r ' * (size // 4)}\nr ::= [{ranges}]\n"


def repeats_of_a_large_class(size):
    ranges = "".join(chr(0x100 + 3 * i) for i in range(min(size // 5, 18_000)))
    return f"root ::= {'r{2,3} ' * (size // 14)}\nr ::= [{ranges}]\n"


def large_classes(size):
    return "root ::= " + " ".join(["[^" + "".join(chr(0x4e00 + 2 * i)
                                                  for i in range(80)) + "]"] * (size // 250)) + "\n"


def large_literal(size):
    return 'root ::= "' + "x" * size + '"\n'


def many_literals(size):
    return "root ::= " + " | ".join(f'"x{i}"' for i in range(size // 11)) + "\n"


def literals_of_control_tokens(size):
    return 'root ::= "' + "<|im_end|>" * (size // 10) + '"\n'


def rules_that_call_each_other(size):
    count = max(int((size / 12) ** 0.5), 2)
    return "root ::= r0\n" + "".join(f"r{i} ::= " + " | ".join(f'"{i}" r{j}'
                                                               for j in range(count)) + "\n"
                                     for i in range(count))


def rules_that_may_be_empty(size):
    count = size // 24
    return "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}? r{i + 1}?\n"
                                     for i in range(count)) + f'r{count} ::= "a"\n'


def many_ways_of_one_text(size):
    return "root ::= (" + " | ".join(['"a"+'] * (size // 9)) + ")+\n"


def ambiguous_sequences(size):
    return "root ::= " + " ".join(['"a"*'] * (size // 5)) + ' "b"\n'


def schemas_in_a_grammar(size):
    return "root ::= " + " | ".join(['%json {"type":"object"}'] * (size // 26)) + "\n"


def deep_schema_in_a_grammar(size):
    return "root ::= %json " + deep_objects(size) + "\n"


def many_rules(size):
    return "root ::= r0\n" + "".join(f'r{i} ::= "a"\n' for i in range(size // 13))


def comments(size):
    return 'root ::= "a"\n' + "#\n" * (size // 2)


def error_at_the_end(size):
    return "root ::= " + '"a" ' * (size // 4) + "("


GRAMMARS = [
    chain_of_rules, nested_repeats, counted_repeats, repeats_of_repeats, rules_that_are_copied,
    repeats_of_a_large_class, large_classes, large_literal, many_literals,
    literals_of_control_tokens, rules_that_call_each_other, rules_that_may_be_empty,
    many_ways_of_one_text, ambiguous_sequences, schemas_in_a_grammar, deep_schema_in_a_grammar,
    many_rules, comments, error_at_the_end
]


# --- regular expressions ---

def ways(size):
    return "|".join(f"x{i}" for i in range(size // 8 + 1))


def ways_in_a_group(size):
    return "(" + "|".join(["a*"] * (size // 3)) + ")*"


def nested_groups(size):
    depth = min(size // 6, 95)
    return "(" * depth + "a?" + "){0,9}" * depth


def nested_quantifiers(size):
    depth = min(size // 4, 95)
    return "(" * depth + "a" + "+)+" .replace("+)", ")") * depth


def quantities(size):
    return "".join(["[a-z]{0,999999}"] * (size // 15 + 1))


def classes(size):
    return "".join(["[^" + "".join(chr(0x4e00 + 2 * i)
                                   for i in range(20)) + "]"] * (size // 65 + 1))


def one_class(size):
    return "[" + "".join(chr(0x100 + 2 * i) for i in range(min(size // 3, 20_000))) + "]{1,9}"


def dots(size):
    return "." * size


def dots_that_repeat(size):
    return ".*" * (size // 2) + "x"


def look_ahead_at_the_end(size):
    return "a" * size + "(?=b)"


PATTERNS = [
    ways, ways_in_a_group, nested_groups, nested_quantifiers, quantities, classes, one_class, dots,
    dots_that_repeat, look_ahead_at_the_end
]


# --- JSON texts: arguments of calls ---

def keys_in_a_row(size):
    return compact({f"k{i}": i for i in range(size // 14)})


def keys_below(size):
    return compact({"a": {f"k{i}": i for i in range(size // 14)}})


def numbers(size):
    return "[" + "0," * (size // 2) + "0]"


def empty_arrays(size):
    return '{"a":[' + "[]," * (size // 3) + "0]}"


def one_text(size):
    return compact({"a": "\\" * (size // 2)})


TEXTS = [deep_arrays, deep_objects, keys_in_a_row, keys_below, numbers, empty_arrays, one_text]


# --- prompts ---

def one_letter(size):
    return "a" * size


def spaces(size):
    return " " * size


def digits(size):
    return "1" * size


def control_tokens(size):
    return "<|im_start|>" * (size // 12)


def parts_of_control_tokens(size):
    return "<|im_star" * (size // 9)


def combining_marks(size):
    return "e" + "\u0301" * (size // 2)


def ideographs(size):
    return "\u4e2d" * (size // 3)


PROMPTS = [
    one_letter, spaces, digits, control_tokens, parts_of_control_tokens, combining_marks, ideographs
]

SHAPES = {
    "schema": SCHEMAS, "grammar": GRAMMARS, "pattern": PATTERNS, "text": TEXTS, "prompt": PROMPTS
}


# --- fields ---

MARK = "@here@"


@dataclasses.dataclass(frozen=True)
class Field:
    """Where a text of `kind` may stand. `as_text`: as a string, not as a JSON value. `name`: as the
    request has it, if it is spelled with an escape."""
    path: str
    where: str
    kind: str
    request: dict
    as_text: bool = True
    escaped: bool = False
    line_of_batch: bool = False
    # That the field takes, so that it is not refused for its size alone
    most_bytes: int = 1_000_000

    def __str__(self):
        return f"{self.path} {self.where}" + (" as a text"
                                              if self.as_text and self.kind == "schema" else "")

    def body(self, text):
        """A request's body, as bytes. Escapes that a text has in itself stay."""
        body = compact(self.request).replace(f'"{MARK}"', compact(text) if self.as_text else text)
        if self.escaped:
            name = self.where.split(".")[0]
            body = body.replace(f'"{name}"', f'"{name[:-2]}\\u{ord(name[-2]):04x}{name[-1]}"', 1)
        if self.line_of_batch:
            body = f'{{"custom_id":"a","method":"POST","url":"{self.path}","body":{body}}}'
        return body.encode()

    @property
    def route(self):
        return "batch" if self.line_of_batch else self.path


def _fields():
    user = [{"role": "user", "content": "x"}]
    native = {"prompt": "Once", "n_predict": 1}
    completion = {"prompt": "Once", "max_tokens": 1}
    chat = {"messages": user, "max_tokens": 1}
    messages = {"messages": user, "max_tokens": 1}
    responses = {"input": "x", "max_output_tokens": 1}
    ollama = {"messages": user, "options": {"num_predict": 1}}

    def schema(path, where, request, **more):
        for as_text in (False, True):
            yield Field(path, where, "schema", request, as_text=as_text, **more)

    for path in ("/completion", "text"):
        yield from schema(path, "json_schema", {**native, "json_schema": MARK})
        yield Field(path, "grammar", "grammar", {**native, "grammar": MARK})
    yield Field("/completion", "json_schema, spelled with an escape", "schema",
                {**native, "json_schema": MARK}, as_text=False, escaped=True)
    for name in ("response_format", "guided_json"):
        value = MARK if name == "guided_json" else {"type": "json_object", "schema": MARK}
        yield from schema("/v1/completions", name, {**completion, name: value})
        yield from schema("/v1/completions", name, {**completion, name: value}, line_of_batch=True)
    yield from schema("/v1/completions", "structured_outputs.json",
                      {**completion, "structured_outputs": {"json": MARK}})
    for prefix, outer in (("guided_", None), ("structured_outputs.", "structured_outputs")):
        for name, kind in (("grammar", "grammar"), ("regex", "pattern")):
            value = {f"guided_{name}": MARK} if outer is None else {outer: {name: MARK}}
            yield Field("/v1/completions", prefix + name, kind, {**completion, **value})
    yield from schema(
        "/v1/chat/completions", "response_format.json_schema.schema", {
            **chat, "response_format": {
                "type": "json_schema", "json_schema": {"name": "a", "schema": MARK}
            }
        })
    for path in ("/v1/chat/completions", "/v1/chat/completions/input_tokens", "/apply-template"):
        yield from schema(path, "response_format.schema",
                          {**chat, "response_format": {"type": "json_object", "schema": MARK}})
    yield from schema(
        "/v1/responses", "text.format.schema",
        {**responses, "text": {"format": {"type": "json_schema", "name": "a", "schema": MARK}}})
    yield from schema(
        "/v1/responses/input_tokens", "text.format.schema",
        {**responses, "text": {"format": {"type": "json_schema", "name": "a", "schema": MARK}}})
    yield from schema("/v1/messages", "output_format.schema",
                      {**messages, "output_format": {"type": "json_schema", "schema": MARK}})
    yield from schema(
        "/v1/messages", "output_config.format.schema",
        {**messages, "output_config": {"format": {"type": "json_schema", "schema": MARK}}})
    yield from schema("/api/chat", "format", {**ollama, "format": MARK})
    yield from schema("/api/generate", "format",
                      {"prompt": "x", "options": {"num_predict": 1}, "format": MARK})
    # The schema of a tool's arguments, where calls are constrained, and where the tool is only
    # shown to the model.
    tool = {"type": "function", "function": {"name": "f", "parameters": MARK}}
    flat = {"type": "function", "name": "f", "parameters": MARK}
    few = {"as_text": False, "most_bytes": 60_000}
    for path in ("/v1/chat/completions", "/v1/chat/completions/input_tokens"):
        yield Field(path, "tools, required", "schema",
                    {**chat, "tools": [tool], "tool_choice": "required"}, **few)
    yield Field("/v1/chat/completions", "tools, strict", "schema",
                {**chat, "tools": [{**tool, "function": {**tool["function"], "strict": True}}]},
                **few)
    yield Field("/apply-template", "tools", "schema", {**chat, "tools": [tool]}, **few)
    yield Field("/v1/chat/completions", "functions", "schema",
                {**chat, "functions": [tool["function"]], "function_call": {"name": "f"}}, **few)
    yield Field("/v1/responses", "tools", "schema",
                {**responses, "tools": [flat], "tool_choice": "required"}, **few)
    yield Field("/v1/messages", "tools", "schema", {
        **messages, "tools": [{"name": "f", "input_schema": MARK}], "tool_choice": {"type": "any"}
    }, **few)
    yield Field("/api/chat", "tools", "schema", {**ollama, "tools": [tool]}, **few)
    # Arguments of earlier calls: JSON in a text.
    def called(arguments):
        call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": arguments}}
        return [*user, {"role": "assistant", "content": None, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": "y"}]
    for path in ("/v1/chat/completions", "/v1/chat/completions/input_tokens", "/apply-template"):
        yield Field(path, "tool_calls.arguments", "text", {**chat, "messages": called(MARK)})
    yield Field("/v1/chat/completions", "tool_calls.arguments", "text",
                {**chat, "messages": called(MARK)}, line_of_batch=True)
    yield Field("/api/chat", "tool_calls.arguments", "text", {**ollama, "messages": called(MARK)},
                as_text=False)
    yield Field(
        "/v1/messages", "tool_use.input", "text", {
            **messages, "messages": [
                *user, {
                    "role": "assistant",
                    "content": [{"type": "tool_use", "id": "t", "name": "f", "input": MARK}]
                }, {
                    "role": "user",
                    "content": [{"type": "tool_result", "tool_use_id": "t", "content": "y"}]
                }
            ]
        }, as_text=False)
    yield Field(
        "/v1/responses", "function_call.arguments", "text", {
            **responses, "input": [{"type": "message", "role": "user", "content": "x"}, {
                "type": "function_call", "call_id": "c", "name": "f", "arguments": MARK
            }, {"type": "function_call_output", "call_id": "c", "output": "y"}]
        })
    yield Field("/apply-template", "chat_template_kwargs", "text",
                {**chat, "chat_template_kwargs": {"x": MARK}}, as_text=False)
    # Prompts.
    yield Field("/tokenize", "content", "prompt", {"content": MARK})
    yield Field("/v1/completions", "prompt", "prompt", {**completion, "prompt": MARK})
    yield Field("/apply-template", "messages", "prompt",
                {"messages": [{"role": "user", "content": MARK}]})


FIELDS = list(_fields())


# --- whole requests: what costs in them is that there is much of something ---

def _tools(schemas):
    return {
        "messages": [{"role": "user", "content": "x"}], "max_tokens": 1, "tool_choice": "required",
        "tools": [{"type": "function", "function": {"name": f"f{i}", "parameters": schema}}
                  for i, schema in enumerate(schemas)]
    }


def dozens_of_references(ways, i=0):
    """The schema of arguments whose only parameter, q, has `ways` references to schemas of as many
    references, four times.
    """
    defs = {
        f"a{level}": {"anyOf": [{"$ref": f"#/$defs/a{level + 1}"}] * ways} for level in range(4)
    }
    return {
        "type": "object", "properties": {"q": {"$ref": "#/$defs/a0"}},
        "$defs": {**defs, "a4": {"type": "null"}}, "title": f"t{i}"
    }


def tools_that_each_cost_much(size):
    """Together they are too much for a grammar; each alone is not quite."""
    def one(i):
        ref = lambda level: {"$ref": f"#/$defs/a{level}", "x": i}
        defs = {f"a{level}": {"anyOf": [ref(level + 1)] * 8} for level in range(4)}
        return {
            "type": "object", "properties": {"q": ref(0)},
            "$defs": {**defs, "a4": {"type": "object", "properties": {"a": {"type": "null"}}}}
        }
    return _tools(many(min(size / 1200, 512), one))


def tools_of_dozens_of_references(size):
    ways = min(size, 60_000) // 95
    return _tools([dozens_of_references(ways, size)])


def tools_beside_definitions(size):
    """Many parameters, each of which may refer to what is defined beside them."""
    count = max(size // 60_000, 1)
    return _tools(
        many(
            count, lambda i: {
                "type": "object", "properties": {
                    f"p{k}": {"type": "integer"} for k in range(size // count // 60)
                }, "$defs": {"a": {"examples": ["v" * (size // count // 2)], "title": f"t{i}"}}
            }))


def many_tools(size):
    """Nothing is wrong with them."""
    properties = {f"p{k}": {"type": "string"} for k in range(20)}
    return _tools(
        many(
            min(size / 1480, 512), lambda i:
            {"type": "object", "description": f"{i}" + "d" * 900, "properties": properties}))


def many_prompts(size):
    return {"prompt": ["word " * (size // 320)] * 64, "max_tokens": 1}


def many_calls(size):
    return {
        "input": [{"type": "function_call", "call_id": f"c{i}", "name": "f", "arguments": "{}"}
                  for i in range(min(size // 70, 4000))] + [{"role": "user", "content": "x"}],
        "max_output_tokens": 1
    }


def many_messages(size):
    count = min(size // 40, 4000)
    return {
        "messages": [{"role": ["user", "assistant"][i % 2], "content": "w" * (size // count - 38)}
                     for i in range(count | 1)]
    }


def many_choices(size):
    return {"prompt": "x", "max_tokens": 1, "guided_choice": [f"v{i}" for i in range(size // 9)]}


# (path, function of bytes)
REQUESTS = [("/v1/chat/completions", tools_that_each_cost_much),
            ("/v1/chat/completions", tools_of_dozens_of_references),
            ("/v1/chat/completions", tools_beside_definitions),
            ("/v1/chat/completions", many_tools), ("/v1/completions", many_prompts),
            ("/v1/responses", many_calls), ("/apply-template", many_messages),
            ("/v1/completions", many_choices)]


@dataclasses.dataclass(frozen=True)
class WholeRequest:
    """As a Field whose text is the whole body."""
    path: str
    where: str = "in all"
    kind: str = "request"
    as_text: bool = False
    line_of_batch: bool = False
    most_bytes: int = 1_000_000

    def __str__(self):
        return self.path

    def body(self, text):
        return text.encode()

    @property
    def route(self):
        return self.path


def as_shape(request):
    """A function of a whole request as a shape, which gives a text."""
    def made(size):
        return compact(request(size))
    made.__name__ = request.__name__
    return made


WHOLE = [(WholeRequest(path), as_shape(request)) for path, request in REQUESTS]
