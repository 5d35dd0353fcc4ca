#!/usr/bin/env python3
"""`larder batch`: a job that is killed at any moment, any number of times, by itself, with a stage
of its cluster or with the servers that answer it, ends with the bytes of one that nobody disturbed;
and what it refuses.

Usage: batch_test.py --larder PROGRAM --model FILE [--kills N] [--stage-kills N]
"""
import argparse
import json
import os
import pathlib
import random
import resource
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clusters, programs
from larder_testing.ports import free_port
from larder_testing.processes import Unit
from larder_testing.server import Server

OPTIONS = argparse.Namespace(larder=None, model=None, kills=None, stage_kills=None)
LIMIT_S = 120
CONTEXT = 1024
KEY = "a secret of the test"


def requests(count, rng):
    for at in range(count):
        body = {
            "prompt": rng.choice(["Once upon a time", "One day", "Tom and Lily", "The cat"]),
            "temperature": rng.choice([0, 0.8, 1.3]), "max_tokens": rng.choice([3, 40, 200])
        }
        body |= ({"n": 3} if at % 7 == 0 else {"stop": ["."]} if at %
                 7 == 1 else {"logprobs": 2} if at % 7 == 2 else {})
        if at == 5:
            body = {"prompt": "too long " * 3000}
        yield {
            "custom_id": f"request {at}", "method": "POST", "url": "/v1/completions", "body": body
        }


def other_requests(count):
    """Of the other routes: chats, one of them with a tool that must be called, responses, and
    vectors of texts.
    """
    tool = {
        "name": "look", "description": "looks at it", "parameters": {
            "type": "object", "properties": {"what": {"enum": ["cat", "dog"]}},
            "required": ["what"]
        }
    }
    for at in range(count):
        url, body = (("/v1/responses", {"input": f"Tell me story {at}.", "max_output_tokens": 20}),
                     ("/v1/embeddings", {
                         "input": [f"text {at}", "a fox and a bear " * (1 + at % 9)],
                         "encoding_format": "base64" if at % 8 else "float"
                     }), ("/v1/responses", {
                         "input": [{"role": "user",
                                    "content": f"Look, {at}"}], "instructions": "Be brief.",
                         "temperature": 0.5, "tools": [{"type": "function", **tool}],
                         "tool_choice": "required", "max_output_tokens": 80
                     }), ("/v1/chat/completions", {
                         "messages": [{"role": "user", "content": f"Hello {at}"}], "max_tokens": 20
                     }))[at % 4]
        yield {"custom_id": f"other {at}", "method": "POST", "url": url, "body": body}


class BatchTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(programs.folder_of(self))
        self.rng = random.Random(5)

    def write(self, name, lines):
        path = self.folder / name
        path.write_text("".join(json.dumps(line) + "\n" for line in lines))
        return path

    def command(self, given, out, *options):
        return [
            OPTIONS.larder, "batch", "-m", OPTIONS.model, "-i",
            str(given), "-o",
            str(self.folder / out), *map(str, options)
        ]

    def batch(self, given, out, *options, **how):
        return subprocess.run(self.command(given, out, *options), capture_output=True, text=True,
                              timeout=LIMIT_S, **how)

    def whole(self, given, out, *options):
        done = self.batch(given, out, *options)
        self.assertEqual(done.returncode, 0, done.stderr)
        return done

    def lines(self, out):
        return sorted((self.folder / out).read_text().splitlines())

    def begin_as(self, given, out, other):
        """A job whose seed and time are those of another one that has begun."""
        (self.folder / f"{out}.job").write_text((self.folder / f"{other}.job").read_text())
        return self.command(given, out, "--resume")

    def test_a_job_that_is_killed_again_and_again_writes_the_same_bytes(self):
        given = self.write("in.jsonl", requests(200, self.rng))
        self.whole(given, "undisturbed.jsonl")
        expected = self.lines("undisturbed.jsonl")
        self.assertEqual(len(expected), 200)
        answers = [json.loads(line) for line in expected]
        self.assertEqual({answer["response"]["status_code"] for answer in answers}, {200, 400})
        self.assertEqual(sum(answer["response"]["status_code"] == 400 for answer in answers), 1)
        out, cut, rounds = self.folder / "killed.jsonl", 0, 0
        for kill in range(OPTIONS.kills):
            if out.exists() and out.read_bytes().count(b"\n") == len(expected):
                rounds += 1
                out.unlink()  # another round
            command = [
                *self.begin_as(given, "killed.jsonl", "undisturbed.jsonl"), "--slots",
                str(self.rng.randint(1, 9)), "-t",
                str(self.rng.randint(1, 2)), "--policy",
                self.rng.choice(["mixed", "phases"])
            ]
            process = subprocess.Popen(command, stderr=subprocess.DEVNULL)
            wait_s = self.rng.uniform(0.02, 0.5)
            try:
                process.wait(wait_s)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                cut += 1
        self.assertGreater(cut, OPTIONS.kills / 4, "most of them ended before they were killed")
        last = subprocess.run(self.begin_as(given, "killed.jsonl", "undisturbed.jsonl"),
                              capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(last.returncode, 0, last.stderr)
        self.assertEqual(self.lines("killed.jsonl"), expected)

    def test_a_job_over_a_cluster_whose_stages_are_killed_writes_the_same_bytes(self):
        given = self.write("in.jsonl", requests(120, self.rng))
        manifest = self.folder / "cluster.toml"
        stages = ["first", "second"]
        sockets = [
            clusters.socket("first", "colocated", "cores:0"),
            clusters.socket(
                "second", "colocated", "cores:1" if (os.cpu_count() or 1) > 1 else "cores:0"
            ),
        ]
        manifest.write_text(
            clusters.manifest(clusters.server("here", *sockets), name=f"batch-{os.getpid()}",
                              model={"context": 512, "slots": 6}))
        self.whole(given, "alone.jsonl")
        units = {
            name: Unit(name, [
                OPTIONS.larder, "node", "--manifest",
                str(manifest), "-m", OPTIONS.model, "--socket", name
            ], self.folder / f"{name}.log") for name in stages
        }
        try:
            for unit in units.values():
                unit.start()
            command = [
                *self.begin_as(given, "cluster.jsonl", "alone.jsonl"), "--manifest",
                str(manifest), "--join"
            ]
            kills = 0
            process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
            out = self.folder / "cluster.jsonl"
            while process.poll() is None and kills < OPTIONS.stage_kills:
                before = out.read_bytes().count(b"\n") if out.exists() else 0
                if before > 2:
                    time.sleep(self.rng.uniform(0, 0.2))
                    units[self.rng.choice(stages)].signal(signal.SIGKILL)
                    kills += 1
                    until = time.monotonic() + 20
                    while (
                        process.poll() is None
                        and time.monotonic() < until
                        and out.read_bytes().count(b"\n") <= before
                    ):
                        time.sleep(0.02)
                time.sleep(0.02)
            said = process.communicate(timeout=LIMIT_S)[1]
            self.assertEqual(process.returncode, 0, said)
            self.assertGreaterEqual(kills, 1)
        finally:
            for unit in units.values():
                unit.stop()
        self.assertEqual(self.lines("cluster.jsonl"), self.lines("alone.jsonl"),
                         "layers on other sockets, which were killed")

    def on_servers(self, given, out, other, urls, *options):
        """The command of a job as `other`, over servers."""
        words = [
            OPTIONS.larder, "batch", "-i",
            str(given), "-o",
            str(self.folder / out), "--resume", *map(str, options)
        ]
        (self.folder / f"{out}.job").write_text((self.folder / f"{other}.job").read_text())
        return words + [word for url in urls for word in ("--server", url)]


    def test_running_servers_share_a_job_and_write_the_same_bytes_though_they_and_it_are_killed(
            self):
        given = self.write("in.jsonl", [*requests(200, self.rng), *other_requests(40)])
        self.whole(given, "alone.jsonl", "-c", CONTEXT, "--temp", 0.9, "--repeat-penalty", 1.1,
                   "--pooling", "mean")
        options = ["--temp", 0.9, "--repeat-penalty", 1.1, "--api-key", KEY, "--patience", 60]
        ports = [free_port(), free_port()]
        urls = [f"http://127.0.0.1:{port}" for port in ports]
        # What a server gives to requests that leave fields out is its own: it must not matter.
        units = [
            Unit(f"server {port}", [
                OPTIONS.larder, "serve", "-m", OPTIONS.model, "-c", CONTEXT, "--port", port,
                "--text-port", "-1", "--slots", 2 + at, "-t", 1, "--temp", at, "--top-k", 5,
                "--api-key", KEY, "--queue", 2, "--pooling", "mean"
            ], self.folder / f"server{at}.log") for at, port in enumerate(ports)
        ]
        command = self.on_servers(given, "shared.jsonl", "alone.jsonl", urls, *options)
        out = self.folder / "shared.jsonl"
        said, killed, cut = "", 0, 0
        try:
            for unit in units:
                unit.start()
            for _ in range(40):
                process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
                before = out.read_bytes().count(b"\n") if out.exists() else 0
                until = time.monotonic() + 30
                while process.poll() is None and time.monotonic() < until and (
                        not out.exists() or out.read_bytes().count(b"\n") < before + 12):
                    time.sleep(0.02)
                if killed < 4:
                    units[killed % 2].signal(signal.SIGKILL)
                    killed += 1
                    time.sleep(self.rng.uniform(0, 0.3))
                if process.poll() is None and cut < 6:
                    process.kill()
                    cut += 1
                said += process.communicate(timeout=LIMIT_S)[1]
                if process.returncode == 0:
                    break
                self.assertEqual(process.returncode, -signal.SIGKILL, said)
            self.assertEqual(process.returncode, 0, said)
            self.assertGreaterEqual(cut, 3, said)
            self.assertRegex(
                said, r"warning: http://\S+: (the connection closed|can't read|Connection refused)")
        finally:
            for unit in units:
                unit.stop()
        self.assertEqual(self.lines("shared.jsonl"), self.lines("alone.jsonl"))
        answers = {
            answer["custom_id"]: answer["response"]["body"]
            for answer in map(json.loads, self.lines("alone.jsonl"))
        }
        ids = {item["id"] for body in answers.values() for item in body.get("output", [])
               } | {body["id"] for body in answers.values() if "id" in body}
        self.assertGreaterEqual(len(ids), 200 + 30)
        self.assertIn(
            "function_call",
            {item["type"] for body in answers.values() for item in body.get("output", [])})

    def test_servers_that_answer_otherwise_are_refused(self):
        given = self.write("in.jsonl", requests(6, self.rng))
        with (Server(OPTIONS.larder, OPTIONS.model, "--api-key",
                     KEY) as one, Server(OPTIONS.larder, OPTIONS.model, "-c", "64") as
              two, Server(OPTIONS.larder, OPTIONS.model, "--ignore-eos") as biased,
              ):
            for servers, options, says in (
                    ([one], [], "status 401: expected a key"),
                    ([one, two], ["--api-key", KEY], "differ: its context has 64 tokens"),
                    ([two], ["--pooling", "mean"], 'have "none"; it is theirs to choose'),
                    ([biased], [], "--ignore-eos; give these to `larder batch`"),
                    ([two], ["-m", OPTIONS.model], "give no --model"),
                    ([two], ["-a", "other"], "it is theirs to choose")):
                words = [word for server in servers for word in ("--server", server.url)]
                refused = subprocess.run([
                    OPTIONS.larder, "batch", "-i",
                    str(given), "-o",
                    str(self.folder / "out.jsonl"), *words, *options
                ], capture_output=True, text=True, timeout=LIMIT_S)
                self.assertNotEqual(refused.returncode, 0, says)
                self.assertIn(says, refused.stderr)
        gone = subprocess.run([
            OPTIONS.larder, "batch", "-i",
            str(given), "-o",
            str(self.folder / "out.jsonl"), "--server", one.url, "--patience", "0.2"
        ], capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(gone.returncode, 1)
        self.assertRegex(gone.stderr, "no server answers for 0.2 s; .*Connection refused")
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.jsonl"])

    def test_a_full_disk_ends_it_with_a_line_and_it_goes_on(self):
        given = self.write("in.jsonl", requests(60, self.rng))
        self.whole(given, "whole.jsonl")

        def little_room():
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (9000, 9000))

        command = self.begin_as(given, "full.jsonl", "whole.jsonl")
        full = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S,
                              preexec_fn=little_room)
        self.assertEqual(full.returncode, 1)
        self.assertRegex(
            full.stderr,
            r"error: \S+full.jsonl: can't write: File too large; --resume goes on from there\n$")
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.lines("full.jsonl"), self.lines("whole.jsonl"))

    def test_embeddings_are_the_same_with_other_threads_and_slots(self):
        lines = [
            {
                "custom_id": f"e{at}",
                "url": "/v1/embeddings",
                "body": {"input": [f"text {at}", "a fox and a bear " * (1 + at % 30)]},
            }
            for at in range(40)
        ]
        lines += requests(3, self.rng)
        given = self.write("in.jsonl", lines)
        self.whole(given, "one.jsonl", "--seed", 1, "--pooling", "mean", "-t", 1, "-np", 1)
        command = self.begin_as(given, "two.jsonl",
                                "one.jsonl") + ["--pooling", "mean", "-np", "7", "-ub", "32"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.lines("two.jsonl"), self.lines("one.jsonl"))
        answers = [json.loads(line) for line in self.lines("one.jsonl")]
        for answer in answers:
            body = answer["response"]["body"]
            if answer["custom_id"].startswith("e"):
                self.assertEqual([one["index"] for one in body["data"]], [0, 1])
                self.assertAlmostEqual(sum(x * x for x in body["data"][1]["embedding"]), 1,
                                       places=4)
                self.assertNotIn("id", body)
        refused = self.batch(given, "one.jsonl", "--resume", "--pooling", "last")
        self.assertIn("the options are", refused.stderr)
        self.assertIn("is not an embedding model", self.batch(given, "three.jsonl").stderr)

    def test_what_it_refuses(self):
        given = self.write("in.jsonl", requests(6, self.rng))
        self.whole(given, "out.jsonl", "--seed", 1)
        again = self.batch(given, "out.jsonl")
        self.assertEqual(again.returncode, 1)
        self.assertIn("--resume goes on with it, --restart begins anew", again.stderr)
        for options, says in ((["--temp", "0.1"], "the options are"), ([
                "--seed", "2"
        ], "--seed is another one"), (["-a", "x"], "the model's name is")):
            refused = self.batch(given, "out.jsonl", "--resume", *options)
            self.assertEqual(refused.returncode, 1)
            self.assertIn(says, refused.stderr)
        given.write_text(given.read_text().replace("0.8", "0.9").replace("1.3", "1.2").replace(
            "200", "100"))
        self.assertIn("the input has changed", self.batch(given, "out.jsonl", "--resume").stderr)
        self.whole(given, "out.jsonl", "--restart")
        (self.folder / "mine.txt").write_text("not a job's\n")
        for options in ([], ["--restart"], ["--resume"]):
            self.assertIn("is not of a job", self.batch(given, "mine.txt", *options).stderr)
            self.assertIn("is the input", self.batch(given, "in.jsonl", *options).stderr)
        self.assertEqual((self.folder / "mine.txt").read_text(), "not a job's\n")

    def test_the_whole_file_is_read_before_anything_is_run(self):
        good = list(requests(3, self.rng))
        given = self.write("in.jsonl", [
            *good, {**good[0]}, {"custom_id": "a", "url": "/v1/nothing", "body": {}}, {
                        "custom_id": "b", "url": "/v1/completions",
                        "body": {"prompt": "x", "temperature": "hot"}
                    },
            {"custom_id": "c", "url": "/v1/completions", "body": {"prompt": "x", "stream": True}}
        ])
        refused = self.batch(given, "out.jsonl")
        self.assertEqual(refused.returncode, 1)
        for says in ("line 5: url is", 'line 6: temperature is "hot"',
                     "line 7: body.stream is true", "request 4 has the custom_id of an earlier one",
                     "4 of its requests are wrong; nothing was run"):
            self.assertIn(says, refused.stderr)
        self.assertEqual(sorted(path.name for path in self.folder.iterdir()), ["in.jsonl"])

    def test_an_interrupt_ends_it_and_it_goes_on(self):
        given = self.write("in.jsonl", requests(400, self.rng))
        process = subprocess.Popen(self.command(given, "out.jsonl"), stderr=subprocess.PIPE,
                                   text=True)
        # An answer in it: before that the engine may still be loading, and nothing catches the
        # signal
        output = self.folder / "out.jsonl"
        while process.poll() is None and not (output.exists() and output.stat().st_size > 0):
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        said = process.communicate(timeout=LIMIT_S)[1]
        if process.returncode == 0:
            self.skipTest("it had ended")
        self.assertEqual(process.returncode, 130, said)
        self.assertIn("--resume goes on from here", said)
        self.whole(given, "out.jsonl", "--resume")
        self.assertEqual(len(self.lines("out.jsonl")), 400)


def main():
    made = programs.parser(__doc__, "larder", "model")
    made.add_argument("--kills", type=int, default=20)
    made.add_argument("--stage-kills", type=int, default=3)
    programs_options = programs.options_of_tests(made)
    vars(OPTIONS).update(vars(programs_options))
    unittest.main()


if __name__ == "__main__":
    main()
