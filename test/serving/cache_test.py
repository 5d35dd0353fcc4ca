#!/usr/bin/env python3
"""`larder serve --cache-dir`: conversations outlive the process, by SIGTERM and by kill -9, with
the tokens of one that nobody disturbed; damaged files cost time, never an answer; a folder that
others could change is refused.

Usage: cache_test.py --larder PROGRAM --model FILE
"""
import argparse
import concurrent.futures
import contextlib
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import batches, clusters, programs
from larder_testing.processes import Process, Unit
from larder_testing.server import LIMIT_S, Server
from larder_testing.waiting import until

OPTIONS = argparse.Namespace(larder=None, model=None, turns=20)
CHUNK = 256
CONTEXT = 2048
STAGES = ["first", "second"]
SAID = [
    "Then the cat said", "The next day", "Tom was happy because", "A big dog came and",
    "Lily asked her mom"
]


def metric(server, name):
    return float(re.search(rf"^{name} (\S+)$", server.get("/metrics")[1].decode(), re.MULTILINE)[1])


class CacheTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(programs.folder_of(self))
        self.cache = self.folder / "cache"

    def server(self, *options, cache=True):
        given = ["--cache-dir", str(self.cache)] if cache else []
        slots = [] if "--slots" in options else ["--slots", "2"]
        return Server(OPTIONS.larder, OPTIONS.model, "-c", str(CONTEXT), *slots, *given, *options)

    def answer(self, server, prompt, seed=0, tokens=60):
        """The text, how many tokens the prompt had, and how many of them were not computed."""
        status, body = server.post(
            "/v1/completions", {
                "prompt": prompt, "max_tokens": tokens, "temperature": 0.8, "seed": seed,
                "ignore_eos": True
            })
        self.assertEqual(status, 200, body)
        reply = json.loads(body)
        usage = reply["usage"]
        return (reply["choices"][0]["text"], usage["prompt_tokens"],
                usage["prompt_tokens_details"]["cached_tokens"],
                )

    def files(self):
        return sorted(self.cache.glob("*.kv"))

    def written(self, server, chunks):
        """Waits until so many chunks are in files."""
        until(
            lambda: json.loads(server.get("/v1/larder/status")[1])["kv_files"]["chunks"] >= chunks,
            LIMIT_S, lambda: f"{len(self.files())} files")

    def turn(self, server, text, turn):
        text += " " + SAID[turn % len(SAID)]
        answer, tokens, reused = self.answer(server, text, seed=turn)
        return text + answer, tokens, reused

    def undisturbed(self, turns=None):
        text = "Once upon a time there was a cat."
        with self.server(cache=False) as server:
            for turn in range(turns or OPTIONS.turns):
                text = self.turn(server, text, turn)[0]
        return text

    def test_a_conversation_outlives_the_server(self):
        expected = self.undisturbed()
        text = "Once upon a time there was a cat."
        for turn in range(OPTIONS.turns):
            with self.server("-t", str(1 + turn % 2)) as server:
                text, tokens, reused = self.turn(server, text, turn)
                # The text so far without the last sentence and the last token, in whole chunks.
                self.assertLessEqual(reused, tokens - 1)
                self.assertEqual(reused % CHUNK, 0)
                if turn > 0:
                    self.assertGreaterEqual(reused, (tokens - 20) // CHUNK * CHUNK,
                                            f"turn {turn}: {reused} of {tokens} tokens")
                if turn % 3 == 2:
                    self.written(server, (tokens + 50) // CHUNK)
                    server.kill()
        self.assertEqual(text, expected)
        self.assertGreaterEqual(len(self.files()), OPTIONS.turns // 5)

    def manifest(self, sockets, model):
        path = self.folder / "cluster.toml"
        path.write_text(
            clusters.manifest(clusters.server("here", *sockets), name=f"cache-{os.getpid()}",
                              model={"context": CONTEXT, "slots": 3, **model}))
        return path

    @contextlib.contextmanager
    def cluster(self, sockets, processes, model, *options):
        """A server whose KV cache is in other processes: those of the sockets `processes`."""
        manifest = self.manifest(sockets, model)
        nodes = [
            Process([
                OPTIONS.larder, "node", "--manifest", manifest, "-m", OPTIONS.model, "--socket",
                name
            ], self.folder / name) for name in processes
        ]
        with contextlib.ExitStack() as stack:
            for node in nodes:
                stack.enter_context(node)
            server = stack.enter_context(
                Server(OPTIONS.larder, OPTIONS.model, "--manifest", str(manifest), "--join",
                       *options))
            until(lambda: server.health() == 200, LIMIT_S, lambda: [node.said() for node in nodes])
            yield server

    def outlives_every_process(self, sockets, processes, model, turns=None):
        """A conversation over a cluster, all of whose processes, those of `processes` and the
        serving one, are killed or ended after each turn.
        """
        turns = turns or OPTIONS.turns
        expected = self.undisturbed(turns)
        text, all_reused = "Once upon a time there was a cat.", []
        for turn in range(turns):
            with self.cluster(sockets, processes, model) as server:
                text, tokens, reused = self.turn(server, text, turn)
                all_reused.append((reused, tokens))
                if "cache_dir" in model:
                    self.written(server, (tokens + 50) // CHUNK)
                if turn % 2 == 0:
                    server.kill()
        self.assertEqual(text, expected)
        return text, all_reused

    def reuses_whole_chunks(self, text, all_reused):
        """Of what outlives_every_process returns. Returns the text."""
        for turn, (reused, tokens) in enumerate(all_reused):
            self.assertEqual(reused % CHUNK, 0)
            self.assertGreaterEqual(reused, (tokens - 20) // CHUNK * CHUNK if turn > 0 else 0,
                                    f"turn {turn}: {reused} of {tokens} tokens")
        return text

    def colocated(self):
        """Two stages."""
        return [clusters.socket(name, "colocated", at) for name, at in zip(STAGES, self.cores(2))]

    def separated(self, stages=2):
        """Stages of a weight and an attention socket each."""
        one, other = self.cores(2)
        return [clusters.socket(f"w{at}", "weight", one) for at in range(stages)] + [
            clusters.socket(f"a{at}", "attention", other, **{"for": f"w{at}"})
            for at in range(stages)
        ]

    def cores(self, count):
        return [f"cores:{at % min(2, os.cpu_count() or 1)}" for at in range(count)]

    def test_a_conversation_outlives_every_process_of_a_chain(self):
        """Without files: all of it is computed again after each restart. The layers are in two
        processes, killed or ended in turn.
        """
        sockets = self.colocated()
        self.assertEqual(
            {reused for reused, _ in self.outlives_every_process(sockets, STAGES, {}, 4)[1]}, {0})

    def test_a_chain_keeps_its_parts_in_files(self):
        files = {"cache_dir": str(self.cache)}
        text = self.reuses_whole_chunks(
            *self.outlives_every_process(self.colocated(), STAGES, files))
        self.assertEqual(sorted(path.name for path in self.cache.iterdir()),
                         ["first", "second", "serving"])
        # A stage has lost its files: the other's are of no use then.
        shutil.rmtree(self.cache / "second")
        with self.cluster(self.colocated(), STAGES, files) as server:
            self.assertEqual(self.turn(server, "Once upon a time there was a cat.", 0)[2], 0)
            self.assertEqual(metric(server, "larder_kv_files_refused_total"), 0,
                             "nothing so short is in files")
            self.assertEqual(self.turn(server, text, 0)[2], 0)
            self.assertEqual(metric(server, "larder_kv_files_refused_total"), 1)

    def test_attention_processes_keep_their_parts_in_files(self):
        """One stage: the weight socket's process serves, and the KV is the attention socket's."""
        one, other = self.cores(2)
        sockets = [
            clusters.socket("weights", "weight", one),
            clusters.socket("attention", "attention", other),
        ]
        self.reuses_whole_chunks(
            *self.outlives_every_process(sockets, ["attention"], {"cache_dir": str(self.cache)}, 5))
        self.assertEqual(sorted(path.name for path in self.cache.iterdir()),
                         ["attention", "weights"])

    def test_a_conversation_moves_to_another_attention_socket(self):
        """What one has stored, the other one loads, where the first one is busy."""
        one, other = self.cores(2)
        sockets = [clusters.socket("weights", "weight", one)] + [
            clusters.socket(name, "attention", other) for name in ("a", "b")
        ]
        beginning = "The cat and the dog went to the park. " * 60
        with self.server(cache=False) as server:
            expected = self.answer(server, beginning + SAID[0])[0]
        manifest = {"cache_dir": str(self.cache), "slots": 2, "context": 16384}
        with self.cluster(sockets, ["a", "b"], manifest) as server:
            done = json.loads(
                server.post("/completion",
                            {"prompt": beginning, "n_predict": 3, "temperature": 0})[1])
            self.written(server, 2)
        with self.cluster(sockets, ["a", "b"],
                          manifest) as server, server.connect(server.http) as busy:
            body = json.dumps(
                {"prompt": "Once", "n_predict": 16000, "ignore_eos": True,
                 "stream": True}).encode()
            busy.sendall(
                b"POST /completion HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" %
                len(body) + body)
            until(
                lambda: json.loads(server.get("/v1/larder/status")[1])["slots"][done["id_slot"]][
                    "state"] != "idle", LIMIT_S, lambda: "not there")
            moved = json.loads(
                server.post("/completion",
                            {"prompt": beginning, "n_predict": 3, "temperature": 0})[1])
            self.assertNotEqual(moved["id_slot"], done["id_slot"])
            self.assertEqual(moved["content"], done["content"])
            self.assertGreater(metric(server, "larder_kv_files_read_total"), 1)
            text, tokens, reused = self.answer(server, beginning + SAID[0])
            self.assertEqual(text, expected)
            self.assertGreaterEqual(reused, (tokens - 1) // CHUNK * CHUNK)

    def test_separated_stages_keep_their_parts_in_files(self):
        self.reuses_whole_chunks(*self.outlives_every_process(
            self.separated(), ["a0", "a1", "w0", "w1"], {"cache_dir": str(self.cache)}, 5))
        self.assertEqual(sorted(path.name for path in self.cache.iterdir()),
                         ["a0", "a1", "serving"])

    def test_stages_that_are_killed_while_chunks_move_change_no_token(self):
        self.killed_while_chunks_move(self.separated(), ("a0", "a1", "w0", "w1"), 8)


    def test_a_stage_behind_a_serving_socket_that_is_killed_while_chunks_move_changes_no_token(
            self):
        self.killed_while_chunks_move(
            [*self.separated(1),
             clusters.socket("front", "serving",
                             self.cores(2)[1])], ("a0", "w0"), 3)

    def killed_while_chunks_move(self, sockets, names, most):
        rng = random.Random(9)
        beginnings = [" ".join(rng.choice(SAID) + "." for _ in range(90)) for _ in range(4)]
        prompts = [beginning + " " + said for said in SAID for beginning in beginnings]
        with self.server(cache=False) as server:
            expected = [self.answer(server, prompt)[0] for prompt in prompts]
        manifest = self.manifest(sockets, {"kv_tokens": 4096, "cache_dir": str(self.cache)})
        units = [
            Unit(name, [
                OPTIONS.larder, "node", "--manifest",
                str(manifest), "-m", OPTIONS.model, "--socket", name
            ], self.folder / f"{name}.log") for name in names
        ]
        kills = 0
        try:
            for unit in units:
                unit.start()
            with Server(OPTIONS.larder, OPTIONS.model, "--manifest", str(manifest), "--join",
                        "--patience", str(LIMIT_S)) as server:
                until(lambda: server.health() == 200, LIMIT_S, lambda: "not ready")
                with concurrent.futures.ThreadPoolExecutor(3) as pool:
                    running = [pool.submit(self.answer, server, prompt) for prompt in prompts]
                    while not all(one.done() for one in running) and kills < most:
                        done = sum(one.done() for one in running)
                        until(
                            lambda done=done: sum(one.done() for one in running) > done or all(
                                one.done() for one in running), LIMIT_S, lambda: "stands still")
                        time.sleep(rng.uniform(0, 0.05))
                        rng.choice(units).signal(signal.SIGKILL)
                        kills += 1
                    got = [one.result() for one in running]
                # Which of them found chunks in files depends on the moments: in the end one must.
                for _ in range(10):
                    if metric(server, "larder_kv_files_read_total") > 0:
                        break
                    server.idle()
                    self.written(server, 1)
                    units[0].signal(signal.SIGKILL)
                    got.append(self.answer(server, prompts[0]))
                    expected.append(expected[0])
                self.assertGreater(metric(server, "larder_kv_files_read_total"), 0)
        finally:
            for unit in units:
                unit.stop()
        self.assertEqual([one[0] for one in got], expected)
        self.assertGreaterEqual(kills, most // 2 + 1)

    def test_many_at_once_share_what_is_in_files(self):
        rng = random.Random(3)
        beginnings = [" ".join(rng.choice(SAID) + "." for _ in range(90)) for _ in range(3)]
        prompts = [beginning + " " + said for beginning in beginnings for said in SAID]
        with self.server(cache=False) as server:
            expected = [self.answer(server, prompt)[0] for prompt in prompts]
        with self.server() as server:
            for beginning in beginnings:
                self.answer(server, beginning, tokens=1)
        with self.server("--kv-tokens", "2048") as server:  # so few that they wait for each other
            with concurrent.futures.ThreadPoolExecutor(8) as pool:
                got = list(pool.map(lambda prompt: self.answer(server, prompt), prompts))
            self.assertEqual([one[0] for one in got], expected)
            for _, tokens, reused in got:
                self.assertGreaterEqual(reused, tokens // CHUNK * CHUNK - CHUNK)
            self.assertGreaterEqual(metric(server, "larder_kv_files_read_total"), 3)

    def test_damaged_files_are_refused_and_computed_again(self):
        expected = self.undisturbed(8)
        text = "Once upon a time there was a cat."
        for turn in range(8):
            with self.server() as server:
                text = self.turn(server, text, turn)[0]
                server.idle()
                refused = metric(server, "larder_kv_files_refused_total")
            if turn in (5, 7):
                self.assertGreaterEqual(refused, 1)
            for path in self.files() if turn in (4, 6) else []:
                data = bytearray(path.read_bytes())
                data[random.Random(turn).randrange(len(data))] ^= 4
                path.write_bytes(data[:-1] if turn == 6 else data)
        self.assertEqual(text, expected)

    def test_the_limit_holds_and_is_shown(self):
        limit = 3 << 20
        with self.server("--cache-disk", "3M") as server:
            for i in range(12):
                self.answer(server, f"{i} " + "The cat and the dog went to the park. " * 50,
                            tokens=1)
                self.assertLessEqual(sum(path.stat().st_size for path in self.files()), limit)
            until(lambda: metric(server, "larder_kv_files_written_total") > 3, LIMIT_S,
                  lambda: "nothing written")
            self.assertLessEqual(metric(server, "larder_kv_file_bytes"), limit)

    def slots(self, server, number, action, name=None, status=200):
        got, body = server.post(f"/slots/{number}?action={action}",
                                {"filename": name} if name else b"")
        self.assertEqual(got, status, body)
        return json.loads(body)

    def test_slots_are_saved_restored_and_erased(self):
        saved = self.folder / "slots"
        saved.mkdir(0o700)
        beginning = "The cat and the dog went to the park. " * 40
        with self.server(cache=False) as server:
            expected = self.answer(server, beginning + SAID[0])[0]
            self.slots(server, 0, "erase", status=501)
        with self.server("--slot-save-path", str(saved), "--slots", "1", cache=False) as server:
            tokens = self.answer(server, beginning, tokens=3)[1]
            reply = self.slots(server, 0, "save", "park.bin")
            self.assertEqual((reply["id_slot"], reply["filename"], reply["n_saved"]),
                             (0, "park.bin", tokens + 2))
            self.assertEqual(reply["n_written"], (saved / "park.bin").stat().st_size)
            self.assertEqual(self.slots(server, 0, "erase")["n_erased"], tokens + 2)
            self.assertEqual(self.answer(server, beginning, tokens=3)[2], 0, "erased")
            stopped = json.loads(
                server.post("/completion",
                            {"prompt": beginning, "n_predict": 200, "stop": ["."]})[1])
            self.assertEqual((stopped["stop_type"], stopped["id_slot"]), ("word", 0))
            for number, action, name, status in ((0, "keep", "a", 400), (1, "save", "a", 400),
                                                 (0, "save", "../a", 400), (0, "save", None, 400),
                                                 (0, "restore", "none", 400), ("x", "erase", None,
                                                                               400), (-1, "erase",
                                                                                      None, 400)):
                self.slots(server, number, action, name, status)
        # Another process
        with self.server("--slot-save-path", str(saved), "--slots", "1", cache=False) as server:
            self.assertEqual(self.slots(server, 0, "restore", "park.bin")["n_restored"], tokens + 2)
            text, _, reused = self.answer(server, beginning + SAID[0])
            self.assertGreaterEqual(reused, tokens - 8)
            self.assertEqual(text, expected)
            # Beside requests that use all chunks there are.
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                texts = pool.map(
                    lambda at: self.answer(server, f"{at} " + beginning + SAID[0], tokens=100)[0],
                    range(6))
                done = [
                    server.post("/slots/0?action=restore", {"filename": "park.bin"})[0]
                    for _ in range(20)
                ]
                texts = list(texts)
            self.assertLessEqual(set(done), {200, 503})
        with self.server(cache=False) as server:
            self.assertEqual(texts, [
                self.answer(server, f"{at} " + beginning + SAID[0], tokens=100)[0]
                for at in range(6)
            ])
        data = bytearray((saved / "park.bin").read_bytes())
        data[len(data) // 2] ^= 1
        (saved / "park.bin").write_bytes(data)
        with self.server("--slot-save-path", str(saved), cache=False) as server:
            self.assertIn("its checksum is wrong",
                          self.slots(server, 0, "restore", "park.bin", 400)["error"]["message"])
            self.assertEqual(self.answer(server, beginning + SAID[0])[::2], (expected, 0))

    def test_slots_have_states_and_what_windows_see(self):
        """Another process goes on behind what was saved, with the tokens that it would have had."""
        for family in ("qwen35", "gemma3"):
            with self.subTest(family=family):
                model = self.folder / f"{family}.gguf"
                subprocess.run([
                    OPTIONS.larder, "synth", "-o", model, "--arch", family, "--layers", "6",
                    "--dim", "128", "--ffn", "256", "--heads", "4", "--kv-heads", "2", "--vocab",
                    "300", "--context", "2048"
                ], check=True)
                option = ("--slots", "1", "--slot-save-path", str(self.folder / family))
                beginning = list(range(3, 300)) * 3
                rest = list(range(40, 70))

                def answer(server, prompt, tokens):
                    reply = json.loads(
                        server.post("/completion", {
                            "prompt": prompt, "n_predict": tokens, "ignore_eos": True,
                            "return_tokens": True, "temperature": 0.8, "seed": 5
                        })[1])
                    return reply["tokens"], reply["timings"]["prompt_n"]

                with Server(OPTIONS.larder, model, "-c", "2048", *option) as server:
                    whole = answer(server, beginning + rest, 20)[0]
                    self.slots(server, 0, "erase")
                    answer(server, beginning, 1)
                    saved = self.slots(server, 0, "save", "one")
                self.assertEqual(saved["n_saved"], len(beginning))
                self.assertGreater(saved["n_written"], 300_000, "keys and values")
                with Server(OPTIONS.larder, model, "-c", "2048", *option) as server:
                    self.assertEqual(self.slots(server, 0, "restore", "one")["n_restored"],
                                     len(beginning))
                    self.assertEqual(answer(server, beginning + rest, 20), (whole, len(rest)))
                with Server(OPTIONS.larder, model, "-c", "600", *option) as server:
                    self.assertIn(
                        "do not fit the context of 600 tokens",
                        self.slots(server, 0, "restore", "one", 400)["error"]["message"])

    def test_slots_of_keys_are_their_own_and_the_disk_has_a_limit(self):
        saved = self.folder / "slots"
        with self.server("--slot-save-path", str(saved), "--slots", "1", cache=False) as server:
            self.answer(server, "The cat", tokens=1)
            of_one = self.slots(server, 0, "save", "one")["n_written"]
        (saved / "one").unlink()
        with self.server("--slot-save-path", str(saved), "--slot-save-disk",
                         f"{7 * of_one // 2048}K", "--slots", "1", "--api-key", "first-key",
                         "--api-key", "second-key", cache=False) as server:
            def ask(key, action, name=None):
                status, body = server.post(f"/slots/0?action={action}",
                                           {"filename": name} if name else b"",
                                           f"Authorization: bearer {key}\r\n")
                self.assertNotIn(str(self.folder), body.decode(),
                                 "the folder is the server's affair")
                return status, json.loads(body)

            def fill(key, words):
                status, body = server.post("/v1/completions",
                                           {"prompt": "The cat " * words, "max_tokens": 1},
                                           f"Authorization: Bearer {key}\r\n")
                self.assertEqual(status, 200, body)

            fill("first-key", 2)
            self.assertEqual(ask("second-key", "save", "a")[0], 404)
            self.assertEqual(ask("second-key", "erase")[0], 404)
            self.assertEqual(ask("first-key", "save", "a")[0], 200)
            fill("second-key", 2)
            for action in ("save", "restore"):
                status, reply = ask("second-key", action, "a")
                self.assertEqual((status, reply["error"]["message"]),
                                 (404, "filename: there is no file of yours of this name"))
            self.assertEqual(ask("second-key", "save", "b")[0], 200)
            self.assertEqual(ask("second-key", "erase")[0], 200)
            self.assertEqual(ask("first-key", "restore", "a")[0], 200)
            before = sorted(path.name for path in saved.iterdir())
            fill("first-key", 400)
            status, reply = ask("first-key", "save", "a")
            self.assertEqual(status, 413)
            self.assertIn("--slot-save-disk", reply["error"]["message"])
            self.assertEqual(sorted(path.name for path in saved.iterdir()), before)
            self.assertEqual(ask("first-key", "restore", "none")[0], 400)

    def test_slots_of_a_chain_are_saved_as_tokens(self):
        """They are computed again, or read from the parts in files; and a server of one process and
        a chain read each other's.
        """
        saved = self.folder / "slots"
        saved.mkdir(0o700)
        option = ("--slot-save-path", str(saved))
        beginning = "The cat and the dog went to the park. " * 40
        files = {"cache_dir": str(self.cache)}
        with self.server(*option, "--slots", "1", cache=False) as server:
            tokens = self.answer(server, beginning, tokens=3)[1]
            self.slots(server, 0, "save", "one")
            expected = self.answer(server, beginning + SAID[0])[0]

        def goes_on(server, name, number):
            got = self.slots(server, number, "restore", name)
            self.assertEqual((got["n_restored"], got["n_read"]),
                             (tokens + 2, (saved / name).stat().st_size))
            # At once: it waits for what is being computed
            text, _, reused = self.answer(server, beginning + SAID[0])
            self.assertEqual(text, expected)
            self.assertGreaterEqual(reused, tokens - 8)

        with self.cluster(self.colocated(), STAGES, files, *option) as server:
            goes_on(server, "one", 1)
            for name in ("chain", "chain"):  # the second save replaces the first
                self.slots(server, 1, "erase")
                goes_on(server, "one", 1)
                self.slots(server, 1, "erase")
                done = json.loads(
                    server.post("/completion",
                                {"prompt": beginning, "n_predict": 3, "ignore_eos": True})[1])
                self.assertEqual(
                    self.slots(server, done["id_slot"], "save", name)["n_saved"], tokens + 2)
            self.assertLess((saved / "chain").stat().st_size, 72 + 4 * (tokens + 2) + 1)
            self.written(server, tokens // CHUNK)
        with self.cluster(self.colocated(), STAGES, files, *option) as server:
            goes_on(server, "chain", 2)
            self.assertGreaterEqual(metric(server, "larder_kv_files_read_total"), 1,
                                    "its chunks are in files")
            # Beside requests that use all slots
            with concurrent.futures.ThreadPoolExecutor(3) as pool:
                texts = pool.map(
                    lambda at: self.answer(server, f"{at} " + beginning + SAID[0], tokens=30)[0],
                    range(6))
                done = [
                    server.post(f"/slots/{at % 3}?action=restore", {"filename": "chain"})[0]
                    for at in range(20)
                ]
                texts = list(texts)
            self.assertLessEqual(set(done), {200, 503})
        # In its only slot it would give way to the client, who goes on behind what it has
        with self.server(*option, cache=False) as server:
            goes_on(server, "chain", 0)
            self.assertEqual(texts, [
                self.answer(server, f"{at} " + beginning + SAID[0], tokens=30)[0] for at in range(6)
            ])

    def test_slots_that_are_filled_give_way(self):
        """To clients, and to the next order for the slot; and a batch gives its slots to orders."""
        saved = self.folder / "slots"
        saved.mkdir(0o700)
        beginning = "The cat and the dog went to the park. " * 60
        with self.server("--slot-save-path", str(saved), "--slots", "1", cache=False) as server:
            tokens = self.answer(server, beginning, tokens=1)[1]
            self.slots(server, 0, "save", "one")
            self.slots(server, 0, "erase")
            self.assertIn("has no tokens",
                          self.slots(server, 0, "save", "none", 400)["error"]["message"])
        options = ("--slot-save-path", str(saved), "--batch-dir", str(self.folder / "batches"))
        with self.cluster(self.colocated(), STAGES, {}, *options) as server:
            for number in range(3):
                self.slots(server, number, "restore", "one")
                self.assertEqual(
                    self.slots(server, number, "erase" if number == 0 else "restore",
                               "one")["id_slot"], number)
            expected = [self.answer(server, f"{at} {said}")[0] for at, said in enumerate(SAID)]
            for number in range(3):
                self.slots(server, number, "erase")
            with concurrent.futures.ThreadPoolExecutor(5) as pool:  # more than there are slots
                texts = pool.map(lambda of: self.answer(server, f"{of[0]} {of[1]}")[0],
                                 enumerate(SAID))
                for at in range(12):
                    self.assertIn(
                        server.post(f"/slots/{at % 3}?action=restore", {"filename": "one"})[0],
                        (200, 503))
                self.assertEqual(list(texts), expected)
            lines = [{
                "custom_id": str(at), "method": "POST", "url": "/v1/completions",
                "body": {"prompt": "Once", "max_tokens": 400, "seed": at, "ignore_eos": True}
            } for at in range(40)]
            batch = batches.create(server, batches.send(server, lines))
            until(
                lambda: all(slot["state"] != "idle"
                            for slot in json.loads(server.get("/v1/larder/status")[1])["slots"]),
                LIMIT_S, lambda: "no batch")
            for number in range(3):
                self.assertEqual(self.slots(server, number, "restore", "one")["n_restored"], tokens)
                self.slots(server, number, "erase")
            self.assertEqual(batches.look(server, batch)["status"], "in_progress")
            self.assertEqual(
                batches.ended(server, batch)["request_counts"],
                {"total": 40, "completed": 40, "failed": 0})

    def refusal(self, *options):
        done = subprocess.run([
            OPTIONS.larder, "serve", "-m", OPTIONS.model, "--port", "0", "--text-port", "0",
            *options
        ], capture_output=True, text=True, timeout=60, check=False)
        self.assertNotEqual(done.returncode, 0)
        return done.stderr.strip().splitlines()[-1]

    def test_what_cannot_be_is_said_in_a_line(self):
        with self.server():
            self.assertIn("another larder uses this folder",
                          self.refusal("--cache-dir", str(self.cache)))
        open_to_all = self.folder / "open"
        open_to_all.mkdir()
        open_to_all.chmod(0o755)
        for option in ("--cache-dir", "--slot-save-path", "--batch-dir"):
            self.assertIn("nobody else may read or write", self.refusal(option, str(open_to_all)))
        (self.folder / "file").write_text("x")
        self.assertIn("can't open the folder", self.refusal("--cache-dir",
                                                            str(self.folder / "file")))


def main():
    made = programs.parser(__doc__, "larder", "model")
    made.add_argument("--turns", type=int, default=20, help="of a conversation")
    vars(OPTIONS).update(vars(programs.options_of_tests(made)))
    unittest.main()


if __name__ == "__main__":
    main()
