#!/usr/bin/env python3
"""The scripted model says its scripts: with `larder run`, and over HTTP at any temperature; the
endless one until it is stopped.

Usage: scripted_model_test.py --larder PROGRAM
"""
import concurrent.futures
import json
import pathlib
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs, scripted_model
from larder_testing.scripts_of_model import ENDLESS, SCRIPTS, opener
from larder_testing.server import Server

OPTIONS = None
TURNS = [(opener(name, turn), text) for name, turns in SCRIPTS.items()
         for turn, text in enumerate(turns)]


class ScriptedModelTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.model = str(programs.folder_of(cls) / "scripted.gguf")
        scripted_model.write(cls.model)
        cls.server = Server(OPTIONS.larder, cls.model).__enter__()
        cls.addClassCleanup(cls.server.end)

    def completion(self, prompt, **more):
        status, body = self.server.post("/completion", {"prompt": prompt, **more})
        self.assertEqual(status, 200, body)
        return json.loads(body)

    def test_run(self):
        begin, text = TURNS[0]
        done = subprocess.run([OPTIONS.larder, "run", "-m", self.model, "-p", begin, "--temp", "0"],
                              stdin=subprocess.DEVNULL, capture_output=True, check=True)
        self.assertEqual(done.stdout.decode().removeprefix(begin).strip(), text)

    def test_every_turn_at_every_temperature(self):
        for temperature in (0, 0.8, 2):
            for begin, text in TURNS:
                reply = self.completion(f"Any text, ü too: {begin}", temperature=temperature)
                self.assertEqual((reply["content"], reply["stop_type"]), (text, "eos"), begin)

    def test_all_turns_at_once(self):
        with concurrent.futures.ThreadPoolExecutor(len(TURNS)) as pool:
            for (_, text), reply in zip(TURNS,
                                        pool.map(self.completion, [begin for begin, _ in TURNS])):
                self.assertEqual(reply["content"], text)

    def test_endless(self):
        reply = self.completion(opener("endless", 0), n_predict=200)
        self.assertEqual(reply["stop_type"], "limit")
        self.assertEqual(reply["content"], (ENDLESS * 10)[:len(reply["content"])])

    def chat(self, script, **more):
        status, body = self.server.post(
            "/v1/chat/completions",
            {"messages": [{"role": "user", "content": f"#{script}"}], **more})
        self.assertEqual(status, 200, body)
        return json.loads(body)["choices"][0]

    def test_stop_strings_look_at_the_answer_only(self):
        for stop in ("how", "Nobody", "I need not"):  # in the thought
            choice = self.chat("think", stop=[stop])
            self.assertEqual((choice["message"]["content"], choice["finish_reason"]),
                             ("Forty-two.", "stop"), stop)
        choice = self.chat("think", stop=["how", "-two", "two"])
        self.assertEqual((choice["message"]["content"], choice["finish_reason"]), ("Forty", "stop"))
        self.assertIn("Nobody asked how", choice["message"]["reasoning_content"])
        self.assertEqual(
            self.chat("think", stop=["two.!"])["message"]["content"], "Forty-two.",
            "what was held back")
        streamed = self.server.post(
            "/v1/chat/completions", {
                "messages": [{"role": "user", "content": "#think"}], "stop": ["how", "-two"],
                "stream": True
            })[1]
        deltas = [
            json.loads(line[6:])["choices"][0]["delta"] for line in streamed.decode().splitlines()
            if line.startswith("data: {")
        ]
        self.assertEqual("".join(delta.get("content") or "" for delta in deltas), "Forty")
        tool = {
            "type": "function", "function": {
                "name": "get_time",
                "parameters": {"type": "object", "properties": {"zone": {"type": "string"}}}
            }
        }
        called = self.chat("call", tools=[tool],
                           stop=["UTC"])["message"]["tool_calls"][0]["function"]
        self.assertEqual(json.loads(called["arguments"]), {"zone": "UTC"})

    def test_many_texts_to_embed(self):
        with Server(OPTIONS.larder, self.model, "--pooling", "mean") as server:
            for count in (129, 2048):
                status, body = server.post("/v1/embeddings", {"input": ["a b"] * count})
                self.assertEqual((status, len(json.loads(body)["data"])), (200, count))

    def test_other_text_is_followed_by_the_end(self):
        self.assertEqual(self.completion("Nobody opened a script.")["content"], "")


if __name__ == "__main__":
    OPTIONS = programs.options_of_tests(programs.parser(__doc__, "larder"))
    unittest.main()
