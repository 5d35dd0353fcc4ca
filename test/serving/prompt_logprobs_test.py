#!/usr/bin/env python3
"""Log-probabilities of prompts: `larder serve` gives those that `larder perplexity` writes, to the
bit, in every placement of the sockets, whatever is in the KV cache and whoever else asks, in each
form in which clients ask for them.

Usage: prompt_logprobs_test.py --larder PROGRAM --model FILE
"""
import argparse
import concurrent.futures
import json
import os
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clusters, programs
from larder_testing.clusters import socket
from larder_testing.server import Server

OPTIONS = argparse.Namespace(larder=None, model=None)
CONTEXT = 1024
TEXT = (
    "Once upon a time there was a little cat who lived in a big house with a boy. Every day the cat"
    " went to the park to play with the ball. One day she saw a bird in a tree and she wanted to be"
    " its friend. \"Hello,\" said the bird. \"Do you want to fly with me?\" " * 3)
ONE, OTHER = "cores:0", "cores:1"
PLACEMENTS = {
    "colocated": None,
    "separated": [socket("weights", "weight", ONE), socket("kv", "attention", OTHER)],
    "two stages": [socket("first", "colocated", ONE), socket("second", "colocated", OTHER)],
    "two stages with attention sockets": [
        socket("w0", "weight", ONE),
        socket("a0", "attention", OTHER, **{"for": "w0"}),
        socket("w1", "weight", ONE),
        socket("a1", "attention", OTHER, **{"for": "w1"}),
    ],
}


class PromptLogprobsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(programs.folder_of(cls))
        words = subprocess.run([OPTIONS.larder, "tokenize", "-m", OPTIONS.model, "--ids", TEXT],
                               check=True, capture_output=True, text=True)
        cls.ids = [
            int(word)
            for word in words.stdout.replace("[", " ").replace("]", " ").replace(",", " ").split()
        ]
        cls.wanted = cls.scored(cls.ids)
        assert len(cls.ids) > 200

    @classmethod
    def scored(cls, ids):
        """What `larder perplexity` says of each token but the first."""
        given, out = cls.folder / "ids", cls.folder / "logprobs"
        given.write_text(" ".join(map(str, ids)))
        subprocess.run(
            [OPTIONS.larder, "perplexity", "-m", OPTIONS.model, "--ids", given, "--logprobs", out],
            check=True, capture_output=True)
        return [float(line) for line in out.read_text().split()]

    def server(self, *options, placement="colocated"):
        sockets = PLACEMENTS[placement]
        model = ["-c", str(CONTEXT), "--slots", "4", "--chat-template", "chatml", *options]
        if sockets is not None:
            path = self.folder / "cluster.toml"
            path.write_text(
                clusters.manifest(clusters.server("here", *sockets), name=f"prompts-{os.getpid()}"))
            model += ["--manifest", str(path)]
        return Server(OPTIONS.larder, OPTIONS.model, *model)

    def ask(self, server, path="/v1/completions", status=200, **body):
        code, text = server.post(path, body)
        self.assertEqual(code, status, text)
        return json.loads(text)

    def same(self, got, wanted):
        """Lists of log-probabilities, of which `wanted` is read from nine digits of a float."""
        self.assertEqual([format(value, ".9g") for value in got],
                         [format(value, ".9g") for value in wanted])

    def echoed(self, server, ids, **more):
        reply = self.ask(server, prompt=ids, echo=True, logprobs=1, max_tokens=1, temperature=0,
                         **more)["choices"][0]["logprobs"]
        self.assertIsNone(reply["token_logprobs"][0])
        self.assertEqual(len(reply["token_logprobs"]), len(ids) + 1)
        return reply

    def test_they_are_those_of_larder_perplexity_in_every_placement(self):
        for placement in PLACEMENTS:
            with self.subTest(placement), self.server(placement=placement) as server:
                whole = self.ask(server, prompt=self.ids, prompt_logprobs=3,
                                 max_tokens=0)["choices"][0]["prompt_logprobs"]
                self.same(
                    [entry[str(token)]["logprob"] for entry, token in zip(whole[1:], self.ids[1:])],
                    self.wanted)
                # What the KV cache has is computed again
                self.same(self.echoed(server, self.ids)["token_logprobs"][1:-1], self.wanted)
                # Its KV is like any prompt's: one that only wants tokens goes on from it.
                usage = self.ask(server, prompt=self.ids + self.ids[:3], max_tokens=1)["usage"]
                self.assertGreaterEqual(usage["prompt_tokens_details"]["cached_tokens"],
                                        len(self.ids) - 1)

    def test_others_and_small_steps_change_nothing(self):
        with self.server("--ubatch-size",
                         "16") as server, concurrent.futures.ThreadPoolExecutor(8) as pool:
            texts = [
                pool.submit(self.ask, server, prompt=TEXT[40 * at:], max_tokens=30, temperature=0,
                            ignore_eos=True) for at in range(4)
            ]
            scored = [pool.submit(self.echoed, server, self.ids) for _ in range(6)]
            alone = [
                pool.submit(self.ask, server, prompt=TEXT[40 * at:], max_tokens=30, temperature=0,
                            ignore_eos=True) for at in range(4)
            ]
            for one in scored:
                self.same(one.result()["token_logprobs"][1:-1], self.wanted)
            for first, second in zip(texts, alone):
                self.assertEqual(first.result()["choices"][0]["text"],
                                 second.result()["choices"][0]["text"])

    def test_a_token_that_ends_the_text_is_in_the_list(self):
        with self.server() as server:
            eos = json.loads(server.get("/tokenizer_info")[1])["eos_token"]
            ended = json.loads(
                server.post("/tokenize",
                            {"prompt": eos, "add_special_tokens": False})[1])["tokens"][0]
            reply = self.ask(server, prompt=self.ids[:8], echo=True, logprobs=1, max_tokens=4,
                             logit_bias={str(ended): 100})
            self.assertEqual(reply["usage"]["completion_tokens"], 0)
            self.assertEqual(reply["choices"][0]["logprobs"]["tokens"][-1], eos)
            self.assertEqual(len(reply["choices"][0]["logprobs"]["tokens"]), 9)

    def test_every_form_has_the_same_numbers(self):
        with self.server() as server:
            text = TEXT[:300]
            ids = json.loads(server.post("/tokenize", {"prompt": text})[1])["tokens"]
            wanted = self.scored(ids)
            reply = self.ask(server, prompt=[text, ids, self.ids], echo=True, logprobs=5,
                             prompt_logprobs=2, max_tokens=2, n=2, seed=1)
            self.assertEqual(len(reply["choices"]), 6)
            for at, choice in enumerate(reply["choices"]):
                lists = choice["logprobs"]
                prompt, truth = (ids, wanted) if at < 4 else (self.ids, self.wanted)
                self.same(lists["token_logprobs"][1:len(prompt)], truth)
                self.same([
                    entry[str(token)]["logprob"]
                    for entry, token in zip(choice["prompt_logprobs"][1:], prompt[1:])
                ], truth)
                for entry, token, top in zip(choice["prompt_logprobs"][1:], prompt[1:],
                                             lists["top_logprobs"][1:]):
                    ranks = sorted(one["rank"] for one in entry.values())
                    self.assertEqual(ranks, sorted({1, 2, entry[str(token)]["rank"]}))
                    self.assertLessEqual(len(top), 6)
                    self.assertEqual(max(top.values()),
                                     max(one["logprob"] for one in entry.values()))
                if at < 2:
                    self.assertTrue(choice["text"].startswith(text))
                    for token, begin, end in zip(lists["tokens"], lists["text_offset"],
                                                 lists["text_offset"][1:]):
                        self.assertIn(choice["text"][begin:end], ("", token, token.lstrip(" ")))
            with server.connect(server.http) as connection:
                body = json.dumps({
                    "prompt": text, "echo": True, "logprobs": 5, "max_tokens": 2, "stream": True,
                    "seed": 1
                }).encode()
                connection.sendall(
                    b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nConnection:"
                    b" close\r\nContent-Length: %d\r\n\r\n" % len(body) + body)
                stream = b"".join(iter(lambda: connection.recv(1 << 16), b"")).decode()
            events = [
                json.loads(line[6:]) for line in stream.split("\n") if line.startswith("data: {")
            ]
            self.assertEqual(events[0]["choices"][0]["text"], text)
            self.same(events[0]["choices"][0]["logprobs"]["token_logprobs"][1:], wanted)
            chat = self.ask(server, "/v1/chat/completions",
                            messages=[{"role": "user",
                                       "content": text}], prompt_logprobs=1, max_tokens=1)
            self.assertEqual(len(chat["prompt_logprobs"]), chat["usage"]["prompt_tokens"])
            rendered = json.loads(
                server.post("/apply-template",
                            {"messages": [{"role": "user", "content": text}]})[1])["prompt"]
            ids = json.loads(server.post("/tokenize", {"prompt": rendered})[1])["tokens"]
            self.same([
                entry[str(token)]["logprob"]
                for entry, token in zip(chat["prompt_logprobs"][1:], ids[1:])
            ], self.scored(ids))

    def test_what_is_refused_says_why(self):
        with self.server() as server:
            for body, word in (({"prompt_logprobs": 21}, "20"), ({
                    "prompt_logprobs": -1
            }, "0 to 20"), ({"prompt_logprobs": 1,
                             "stream": True}, "stream"), ({"echo": True, "logprobs": 21}, "20")):
                self.assertIn(word,
                              self.ask(server, status=400, prompt="a", **body)["error"]["message"])


if __name__ == "__main__":
    OPTIONS = programs.options_of_tests(programs.parser(__doc__, "larder", "model"))
    programs.skip_without_two_cpus("a socket on each")
    unittest.main()
