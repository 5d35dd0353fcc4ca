#!/usr/bin/env python3
"""Tests of compare, regress, formats, machine, residency, serving_compare, plot.py and
results.py: against stand-ins of the programs that they run, with figures that are known.
"""

import json
import pathlib
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import ROOT, programs
from larder_testing.programs import executable, load

BENCH = ROOT / "bench"
sys.path.insert(0, str(BENCH))  # for what they import
compare, plot = load(BENCH / "compare"), load(BENCH / "plot.py")
results, machine = load(BENCH / "results.py"), load(BENCH / "machine")

# Prints what a bench prints; the speed depends on what is asked, so that a mixed-up row shows.
STAND_IN = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
value = lambda flag, other: int(words[words.index(flag) + 1]) if flag in words else other
if "--help" in words:
    sys.exit(print("{help}"))
speed = {base} * (1000 * value("-p", 0) + value("-n", 0) + {batch_factor} * value("-b", 0) + value("-d", 0))
if "-gp" in words:
    speed += sum(map(int, words[words.index("-gp") + 1].split(",")))
if "-rtr" in words:
    sys.exit("error: invalid parameter for argument: -rtr")
speed *= {flash} if "-fa" in words else 1
print(json.dumps([{{"avg_ts": 1, "samples_ts": [speed, speed, 2 * speed]}}]))
"""
BATCHED = """#!/usr/bin/env python3
import sys
words = sys.argv[1:]
print("|    PP |     TG |    B | S_PP t/s | S_TG t/s |", file=sys.{stream})
print("|-------|--------|------|----------|----------|", file=sys.{stream})
print(f"|     1 |      4 | {{words[words.index('-npl') + 1]}} |     9.00 |    50.00 |", file=sys.{stream})
"""


# A larder whose speed with n threads is 100 n^0.5, times the batch; eight threads fail.
MACHINE = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
value = lambda flag, other: words[words.index(flag) + 1] if flag in words else other
if words[0] == "doctor":
    print("{}")
elif words[0] == "synth":
    pathlib.Path(value("-o", None)).write_text("model")
elif value("-t", "") == "8":
    sys.exit("larder: no eighth thread")
else:
    threads, prompt = int(value("-t", 4)), int(value("-p", 0))
    print(json.dumps([{"n_threads": threads, "n_prompt": prompt, "n_batch_sequences": int(b),
                       "samples_ts": [1, 100 * threads ** 0.5 * int(b)]}
                      for b in value("-b", "1").split(",")]))
"""


class MachineTest(unittest.TestCase):
    def setUp(self):
        self.root = programs.folder_of(self)

    def test_cores_packages_and_l3_groups(self):
        # Two packages of two L3 groups, of two cores with two CPUs each; CPU 15 is not allowed.
        for cpu in range(16):
            folder = self.root / f"cpu{cpu}"
            for name, value in (("topology/physical_package_id", cpu // 8),
                                ("topology/core_id", cpu // 2 % 4),
                                ("cache/index3/size", "32768K"),
                                ("cache/index3/shared_cpu_list", cpu // 4)):
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                (folder / name).write_text(f"{value}\n")
        here = machine.machine(self.root, set(range(15)))
        self.assertEqual(here, {"cores": 8, "packages": 2, "l3_groups": 4, "l3_bytes": 4 << 25})
        self.assertEqual(machine.thread_counts(here), [1, 2, 4, 8])
        self.assertEqual([name for name, _ in machine.models(here, 2)], ["bench-24m"])
        self.assertEqual([name for name, _ in machine.models(dict(here, l3_bytes=1 << 29), 8)],
                         ["bench-24m", "bench-1b of 3 layers", "bench-1b"])
        self.assertIn('cores = "package:1"', machine.separated(here))
        self.assertIn('cores = "cores:4-7"', machine.separated(dict(here, packages=1)))
        self.assertIsNone(machine.separated({"cores": 1, "packages": 1}))

    def test_writes_a_section_and_what_it_left_out(self):
        larder = executable(self.root / "larder", MACHINE)
        here = {"cores": 8, "packages": 1, "l3_groups": 1, "l3_bytes": 1 << 25}
        for name, value in (("machine", here), ("models", [("small", []), ("large", [])])):
            patch = unittest.mock.patch.object(machine, name, return_value=value)
            patch.start()
            self.addCleanup(patch.stop)
        options = machine.argparse.Namespace(larder=larder, llama_bench=None, commit="0123abcd")
        out = machine.measure(machine.Run(1), options, self.root)
        text = machine.page(out)
        self.assertEqual(list(results.problems(text)), [])
        self.assertIn("| small, 4 threads, decode, batch 8 | tokens/s | - | 1,600 | - | - |\n"
                      "| the same | share of its threads | - | - | 0.50 | - |", text)
        self.assertIn("| small, separated, prefill of 512 | tokens/s | - | 200 | - | - |", text)
        self.assertIn("| large, 2 threads, prefill of 256 | tokens/s | - | 141.4 | - | - |", text)
        self.assertNotIn("large, 1 thread", text)
        self.assertIn("larder: no eighth thread", text)
        self.assertEqual(len(out["left_out"]), 4)
        self.assertEqual(machine.measure(machine.Run(0), options, self.root)["threads"], [])


class CompareTest(unittest.TestCase):
    def setUp(self):
        self.root = programs.folder_of(self)
        self.model = self.write("model.gguf", "")
        self.theirs = self.write("llama-bench",
                                 STAND_IN.format(base=1, batch_factor=0, flash=1, help=""))
        self.ours = self.write("larder", STAND_IN.format(base=3, batch_factor=1, flash=1, help=""))

    def write(self, name, text):
        return executable(self.root / name, text)

    def run_compare(self, *words):
        run = subprocess.run([
            sys.executable, BENCH / "compare", "--model", self.model, "--larder", self.ours,
            "--pairs", "2", "-p", "4", "-n", "16", *words
        ], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout, run.stderr

    def test_rows_and_ratios(self):
        file = self.root / "out.json"
        status, out, err = self.run_compare("--llama-bench", self.theirs, "-b", "1,8", "--json",
                                            file)
        self.assertEqual(status, 0, err)
        self.assertEqual(results.rows_of(json.loads(file.read_text())), [
            "| model, pp4 | tokens/s | 4,000 | 12,000 | 3.00 [3.00..3.00] | 3.00 |",
            "| model, tg16 | tokens/s | 16 | 51 | 3.19 [3.19..3.19] | 3.19 |"])
        self.assertIn(
            "| pp4 | 4,000.0 | 12,000.0 | 3.00 [3.00..3.00] | 8,000.0 | 24,000.0 | 3.00 |"
            " defaults |", out,
        )
        self.assertIn("| tg16 | 16.0 | 51.0 | 3.19 [3.19..3.19] |", out)  # ours also sees -b 1
        self.assertIn("skipped: tg16 x 8", out)
        self.assertNotIn("| tg16 x 8", out)

    def test_batched(self):
        for stream in ("stdout", "stderr"):
            batched = self.write("batched", BATCHED.format(stream=stream))
            status, out, err = self.run_compare("--llama-bench", self.theirs,
                                                "--llama-batched-bench", batched, "-b", "8")
            self.assertEqual(status, 0, err)
            self.assertIn("| tg16 x 8 | 50.0 | 72.0 | 1.44 [1.44..1.44] |", out)

    def test_theirs_has_its_best_setting(self):
        fast = self.write("llama-fast", STAND_IN.format(base=1, batch_factor=0, flash=2, help=""))
        status, out, err = self.run_compare("--llama-bench", fast, "-b", "1")
        self.assertEqual(status, 0, err)
        self.assertIn(
            "| pp4 | 8,000.0 | 12,000.0 | 1.50 [1.50..1.50] | 16,000.0 | 24,000.0 | 1.50 | -fa 1 |",
            out)
        self.assertIn("pp4: their program does not run with -rtr 1 -fa 1\n", err)
        status, out, err = self.run_compare("--llama-bench", fast, "-b", "1", "--llama-args",
                                            "-ctk q8_0")
        self.assertEqual(status, 0, err)
        self.assertIn("| 3.00 | -ctk q8_0 |", out)

    def test_depth(self):
        for text in ("-d, --n-depth <n>", "-gp <pp,tg>"):
            peer = self.write("llama-deep",
                              STAND_IN.format(base=1, batch_factor=0, flash=1, help=text))
            status, out, err = self.run_compare("--llama-bench", peer, "-b", "1", "-d", "64,7000",
                                                "--llama-args", "-fa 1")
            self.assertEqual(status, 0, err)
            self.assertIn("| tg16 at depth 64 | 80.0 | 243.0 | 3.04", out)  # ours also sees -b 1
            self.assertIn("| tg16 at depth 7000 | 7,016.0 | 21,051.0 | 3.00", out)

    def test_median_and_spread(self):
        table = compare.speed_table([("t", "-x", [([10], [10]), ([10, 12, 10], [30]),
                                                  ([20], [40, 44, 36])])])
        self.assertIn("| t | 10.0 | 30.0 | 2.00 [1.00..3.00] | 20.0 | 44.0 | 2.20 | -x |", table)

    def test_batched_row_must_be_there(self):
        with self.assertRaisesRegex(compare.BenchError, "no row for B = 32"):
            compare.parse_batched("| B | S_TG t/s |\n|---|---|\n| 8 | 50 |\n", 32)

    def test_failures_are_one_line(self):
        broken = self.write("broken", "#!/bin/sh\necho first >&2\necho no such model >&2\nexit 3\n")
        status, _, err = self.run_compare("--llama-bench", broken)
        self.assertEqual(status, 1)
        self.assertRegex(err, r"compare: .*broken.*: status 3: no such model\n$")
        chatty = self.write("chatty", "#!/bin/sh\necho hello\n")
        status, _, err = self.run_compare("--llama-bench", chatty)
        self.assertEqual(status, 1)
        self.assertIn("is not the JSON of a bench: 'hello", err)
        status, _, err = self.run_compare("--llama-bench", self.root / "absent")
        self.assertEqual(status, 2)
        self.assertIn("absent does not exist", err)

    def test_nothing_to_compare(self):
        status, _, err = self.run_compare()
        self.assertEqual(status, 2)
        self.assertIn("--llama-bench", err)


def entry(name, aggregate=None, **counters):
    made = {
        "run_name": name, "name": name, "run_type": "aggregate" if aggregate else "iteration",
        "real_time": 5.0, "iterations": 7, **counters
    }
    if aggregate:
        made["aggregate_name"] = aggregate
    return made


class PlotTest(unittest.TestCase):
    REPORT = {
        "context": {"executable": "x/bench_gemm", "cpu_model": "A CPU", "load_avg": [0.5]},
        "benchmarks": [
            entry("gemv/K:1024/MB:3/repeats:3/manual_time", **{"GB/s": 1.0, "best of read": 0.1}),
            entry("gemv/K:1024/MB:3/repeats:3/manual_time", "mean", **{"GB/s": 2.0}),
            entry("gemv/K:1024/MB:3/repeats:3/manual_time", "median",
                  **{"GB/s": 31.25, "best of read": 0.97}),
            entry("gemv/K:2048/MB:3/manual_time", **{"GB/s": 1234567.0}),
            entry("gemv/K:4096/MB:3/manual_time", error_occurred=True, error_message="no CPU"),
            entry("prefill/avx2/prompt:512/manual_time", **{"GOP/s": float("nan")})
        ]
    }

    def test_tables(self):
        text = plot.markdown(self.REPORT)
        self.assertIn("# bench_gemm\n\nMedians. A CPU; load average 0.50.", text)
        self.assertIn(
            "## gemv\n\n| K | MB | GB/s | best of read |\n|--:|--:|--:|--:|\n"
            "| 1024 | 3 | 31.2 | 0.97 |\n| 2048 | 3 | 1,234,567 |  |\n| 4096 | 3 | no CPU |  |\n",
            text)
        self.assertIn("## prefill/avx2\n\n| prompt | GOP/s |\n|--:|--:|\n| 512 | nan |\n", text)

    def test_bars(self):
        text = plot.svg([self.REPORT])
        self.assertIn(">gemv K=1024 MB=3</text>", text)
        self.assertIn(">0.97</text>", text)
        self.assertEqual(text.count("<rect"), 1)

    def test_other_files_are_refused(self):
        with tempfile.TemporaryDirectory() as folder:
            for text in ("", "[]", json.dumps({"context": {}})):
                path = pathlib.Path(folder, "x.json")
                path.write_text(text)
                run = subprocess.run([sys.executable, BENCH / "plot.py", path], capture_output=True,
                                     text=True, check=False)
                self.assertEqual(run.returncode, 1)
                self.assertEqual(run.stderr.count("\n"), 1, run.stderr)


# The engine: 100 us a step, 110 while serving, 40,000 tokens/s at batch 8. HTTP: 140 us; text:
# {text_us} us; 8 clients: 36,000 tokens/s.
SERVING = """#!/usr/bin/env python3
import http.server, json, os, signal, sys
class Metrics(http.server.BaseHTTPRequestHandler):
    frames = 0
    def do_GET(self):
        Metrics.frames += 1000
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f'larder_socket_frames_total{{{{socket="a"}}}} {{Metrics.frames}}\\n'
                         f'larder_socket_step_seconds_total{{{{socket="a"}}}} '
                         f'{{Metrics.frames * 110e-6}}\\n'.encode())
    def log_message(self, *_):
        pass
words = sys.argv[1:]
value = lambda flag: words[words.index(flag) + 1]
if words[0] == "bench":
    print(json.dumps([{{"samples_ts": [10000.0 if value("-b") == "1" else 40000.0]}}]))
elif words[0] == "serve":
    server = http.server.HTTPServer(("127.0.0.1", 0), Metrics)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    print(f"HTTP         http://127.0.0.1:{{server.server_port}}")
    print("text stream  127.0.0.1:5678  (try)", flush=True)
    server.serve_forever()
elif words[0] == "bench-serve":
    text = value("--endpoint") == "text"
    assert (value("--port") == "5678") == text
    tpot_ms = {text_us} / 1e3 if text else 0.14
    print(json.dumps({{"failed": {failed}, "first_error": "no slot", "median_tpot_ms": tpot_ms, "mean_tpot_ms": tpot_ms,
                      "p99_tpot_ms": 0.21, "output_throughput": 36000 if value("--max-concurrency") == "8" else 7000}}))
"""



# A larder of a known speed: {speed} tokens/s, or {first} in its first {count} runs. It notes each
# run in {log}.
LARDER = """#!/usr/bin/env python3
import json, pathlib, sys
words, log = sys.argv[1:], pathlib.Path("{log}")
if words[0] == "synth":
    pathlib.Path(words[words.index("-o") + 1]).write_text("weights")
    sys.exit()
assert words[0] == "bench" and pathlib.Path(words[words.index("-m") + 1]).exists()
with log.open("a") as file:
    file.write("{name}\\n")
runs = log.read_text().split("\\n").count("{name}")
speed = {first} if runs <= {count} else {speed}
speed *= 0.9 if "{slow}" in words else 1
print(json.dumps([{{"avg_ts": 1, "samples_ts": [0.5 * speed, speed, speed * 1.1]}}]))
"""


class RegressTest(unittest.TestCase):
    def setUp(self):
        self.folder = programs.folder_of(self)
        self.log = self.folder / "log"
        self.model = executable(self.folder / "m.gguf", "")

    def larder(self, name, speed, first=0, count=0, slow="nothing"):
        return executable(
            self.folder / name,
            LARDER.format(log=self.log, name=name, speed=speed, first=first, count=count,
                          slow=slow))

    def regress(self, before, after, *words, models=True):
        command = [
            sys.executable, "-B", BENCH / "regress", "--before", before, "--after", after,
            "--pairs", "3", "--more", "4", "--quiet-seconds", "0.01", "-b", "1",
            *(["--model", self.model] if models else []), *words
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
        return run.returncode, run.stdout, run.stderr

    def test_equal_builds(self):
        status, out, err = self.regress(self.larder("old", 100), self.larder("new", 100))
        self.assertEqual(status, 0, out + err)
        self.assertIn(
            "| m | pp256 | 100.0 | 100.0 | 1.000 [1.000..1.000] | 1.000 [1.000..1.000] |  |", out)
        self.assertIn("regress: 0 confirmed\n", out)
        self.assertNotIn("again", err)

    def test_runs_alternate_and_nobody_always_begins(self):
        self.regress(self.larder("old", 100), self.larder("new", 100), "-n", "0")
        self.assertEqual(self.log.read_text().split(), ["old", "new", "new", "old", "old", "new"])

    def test_a_slower_build_is_named(self):
        status, out, err = self.regress(self.larder("old", 100), self.larder("new", 95))
        self.assertEqual(status, 1, out + err)
        self.assertIn(
            "| m | tg128 | 100.0 | 95.0 | 0.950 [0.950..0.950] | 0.950 [0.950..0.950] | FALL of the"
            " median and of the best |", out,
        )
        self.assertIn("regress: 2 confirmed; m pp256: FALL", out)
        self.assertEqual(self.log.read_text().split().count("new"), 2 * (3 + 4))

    def test_only_the_slower_test_is_run_again(self):
        status, out, err = self.regress(self.larder("old", 100), self.larder("new", 100, slow="-b"))
        self.assertEqual(status, 1, out + err)
        self.assertIn(
            "| m | pp256 | 100.0 | 100.0 | 1.000 [1.000..1.000] | 1.000 [1.000..1.000] |  |", out)
        self.assertIn("regress: 1 confirmed; m tg128: FALL", out)
        self.assertIn("again, with 4 pairs: m.gguf tg128\n", err)
        self.assertEqual(self.log.read_text().split().count("new"), 2 * 3 + 4)

    def test_a_suspicion_that_does_not_come_true(self):
        status, out, err = self.regress(self.larder("old", 100),
                                        self.larder("new", 100, first=80, count=6))
        self.assertEqual(status, 0, out + err)
        self.assertIn("m.gguf pp256, m.gguf tg128", err)
        self.assertIn("| 1.000 [1.000..1.000] | suspected, not confirmed |", out)

    def test_faster_is_no_fall_and_a_little_slower_is_within_the_threshold(self):
        for speed, threshold, expected in ((110, 2, 0), (99, 2, 0), (99, 0.5, 1), (95, 6, 0)):
            status, out, err = self.regress(self.larder("old", 100), self.larder("new", speed),
                                            "-n", "0", "--threshold", str(threshold))
            self.assertEqual(status, expected, f"{speed} {threshold}: {out}{err}")

    def test_without_a_model_there_are_two(self):
        status, out, err = self.regress(self.larder("old", 100), self.larder("new", 100), "-n", "0",
                                        models=False)
        self.assertEqual(status, 0, out + err)
        for model in ("larder-stories", "bench-24m"):
            self.assertIn(f"| {model} | pp256 |", out)

    def test_a_run_without_a_figure_is_no_verdict(self):
        for text in ("#!/bin/sh\necho no such model >&2\nexit 3\n", "#!/bin/sh\necho '[]'\n",
                     "#!/bin/sh\necho '[{\"samples_ts\":[0]}]'\n"):
            status, out, err = self.regress(self.larder("old", 100),
                                            executable(self.folder / "broken", text))
            self.assertEqual((status, out), (2, ""), err)
            self.assertRegex(err, r"regress: .+\n\Z")

    def test_a_fall_is_what_most_pairs_show(self):
        regress = load(BENCH / "regress")
        self.assertTrue(regress.is_fall([0.95, 0.96, 0.97, 1.10], 0.02))
        self.assertFalse(regress.is_fall([0.90, 0.91, 0.92, 1.01, 1.02], 0.02))  # three fifths
        self.assertFalse(regress.is_fall([0.99, 0.985, 0.99, 0.99], 0.02))


class ServingCompareTest(unittest.TestCase):
    def run_compare(self, **figures):
        with tempfile.TemporaryDirectory() as folder:
            larder = executable(pathlib.Path(folder, "larder"), SERVING.format(**figures))
            return subprocess.run([
                sys.executable, BENCH / "serving_compare", "--larder", larder, "--model", "m",
                "--rounds", "2"
            ], capture_output=True, text=True, check=False, timeout=60)

    def test_prints_the_differences_and_whether_they_meet_the_targets(self):
        run = self.run_compare(text_us=125, failed=0)
        self.assertEqual(run.returncode, 0, run.stdout + run.stderr)
        for row in ("| overhead of HTTP, us | 30.00 | 30.00..30.00 | <= 50 met |",
                    "| overhead of the text stream, us | 15.00 | 15.00..15.00 | <= 30 met |",
                    "| slower than the engine alone, HTTP, us | 40.0 |",
                    "| aggregate share of bench | 0.90 | 0.90..0.90 | >= 0.85 met |",
                    "| TPOT P99 / median | 1.50 | 1.50..1.50 | <= 2 met |",
                    "| engine's step alone at batch 1, us | 100.0 |",
                    "| its step while serving over HTTP, us | 110.0 |"):
            self.assertIn(row, run.stdout)

    def test_a_missed_target_and_failed_requests_fail_it(self):
        run = self.run_compare(text_us=150, failed=0)
        self.assertEqual(run.returncode, 1)
        self.assertIn("40.00 | 40.00..40.00 | <= 30 MISSED", run.stdout)
        run = self.run_compare(text_us=125, failed=3)
        self.assertEqual(run.returncode, 1)
        self.assertIn("3 requests failed: no slot", run.stderr)


# Of formats: a larder whose 4-bit files are twice as fast from memory and half as fast in prefill,
# and a reference and a quantiser that say which file they saw.
FORMATS_LARDER = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
value = lambda flag, other: words[words.index(flag) + 1] if flag in words else other
file = value("-m", "")
if words[0] == "synth":
    pathlib.Path(value("-o", "")).write_text(value("--type", ""))
elif words[0] == "inspect":
    kind = pathlib.Path(file).read_text()
    cols = {{"odd": 172, "narrow": 64}}.get(kind, 512)
    print(json.dumps({{"tensors": [{{"name": "token_embd.weight", "rows": 9, "cols": cols, "bytes": 9, "type": kind}},
                                   {{"name": "w", "rows": 2, "cols": cols, "bytes": 576, "type": kind}},
                                   {{"name": "norm", "rows": 1, "cols": 9, "bytes": 36, "type": "F32"}}]}}))
elif words[0] == "plan":
    print(json.dumps({{"weight_bytes": 1088}}))
elif words[0] == "perplexity":
    pathlib.Path(value("--logits", "")).write_text(pathlib.Path(file).read_text())
elif words[0] == "bench":
    pathlib.Path({log!r}).open("a").write(pathlib.Path(file).name + "\\n")
    four = pathlib.Path(file).read_text() == "q4_0"
    factor = 2 if four and "memory" in file else 0.5 if four and "-p" in words and value("-p", "0") != "0" else 1
    print(json.dumps([{{"avg_ts": 1, "samples_ts": [10 * factor, 10 * factor, 30 * factor]}}]))
"""
FORMATS_REFERENCE = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
if "--make-ids" in words:
    sys.exit(print("1 2 3"))
label, logits = words[words.index("--with") + 1].split("=")
kl = len(pathlib.Path(logits).read_text()) / 1000
print(json.dumps({"ids": 3, "divergence": [{"other": label, "truth": "reference", "mean_kl": kl}]}))
"""
FORMATS_QUANTIZE = """#!/usr/bin/env python3
import pathlib, sys
pathlib.Path(sys.argv[-2]).write_text(" ".join(word for word in sys.argv[1:-3]) + sys.argv[-1])
"""


class FormatsTest(unittest.TestCase):
    def setUp(self):
        self.root = programs.folder_of(self)
        self.log = self.root / "log"
        self.larder = executable(self.root / "larder", FORMATS_LARDER.format(log=str(self.log)))
        self.reference = executable(self.root / "reference", FORMATS_REFERENCE)
        self.quantize = executable(self.root / "quantize", FORMATS_QUANTIZE)

    def run_formats(self, *words):
        run = subprocess.run([
            sys.executable, BENCH / "formats", "--larder", self.larder, "--reference",
            self.reference, "--folder", self.root, "--rounds", "2", *words
        ], capture_output=True, text=True, check=False)
        return run.returncode, run.stdout, run.stderr

    def test_bytes_speeds_and_turns(self):
        svg = self.root / "formats.svg"
        status, out, err = self.run_formats("--types", "q8_0,q4_0", "--svg", svg)
        self.assertEqual(status, 0, err)
        # 576 and 1088 bytes of 1,024 weights
        self.assertIn("| Q8_0 | 4.50 | 8.50 | - | - | - | - |\n", out)
        self.assertIn(
            "| Q4_0 | 4.50 | 8.50 | 1.00 / 1.00 | 1.00 / 1.00 | 0.50 / 0.50 | 2.00 / 2.00 |\n", out)
        runs = self.log.read_text().split()
        self.assertEqual(runs[:4], [
            "resident-beside.gguf", "resident-q4_0.gguf", "resident-q4_0.gguf",
            "resident-beside.gguf"
        ])
        self.assertIn(">2.00</text>", svg.read_text())
        # The models are gone
        self.assertEqual(sorted(path.name for path in self.root.iterdir() if path.is_dir()), [])

    def test_divergence(self):
        bases = []
        for name in ("wide", "narrow", "odd"):
            (self.root / f"{name}.gguf").write_text(name)
            bases += ["--base", f"{name}={self.root / name}.gguf"]
        status, out, err = self.run_formats("--types", "q4_0,q4_k", "--llama-quantize",
                                            self.quantize, *bases)
        self.assertEqual(status, 0, err)
        pure, rules = len("--allow-requantize --pure"), len(
            "--allow-requantize --custom-q token_embd.weight=f16,w=f16,norm=f16")
        self.assertIn("| KL, wide | KL, narrow | KL, odd | KL, random |\n", out)
        self.assertIn(f"| 0.{pure + len('Q4_0'):03}00 | 0.{pure + len('Q4_0'):03}00 | 0.0", out)
        self.assertIn(f"| 0.{pure + len('Q4_K_S'):03}00 | - | - | 0.{pure + len('Q4_K_S'):03}00 |",
                      out)
        self.assertGreater(rules, pure)

    def test_failures_are_one_line(self):
        for words, message in (
            (["--types", "q9"], "no type 'q9'"),
            (["--base", "x"], "'x', expected NAME=FILE"),
            (["--llama-quantize", self.root / "none"], "does not exist"),
            (["--rounds", "0"], "at least 1"),
        ):
            status, _, err = self.run_formats(*words)
            self.assertEqual(status, 2)
            self.assertIn(message, err)
        executable(self.larder, "#!/bin/sh\necho no room >&2\nexit 1\n")
        status, _, err = self.run_formats("--types", "q8_0")
        self.assertEqual(
            (status, len([line for line in err.splitlines() if "not quiet" not in line])), (1, 1))
        self.assertIn("status 1: no room", err)


# A larder whose share of resident weights and speed depend on the depth, and of which the second
# run has no share.
RESIDENCY = """#!/usr/bin/env python3
import json, pathlib, sys
words = sys.argv[1:]
depth = int(words[words.index("-d") + 1])
runs = pathlib.Path("{runs}")
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
share = None if len(runs.read_text()) == 2 else 64 / depth
print(json.dumps([{{"resident_share_live": share, "median_ts": 1000 * depth, "model_type": "m",
                    "cpu_info": "a CPU"}}]))
"""


class ResidencyTest(unittest.TestCase):

    def test_cases_take_turns_and_a_run_without_a_share_counts_for_its_speed(self):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder)
            larder = executable(path / "larder", RESIDENCY.format(runs=path / "runs"))
            done = subprocess.run([BENCH / "residency", "--larder", larder, "-m", "m.gguf",
                                   "--depths", "64,128", "--rounds", "2", "--json", path / "r"],
                                  capture_output=True, text=True, check=True)
            cases = json.loads((path / "r").read_text())
        self.assertTrue(done.stdout.startswith("m on a CPU\n"), done.stdout)
        for row in ("decode after 64 tokens | resident, % | - | 100 |",
                    "decode after 128 tokens | resident, % | - | 50 |",
                    "decode after 128 tokens | tokens/s | - | 128,000 |"):
            self.assertIn(row, done.stdout)
        self.assertEqual([len(case["rounds"]) for case in cases], [2] * len(cases))
        self.assertEqual([case["neighbour"] for case in cases],
                         [False, True, False] if len(cases) == 3 else [False, False])


class ResultsTest(unittest.TestCase):
    def setUp(self):
        self.root = programs.folder_of(self)

    def run_results(self, *words):
        run = subprocess.run([sys.executable, BENCH / "results.py", *words], capture_output=True,
                             text=True, check=False)
        return run.returncode, run.stdout, run.stderr

    def write(self, name, report):
        path = self.root / name
        path.write_text(json.dumps(report))
        return path

    def test_the_document_has_this_form_only(self):
        status, out, _ = self.run_results("--check", ROOT / "docs/benchmarks.md")
        self.assertEqual((status, out), (0, "results.py: 0 problems\n"))

    def test_rows_of_bench(self):
        test = {"test": "tg16", "n_batch_sequences": 1, "n_depth": 0, "model_type": "m",
                "median_ts": 12.25}
        file = self.write("bench.json",
                          [test, {**test, "n_batch_sequences": 8, "n_depth": 64}])
        status, out, _ = self.run_results(file)
        self.assertEqual(status, 0)
        self.assertEqual(out.split("\n"), [
            results.HEAD, results.RULE, "| m, tg16 | tokens/s | - | 12.2 | - | - |",
            "| m, tg16 x 8 after 64 tokens | tokens/s | - | 12.2 | - | - |", ""])

    def test_rows_of_a_server_and_its_peer(self):
        ours = {"max_concurrency": 8, "completed": 2, "total_input_tokens": 100,
                "output_throughput": 3000, "median_ttft_ms": 10, "median_tpot_ms": 2}
        theirs = {**ours, "output_throughput": 1500, "median_ttft_ms": 40, "median_tpot_ms": 1}
        files = self.write("ours.json", ours), "--peer", self.write("theirs.json", theirs)
        rows = self.run_results(*files)[1].split("\n")[2:]
        work = "| 8 clients, prompts of 50 | "
        self.assertEqual(rows, [work + "tokens/s | 1,500 | 3,000 | 2.00 | - |",
                                work + "TTFT, ms | 40 | 10 | 4.00 | - |",
                                work + "TPOT, ms | 1 | 2 | 0.50 | - |", ""])
        alone = self.run_results(files[0])[1].split("\n")[2]
        self.assertEqual(alone, work + "tokens/s | - | 3,000 | - | - |")

    def test_rows_of_compare(self):
        pairs = [[[10], [20]], [[10, 30, 10], [30]], [[10], [40]]]
        file = self.write("compare.json", {"model": "m", "tests": [
            {"name": "pp4", "setting": "", "pairs": pairs}]})
        self.assertEqual(self.run_results(file)[1].split("\n")[2],
                         "| m, pp4 | tokens/s | 10 | 30 | 3.00 [2.00..4.00] | 1.33 |")

    def test_what_is_no_report(self):
        (self.root / "x.json").write_text("{}")
        status, _, err = self.run_results(self.root / "x.json")
        self.assertEqual(status, 1)
        self.assertIn("x.json: not what a bench writes", err)
        status, _, err = self.run_results("a", "b", "--peer", "c")
        self.assertEqual(status, 2)
        self.assertIn("one for each", err)

    def test_planted_problems_are_found(self):
        good = ("## 2026-02-01: two cores\n\ncommit 0123abc\n\n" + results.HEAD + "\n" +
                results.RULE + "\n| a | t/s | 1 | 2 | 2.00 [1.50..2.50] | 2.00 |\n")
        self.assertEqual(list(results.problems(good)), [])
        for text, said in [(good + good.replace("02-01", "02-02"), "newest comes first"),
                           (good.replace("commit 0123abc", ""), "no commit"),
                           (good.replace("2026-02-01: ", ""), "expected '## YYYY"),
                           (good.replace("figure", "what"), "expected the table's head"),
                           (good.replace("| 2.00 |\n", "|\n"), "5 cells, expected 6"),
                           (good.replace("2.00 [", "3.00 ["), "outside of its range"),
                           (good.replace("2.00 [1.50..2.50]", "twice"), "ratio 'twice'")]:
            with self.subTest(said=said):
                self.assertEqual([said in why for _, why in results.problems(text)], [True])


if __name__ == "__main__":
    unittest.main()
