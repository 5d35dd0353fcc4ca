#!/usr/bin/env python3
"""larder-cluster against folders that play servers: real files, the real `larder`, a fake ssh and systemctl (deploy/testing).

    deploy/cluster_test.py --larder build/larder
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
MODEL = HERE.parent / "model/demo/larder-stories.gguf"
LARDER = None

MANIFEST = """name = "{name}"
[model]
path = "{model}"
context = 256
slots = 4
[[server]]
name = "node-a"
address = "host-a:7171"
[[server.socket]]
name = "front"
role = "serving"
cores = "cores:0"
[[server.socket]]
name = "a-weights"
role = "weight"
cores = "cores:0"
[[server.socket]]
name = "a-attention"
role = "attention"
cores = "cores:0"
[[server]]
name = "node-b"
address = "host-b:7171"
ssh = "root@host-b"
[[server.socket]]
name = "b-both"
role = "colocated"
cores = "cores:0"
"""
PUSHED = ["manifest", "model", "options of front", "unit of front", "options of a-weights", "unit of a-weights", "options of a-attention",
          "unit of a-attention"]


class Cluster(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-cluster-"))
        self.addCleanup(shutil.rmtree, self.folder)
        self.hosts = self.folder / "hosts"
        (self.hosts / "bin").mkdir(parents=True)
        for name, source in (("systemctl", HERE / "testing/systemctl"), ("journalctl", HERE / "testing/systemctl"), ("larder", LARDER)):
            (self.hosts / "bin" / name).symlink_to(source)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/ssh").symlink_to(HERE / "testing/ssh")
        for host in ("host-a", "host-b"):
            (self.hosts / host).mkdir()
        shutil.copy(MODEL, self.folder / "model.gguf")
        self.manifest = self.folder / "cluster.toml"
        self.manifest.write_text(MANIFEST.format(name=f"test-{os.getpid()}", model="model.gguf"))

    def run_it(self, command, *arguments, expect=0):
        environment = {**os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}", "LARDER_FAKE_HOSTS": str(self.hosts)}
        done = subprocess.run([sys.executable, str(HERE / "larder-cluster"), command, "--manifest", str(self.manifest), "--root", ".", *arguments],
                              capture_output=True, text=True, env=environment, timeout=120)
        self.assertEqual(done.returncode, expect, done.stdout + done.stderr)
        return done.stdout, done.stderr

    def rows(self, out):
        """WHAT or SOCKET of a server -> (STATE, DETAIL): columns are at least two spaces apart."""
        rows = {}
        for line in out.splitlines()[1:]:
            words = [w.strip() for w in line.split("  ") if w.strip()]
            if len(words) >= 3:
                rows[words[0], words[1]] = (words[2], words[3] if len(words) > 3 else "")
        return rows

    def log(self):
        path = self.hosts / "log"
        lines = path.read_text().splitlines() if path.exists() else []
        path.unlink(missing_ok=True)
        return lines

    def behave(self, host, **units):
        (self.hosts / host / "behaviour.json").write_text(json.dumps({f"larder@{u.replace('_', '-')}.service": how for u, how in units.items()}))

    # push

    def test_push_copies_once(self):
        rows = self.rows(self.run_it("push")[0])
        for what in PUSHED:
            self.assertRegex(rows["node-a", what][0], "copied|written", what)
        a = self.hosts / "host-a"
        self.assertEqual((a / "etc/larder/cluster.toml").read_bytes(), self.manifest.read_bytes())
        self.assertEqual((a / "var/lib/larder/models/model.gguf").read_bytes(), MODEL.read_bytes())
        self.assertEqual((a / "etc/larder/front.env").read_text(), "LARDER_OPTIONS=-m ./var/lib/larder/models/model.gguf\n")
        drop_in = (a / "etc/systemd/system/larder@a-weights.service.d/plan.conf").read_text()
        self.assertIn("AllowedCPUs=", drop_in)
        self.assertIn("After=larder@a-attention.service", drop_in)
        self.assertFalse((self.hosts / "host-b/etc/larder/front.env").exists(), "another server's socket")
        self.assertEqual(list(a.rglob("*.part")), [])
        self.assertEqual(sorted(self.log()), ["host-a daemon-reload", "host-b daemon-reload"])

        before = {p: p.stat().st_mtime_ns for p in self.hosts.rglob("*") if p.is_file() and p.name not in ("called", "lock", "units.json")}
        rows = self.rows(self.run_it("push")[0])
        self.assertEqual({row[0] for row in rows.values()}, {"same"})
        after = {p: p.stat().st_mtime_ns for p in self.hosts.rglob("*") if p.is_file() and p.name not in ("called", "lock", "units.json")}
        self.assertEqual(before, after)
        self.assertEqual(self.log(), [])

        self.manifest.write_text(self.manifest.read_text() + "# changed\n")
        rows = self.rows(self.run_it("push")[0])
        self.assertRegex(rows["node-a", "manifest"][0], "copied")
        self.assertEqual(rows["node-a", "model"][0], "same")

    def test_push_of_equal_size_and_other_content(self):
        self.run_it("push")
        copy = self.hosts / "host-b/var/lib/larder/models/model.gguf"
        whole = bytearray(copy.read_bytes())
        whole[-1] ^= 1
        copy.write_bytes(whole)
        rows = self.rows(self.run_it("push")[0])
        self.assertRegex(rows["node-b", "model"][0], "copied")
        self.assertEqual(copy.read_bytes(), MODEL.read_bytes())

    def test_push_dry_run_changes_nothing(self):
        out, _ = self.run_it("push", "--dry-run")
        self.assertRegex(out, "would copy")
        self.assertFalse((self.hosts / "host-a/etc").exists())
        self.assertEqual(self.log(), [])
        self.run_it("push")
        self.assertNotIn("would", self.run_it("push", "--dry-run")[0])

    def test_push_stage_files(self):
        stages = self.folder / "stages"
        stages.mkdir()
        shutil.copy(MODEL, stages / "b-both.gguf")
        self.run_it("push", "--stages", str(stages))
        self.assertEqual([p.name for p in (self.hosts / "host-b/var/lib/larder/models").iterdir()], ["b-both.gguf"])
        self.assertIn("b-both.gguf", (self.hosts / "host-b/etc/larder/b-both.env").read_text())
        self.assertEqual([p.name for p in (self.hosts / "host-a/var/lib/larder/models").iterdir()], ["model.gguf"])

    def test_push_names_what_larder_says(self):
        self.manifest.write_text(self.manifest.read_text().replace('cores = "cores:0"', 'cores = "cores:4000"', 1))
        out, _ = self.run_it("push", expect=1)
        _, detail = next(row for key, row in self.rows(out).items() if key[0] == "node-a" and row[0] == "FAILED")
        self.assertRegex(self.rows(out)["node-a", "manifest"][0], "copied", "what was done before is shown")
        self.assertIn("4000", detail)

    # up, down, drain

    def test_up_starts_in_order_and_once(self):
        rows = self.rows(self.run_it("up")[0])
        self.assertEqual({name: row[0] for (_, name), row in rows.items()},
                         dict.fromkeys(("front", "a-weights", "a-attention", "b-both"), "started"))
        self.assertEqual(rows["node-b", "b-both"][1], "7 layers resident")
        log = self.log()
        started = [line.split()[-1] for line in log if " start " in line]
        self.assertEqual(started[0], "larder@a-attention.service")
        self.assertEqual(len([line for line in log if " enable " in line]), 2, "one reload of systemd's units a server")
        units = json.loads((self.hosts / "host-a/units.json").read_text())
        self.assertTrue(units["larder@front.service"]["enabled"])
        self.assertTrue(units["larder.target"]["enabled"])

        rows = self.rows(self.run_it("up")[0])
        self.assertEqual({row[0] for row in rows.values()}, {"was running"})
        self.assertEqual([line for line in self.log() if " start " in line], [])
        self.run_it("up", "--restart")
        self.assertEqual(len([line for line in self.log() if " restart " in line]), 4)

    def test_up_shows_the_log_of_what_failed(self):
        self.behave("host-b", b_both="fails")
        out, _ = self.run_it("up", expect=1)
        rows = self.rows(out)
        self.assertEqual(rows["node-b", "b-both"][0], "FAILED")
        self.assertIn("exit status 1", rows["node-b", "b-both"][1])
        self.assertIn("b-both: larder: error: larder@b-both.service has no model", out)
        self.assertEqual(rows["node-a", "a-weights"][0], "started")

    def test_up_stops_at_an_attention_socket_that_fails(self):
        self.behave("host-a", a_attention="fails")
        rows = self.rows(self.run_it("up", expect=1)[0])
        self.assertEqual(rows["node-a", "a-attention"][0], "FAILED")
        self.assertEqual(rows["node-a", "a-weights"][0], "not started")
        self.assertEqual(rows["node-b", "b-both"][0], "not started")

    def test_up_does_not_wait_for_ever(self):
        self.behave("host-b", b_both="slow")
        rows = self.rows(self.run_it("up", "--timeout", "1", expect=1)[0])
        self.assertEqual(rows["node-b", "b-both"][0], "FAILED")
        self.assertIn("activating", rows["node-b", "b-both"][1])
        self.assertIn("loading", rows["node-b", "b-both"][1])

    def test_up_dry_run(self):
        rows = self.rows(self.run_it("up", "--dry-run")[0])
        self.assertEqual({row[0] for row in rows.values()}, {"would start"})
        self.assertEqual(self.log(), [])

    def test_down_stops_serving_first(self):
        self.run_it("up")
        self.log()
        self.assertEqual({row[0] for row in self.rows(self.run_it("down", "--dry-run")[0]).values()}, {"would stop"})
        self.assertEqual(self.log(), [])
        rows = self.rows(self.run_it("down")[0])
        self.assertEqual({row[0] for row in rows.values()}, {"stopped"})
        log = self.log()
        stopped = [line.split()[-1] for line in log if " stop " in line]
        self.assertEqual(stopped[0], "larder@front.service")
        self.assertEqual(sorted(stopped[1:]), ["larder@a-attention.service", "larder@a-weights.service", "larder@b-both.service"])
        self.assertEqual(len([line for line in log if " disable " in line]), 2, "one reload of systemd's units a server")
        self.assertFalse(json.loads((self.hosts / "host-b/units.json").read_text())["larder@b-both.service"]["enabled"])
        self.assertEqual({row[0] for row in self.rows(self.run_it("down")[0]).values()}, {"was not running"})

    def test_drain_leaves_the_stages(self):
        self.run_it("up")
        self.log()
        rows = self.rows(self.run_it("drain")[0])
        self.assertEqual(rows, {("node-a", "front"): ("stopped", "")})
        self.assertEqual(self.log(), ["host-a stop larder@front.service"])
        units = json.loads((self.hosts / "host-a/units.json").read_text())
        self.assertEqual(units["larder@a-weights.service"]["ActiveState"], "active")
        self.assertTrue(units["larder@front.service"]["enabled"], "after a reboot it serves again")

    # a server that is not there

    def test_a_server_that_is_not_reached_is_one_row(self):
        self.run_it("push")
        self.run_it("up")
        shutil.rmtree(self.hosts / "host-b")
        self.log()
        for command in ("push", "up", "down", "status"):
            out, _ = self.run_it(command, expect=1)
            line = next(l for l in out.splitlines() if l.startswith("node-b"))
            self.assertIn("not reached: ssh: connect to host root@host-b", out, command)
            self.assertNotIn("Traceback", out, command)
            del line
        self.assertIn("host-a stop larder@front.service", self.log(), "down goes on with those that are there")
        out, _ = self.run_it("check", expect=1)
        self.assertIn("problem: node-b: not reached", out)
        self.assertIn("node-b: not reached", self.run_it("logs", expect=1)[1])

    # check, status, logs

    def test_check_says_what_is_missing(self):
        out, _ = self.run_it("check", expect=0 if os.geteuid() == 0 and self.has_user() else 1)
        line = next(l for l in out.splitlines() if l.startswith("node-a"))
        self.assertIn("to push", line)
        self.run_it("push")
        out = self.run_it("check", expect=0 if os.geteuid() == 0 and self.has_user() else 1)[0]
        self.assertNotIn("to push", out)
        (self.hosts / "host-b/bin").mkdir()
        (self.hosts / "host-b/bin/larder").write_text("#!/bin/sh\necho 'larder 0.0.9 (scalar kernels on this machine)'\n")
        (self.hosts / "host-b/bin/larder").chmod(0o755)
        self.assertIn("problem: node-b: larder 0.0.9, others have another", self.run_it("check", expect=1)[0])

    @staticmethod
    def has_user():
        return subprocess.run(["id", "larder"], capture_output=True).returncode == 0

    def test_status_asks_the_real_program(self):
        self.run_it("push")
        out, _ = self.run_it("status", expect=1)
        self.assertEqual(out.count("not running"), 4)
        found = json.loads(self.run_it("status", "--json", expect=1)[0])
        self.assertEqual([s["server"] for s in found["servers"]], ["node-a", "node-b"])
        self.assertEqual([s["socket"] for s in found["servers"][0]["sockets"]], ["front", "a-weights", "a-attention"])

    def test_status_without_a_manifest_there(self):
        out, _ = self.run_it("status", expect=1)
        self.assertIn("cluster.toml", out)

    def test_logs_are_merged_by_time(self):
        def line(at, socket, priority, message):
            return json.dumps({"__REALTIME_TIMESTAMP": str(at), "LARDER_SOCKET": socket, "PRIORITY": str(priority), "MESSAGE": message}) + "\n"
        (self.hosts / "host-a/journal.json").write_text(line(1_000_000, "front", 6, "one") + "no json\n" + line(3_000_000, "front", 3, "three"))
        (self.hosts / "host-b/journal.json").write_text(
            line(2_000_000, "b-both", 4, [116, 119, 111, 255])
            + json.dumps({"__REALTIME_TIMESTAMP": "4000000", "_SYSTEMD_UNIT": "larder@b-both.service", "MESSAGE": "four"}) + "\n")
        out, _ = self.run_it("logs")
        self.assertEqual([line.split(" ", 2)[2] for line in out.splitlines()],
                         ["node-a front info: one", "node-b b-both warning: two\ufffd", "node-a front error: three", "node-b b-both info: four"])
        followed, said = self.run_it("logs", "-f", expect=1)  # the fake journal ends, a real one does not
        self.assertEqual(sorted(followed.splitlines()), sorted(out.splitlines()))
        self.assertIn("its journal ended", said)

    # the manifest

    def test_wrong_manifests_are_refused(self):
        good = self.manifest.read_text()
        for old, new, said in (('name = "node-b"', 'name = "../b"', "'../b' is not a name"),
                               ('address = "host-b:7171"\nssh = "root@host-b"', 'address = "-oProxyCommand=x"', "is not HOST"),
                               ('ssh = "root@host-b"', 'ssh = "-oProxyCommand=x"', "is not [USER@]HOST"),
                               ('role = "colocated"', 'role = "auto"', "units need a role"),
                               ('role = "colocated"', 'role = "king"', "'king' is none of"),
                               ('name = "b-both"', 'name = "front"', "there twice"),
                               ("[model]", "[model", "cluster.toml"),
                               ('path = "model.gguf"', 'path = "none.gguf"', "none.gguf: No such file")):
            self.assertIn(old, good)
            self.manifest.write_text(good.replace(old, new))
            self.assertIn(said, self.run_it("push", expect=2)[1])
            self.assertFalse((self.hosts / "called").exists(), new)

    def test_options(self):
        self.run_it("up", "--only", "node-b", "--ssh-config", "/dev/null")
        called = (self.hosts / "called").read_text()
        self.assertNotIn("host-a", called)
        self.assertIn("root@host-b", called)
        self.assertIn("-F /dev/null", called)
        self.assertIn("no server node-x", self.run_it("up", "--only", "node-x", expect=2)[1])

    # one real socket

    def test_a_running_socket_is_in_the_status(self):
        self.manifest.write_text(f"""name = "live-{os.getpid()}"
[model]
path = "model.gguf"
context = 256
[[server]]
name = "node-a"
address = "host-a"
[[server.socket]]
name = "weights"
role = "weight"
cores = "cores:0"
[[server.socket]]
name = "attention"
role = "attention"
cores = "cores:0"
""")
        self.run_it("push")
        node = subprocess.Popen([LARDER, "node", "--manifest", str(self.manifest), "--socket", "attention"], stderr=subprocess.PIPE, text=True)
        try:
            for line in node.stderr:
                if "waiting for the weight socket" in line:
                    break
            found = json.loads(self.run_it("status", "--json", expect=1)[0])["servers"][0]["sockets"]
            by_name = {s["socket"]: s for s in found}
            self.assertEqual(by_name["attention"]["state"], "connecting")
            self.assertEqual(by_name["attention"]["pid"], node.pid)
            self.assertIn("not running", by_name["weights"]["error"])
            story = subprocess.run([LARDER, "run", "--manifest", str(self.manifest), "--join", "-p", "Once", "-n", "8", "--ignore-eos"],
                                   capture_output=True, text=True, timeout=60)
            self.assertEqual(story.returncode, 0, story.stderr)
            deadline = time.monotonic() + 30
            while time.monotonic() < deadline:
                by_name = {s["socket"]: s for s in json.loads(self.run_it("status", "--json", expect=1)[0])["servers"][0]["sockets"]}
                if by_name["attention"]["rows"] >= 8:
                    break
            self.assertGreaterEqual(by_name["attention"]["rows"], 8)
            self.assertIn("connecting", self.run_it("status", expect=1)[0])
        finally:
            node.kill()
            node.wait()
            node.stderr.close()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--larder", required=True)
    o, rest = parser.parse_known_args()
    LARDER = os.path.abspath(o.larder)
    unittest.main(argv=[sys.argv[0], *rest])
