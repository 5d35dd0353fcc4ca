#!/usr/bin/env python3
"""Constrained decoding: what the model writes under a schema, sampled at temperature 2, parses and
is valid by the schema, as python3-jsonschema sees it; wrong schemas and grammars are refused with
one line.

Usage: schemas_test.py --larder PROGRAM --model FILE [--schemas N] [--rounds N] [--seed N]
"""
import concurrent.futures
import json
import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs
from larder_testing.schemas import schemas
from larder_testing.server import Server

OPTIONS = None
MOST_TOKENS = 1200


class SchemasTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(OPTIONS.larder, OPTIONS.model, "-c", "2048", "--slots", "8")
        cls.server.__enter__()
        cls.addClassCleanup(cls.server.__exit__, None, None, None)

    def ask(self, **fields):
        status, body = self.server.post(
            "/v1/completions", {
                "prompt": "Once upon a time", "max_tokens": MOST_TOKENS, "temperature": 2,
                "top_k": 0, "top_p": 1, "min_p": 0, **fields
            })
        return status, json.loads(body)

    def text_of(self, **fields):
        status, reply = self.ask(**fields)
        self.assertEqual(status, 200, f"{reply} for {json.dumps(fields)}")
        choice = reply["choices"][0]
        return choice["text"], choice["finish_reason"]

    def check(self, schema, seed):
        """The problem, or None; whether the text is complete."""
        text, reason = self.text_of(
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": schema}},
            seed=seed)
        if reason == "length":
            return None, False
        try:
            VALIDATOR(schema).validate(json.loads(text))
        except (ValueError, jsonschema.ValidationError) as error:
            return ((f"{json.dumps(schema, ensure_ascii=False)}\n  gave {text!r}\n "
                     f" {str(error).splitlines()[0]}"), True,
                    )
        return None, True

    def test_outputs_are_valid(self):
        jobs = [(schema, OPTIONS.seed + turn) for schema in schemas(OPTIONS.schemas)
                for turn in range(OPTIONS.rounds)]
        with concurrent.futures.ThreadPoolExecutor(8) as pool:
            results = list(pool.map(lambda job: self.check(*job), jobs))
        problems = [problem for problem, _ in results if problem]
        complete = sum(done for _, done in results)
        print(
            f"{OPTIONS.schemas} schemas, {len(jobs)} texts, {complete} complete, {len(problems)}"
            " wrong", flush=True,
        )
        self.assertFalse(problems, "\n".join(problems[:5]))
        self.assertGreater(complete, 0.9 * len(jobs),
                           "too many texts did not end within the limit of tokens")

    def test_a_seed_gives_the_same_text(self):
        schema = {
            "type": "object",
            "properties": {"name": {"type": "string", "maxLength": 30}, "n": {"type": "integer"}},
            "required": ["name", "n"],
        }
        self.assertEqual(self.text_of(json_schema=schema, seed=5),
                         self.text_of(json_schema=schema, seed=5))

    def test_other_constraints(self):
        text, _ = self.text_of(grammar='root ::= ("ab" | "c"){2,5} "."')
        self.assertRegex(text, r"^(ab|c){2,5}\.$")
        self.assertIn(
            self.text_of(guided_choice=["yes", "no \"really\"\n"])[0], ["yes", "no \"really\"\n"])
        self.assertRegex(self.text_of(guided_regex="[a-f]{3}\\d")[0], r"^[a-f]{3}\d$")
        self.assertRegex(self.text_of(structured_outputs={"regex": "x{3}"})[0], "^xxx$")
        text, reason = self.text_of(response_format={"type": "json_object"}, temperature=0.5)
        if reason != "length":
            self.assertIsInstance(json.loads(text), dict)
        # The end is the only token that may follow, and it is banned: the text is complete all the
        # same.
        self.assertEqual(self.text_of(grammar='root ::= "abc"', ignore_eos=True), ("abc", "stop"))

    def test_wrong_ones_are_refused(self):
        for fields, message in [
            ({"grammar": "root ::= x"}, "grammar: 1:10: rule 'x' is not defined"),
            ({"grammar": "root ::= root"},
             "grammar: rule 'root' can begin with itself (left recursion): expected it to "
             "begin with something else"),
            ({"json_schema": {"properties": {"a": {"not": {}}}}},
             "json_schema: schema at /properties/a: not is not supported"),
            ({"response_format": {"type": "xml"}}, None),
            ({"response_format": {"type": "json_schema"}}, None),
            ({"grammar": 'root ::= "a"',
              "json_schema": True}, "json_schema and grammar: expected only one of them")
        ]:
            status, reply = self.ask(**fields)
            self.assertEqual(status, 400, reply)
            if message:
                self.assertEqual(reply["error"]["message"], message)


if __name__ == "__main__":
    made = programs.parser(__doc__, "larder", "model")
    made.add_argument("--schemas", type=int, default=300)
    made.add_argument("--rounds", type=int, default=1)
    made.add_argument("--seed", type=int, default=1)
    OPTIONS = programs.options_of_tests(made)
    try:
        import jsonschema
    except ImportError:
        programs.skip("jsonschema not installed (python3-jsonschema)")
    VALIDATOR = jsonschema.Draft202012Validator
    unittest.main()
