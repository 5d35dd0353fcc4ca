#!/usr/bin/env python3
"""Tests of larder_testing: what others judge by must not say yes to everything."""
import pathlib
import re
import signal
import socket
import sys
import tomllib
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import ROOT, clusters, ports, programs, replies
from larder_testing.processes import Process, Unit
from larder_testing.waiting import until

EVENT = b'data: {"choices":[{"text":"ab"}]}\n\n'
CHAT = b'data: {"choices":[{"delta":{"role":"assistant"}},{"delta":{"content":"cd"}}]}\n\n'
DONE = b"data: [DONE]\n\n"


class Replies(unittest.TestCase):
    def text(self, body):
        return replies.joined(replies.texts_of_events(body.split(b"\n")))

    def test_streams(self):
        self.assertEqual(self.text(EVENT + EVENT + DONE), "abab")
        self.assertEqual(self.text(CHAT + DONE), "cd")

    def test_streams_that_fail_keep_what_came_before(self):
        for end in (b"", b'data: {"error":{"code":503,"message":"lost"}}\n\n', b"data: {",
                    DONE + EVENT):
            with self.assertRaises(replies.Failed) as failed:
                self.text(EVENT + end)
            self.assertEqual(failed.exception.text, "ab")
        self.assertEqual(failed.exception.code, 0)

    def test_lines(self):
        def text(*lines):
            return replies.joined(replies.texts_of_lines(lines))
        first, last = b'{"content":"a","stop":false}', b'{"content":"b","stop":true}'
        self.assertEqual(text(first, last, b"not read"), "ab")
        for lines in ((first,), (first, b'{"error":{"code":500,"message":"x"}}')):
            with self.assertRaises(replies.Failed) as failed:
                text(*lines)
            self.assertEqual(failed.exception.text, "a")

    def test_a_reply_of_chunks(self):
        self.assertEqual(
            replies.split_reply(b"HTTP/1.1 200 OK\r\nTransfer-Encoding:"
                                b" chunked\r\n\r\n3\r\nabc\r\nA\r\n0123456789\r\n0\r\n\r\n"),
            (200, b"abc0123456789"),
        )
        self.assertEqual(replies.split_reply(b"HTTP/1.1 503 No\r\nX: y\r\n\r\nbody"),
                         (503, b"body"))


class Clusters(unittest.TestCase):
    def test_a_manifest_is_toml_and_keeps_its_order(self):
        text = clusters.manifest(
            clusters.server("a", clusters.socket("w", "weight", "cores:0", isolated=True,
                                                 port=None),
                            clusters.socket("kv", "attention", "cores:1", **{"for": "w"}),
                            address='h"x:1'), clusters.server("b"), name="two", model={"slots": 4},
            link={"transport": "tcp", "device": None})
        self.assertEqual(tomllib.loads(text), {
            "name": "two", "model": {"slots": 4}, "link": {"transport": "tcp"},
            "server": [{
                "name": "a", "address": 'h"x:1',
                "socket": [{"name": "w", "role": "weight", "cores": "cores:0", "isolated": True},
                           {"name": "kv", "role": "attention", "cores": "cores:1", "for": "w", }]
            }, {"name": "b"}]})
        self.assertNotIn("[link]", clusters.manifest(clusters.server("a"), name="n"))

    def test_a_key_is_its_owners(self):
        key = clusters.make_key(programs.folder_of(self))
        self.assertEqual(key.stat().st_mode & 0o777, 0o600)
        self.assertRegex(key.read_text(), r"\A[0-9a-f]{64}\n\Z")


class Ports(unittest.TestCase):
    def test_nobody_is_given_a_port_twice(self):
        first, second = ports.free_ports(16), ports.free_ports(16)
        given = {
            *range(first, first + 16), *range(second, second + 16),
            *(ports.free_port() for _ in range(20))
        }
        self.assertEqual(len(given), 16 + 16 + 20)
        with socket.socket() as other, self.assertRaises(OSError):
            other.bind(("127.0.0.1", first + 3))

    def test_a_listener_may_have_it(self):
        with socket.create_server(("127.0.0.1", ports.free_port())):  # SO_REUSEADDR, as larder's
            pass


class Processes(unittest.TestCase):
    def setUp(self):
        self.folder = programs.folder_of(self)

    def test_a_process_says_what_it_says(self):
        with Process(["sh", "-c", "echo out; echo err >&2; exit 3"], self.folder / "p") as process:
            self.assertEqual(process.wait(30), 3)
            self.assertEqual((process.out(), process.err(), process.said(), process.running()),
                             ("out\n", "err\n", "out\nerr\n", False))

    def test_a_process_ends_with_the_statement(self):
        with Process(["sleep", "1000"], self.folder / "p") as process:
            self.assertIsNone(process.wait(0.01))
            self.assertTrue(process.running())
        self.assertEqual(process.status(), -signal.SIGKILL)

    def test_a_unit_is_started_again_until_it_is_stopped(self):
        unit = Unit("u", ["sh", "-c", "echo begun; exec sleep 1000"], self.folder / "u.log")
        unit.start()
        for count in (1, 2):
            until(lambda: unit.said().count("begun") == count, 30, lambda: unit.said(),
                  pause_s=0.01)
            unit.signal(signal.SIGKILL)
        until(lambda: unit.said().count("begun") == 3, 30, lambda: unit.said(), pause_s=0.01)
        self.assertEqual(unit.stop(), -signal.SIGTERM)
        self.assertEqual(len(re.findall("u ended with -9", unit.said())), 2)


class Others(unittest.TestCase):
    def test_waiting_has_an_end(self):
        seen = iter([None, 0, "at last"])
        self.assertEqual(until(lambda: next(seen), 30, "it came", pause_s=0), "at last")
        with self.assertRaisesRegex(AssertionError, "it never came"):
            until(lambda: False, 0, lambda: "it never came", pause_s=0)

    def test_a_script_is_a_module(self):
        self.assertTrue(callable(programs.load(ROOT / "bench" / "plot.py").markdown))

    def test_a_skipped_test_says_so(self):
        with self.assertRaises(SystemExit) as ended:
            programs.skip_without(["sh", "no-such-program"], "package nothing")
        self.assertEqual(ended.exception.code, programs.SKIPPED)


if __name__ == "__main__":
    unittest.main()
