#!/usr/bin/env python3
"""Checks the units, the drop-in of `larder unit`, sysusers.d and tmpfiles.d with systemd's own
tools. Nothing is started.

    test/deploy/units_test.py --larder build/larder      # exit status 77: systemd's tools are
        missing
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import DEMO_MODEL, ROOT, clusters, programs
from larder_testing.clusters import server, socket
from larder_testing.programs import run

DEPLOY = ROOT / "deploy"
TOOLS = ["systemd-analyze", "systemd-sysusers", "systemd-tmpfiles"]
MAX_EXPOSURE = 18  # systemd-analyze security, times ten; larder@.service says 1.8
LARDER = None


class Units(unittest.TestCase):
    def setUp(self):
        self.folder = programs.folder_of(self)
        service = (DEPLOY / "larder@.service").read_text()
        self.assertIn("ExecStart=/usr/bin/larder ", service)
        self.unit = self.folder / "larder@weights.service"
        # Quoted, since the tree may lie in a folder with a space
        program = LARDER.replace("%", "%%")
        self.unit.write_text(service.replace("/usr/bin/larder", f'"{program}"'))
        self.target = self.folder / "larder.target"
        shutil.copy(DEPLOY / "larder.target", self.target)

    def verify(self):
        return run("systemd-analyze", "verify", "--man=no", str(self.unit), str(self.target))

    def drop_in(self, socket="weights", manifest=DEPLOY / "examples/two-core-separated.toml"):
        done = subprocess.run([
            LARDER, "unit", "--manifest",
            str(manifest), "--socket", socket, "-m",
            str(DEMO_MODEL)
        ], capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stderr)
        text = done.stdout  # warnings about the manifest are on standard error
        folder = self.folder / "larder@weights.service.d"
        folder.mkdir(exist_ok=True)
        (folder / "plan.conf").write_text(text)
        return text

    def test_systemd_accepts_the_units(self):
        self.assertEqual(self.verify(), (0, ""))

    def test_systemd_accepts_the_drop_in(self):
        if len(os.sched_getaffinity(0)) < 2:
            self.skipTest("the example needs two cores")
        text = self.drop_in()
        self.assertIn("AllowedCPUs=0\n", text)
        self.assertIn("After=larder@attention.service\n", text)
        self.assertEqual(self.verify(), (0, ""))
        self.assertIn("AllowedCPUs=1\n", self.drop_in("attention"))
        self.assertEqual(self.verify(), (0, ""))

    def test_systemd_accepts_filters_of_addresses_and_ports(self):
        manifest = self.folder / "ring.toml"
        text = (DEPLOY / "examples/two-servers.toml").read_text()
        manifest.write_text(
            re.sub('cores = ".*"', 'cores = "cores:0"', text).replace("isolated = true",
                                                                      "isolated = false"))
        socket = next(name
                      for name in re.findall('name = "(.*)"\nrole = "(?:weight|colocated)"', text))
        text = self.drop_in(socket, manifest)
        for line in ("IPAddressDeny=any", "IPAddressAllow=localhost 10.", "SocketBindDeny=any",
                     "SocketBindAllow=tcp:7171"):
            self.assertIn("\n" + line, text)
        self.assertEqual(self.verify(), (0, ""))

    def test_a_serving_sockets_drop_in(self):
        manifest = self.folder / "serve.toml"
        manifest.write_text(
            clusters.manifest(
                server(
                    "a", socket("w", "colocated", "cores:0"),
                    socket("front", "serving", "cores:0", options="--host :: --drain-timeout 600")),
                name="serve"))
        text = self.drop_in("front", manifest)
        for line in ("TimeoutStopSec=630\n", "ExecReload=/bin/sh -c 'kill -HUP $MAINPID'\n",
                     "# No IPAddressDeny=: clients reach it on ::"):
            self.assertIn("\n" + line, text)
        self.assertEqual(self.verify(), (0, ""))

    def test_a_server_without_a_key_starts(self):
        """An absent file is not an error if there is a default; systemd does not accept an empty
        default.
        """
        text = self.unit.read_text()
        self.assertIn("LoadCredential=link.key:/etc/larder/link.key\nSetCredential=link.key:\\n\n",
                      text)
        self.unit.write_text(text.replace("SetCredential=link.key:\\n", "SetCredential=link.key:"))
        self.assertIn("Invalid syntax", self.verify()[1])

    def test_systemd_would_find_a_mistake(self):
        self.unit.write_text(self.unit.read_text().replace("WatchdogSec=", "WatchdogSecs="))
        self.assertIn("WatchdogSecs", self.verify()[1])

    def test_exposure(self):
        command = ["systemd-analyze", "security", "--no-pager", "--offline=true"]
        code, text = run(*command, f"--threshold={MAX_EXPOSURE}", str(self.unit))
        if "unrecognized option" in text:
            self.skipTest("this systemd-analyze has no --offline")
        self.assertEqual(code, 0, text[-200:])
        self.unit.write_text(self.unit.read_text().replace("NoNewPrivileges=yes", "").replace(
            "CapabilityBoundingSet=\n", ""))
        self.assertNotEqual(
            run(*command, f"--threshold={MAX_EXPOSURE}", str(self.unit))[0], 0,
            "a weaker unit must fail")

    def test_each_setting_has_a_reason(self):
        """Each setting, or run of settings, has a comment above it."""
        for name in ("larder@.service", "larder.target", "larder.sysusers", "larder.tmpfiles"):
            explained = False
            for number, line in enumerate((DEPLOY / name).read_text().splitlines(), 1):
                if line.startswith("#"):
                    explained = True
                elif line and not line.startswith(("[", "Description=", "Documentation=")):
                    self.assertTrue(explained, f"{name}:{number}: {line}")

    def test_the_user(self):
        (self.folder / "etc").mkdir()
        code, text = run("systemd-sysusers", f"--root={self.folder}",
                         str(DEPLOY / "larder.sysusers"))
        self.assertEqual(code, 0, text)
        entry = next(l for l in (self.folder / "etc/passwd").read_text().splitlines()
                     if l.startswith("larder:")).split(":")
        self.assertEqual(entry[5:], ["/var/lib/larder", "/usr/sbin/nologin"])
        self.assertLess(int(entry[2]), 1000)

    def test_the_folders(self):
        if os.geteuid() != 0:
            self.skipTest("folders of root are made by root")
        code, text = run("systemd-tmpfiles", "--create", f"--root={self.folder}",
                         str(DEPLOY / "larder.tmpfiles"))
        self.assertEqual(code, 0, text)
        for name in ("var/lib/larder", "var/lib/larder/models", "etc/larder"):
            self.assertTrue((self.folder / name).is_dir(), name)
            self.assertEqual((self.folder / name).stat().st_mode & 0o777, 0o755)


if __name__ == "__main__":
    LARDER = os.path.abspath(programs.options_of_tests(programs.parser(__doc__, "larder")).larder)
    programs.skip_without(TOOLS, "package systemd")
    unittest.main()
