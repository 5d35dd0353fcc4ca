#!/usr/bin/env python3
"""Tests the code by which the rack's tests judge, with planted errors: a wrong token, a report of
another socket, a broken archive.
"""
import argparse
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import faults
import image


class Said:
    """The logs of a rack that said this."""

    def __init__(self, logs, journal):
        self.logs, self.journal = logs, journal

    def new_logs(self):
        return self.logs


class Judging(unittest.TestCase):
    def setUp(self):
        self.faults = faults.Faults(Said({}, False), "Once upon a time, there was",
                                    argparse.Namespace(seed=1))

    def test_text_is_a_prefix_or_wrong(self):
        self.assertTrue(self.faults.is_prefix("Once upon a time"))
        self.assertTrue(self.faults.is_prefix("Once upon\ufffd"))
        self.assertFalse(self.faults.is_prefix("Once upon a tine"))
        self.assertFalse(self.faults.is_prefix("Once upon a time, there was one"))

    def test_a_round_draws_each_kind_and_role(self):
        kinds = ["kill -9 of a socket", "socket stands still", "link cut"]
        every = {(kind, role) for kind in kinds[:2]
                 for role in ("weight", "attention", "serving")} | {("link cut", None)}
        drawn = self.faults.order(kinds, 10)
        self.assertEqual((len(drawn), len(every)), (10, 7))
        self.assertEqual(set(drawn[:7]), every)

    def test_a_victim_has_the_role(self):
        class Names(list):
            names = lambda self: list(self)  # noqa: E731
        self.faults.rack = argparse.Namespace(
            servers={"a": Names(["a-weight", "a-attention", "serving"]), "b": Names(["b-weight"])})
        for role, sockets in (("weight", {"a-weight", "b-weight"}), ("serving", {"serving"}),
                              (None, {"a-weight", "a-attention", "serving", "b-weight"})):
            self.assertEqual({self.faults.victim(role)[1] for _ in range(200)}, sockets)

    def report(self, line, source="a-weight", victim="b-weight", journal=False):
        self.faults.rack = Said({source: line}, journal)
        return self.faults.report_of(["b-weight"], victim)

    def test_a_report_names_the_socket_and_the_trouble(self):
        self.assertIsNotNone(self.report("error: lost socket b-weight: link down"))
        self.assertIsNone(self.report("error: lost socket b-weights: link down"))
        self.assertIsNone(self.report("error: lost socket a-weight: link down"))
        self.assertIsNone(self.report("info: receives from socket b-weight"))

    def test_in_a_journal_the_socket_is_a_field(self):
        self.assertIsNotNone(
            self.report("lost socket b-weight: link down LARDER_PEER=b-weight.", journal=True))
        self.assertIsNone(self.report("lost socket b-weight: link down", journal=True))
        self.assertIsNone(
            self.report("lost socket b-weight: link down LARDER_PEER=b-weight2.", journal=True))

    def test_the_victims_own_words_do_not_count(self):
        line = "error: lost socket b-weight: link down"
        self.assertIsNone(self.report(line, source="b-weight"))
        self.assertIsNotNone(self.report(line))


@unittest.skipUnless(shutil.which("busybox"), "busybox is not installed")
class Archive(unittest.TestCase):
    def test_busybox_unpacks_what_cpio_packs(self):
        entries = [("bin", 0o040755, b""), ("bin/a", 0o100755, b"12345"), ("bin/b", 0o120777, b"a"),
                   ("c", 0o100644, b"")]
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["busybox", "cpio", "-i"], input=image.cpio(entries), cwd=folder,
                           check=True, capture_output=True)
            found = subprocess.run(["sh", "-c", "cat bin/a; readlink bin/b; stat -c %a bin/a c"],
                                   cwd=folder, capture_output=True, text=True)
        self.assertEqual(found.stdout, "12345a\n755\n644\n")


if __name__ == "__main__":
    unittest.main()
