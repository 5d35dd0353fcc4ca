#!/usr/bin/env python3
"""Stored responses of `larder serve`: conversations go on by previous_response_id, with the KV
cache of a client that sends all of it; keys see their own only; with --cache-dir they outlive the
process. With OpenAI's client for Python too, where it is installed.

Usage: responses_test.py --larder PROGRAM --model FILE
"""
import argparse
import json
import pathlib
import stat
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs
from larder_testing.server import Server
from larder_testing.waiting import until

try:
    import openai
except ImportError:
    openai = None

OPTIONS = argparse.Namespace(larder=None, model=None)
LIMIT_S = 120
PATH = "/v1/responses"
ANN, BOB = ("key-number-1", "key-number-2")


class ResponsesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(programs.folder_of(self))
        self.cache = self.folder / "cache"
        self.kept = self.cache / ".responses"

    def server(self, *options):
        return Server(OPTIONS.larder, OPTIONS.model, "-c", "2048", "--slots", "2",
                      "--chat-template", "chatml", *options)

    def with_keys(self, *options):
        return self.server("--api-key", ANN, "--api-key", BOB, *options)

    def ask(self, server, path=PATH, body=None, method=None, key=None, status=200):
        head = f"Authorization: Bearer {key}\r\n" if key else ""
        code, text = server.post(
            path, b"" if body is None else body, head, method or ("GET" if body is None else "POST")
        )
        self.assertEqual(code, status, text)
        return json.loads(text)

    def create(self, server, text, previous=None, key=None, **more):
        body = {
            "input": text, "max_output_tokens": 30, "temperature": 0, "ignore_eos": True, **more
        }
        return self.ask(
            server, body=body | ({"previous_response_id": previous} if previous else {}), key=key)

    def test_a_conversation_has_the_cached_prompt_of_one_that_is_sent_whole(self):
        def usage(reply):
            return (reply["usage"]["input_tokens"],
                    reply["usage"]["input_tokens_details"]["cached_tokens"],
                    reply["output"][0]["content"],
                    )
        said = ["Tom and Lily went to the park. What did they see?", "And then?", "Why?"]
        with self.server() as server:
            replies, previous = [], None
            for text in said:
                replies.append(self.create(server, text, previous))
                self.assertEqual(replies[-1]["previous_response_id"], previous)
                previous = replies[-1]["id"]
        with self.server() as server:
            history = []
            for text, reply in zip(said, replies):
                history.append({"role": "user", "content": text})
                whole = self.create(server, history, store=False)
                self.assertEqual(usage(whole), usage(reply))
                history += whole["output"]
        self.assertGreater(
            usage(replies[-1])[1],
            usage(replies[0])[0], "the first turns were computed again")

    def test_the_next_process_has_them(self):
        with self.with_keys("--cache-dir", str(self.cache)) as server:
            first = self.create(server, "Tom had a", key=ANN)
            second = self.create(server, "And then?", first["id"], key=ANN)
            others = self.create(server, "The cat", key=BOB)
            self.ask(server, f"{PATH}/{first['id']}", method="DELETE", key=ANN)
        for path in self.kept.iterdir():
            self.assertEqual(stat.S_IMODE(path.stat().st_mode), 0o600, path)
        self.assertEqual(stat.S_IMODE(self.kept.stat().st_mode), 0o700)
        with self.with_keys("--cache-dir", str(self.cache)) as server:
            self.ask(server, f"{PATH}/{first['id']}", key=ANN, status=404)
            self.assertEqual(self.ask(server, f"{PATH}/{second['id']}", key=ANN), second)
            self.ask(server, f"{PATH}/{second['id']}", key=BOB, status=404)
            self.assertEqual(self.ask(server, f"{PATH}/{others['id']}", key=BOB), others)
            items = self.ask(server, f"{PATH}/{second['id']}/input_items?order=asc",
                             key=ANN)["data"]
            self.assertEqual([item["role"] for item in items], ["user", "assistant", "user"])
            third = self.create(server, "Why?", second["id"], key=ANN)
            self.assertGreater(third["usage"]["input_tokens"], second["usage"]["total_tokens"])
            last = len(list(self.kept.glob("resp_*")))
            refused = self.ask(server, body={"input": "a", "previous_response_id": first["id"]},
                               key=ANN, status=400)
            self.assertEqual(refused["error"]["code"], "previous_response_not_found")
        self.assertGreaterEqual(len(list(self.kept.glob("resp_*"))), last)

    def test_a_process_that_is_killed_leaves_whole_files(self):
        with self.server("--cache-dir", str(self.cache)) as server:
            kept = self.create(server, "Tom had a")
            path = self.kept / f"{kept['id']}.json"
            until(path.exists, LIMIT_S, lambda: f"there is no {path}")
            server.kill()
        (self.kept / "resp_0-1.json").write_text(path.read_text()[:200])
        log = self.folder / "log"
        with log.open("w") as stderr, Server(OPTIONS.larder, OPTIONS.model, "--cache-dir",
                                             str(self.cache), stderr=stderr) as server:
            self.assertEqual(self.ask(server, f"{PATH}/{kept['id']}"), kept)
            self.ask(server, f"{PATH}/resp_0-1", status=404)
        self.assertEqual(log.read_text().count("resp_0-1.json: damaged"), 1, log.read_text())

    def test_bounds(self):
        with self.server("--responses", "2") as server:
            made = [self.create(server, "Tom", max_output_tokens=1)["id"] for _ in range(3)]
            self.ask(server, f"{PATH}/{made[0]}", status=404)
            for one in made[1:]:
                self.ask(server, f"{PATH}/{one}")
        with self.server("--responses", "0") as server:
            self.assertFalse(self.create(server, "Tom", max_output_tokens=1)["store"])

    def test_a_history_may_be_larger_than_a_body(self):
        skipped = {"type": "compaction", "encrypted_content": "x" * 700_000}
        with self.server() as server:
            previous = None
            for _ in range(4):
                previous = self.create(server, [skipped, {"role": "user", "content": "Tom"}],
                                       previous)["id"]
            last = self.create(server, "And then?", previous)
            self.assertLess(last["usage"]["input_tokens"], 2048)
            self.assertEqual(
                len(self.ask(server, f"{PATH}/{last['id']}/input_items?limit=100")["data"]), 13)

    @unittest.skipIf(openai is None, "the package openai of PyPI is not installed")
    def test_openais_client(self):
        with self.with_keys() as server:
            ann, bob = (openai.OpenAI(base_url=f"{server.url}/v1", api_key=key, max_retries=0)
                        for key in (ANN, BOB))
            asked = {"model": "any", "max_output_tokens": 20}
            first = ann.responses.create(input="Tom had a", **asked)
            second = ann.responses.create(input="And then?", previous_response_id=first.id, **asked)
            self.assertEqual(second.previous_response_id, first.id)
            self.assertEqual(ann.responses.retrieve(second.id).output_text, second.output_text)
            # Two pages
            items = list(ann.responses.input_items.list(second.id, order="asc", limit=2))
            self.assertEqual([item.role for item in items], ["user", "assistant", "user"])
            self.assertEqual(items[2].content[0].text, "And then?")
            *_, last = ann.responses.create(input="Why?", previous_response_id=second.id,
                                            stream=True, **asked)
            third = last.response
            self.assertEqual(ann.responses.retrieve(third.id).output_text, third.output_text)
            for refused in (bob.responses.retrieve, bob.responses.delete,
                            bob.responses.input_items.list):
                self.assertRaises(openai.NotFoundError, refused, second.id)
            self.assertRaises(openai.BadRequestError, ann.responses.cancel, second.id)
            ann.responses.delete(second.id)
            self.assertRaises(openai.NotFoundError, ann.responses.retrieve, second.id)
            with self.assertRaises(openai.BadRequestError) as unknown:
                ann.responses.create(input="a", previous_response_id=second.id, **asked)
            self.assertEqual(unknown.exception.code, "previous_response_not_found")


def main():
    vars(OPTIONS).update(
        vars(programs.options_of_tests(programs.parser(__doc__, "larder", "model"))))
    unittest.main()


if __name__ == "__main__":
    main()
