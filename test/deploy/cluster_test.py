#!/usr/bin/env python3
"""larder-cluster against folders that play servers: real files, the real `larder`, a fake ssh and
systemctl (stand_ins/).

    test/deploy/cluster_test.py --larder build/larder
"""
import fcntl
import hashlib
import json
import os
import pathlib
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import DEMO_MODEL, ROOT, clusters, programs
from larder_testing.clusters import server, socket
from larder_testing.programs import executable
from larder_testing.waiting import until

STAND_INS = pathlib.Path(__file__).resolve().parent / "stand_ins"
LARDER_CLUSTER = ROOT / "deploy" / "larder-cluster"
LARDER = None


def manifest(name, model):
    return clusters.manifest(
        server("node-a", socket("front", "serving", "cores:0"),
               socket("a-weights", "weight", "cores:0"),
               socket("a-attention", "attention", "cores:0"), address="host-a:7171"),
        server("node-b", socket("b-both", "colocated", "cores:0"), address="host-b:7171",
               ssh="root@host-b"),
        name=name, model={"path": model, "context": 256, "slots": 4})


PUSHED = [
    "manifest", "model", "link key", "options of front", "unit of front", "options of a-weights",
    "unit of a-weights", "options of a-attention", "unit of a-attention"
]


class Cluster(unittest.TestCase):
    def setUp(self):
        self.folder = programs.folder_of(self)
        self.hosts = self.folder / "hosts"
        (self.hosts / "bin").mkdir(parents=True)
        for name, source in (("systemctl", STAND_INS / "systemctl"), ("journalctl",
                                                                      STAND_INS / "systemctl"),
                             ("id", STAND_INS / "id"), ("larder", LARDER)):
            (self.hosts / "bin" / name).symlink_to(source)
        (self.folder / "bin").mkdir()
        (self.folder / "bin/ssh").symlink_to(STAND_INS / "ssh")
        for host in ("host-a", "host-b"):
            (self.hosts / host).mkdir()
        shutil.copy(DEMO_MODEL, self.folder / "model.gguf")
        self.manifest = self.folder / "cluster.toml"
        self.manifest.write_text(manifest(f"test-{os.getpid()}", "model.gguf"))

    def run_it(self, command, *arguments, expect=0):
        environment = {
            **os.environ, "PATH": f"{self.folder}/bin:{os.environ['PATH']}",
            "LARDER_FAKE_HOSTS": str(self.hosts)
        }
        done = subprocess.run([
            sys.executable,
            str(LARDER_CLUSTER), command, "--manifest",
            str(self.manifest), "--root", ".", *arguments
        ], capture_output=True, text=True, env=environment, timeout=120)
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
        (self.hosts / host / "behaviour.json").write_text(
            json.dumps({f"larder@{u.replace('_', '-')}.service": how for u, how in units.items()}))

    # push

    def test_push_copies_once(self):
        rows = self.rows(self.run_it("push")[0])
        for what in PUSHED:
            self.assertRegex(rows["node-a", what][0], "copied|written", what)
        a = self.hosts / "host-a"
        self.assertEqual((a / "etc/larder/cluster.toml").read_bytes(), self.manifest.read_bytes())
        self.assertEqual((a / "var/lib/larder/models/model.gguf").read_bytes(),
                         DEMO_MODEL.read_bytes())
        self.assertEqual((a / "etc/larder/front.env").read_text(),
                         "LARDER_OPTIONS=-m ./var/lib/larder/models/model.gguf\n")
        drop_in = (a / "etc/systemd/system/larder@a-weights.service.d/plan.conf").read_text()
        self.assertIn("AllowedCPUs=", drop_in)
        self.assertIn("After=larder@a-attention.service", drop_in)
        self.assertFalse((self.hosts / "host-b/etc/larder/front.env").exists(),
                         "another server's socket")
        self.assertEqual([p.name for p in a.rglob(".*")], [], "no temporary file is left")
        self.assertEqual(sorted(self.log()), ["host-a daemon-reload", "host-b daemon-reload"])

        def times():
            return {p: p.stat().st_mtime_ns for p in self.hosts.rglob("*")
                    if p.is_file() and p.name not in ("called", "commands", "lock", "units.json")}

        before = times()
        rows = self.rows(self.run_it("push")[0])
        self.assertEqual({row[0] for row in rows.values()}, {"same"})
        self.assertEqual(before, times())
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
        self.assertEqual(copy.read_bytes(), DEMO_MODEL.read_bytes())

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
        shutil.copy(DEMO_MODEL, stages / "b-both.gguf")
        self.run_it("push", "--stages", str(stages))
        self.assertEqual([p.name for p in (self.hosts / "host-b/var/lib/larder/models").iterdir()],
                         ["b-both.gguf"])
        self.assertIn("b-both.gguf", (self.hosts / "host-b/etc/larder/b-both.env").read_text())
        self.assertEqual([p.name for p in (self.hosts / "host-a/var/lib/larder/models").iterdir()],
                         ["model.gguf"])

    def test_push_of_a_model_in_several_files(self):
        """As llama.cpp's gguf-split names them; the first is what the sockets are given."""
        first, second = (self.folder / f"story-{i:05}-of-00002.gguf" for i in (1, 2))
        shutil.copy(DEMO_MODEL, first)
        _, err = self.run_it("push", "-m", str(first), expect=2)
        self.assertIn(f"{second}: No such file", err)
        second.write_bytes(b"the other half")
        rows = self.rows(self.run_it("push", "-m", str(first))[0])
        self.assertRegex(rows["node-b", "model, file 2"][0], "copied")
        there = self.hosts / "host-b/var/lib/larder/models"
        self.assertEqual(sorted(p.name for p in there.iterdir()), [first.name, second.name])
        self.assertEqual((there / second.name).read_bytes(), b"the other half")
        self.assertIn(f"models/{first.name}\n",
                      (self.hosts / "host-b/etc/larder/b-both.env").read_text())
        self.assertEqual(
            {row[0] for row in self.rows(self.run_it("push", "-m", str(first))[0]).values()},
            {"same"})

    def test_push_names_what_larder_says(self):
        self.manifest.write_text(self.manifest.read_text().replace('cores = "cores:0"',
                                                                   'cores = "cores:4000"', 1))
        out, _ = self.run_it("push", expect=1)
        _, detail = next(row for key, row in self.rows(out).items()
                         if key[0] == "node-a" and row[0] == "FAILED")
        self.assertRegex(
            self.rows(out)["node-a", "manifest"][0], "copied", "what was done before is shown")
        self.assertIn("4000", detail)

    def test_push_whose_reload_failed_reloads_the_next_time(self):
        """A drop-in was written, but systemd has not read it: without this check every later push
        would say "same".
        """
        (self.hosts / "host-a/behaviour.json").write_text(
            json.dumps({"fails-once": ["daemon-reload"]}))
        rows = self.rows(self.run_it("push", expect=1)[0])
        self.assertIn("daemon-reload: Connection timed out", rows["node-a", "units"][1])
        self.assertTrue(
            (self.hosts / "host-a/etc/systemd/system/larder@front.service.d/plan.conf").exists())
        self.assertNotIn("host-a daemon-reload", self.log())
        self.assertEqual(
            self.rows(self.run_it("push", "--dry-run")[0])["node-a", "systemd's view"][0],
            "would reload")
        rows = self.rows(self.run_it("push")[0])
        self.assertEqual(rows["node-a", "unit of front"][0], "same")
        self.assertEqual(rows["node-a", "systemd's view"][0], "reloaded")
        self.assertEqual(rows["node-b", "systemd's view"][0], "same")
        self.assertEqual(self.log(), ["host-a daemon-reload"])

    def test_up_reloads_what_a_push_could_not(self):
        (self.hosts / "host-b/behaviour.json").write_text(
            json.dumps({"fails-once": ["daemon-reload"]}))
        self.run_it("push", expect=1)
        self.log()
        self.run_it("up")
        log = [line for line in self.log() if line.startswith("host-b")]
        self.assertEqual(log[0], "host-b daemon-reload", log)

    def test_push_that_breaks_off_leaves_nothing_half(self):
        """The connection ends in the middle of the model: no part of it is left, under its name or
        any other.
        """
        self.run_it("push")
        a = self.hosts / "host-a"
        (a / "var/lib/larder/models/model.gguf").unlink()
        (a / "bin").mkdir()
        executable(a / "bin/cat", "#!/bin/sh\nhead -c 100\n")
        (a / "etc/larder/cluster.toml").unlink()
        rows = self.rows(self.run_it("push", expect=1)[0])
        self.assertIn("arrived damaged or cut short", rows["node-a", "manifest"][1])
        self.assertEqual([str(p) for folder in ("etc", "var") for p in (a / folder).rglob(".*")],
                         [])
        self.assertFalse((a / "etc/larder/cluster.toml").exists())

    def test_two_pushes_take_turns(self):
        self.run_it("push")
        a = self.hosts / "host-a"
        (a / "bin").mkdir()
        # Without the patience
        executable(a / "bin/flock", '#!/bin/sh\nshift 2\nexec /usr/bin/flock -w 0 "$@"\n')
        folder = os.open(a / "etc/larder", os.O_RDONLY)
        fcntl.flock(folder, fcntl.LOCK_EX)
        self.assertIn("another push is writing into ./etc/larder",
                      self.rows(self.run_it("push", expect=1)[0])["node-a", "units"][1])
        os.close(folder)
        self.run_it("push")

    def test_a_login_shell_that_greets(self):
        self.run_it("push")
        ssh = self.folder / "bin/ssh"
        ssh.unlink()
        executable(
            ssh, '#!/bin/sh\necho "Welcome to $LARDER_FAKE_HOSTS"; echo; printf "no line end,'
            f' a=b"\nexec "{STAND_INS}/ssh" "$@"\n',
        )
        self.assertEqual({row[0] for row in self.rows(self.run_it("push")[0]).values()}, {"same"})
        self.assertNotIn("to push", self.run_it("check", expect=0 if os.geteuid() == 0 else 1)[0])
        self.assertEqual(self.run_it("status", expect=1)[0].count("not running"), 4)
        self.assertEqual({row[0] for row in self.rows(self.run_it("up")[0]).values()}, {"started"})
        ssh.write_text("#!/bin/sh\necho 'This account is currently not available.'\n")
        out, said = self.run_it("check", expect=1)
        self.assertIn("its login shell said 'This account is currently not available.'", out)
        self.assertNotIn("Traceback", said)

    # the cluster key

    def key(self):
        return self.folder / "link.key"

    def test_key_is_made_once_and_for_this_user_only(self):
        said = self.run_it("key")[0]
        made = self.key().read_text()
        self.assertRegex(made, r"\A[0-9a-f]{64}\n\Z")
        self.assertEqual(self.key().stat().st_mode & 0o777, 0o600)
        self.assertNotIn(made.strip(), said)
        self.assertIn("--force", self.run_it("key")[0])
        self.assertEqual(self.key().read_text(), made)
        self.assertIn("up --restart", self.run_it("key", "--force")[0])
        self.assertNotEqual(self.key().read_text(), made)
        self.assertEqual(self.key().stat().st_mode & 0o777, 0o600)
        self.assertFalse((self.hosts / "called").exists(), "it asks no server")

    def test_push_makes_the_key_and_installs_it(self):
        self.run_it("push", "--dry-run")
        self.assertFalse(self.key().exists())
        out, said = self.run_it("push")
        made = self.key().read_text()
        self.assertEqual(self.rows(out)["node-a", "link key"][0], "copied")
        for host in ("host-a", "host-b"):
            there = self.hosts / host / "etc/larder/link.key"
            self.assertEqual(there.read_text(), made)
            self.assertEqual((there.stat().st_mode & 0o777, there.stat().st_uid),
                             (0o600, os.geteuid()))
        self.assertNotIn(
            made.strip(), out + said + (self.hosts / "called").read_text() +
            (self.hosts / "commands").read_text())
        self.assertIn(
            hashlib.sha256(made.encode()).hexdigest(), (self.hosts / "commands").read_text())
        self.assertEqual(
            self.run_it("check", expect=0 if os.geteuid() == 0 else 1)[0].count("there  there"), 2)

        there.chmod(0o644)
        rows = self.rows(self.run_it("push")[0])
        self.assertEqual(rows["node-b", "link key"][0], "mode and owner fixed")
        self.assertEqual(rows["node-a", "link key"][0], "same")
        self.assertEqual(there.stat().st_mode & 0o777, 0o600)

    def test_a_new_key_says_who_must_be_restarted(self):
        self.run_it("push")
        self.run_it("key", "--force")
        self.assertIn("another", self.run_it("check", expect=0 if os.geteuid() == 0 else 1)[0])
        self.assertEqual(
            self.rows(self.run_it("push", "--dry-run")[0])["node-a", "link key"][0],
            "would REPLACE")
        self.assertNotEqual((self.hosts / "host-a/etc/larder/link.key").read_text(),
                            self.key().read_text())
        out, _ = self.run_it("push")
        self.assertEqual(self.rows(out)["node-a", "link key"][0], "REPLACED")
        self.assertIn("note: the link key of node-a, node-b was replaced", out)
        self.assertIn("up --restart", out)
        self.assertEqual((self.hosts / "host-a/etc/larder/link.key").read_text(),
                         self.key().read_text())

    def test_another_machines_key_is_not_replaced_by_chance(self):
        self.run_it("push")
        made = self.key().read_text()
        self.key().unlink()
        self.assertIn("node-a has a key: copy it", self.run_it("push", expect=2)[1])
        self.assertIn("node-a has a key: copy it",
                      self.run_it("push", "--only", "node-b", expect=2)[1])
        self.assertFalse(self.key().exists())
        self.assertEqual((self.hosts / "host-a/etc/larder/link.key").read_text(), made)
        self.assertIn("problem: node-a: has a link key, and there is none",
                      self.run_it("check", expect=1)[0])

    def test_a_key_that_others_can_read_is_refused(self):
        self.run_it("key")
        self.key().chmod(0o640)
        for command in ("push", "check", "key"):
            self.assertIn("mode 0640", self.run_it(command, expect=2)[1])
        self.assertFalse((self.hosts / "called").exists())
        self.key().chmod(0o600)
        self.key().write_text("abc\n")
        said = self.run_it("push", expect=2)[1]
        self.assertIn("expected 64 hexadecimal digits", said)
        self.assertNotIn("abc", said)

    # up, down, drain

    def test_up_starts_in_order_and_once(self):
        rows = self.rows(self.run_it("up")[0])
        self.assertEqual({name: row[0] for (_, name), row in rows.items()},
                         dict.fromkeys(("front", "a-weights", "a-attention", "b-both"), "started"))
        self.assertEqual(rows["node-b", "b-both"][1], "7 layers resident")
        log = self.log()
        started = [line.split()[-1] for line in log if " start " in line]
        self.assertEqual(started[0], "larder@a-attention.service")
        self.assertEqual(len([line for line in log if " enable " in line]), 2,
                         "one reload of systemd's units a server")
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
        self.assertEqual(
            {row[0] for row in self.rows(self.run_it("down", "--dry-run")[0]).values()},
            {"would stop"})
        self.assertEqual(self.log(), [])
        rows = self.rows(self.run_it("down")[0])
        self.assertEqual({row[0] for row in rows.values()}, {"stopped"})
        log = self.log()
        stopped = [line.split()[-1] for line in log if " stop " in line]
        self.assertEqual(stopped[0], "larder@front.service")
        self.assertEqual(
            sorted(stopped[1:]),
            ["larder@a-attention.service", "larder@a-weights.service", "larder@b-both.service"])
        self.assertEqual(len([line for line in log if " disable " in line]), 2,
                         "one reload of systemd's units a server")
        self.assertFalse(
            json.loads(
                (self.hosts / "host-b/units.json").read_text())["larder@b-both.service"]["enabled"])
        self.assertEqual({row[0] for row in self.rows(self.run_it("down")[0]).values()},
                         {"was not running"})

    def test_attention_of_another_server(self):
        """It is up before its weight socket and down behind it, and has the file of its stage."""
        (self.hosts / "host-k").mkdir()
        self.manifest.write_text(
            clusters.manifest(
                server("node-w", socket("weights", "weight", "cores:0"),
                       socket("front", "serving", "cores:0"), address="host-a:7171"),
                server("node-k", socket("far", "attention", "cores:0", **{"for": "weights"}),
                       address="host-k:7171"), name=f"test-{os.getpid()}",
                model={"context": 256, "slots": 4}))
        stages = self.folder / "stages"
        stages.mkdir()
        for name in ("weights", "front"):
            shutil.copy(DEMO_MODEL, stages / f"{name}.gguf")
        self.run_it("push", "--stages", str(stages))
        far = self.hosts / "host-k/etc"
        self.assertIn("models/weights.gguf", (far / "larder/far.env").read_text())
        drop_in = (far / "systemd/system/larder@far.service.d/plan.conf").read_text()
        self.assertIn("SocketBindAllow=tcp:7171\n", drop_in)
        self.assertNotIn("After=", drop_in)
        self.assertRegex(drop_in, r"Its memory \(\d+\.\d MB\)")
        weights = self.hosts / "host-a/etc/systemd/system/larder@weights.service.d/plan.conf"
        self.assertNotIn("After=", weights.read_text(), "no unit of this server")
        self.assertIn("SocketBindAllow=tcp:7235\n", weights.read_text())
        self.log()
        self.run_it("up")
        started = [line.split()[-1] for line in self.log() if " start " in line]
        self.assertEqual(started[0], "larder@far.service")
        rows = self.rows(self.run_it("down")[0])
        self.assertEqual({row[0] for row in rows.values()}, {"stopped"})
        log = self.log()
        self.assertEqual([line.split()[-1] for line in log if " stop " in line],
                         [f"larder@{name}.service" for name in ("front", "weights", "far")])
        self.assertEqual(len([line for line in log if " disable " in line]), 2, log)

    def test_down_stops_although_disabling_fails(self):
        self.run_it("up")
        self.log()
        (self.hosts / "host-b/behaviour.json").write_text(json.dumps({"fails-once": ["disable"]}))
        rows = self.rows(self.run_it("down", expect=1)[0])
        self.assertEqual(rows["node-b", "1 sockets"][0], "FAILED")
        self.assertIn("host-b stop larder@b-both.service", self.log())

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
        self.assertIn("host-a stop larder@front.service", self.log(),
                      "down goes on with those that are there")
        out, _ = self.run_it("check", expect=1)
        self.assertIn("problem: node-b: not reached", out)
        self.assertIn("node-b: not reached", self.run_it("logs", expect=1)[1])

    # check, status, logs

    def test_check_says_what_is_missing(self):
        out, _ = self.run_it("check", expect=0 if os.geteuid() == 0 else 1)
        line = next(l for l in out.splitlines() if l.startswith("node-a"))
        self.assertIn("to push", line)
        self.run_it("push")
        out = self.run_it("check", expect=0 if os.geteuid() == 0 else 1)[0]
        self.assertNotIn("to push", out)
        (self.hosts / "host-b/bin").mkdir()
        executable(self.hosts / "host-b/bin/larder",
                   "#!/bin/sh\necho 'larder 0.0.9 (scalar kernels on this machine)'\n")
        self.assertIn("problem: node-b: larder 0.0.9, others have another",
                      self.run_it("check", expect=1)[0])

    def test_status_asks_the_real_program(self):
        self.run_it("push")
        out, _ = self.run_it("status", expect=1)
        self.assertEqual(out.count("not running"), 4)
        found = json.loads(self.run_it("status", "--json", expect=1)[0])
        self.assertEqual([s["server"] for s in found["servers"]], ["node-a", "node-b"])
        self.assertEqual([s["socket"] for s in found["servers"][0]["sockets"]],
                         ["front", "a-weights", "a-attention"])

    def test_status_without_a_manifest_there(self):
        out, _ = self.run_it("status", expect=1)
        self.assertIn("cluster.toml", out)

    def test_logs_are_merged_by_time(self):
        def line(at, socket, priority, message):
            return json.dumps({
                "__REALTIME_TIMESTAMP": str(at), "LARDER_SOCKET": socket, "PRIORITY": str(priority),
                "MESSAGE": message
            }) + "\n"
        (self.hosts / "host-a/journal.json").write_text(
            line(1_000_000, "front", 6, "one") + "no json\n" + line(3_000_000, "front", 3, "three"))
        (self.hosts / "host-b/journal.json").write_text(
            line(2_000_000, "b-both", 4, [116, 119, 111, 255]) + json.dumps({
                "__REALTIME_TIMESTAMP": "4000000", "_SYSTEMD_UNIT": "larder@b-both.service",
                "MESSAGE": "four"
            }) + "\n")
        out, _ = self.run_it("logs")
        self.assertEqual([line.split(" ", 2)[2] for line in out.splitlines()], [
            "node-a front info: one", "node-b b-both warning: two\ufffd",
            "node-a front error: three", "node-b b-both info: four"
        ])
        # The fake journal ends, a real one does not
        followed, said = self.run_it("logs", "-f", expect=1)
        self.assertEqual(sorted(followed.splitlines()), sorted(out.splitlines()))
        self.assertIn("its journal ended", said)

    def test_nothing_of_a_server_moves_the_cursor(self):
        evil = "\x1b]0;owned\x07\x1b[2J\u009b31m\r\nnode-a front error: fake"
        (self.hosts / "host-a/journal.json").write_text(
            json.dumps({
                "__REALTIME_TIMESTAMP": "1", "LARDER_SOCKET": "fr\x1bont", "PRIORITY": "3",
                "MESSAGE": evil
            }) + "\n")
        out = self.run_it("logs")[0]
        self.assertEqual(len(out.splitlines()), 1)
        self.assertTrue(all(c.isprintable() for c in out.rstrip("\n")), repr(out))
        self.run_it("push")
        (self.hosts / "host-a/bin").mkdir()
        (self.hosts / "host-a/bin/larder").write_text("#!/bin/sh\ncat <<'E'\n" + json.dumps(
            {"sockets": [{"socket": evil, "role": evil, "state": evil, "error": evil}]}) + "\nE\n")
        (self.hosts / "host-a/bin/larder").chmod(0o755)
        out = self.run_it("status", expect=1)[0]
        self.assertEqual(len(out.splitlines()), 3)
        self.assertTrue(all(c.isprintable() for c in out.replace("\n", "")), repr(out))
        (self.hosts /
         "host-a/bin/larder").write_text("#!/bin/sh\nprintf 'larder: \\033[2Jno\\n' >&2; exit 1\n")
        out = self.run_it("push", expect=1)[0]
        self.assertIn("larder: ?[2Jno", out)

    # the manifest

    def test_ssh_targets_have_one_grammar(self):
        """larder-cluster and the servers' larder accept the same targets."""
        good = self.manifest.read_text()
        for target, fits in (("h", True), ("root@h", True), ("root@h:2222", True), ("h:22", True),
                             ("my_host", True), ("_u@h-1.rack", True), ("root@[fe80::1]", True),
                             ("[::1]:2222", True), ("root@[fe80::1%eth0]:22", True),
                             ("ssh://root@h", False), ("-oProxyCommand=x", False), ("-x", False),
                             ("root@-x", False), ("-u@h", False), ("a b", False), ("h:", False),
                             ("h:0", False), ("h:65536", False), ("h:2x", False), ("::1", False),
                             ("[::1", False), ("@h", False), ("u@", False), ("a@b@c",
                                                                             False), ("h;x", False),
                             (".h", False), ("[]", False), ("[-x]", False), ("[::1]x", False)):
            self.manifest.write_text(good.replace('ssh = "root@host-b"', f'ssh = "{target}"'))
            said = self.run_it("key", expect=0 if fits else 2)[1]
            self.assertEqual("is not [USER@]HOST[:PORT]" in said, not fits, target)
            done = subprocess.run([
                LARDER, "plan", "--manifest",
                str(self.manifest), "--server", "node-a", "-m",
                str(DEMO_MODEL)
            ], capture_output=True, text=True)
            self.assertEqual("not a target" in done.stderr, not fits, f"{target}: {done.stderr}")

    def test_no_key_of_clients_in_a_manifest(self):
        good = self.manifest.read_text()
        for options in ("--api-key secret1234", "--host 0.0.0.0 --api-key=secret1234"):
            self.manifest.write_text(
                good.replace('role = "serving"', f'role = "serving"\noptions = "{options}"'))
            said = self.run_it("push", expect=2)[1]
            self.assertIn("expected --api-key-file", said)
            done = subprocess.run([
                LARDER, "plan", "--manifest",
                str(self.manifest), "--server", "node-a", "-m",
                str(DEMO_MODEL)
            ], capture_output=True, text=True)
            self.assertEqual(done.returncode, 1)
            self.assertIn("expected --api-key-file", done.stderr)
            self.assertNotIn("secret1234", said + done.stderr)

    def test_wrong_manifests_are_refused(self):
        good = self.manifest.read_text()
        for old, new, said in (('name = "node-b"', 'name = "../b"', "'../b' is not a name"),
                               ('address = "host-b:7171"\nssh = "root@host-b"',
                                'address = "-oProxyCommand=x"', "is not HOST"),
                               ('ssh = "root@host-b"', 'ssh = "-oProxyCommand=x"',
                                "is not [USER@]HOST"), ('role = "colocated"', 'role = "auto"',
                                                        "units need an explicit role"),
                               ('role = "colocated"', 'role = "king"', "'king' is none of"),
                               ('name = "b-both"', 'name = "front"',
                                "two sockets have the name"), ("[model]", "[model", "cluster.toml"),
                               ('path = "model.gguf"', 'path = "none.gguf"',
                                "none.gguf: No such file")):
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
        self.manifest.write_text(
            clusters.manifest(
                server("node-a", socket("weights", "weight", "cores:0"),
                       socket("attention", "attention", "cores:0"), address="host-a"),
                name=f"live-{os.getpid()}", model={"path": "model.gguf", "context": 256}))

        def sockets():
            found = json.loads(self.run_it("status", "--json",
                                           expect=1)[0])["servers"][0]["sockets"]
            return {each["socket"]: each for each in found}
        self.run_it("push")
        node = subprocess.Popen(
            [LARDER, "node", "--manifest",
             str(self.manifest), "--socket", "attention"], stderr=subprocess.PIPE, text=True)
        try:
            for line in node.stderr:
                if "waiting for the weight socket" in line:
                    break
            by_name = sockets()
            self.assertEqual(by_name["attention"]["state"], "connecting")
            self.assertEqual(by_name["attention"]["pid"], node.pid)
            self.assertIn("not running", by_name["weights"]["error"])
            story = subprocess.run([
                LARDER, "run", "--manifest",
                str(self.manifest), "--join", "-p", "Once", "-n", "8", "--ignore-eos"
            ], capture_output=True, text=True, timeout=60)
            self.assertEqual(story.returncode, 0, story.stderr)
            until(lambda: sockets()["attention"]["rows"] >= 8, 30,
                  "the attention socket has seen less than 8 rows")
            self.assertIn("connecting", self.run_it("status", expect=1)[0])
        finally:
            node.kill()
            node.wait()
            node.stderr.close()


if __name__ == "__main__":
    LARDER = os.path.abspath(programs.options_of_tests(programs.parser(__doc__, "larder")).larder)
    unittest.main()
