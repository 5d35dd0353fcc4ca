#!/usr/bin/env python3
"""`larder bench-serve` against `larder serve`: every endpoint, both kinds of load, both outputs,
and what goes wrong.

Usage: bench_serve_test.py --larder PROGRAM --model FILE
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs, scripted_model
from larder_testing.server import Server

OPTIONS = None


class BenchServeTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = Server(OPTIONS.larder, OPTIONS.model, "--parallel", "4",
                            "--strict-model").__enter__()
        cls.addClassCleanup(cls.server.end)
        cls.http = str(cls.server.http)
        cls.text = str(cls.server.text)

    def bench(self, port, *more):
        return subprocess.run([
            OPTIONS.larder, "bench-serve", "--port", port, "--num-prompts", "12", "--input-len",
            "20", "--output-len", "16", "--ignore-eos", "--timeout", "50", *more
        ], capture_output=True, text=True, timeout=100)

    def result(self, port, *more):
        run = self.bench(port, "-o", "json", *more)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        return json.loads(run.stdout)

    def check(self, result):
        self.assertEqual((result["completed"], result["failed"]), (12, 0), result["first_error"])
        self.assertEqual(result["total_output_tokens"], 12 * 16)
        self.assertGreaterEqual(result["total_input_tokens"], 12 * 20)
        self.assertGreater(result["output_throughput"], 0)
        for metric in ("ttft", "tpot", "itl", "e2el"):
            self.assertLessEqual(result[f"median_{metric}_ms"], result[f"p90_{metric}_ms"])
            self.assertLessEqual(result[f"p90_{metric}_ms"], result[f"p99_{metric}_ms"])
        self.assertLess(result["median_ttft_ms"], result["p99_e2el_ms"])

    def test_completions_with_fixed_concurrency(self):
        result = self.result(self.http, "--max-concurrency", "3", "--goodput", "ttft:100000",
                             "tpot:100000")
        self.check(result)
        self.assertEqual(result["max_in_flight"], 3)
        self.assertEqual(result["model_id"], "larder-stories")
        self.assertAlmostEqual(result["request_goodput"], result["request_throughput"])

    def test_poisson_arrivals(self):
        result = self.result(self.http, "--request-rate", "100")
        self.check(result)
        self.assertEqual(result["request_rate"], 100)

    def test_text_stream(self):
        self.check(self.result(self.text, "--endpoint", "text", "--max-concurrency", "2"))

    def test_agents_read_their_system_prompt_once(self):
        with tempfile.TemporaryDirectory() as folder:
            model = str(pathlib.Path(folder) / "scripted.gguf")
            scripted_model.write(model)
            with Server(OPTIONS.larder, model, "-c", "32768", "--parallel", "2") as server:
                run = subprocess.run([
                    OPTIONS.larder, "bench-serve", "--port",
                    str(server.http), "--agent", "--num-prompts", "2", "--turns", "3",
                    "--system-len", "300", "--input-len", "20", "--output-len", "40", "--timeout",
                    "50", "-o", "json"
                ], capture_output=True, text=True, timeout=100)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        result = json.loads(run.stdout)
        self.assertEqual((result["completed"], result["failed"]), (6, 0), result["first_error"])
        self.assertEqual([turn["completed"] for turn in result["turns"]], [2, 2, 2])
        for before, turn in zip(result["turns"], result["turns"][1:]):
            self.assertGreater(turn["input_tokens"], before["input_tokens"])
            # All that the turn before had: its prompt, but for what only answers are announced by.
            self.assertGreater(turn["cached_tokens"], 0.98 * before["input_tokens"])

    def test_text_for_people(self):
        run = self.bench(self.http, "--max-concurrency", "2")
        self.assertEqual(run.returncode, 0, run.stderr)
        for word in ("12 completed, 0 failed", "tokens/s", "TTFT", "TPOT", "ITL", "E2E", "P99"):
            self.assertIn(word, run.stdout)

    def test_errors_are_one_line(self):
        for code, text, words in ((1, "404", ("--endpoint", "/v1/nothing")),
                                  (1, "larder-nonsense", ("--model", "larder-nonsense")),
                                  (1, "goodput", ("--goodput", "itl:3")),
                                  (2, "endpoint", ("--endpoint", "nonsense")),
                                  (2, "agents speak", ("--agent", "--endpoint", "text")),
                                  (2, "request-rate", ("--request-rate", "-1"))):
            run = self.bench(self.http, *words)
            self.assertEqual(run.returncode, code, run.stderr)
            self.assertIn(text, run.stderr)
            self.assertEqual(run.stdout, "")
        run = self.bench("1")
        self.assertIn("no server at 127.0.0.1:1", run.stderr)


if __name__ == "__main__":
    OPTIONS = programs.options_of_tests(programs.parser(__doc__, "larder", "model"))
    unittest.main()
