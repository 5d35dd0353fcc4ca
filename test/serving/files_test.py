#!/usr/bin/env python3
"""Files and batches of `larder serve`: a batch whose server is killed at any moment, any number of
times, while clients use it too, has the answers of `larder batch`, to the byte; clients' requests
go first; a full disk.

Usage: files_test.py --larder PROGRAM --model FILE [--kills N]
"""
import argparse
import json
import pathlib
import random
import re
import resource
import subprocess
import sys
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import batches, programs
from larder_testing.server import Server
from larder_testing.waiting import until

OPTIONS = argparse.Namespace(larder=None, model=None, kills=None)
LIMIT_S = 120
CONTEXT = 512


def requests(count, rng):
    for at in range(count):
        body = {
            "prompt": rng.choice(["Once upon a time", "One day", "Tom and Lily"]),
            "temperature": rng.choice([0, 0.8, 1.3]), "max_tokens": rng.choice([3, 40, 150])
        }
        body |= ({"n": 3} if at % 7 == 0 else {"stop": ["."]} if at %
                 7 == 1 else {"logprobs": 2} if at % 7 == 2 else {})
        if at == 5:
            body = {"prompt": "too long " * 3000}
        yield {
            "custom_id": f"request {at}", "method": "POST", "url": "/v1/completions", "body": body
        }


def answers(server, batch):
    """All lines of an ended batch, sorted."""
    files = [batch[key] for key in ("output_file_id", "error_file_id") if batch[key]]
    return sorted(line for file in files
                  for line in server.get(f"/v1/files/{file}/content")[1].decode().splitlines())


class FilesTest(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(programs.folder_of(self))
        self.rng = random.Random(7)

    def server(self, *options):
        return Server(OPTIONS.larder, OPTIONS.model, "-c", str(CONTEXT), "--batch-dir",
                      str(self.folder / "batches"), *map(str, options))

    def job(self, batch):
        """What the answers of a batch depend on, while it runs."""
        path = self.folder / "batches" / f"{batch}.job"
        until(path.exists, LIMIT_S, lambda: f"there is no {path}")
        return path.read_text()

    def is_checked(self, batch):
        """Whether no server is, or was when it was killed, in the middle of checking the batch's
        input.
        """
        return not (self.folder / "batches" / f"{batch}.check").exists()

    def expected(self, lines, job):
        """What `larder batch` answers as the same job."""
        given = self.folder / "in.jsonl"
        given.write_text("".join(json.dumps(line) + "\n" for line in lines))
        out = self.folder / "out.jsonl"
        (self.folder / "out.jsonl.job").write_text(job)
        out.unlink(missing_ok=True)
        subprocess.run([
            OPTIONS.larder, "batch", "-i", given, "-o", out, "-m", OPTIONS.model, "-c",
            str(CONTEXT), "--resume"
        ], check=True, capture_output=True, timeout=LIMIT_S)
        return sorted(out.read_text().splitlines())

    def test_a_batch_whose_server_is_killed_again_and_again_has_the_same_answers(self):
        lines = list(requests(300, self.rng))
        batch, job, cut, killed_in_check = None, None, 0, False
        for kill in range(OPTIONS.kills):
            with self.server("--slots", self.rng.randint(1, 6), "-t", self.rng.randint(1, 2),
                             "--queue", self.rng.choice([0, 256])) as server:
                # Another round
                if batch is None or batches.look(server, batch)["status"] == "completed":
                    batch = batches.create(server, batches.send(server, lines))
                    job = self.job(batch)
                if kill % 3 == 1:  # a client, in the middle
                    self.assertEqual(
                        server.post("/v1/completions", {"prompt": "One day", "max_tokens": 20})[0],
                        200)
                if killed_in_check:  # a line that ends two servers is not tried again
                    until(lambda: self.is_checked(batch), LIMIT_S, "the check does not end")
                time.sleep(self.rng.uniform(0, 0.2))
                cut += batches.look(server, batch)["status"] != "completed"
                server.kill()
                killed_in_check = not self.is_checked(batch)
        self.assertGreater(cut, OPTIONS.kills / 3, "most rounds ended before they were killed")
        with self.server() as server:
            done = batches.ended(server, batch)
            self.assertEqual(done["status"], "completed")
            self.assertEqual(done["request_counts"], {"total": 300, "completed": 299, "failed": 1})
            self.assertEqual(answers(server, done), self.expected(lines, job))

    def test_clients_go_first_and_change_no_answer(self):
        lines = list(requests(300, self.rng))
        asked = {"prompt": "Once upon a time", "max_tokens": 60, "seed": 3, "temperature": 0.9}
        with self.server("--slots", 2) as server:
            alone = json.loads(server.post("/v1/completions", asked)[1])["choices"][0]["text"]
            batch = batches.create(server, batches.send(server, lines))
            until(lambda: batches.look(server, batch)["request_counts"]["completed"] > 0, LIMIT_S,
                  "nothing was answered")
            job, asking = self.job(batch), 0
            while batches.look(server, batch)["status"] == "in_progress":
                beside = json.loads(server.post("/v1/completions", asked)[1])["choices"][0]["text"]
                self.assertEqual(beside, alone)
                asking += 1
            self.assertGreater(asking, 0)
            metrics = server.get("/metrics")[1].decode()
            self.assertGreater(
                int(re.search(r"^larder_batch_yields_total (\d+)", metrics, re.MULTILINE)[1]), 0)
            self.assertEqual(answers(server, batches.ended(server, batch)),
                             self.expected(lines, job))

    def test_a_server_that_is_ended_by_sigterm_does_not_wait_for_its_batch(self):
        with self.server("--slots", 1, "--drain-timeout", 60) as server:
            batch = batches.create(
                server,
                batches.send(server, ({
                    "custom_id": f"{at}", "url": "/v1/completions",
                    "body": {"prompt": "One day", "ignore_eos": True, "max_tokens": 400}
                } for at in range(2000))))
            until(lambda: batches.look(server, batch)["status"] == "in_progress", LIMIT_S,
                  "not begun")
            server.end(timeout_s=30)
        with self.server("--slots", 1) as server:
            self.assertEqual(batches.look(server, batch)["status"], "in_progress")
            self.assertEqual(server.post(f"/v1/batches/{batch}/cancel", {})[0], 200)
            self.assertEqual(batches.ended(server, batch)["status"], "cancelled")

    def test_a_full_disk_keeps_a_batch_waiting_and_it_goes_on(self):
        lines = list(requests(80, self.rng))
        log = self.folder / "server.log"
        with log.open("w") as stderr:
            server = self.server()
            server.stderr = stderr
            server.command = ["sh", "-c", 'trap "" XFSZ; exec "$@"', "sh", *server.command]
            with server:
                file = batches.send(server, lines)
                resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE,
                                 (9000, resource.RLIM_INFINITY))
                batch = batches.create(server, file)
                job = self.job(batch)
                until(lambda: "File too large" in log.read_text(), LIMIT_S, log.read_text)
                self.assertEqual(batches.look(server, batch)["status"], "in_progress")
                self.assertEqual(
                    server.post("/v1/completions", {"prompt": "One day", "max_tokens": 5})[0], 200)
                status, body = server.post(
                    "/v1/files",
                    b"--e\r\nContent-Disposition: form-data; name=purpose\r\n\r\nbatch\r\n"
                    b"--e\r\nContent-Disposition: form-data; name=file\r\n\r\n" + bytes(20000) +
                    b"\r\n--e--\r\n", "Content-Type: multipart/form-data; boundary=e\r\n")
                self.assertEqual(status, 500)
                self.assertNotIn(str(self.folder), body.decode(),
                                 "what the disk says is the operator's")
                server.kill()
        self.assertIn("tried again every 30 s", log.read_text())
        with self.server() as server:
            self.assertEqual(answers(server, batches.ended(server, batch)),
                             self.expected(lines, job))

    def test_a_folder_that_others_may_read_is_refused(self):
        folder = self.folder / "batches"
        folder.mkdir()
        folder.chmod(0o755)
        command = [
            OPTIONS.larder, "serve", "-m", OPTIONS.model, "--port", "0", "--text-port", "-1",
            "--batch-dir",
            str(folder)
        ]
        refused = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S)
        self.assertEqual(refused.returncode, 1)
        self.assertRegex(
            refused.stderr,
            r"batches: the folder is of user \d+ with mode 755; expected one of user \d+ that"
            r" nobody else may read",
        )


def main():
    made = programs.parser(__doc__, "larder", "model")
    made.add_argument("--kills", type=int, default=12)
    vars(OPTIONS).update(vars(programs.options_of_tests(made)))
    unittest.main()


if __name__ == "__main__":
    main()
