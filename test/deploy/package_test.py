#!/usr/bin/env python3
"""Builds the Debian package and checks it: lintian is silent, nothing is missing, nothing starts by
itself.

    test/deploy/package_test.py --build build      # exit status 77: a tool is missing
"""
import gzip
import pathlib
import re
import shutil
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import ROOT, programs
from larder_testing.package import make_package
from larder_testing.programs import executable, run

TOOLS = ["cpack", "dpkg-deb", "dpkg-shlibdeps", "lintian"]
BUILD = None

# Path in the package -> its source, where it must be a copy.
CONTENTS = {
    "usr/bin/larder": None,
    "usr/bin/larder-cluster": "deploy/larder-cluster",
    "usr/lib/systemd/system/larder@.service": "deploy/larder@.service",
    "usr/lib/systemd/system/larder.target": "deploy/larder.target",
    "usr/lib/sysusers.d/larder.conf": "deploy/larder.sysusers",
    "usr/lib/tmpfiles.d/larder.conf": "deploy/larder.tmpfiles",
    "usr/share/doc/larder/cluster.md": "docs/cluster.md",
    "usr/share/doc/larder/decisions.md": "docs/decisions.md",
    "usr/share/doc/larder/manifest.md": "deploy/README.md",
    "usr/share/doc/larder/README.md": "README.md",
    "usr/share/doc/larder/DESIGN.md": "DESIGN.md",
    "usr/share/doc/larder/copyright": "deploy/debian/copyright",
    "usr/share/lintian/overrides/larder": "deploy/debian/lintian-overrides",
}
COMPRESSED = {
    "usr/share/man/man1/larder.1.gz": "deploy/man/larder.1",
    "usr/share/man/man1/larder-cluster.1.gz": "deploy/man/larder-cluster.1",
    "usr/share/doc/larder/changelog.gz": "deploy/debian/changelog",
}


class Package(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = programs.folder_of(cls)
        cls.package = make_package(BUILD, cls.folder)
        code, said = run("dpkg-deb", "-R", str(cls.package), str(cls.folder / "tree"))
        if code != 0:
            raise AssertionError(said)
        cls.tree = cls.folder / "tree"
        cls.control = (cls.tree / "DEBIAN/control").read_text()

    def test_lintian_finds_nothing_but_what_is_overridden(self):
        # Not spelling in the binary: the compiler compares texts four bytes at a time, and leaves
        # pieces of words.
        code, said = run("lintian", "--allow-root", "--fail-on", "error,warning", "--display-info",
                         "--suppress-tags", "spelling-error-in-binary", str(self.package))
        self.assertEqual((code, said.strip()), (0, ""), said)

    def test_lintian_would_find_something(self):
        """The same package without its copyright file."""
        spoilt = self.folder / "spoilt"
        shutil.copytree(self.tree, spoilt)
        (spoilt / "usr/share/doc/larder/copyright").unlink()
        code, said = run("dpkg-deb", "-b", "--root-owner-group", str(spoilt),
                         str(self.folder / "spoilt.deb"))
        self.assertEqual(code, 0, said)
        code, said = run("lintian", "--allow-root", "--fail-on", "error,warning",
                         str(self.folder / "spoilt.deb"))
        self.assertNotEqual(code, 0)
        self.assertIn("no-copyright-file", said)

    def test_contents(self):
        for path, source in CONTENTS.items():
            self.assertTrue((self.tree / path).is_file(), path)
            if source:
                self.assertEqual((self.tree / path).read_bytes(), (ROOT / source).read_bytes(),
                                 path)
        for path, source in COMPRESSED.items():
            self.assertEqual(gzip.decompress((self.tree / path).read_bytes()),
                             (ROOT / source).read_bytes(), path)
        examples = {p.name for p in (ROOT / "deploy" / "examples").glob("*.toml")}
        self.assertEqual({p.name for p in (self.tree / "usr/share/doc/larder/examples").iterdir()},
                         examples)

    def test_nothing_else_is_in_it(self):
        known = {*CONTENTS, *COMPRESSED}
        for path in self.tree.rglob("*"):
            name = str(path.relative_to(self.tree))
            if path.is_file() and not name.startswith(
                ("DEBIAN/", "usr/share/doc/larder/examples/")):
                self.assertIn(name, known)

    def test_dependencies_are_those_of_the_program(self):
        depends = next(line for line in self.control.splitlines() if line.startswith("Depends:"))
        for package in ("libc6", "libhwloc15", "libnuma1", "python3 (>= 3.11)", "systemd"):
            self.assertIn(package, depends)

    def test_the_packed_program_runs(self):
        code, said = run(str(self.tree / "usr/bin/larder"), "--version")
        self.assertEqual(code, 0, said)
        self.assertIn(
            next(l for l in self.control.splitlines() if l.startswith("Version:")).split()[1], said)
        code, said = run(str(self.tree / "usr/bin/larder-cluster"), "--help")
        self.assertEqual(code, 0, said)

    def test_maintainer_scripts_start_and_enable_nothing(self):
        for name in ("postinst", "prerm", "postrm"):
            script = self.tree / "DEBIAN" / name
            code, said = run("sh", "-n", str(script))
            self.assertEqual(code, 0, said)
            for line in script.read_text().splitlines():
                command = line.split("#")[0]
                for word in (" start ", " restart ", " enable ", "--now"):
                    self.assertNotIn(word, command, name)

    def test_maintainer_scripts_call_what_they_should(self):
        """The scripts run as dpkg runs them, with recorders in place of systemd's tools."""
        bin_folder, log = self.folder / "bin", self.folder / "called"
        bin_folder.mkdir()
        for tool in ("systemd-sysusers", "systemd-tmpfiles", "deb-systemd-helper",
                     "deb-systemd-invoke", "systemctl"):
            (bin_folder / tool).write_text(f'#!/bin/sh\necho "{tool} $*" >>{log}\n')
            (bin_folder / tool).chmod(0o755)
        for arguments, expected in ((("postinst", "configure", ""), [
                "systemd-sysusers larder.conf", "systemd-tmpfiles --create larder.conf"
        ]), (("prerm", "upgrade", "0.2"), []), (("postrm", "remove"), [])):
            log.write_text("")
            code, said = run("sh", str(self.tree / "DEBIAN" / arguments[0]), *arguments[1:],
                             env={"PATH": f"{bin_folder}:/usr/bin:/bin"})
            self.assertEqual(code, 0, said)
            called = log.read_text().splitlines()
            for line in expected:
                self.assertIn(line, called)
            for line in called:
                self.assertNotRegex(line, r"\b(start|restart|enable|stop)\b")

    def test_purging_takes_what_push_wrote_and_nothing_else(self):
        """Runs the script on a folder that stands for /, since its paths are absolute."""
        root = self.folder / "purged"
        ours = [
            "etc/larder/cluster.toml", "etc/larder/front.env", "etc/larder/link.key",
            "etc/systemd/system/larder@front.service.d/plan.conf",
            "etc/systemd/system/larder.target.wants/larder@front.service",
            "run/larder/larder-status+first+front.lock"
        ]
        theirs = [
            "etc/larder/keys", "etc/systemd/system/larder@front.service.d/mine.conf",
            "var/lib/larder/models/model.gguf"
        ]
        for path in [*ours, *theirs]:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text("x")
        bin_folder = self.folder / "purge-bin"
        bin_folder.mkdir()
        for tool in ("deb-systemd-helper", "systemctl"):
            executable(bin_folder / tool, "#!/bin/sh\n")
        script = (self.tree / "DEBIAN/postrm").read_text()
        for folder in ("/etc/", "/run/"):
            script = re.sub(rf"(?<![\w/]){folder}", f"{root}{folder}", script)
        (self.folder / "postrm").write_text(script)
        environment = {"PATH": f"{bin_folder}:/usr/bin:/bin"}
        code, said = run("sh", str(self.folder / "postrm"), "remove", env=environment)
        self.assertEqual((code, said, [p for p in ours if not (root / p).exists()]), (0, "", []))
        code, said = run("sh", str(self.folder / "postrm"), "purge", env=environment)
        self.assertEqual(code, 0, said)
        self.assertIn("/etc/larder stays, with files that are not the package's: keys", said)
        self.assertEqual([p for p in ours if (root / p).exists()], [])
        self.assertEqual([p for p in theirs if not (root / p).exists()], [])
        (root / "etc/larder/keys").unlink()
        code, said = run("sh", str(self.folder / "postrm"), "purge", env=environment)
        self.assertEqual((code, said, (root / "etc/larder").exists()), (0, "", False))


if __name__ == "__main__":
    BUILD = programs.options_of_tests(programs.parser(__doc__, "build")).build
    programs.skip_without(TOOLS, "packages cmake, dpkg-dev, lintian")
    unittest.main()
