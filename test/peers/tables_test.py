#!/usr/bin/env python3
"""What judges llama.cpp's tests, with planted errors: the tables' entries, and the flags that the
shim translates. Needs no llama.cpp.
"""
import pathlib
import struct
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import llama_server_shim as shim
import peers_test as peers
import stand_ins
from larder_testing.scripted_model import F32, STRING, U32, entry, text_of

NOT_OURS = {"a.py": "model", "b.py::one": "vision", "b.py::two[x]": "vision"}
TO_MEND = {"c.py::one": "a field"}


class TablesTest(unittest.TestCase):
    def judge(self, passed=(), failed=(), skipped=(), not_run=(), whole=False):
        results = {
            "passed": list(passed), "failed": dict.fromkeys(failed, "why"),
            "skipped": dict.fromkeys(skipped, "why"), "not_run": list(not_run)
        }
        return peers.judge(results, NOT_OURS, TO_MEND, whole)

    def test_what_is_as_the_tables_say_is_right(self):
        self.assertEqual(
            self.judge(["d.py::x", "b.py::two[y]"],
                       ["a.py::x[1]", "b.py::one[2]", "b.py::two[x]", "c.py::one"], ["d.py::y"],
                       whole=True), [])
        self.assertEqual(
            self.judge(["d.py::x"], ["b.py::one", "b.py::two[x]", "c.py::one"], not_run=["a.py::x"],
                       whole=True), [])

    def test_a_failure_that_no_table_has_is_wrong(self):
        for test in ("d.py::x", "b.py::two[y]", "b.py::two", "b.py::one_more", "aa.py::x"):
            self.assertEqual(self.judge(failed=[test]), [f"{test} fails and is in no table: why"])

    def test_an_entry_whose_test_passes_is_wrong(self):
        self.assertEqual(self.judge(["c.py::one"]),
                         ["c.py::one passes: take it from the table (c.py::one)"])
        self.assertEqual(self.judge(["a.py::x"]), ["a.py::x passes: take it from the table (a.py)"])

    def test_an_entry_without_a_test_is_wrong(self):
        self.assertEqual(
            self.judge(failed=["a.py::x", "b.py::one"], skipped=["c.py::one"], whole=True),
            ["no test is called b.py::two[x]"])

    def test_a_test_of_two_entries_is_wrong(self):
        results = {"passed": [], "failed": {"a.py::x": "why"}, "skipped": {}, "not_run": []}
        self.assertEqual(peers.judge(results, {"a.py": "model"}, {"a.py::x": "a field"}),
                         ["a.py::x is listed twice: a.py, a.py::x"])

    def test_the_tables_can_be_read(self):
        not_ours, to_mend, not_run = peers.tables()
        self.assertLess(set(not_run), set(not_ours))
        self.assertFalse(set(not_ours) & set(to_mend))
        for entry in [*not_ours, *to_mend]:
            self.assertRegex(entry, r"^test_\w+\.py(::test_\w+(\[.*\])?)?$")


class ShimTest(unittest.TestCase):
    def words(self, line, **environment):
        return shim.translated(shim.parsed(line.split()),
                               {"LARDER_SHIM_MODELS": "/models", **environment})

    def test_a_flag_that_it_does_not_know_is_passed_on(self):
        self.assertEqual(self.words("--port 1 --new-flag --other 2 -x y"),
                         ["--port", "1", "--new-flag", "--other", "2", "-x", "y"])

    def test_the_context_is_of_all_slots(self):
        self.assertEqual(self.words("--ctx-size 512 --parallel 2"),
                         ["--ctx-size", "256", "--parallel", "2"])
        self.assertEqual(self.words("--ctx-size 512 --parallel 2 --kv-unified"),
                         ["--ctx-size", "512", "--kv-tokens", "512", "--parallel", "2"])

    def test_models_by_their_names(self):
        self.assertEqual(self.words("--offline --hf-repo ggml-org/test-model-stories260K"),
                         ["--model", "/models/stories260K.gguf", "--offline"])
        bert = "--hf-repo ggml-org/models --hf-file bert-bge-small/ggml-model-f16.gguf"
        self.assertEqual(self.words(bert),
                         ["--model", "/models/stories260K.gguf", "--pooling", "mean"])
        self.assertEqual(self.words(f"{bert} --pooling last"),
                         ["--model", "/models/stories260K.gguf", "--pooling", "last"])
        self.assertEqual(self.words("--hf-repo ggml-org/test-model-stories260K-infill"),
                         ["--model", "/models/stories260K-infill.gguf"])
        self.assertEqual(self.words("--ctx-size 4"), ["--ctx-size", "1"])
        self.assertEqual(self.words("--cors-origins localhost"),
                         ["--model", "/models/stories260K.gguf", "--cors-origins", "localhost"])
        with self.assertRaises(SystemExit):
            self.words("--hf-repo ggml-org/tinygemma3-GGUF:Q8_0")

    def test_the_command_line_is_before_the_variables(self):
        self.assertEqual(self.words("--port 1", LLAMA_ARG_HOST="192.0.2.1"),
                         ["--host", "192.0.2.1", "--port", "1"])
        self.assertEqual(self.words("--host ::1", LLAMA_ARG_HOST="192.0.2.1"), ["--host", "::1"])


def file_of(entries, tensors, body):
    """A GGUF file; tensors: names and where they begin in the body, each two columns of F32."""
    infos = b"".join(
        text_of(name) + struct.pack("<IQQIQ", 2, 2, 1, 0, begin) for name, begin in tensors)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries))
    head += b"".join(entry(*one) for one in entries) + infos
    return head + bytes(-len(head) % 32) + body


class StandInsTest(unittest.TestCase):
    def test_a_file_has_more_entries_and_tensors_behind_its_own(self):
        entries = [("general.name", STRING, "a"), ("list", STRING, ["b", ""]),
                   ("numbers", F32, [1.0, 2.0]), ("number", U32, 7)]
        values = struct.pack("<2f", 1, 2)
        extended = stand_ins.extended(file_of(entries, [("t", 0)], values), [("more", U32, 9)],
                                      {"u": (2, 1, [3, 4])})
        self.assertEqual(
            extended,
            file_of([*entries, ("more", U32, 9)], [("t", 0), ("u", 32)],
                    values + bytes(24) + struct.pack("<2f", 3, 4)))


if __name__ == "__main__":
    unittest.main()
