#!/usr/bin/env python3
"""Tests of the checks: a clean tree passes, and each planted violation is found, alone and by its
own rule.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

SCRIPTS = Path(__file__).resolve().parents[2] / "scripts"

CLEAN = {
    "README.md": (
        "Read `base/id.h`, then `model/`, [this](base/README.md).\n```\n"
        "build/larder run -m base/id.h\n```\n"),
    "base/README.md": (
        "`id.h` first; `LARDER_X`, `--flag a/b`, `build/x`, `*.h`, `base/*.h`, `base/FILE`.\n"),
    "base/CMakeLists.txt": "larder_folder(base)\n",
    "base/id.h": (
        "#pragma once\n#include <cstdint>\n#include <fmt/format.h>\n"
        "namespace larder { using Id = uint32_t; }\n"),
    "model/README.md": "x\n",
    "model/CMakeLists.txt": "larder_rooms(model gguf)\n",
    "model/gguf/README.md": "x\n",
    "model/gguf/CMakeLists.txt": "larder_folder(model/gguf base)\n",
    "model/gguf/formats.h": '#pragma once\n#include "base/id.h"\n',
    "model/gguf/gguf.h": (
        "#pragma once\nnamespace larder::model::inline gguf {\n}\n"
        "namespace larder::model::inline gguf::testing {\n}\n"),
    "sync/README.md": "x\n",
    "sync/CMakeLists.txt": "larder_folder(sync base)\n",
    "sync/flag.h": '#pragma once\n#include <atomic>\n#include "base/id.h"\n',
    "sync/flag_test.cc": '#include "sync/flag.h"\n#include <gtest/gtest.h>\n#include <thread>\n',
    "kernels/README.md": "x\n",
    "kernels/CMakeLists.txt": "find_package(asmjit)\nlarder_rooms(kernels formats)\n",
    "kernels/formats/README.md": "x\n",
    "kernels/formats/CMakeLists.txt": "larder_folder(kernels/formats base model/gguf)\n",
    "kernels/formats/jit.cc": '#include <asmjit/x86.h>\n#include "model/gguf/formats.h"\n',
    "kernels/formats/shapes_testing.h": "#pragma once\n#include <gtest/gtest.h>\n",
    "kernels/formats/jit_test.cc": '#include "model/gguf/gguf.h"\n#include "sync/flag.h"\n',
    "kernels/formats/run_datapath.cc": (
        "// new, throw and printf() in a comment\n"
        "constexpr int kMany = 1'000; const char* text = \"throw new\";\n"
        "void Run(X& x) { x.read(1); Reader::open(2); renewed = deleted; x = nullptr; }\n"
        "struct N { N(const N&) = delete; };\n"
        "int* p = new int;  // datapath-ok: a test\n"
        "// datapath-ok: a test\n"
        "int* q = new int;\n"
    ),
    "pipeline/README.md": "x\n",
    "pipeline/CMakeLists.txt": "larder_rooms(pipeline plan sequences scheduler)\n",
    "pipeline/plan/README.md": "x\n",
    "pipeline/plan/CMakeLists.txt": "larder_folder(pipeline/plan base)\n",
    "pipeline/scheduler/README.md": "x\n",
    "pipeline/scheduler/CMakeLists.txt": "larder_folder(pipeline/scheduler base pipeline/plan)\n",
    "pipeline/plan/plan.h": "#pragma once\n#include <nlohmann/json_fwd.hpp>\n",
    "pipeline/sequences/README.md": "x\n",
    "pipeline/sequences/CMakeLists.txt": "larder_folder(pipeline/sequences base)\n",
    "pipeline/sequences/request.h": "#pragma once\n",
    "serving/README.md": "x\n",
    "serving/CMakeLists.txt": "larder_rooms(serving generation)\n",
    "serving/generation/README.md": "x\n",
    "serving/generation/CMakeLists.txt": (
        "larder_folder(serving/generation base model pipeline/sequences)\n"),
    "serving/generation/text.cc": (
        '#include "pipeline/sequences/request.h"\n#include "model/gguf/gguf.h"\n'
        '#include <sys/socket.h>\n'),
}


class CheckTest(unittest.TestCase):
    def run_check(self, script, changes, seed=None):
        with tempfile.TemporaryDirectory() as folder:
            for name, text in {**(CLEAN if seed is None else seed), **changes}.items():
                path = Path(folder) / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(text)
            run = subprocess.run([sys.executable, SCRIPTS / script, folder], capture_output=True,
                                 text=True, check=False)
            return run.returncode, run.stdout + run.stderr

    def expect_clean(self, script, seed=None):
        status, output = self.run_check(script, {}, seed)
        self.assertEqual((status, output.count("\n")), (0, 1), output)

    def expect_found(self, script, cases, seed=None):
        """cases: (file, text added to it, what must be said of it)."""
        for name, added, said in cases:
            with self.subTest(file=name, added=added):
                before = (CLEAN if seed is None else seed).get(name, "")
                status, output = self.run_check(script, {name: before + added}, seed)
                self.assertEqual(status, 1, output)
                self.assertIn(said, output)
                self.assertIn("1 violations", output)

    def expect_empty_is_an_error(self, script):
        status, output = self.run_check(script, {}, seed={})
        self.assertEqual(status, 1, output)
        self.assertIn("nothing to check", output)


class Includes(CheckTest):
    def test_clean(self):
        self.expect_clean("check_includes.py")

    def test_a_folder_of_many_sources_wants_rooms(self):
        status, output = self.run_check("check_includes.py",
                                        {f"base/part_{i}.h": "#pragma once\n" for i in range(29)})
        self.assertEqual(status, 1)
        self.assertIn("it wants rooms", output)

    def test_empty(self):
        self.expect_empty_is_an_error("check_includes.py")

    def test_planted(self):
        self.expect_found("check_includes.py", [
            ("base/id.h", '#include "model/gguf/gguf.h"\n', "higher floor"),
            ("base/id.h", "  #  include <hwloc.h>\n",
             "base/id.h:5: <hwloc.h> belongs in topology/"),
            ("model/gguf/gguf.h", '#include "sync/flag.h"\n', "never sideways"),
            ("model/gguf/gguf.h", "#include <atomic>\n", "never includes <atomic>"),
            ("model/gguf/gguf.h", "#include <immintrin.h>\n", "belongs in kernels/"),
            ("sync/flag.h", "#include <infiniband/verbs.h>\n", "belongs in rdma/"),
            ("sync/flag.h", "namespace larder::rdma {\n",
             "sync/flag.h:4: namespace larder::rdma: in sync/ it is larder::sync"),
            ("model/gguf/gguf.h", "namespace larder::model {\n",
             "in model/gguf/ it is larder::model::inline gguf"),
            ("sync/flag.h", "#include <gtest/gtest.h>\n", "belongs in tests"),
            ("sync/flag_test.cc", '#include "model/gguf/gguf.h"\n', "never sideways"),
            ("sync/flag_test.cc", '#include "kernels/formats/x.h"\n', "does not exist"),
            ("kernels/formats/jit.cc", '#include "model/gguf/gguf.h"\n',
             "kernels/formats/ may include base, model/gguf/formats.h; not model/gguf/gguf.h"),
            ("kernels/formats/jit.cc", "#include <thread>\n", "never includes <thread>"),
            ("kernels/formats/jit.cc", "#include <xxhash.h>\n", "belongs in pipeline/"),
            ("kernels/formats/jit.cc", '#include "../base/id.h"\n', "never \"../\""),
            ("kernels/formats/jit.cc", '#include "jit.h"\n', "not rooted"),
            ("kernels/formats/jit.cc", "#include <base/id.h>\n", "is ours"),
            ("kernels/formats/jit.cc", "#include <eigen3/Eigen/Core>\n", "does not know"),
            ("kernels/formats/jit_test.cc", '#include "pipeline/plan/plan.h"\n', "higher floor"),
            ("serving/generation/text.cc", '#include "pipeline/plan/plan.h"\n',
             "serving/generation/ may include"),
            ("pipeline/plan/plan.h", '#include "pipeline/sequences/request.h"\n', "higher floor"),
            ("pipeline/new.h", "#pragma once\n", "no floor"),
            ("kernels/formats/jit.cc", '#include "kernels/formats/shapes_testing.h"\n',
             "is for tests only"),
            ("serving/generation/text.cc", "#include <CLI/CLI.hpp>\n", "belongs in node/"),
            ("serving/generation/text.cc", "#include <spdlog/spdlog.h>\n", "belongs in node/"),
            ("serving/generation/text.cc", "#include <toml++/toml.h>\n",
             "belongs in pipeline/ or node/"),
            ("extra/x.h", "#pragma once\n", "no floor"),
            ("topology/x.h", "#pragma once\n", "topology/CMakeLists.txt: missing"),
        ])

    def test_cmake(self):
        for text, said in [("larder_folder(kernels/formats base model/gguf sync)",
                            "kernels/formats may not link sync"),
                           ("larder_folder(kernels/formats base)",
                            "include model/gguf/ but do not link model/gguf"),
                           ("larder_folder(model base model)",
                            "larder_folder(model) in kernels/formats/")]:
            status, output = self.run_check("check_includes.py",
                                            {"kernels/formats/CMakeLists.txt": text})
            self.assertEqual(status, 1)
            self.assertIn(said, output)


class Datapath(CheckTest):
    def test_clean(self):
        self.expect_clean("check_datapath.py")

    def test_empty(self):
        self.expect_empty_is_an_error("check_datapath.py")

    def test_planted(self):
        planted = [("int* p = new int[3];", "allocation"), ("delete p;", "allocation"),
                   ("void* p = malloc(4);", "allocation"),
                   ("auto p = std::make_unique<int>();", "allocation"),
                   ("v.push_back(1);", "may grow"), ("v->resize(1);", "may grow"),
                   ("v.emplace_back(1);", "may grow"), ("std::vector<int> v;", "container"),
                   ("std::mutex* m;", "a lock"), ("std::lock_guard l(m);", "a lock"),
                   ("pthread_mutex_lock(&m);", "a lock"), ("throw 1;", "an exception"),
                   ("std::function<void()> f;", "indirection"),
                   ("virtual void F();", "indirection"), ("std::string s;", "text"),
                   ("auto s = fmt::format();", "text"), ("printf(s);", "printing"),
                   ("std::fprintf(stderr, s);", "printing"), ("std::cout << 1;", "printing"),
                   ("spdlog::info(s);", "logging"),
                   ("auto t = std::chrono::steady_clock::time_point();", "a clock"),
                   ("clock_gettime(0, &t);", "a clock"), ("auto t = NowNs();", "a clock"),
                   ("syscall(1);", "a system call"), ("::read(fd, p, n);", "a system call"),
                   ("usleep(1);", "a system call"), ("std::this_thread::yield();", "a system call"),
                   ("#include <mutex>", "no use"),
                   ("int* r = new int;  // datapath-ok:", "without a reason"), ]
        # datapath-ok without a reason excuses nothing: two lines are found
        self.expect_found("check_datapath.py",
                          [("kernels/formats/run_datapath.cc", code + "\n", said)
                           for code, said in planted[:-1]])
        status, output = self.run_check("check_datapath.py",
                                        {"kernels/formats/run_datapath.cc": planted[-1][0]})
        self.assertEqual(status, 1)
        self.assertIn("without a reason", output)
        self.assertIn("2 violations", output)

    def test_line_number_after_block_comment(self):
        _, output = self.run_check("check_datapath.py",
                                   {"kernels/formats/run_datapath.cc": "/* a\nb */\nthrow 1;\n"})
        self.assertIn("run_datapath.cc:3: an exception", output)


class Json(CheckTest):
    def test_clean(self):
        own = {
            "sync/flag_test.cc": "auto a = nlohmann::json::parse(text);\n",
            "base/json_text.cc": "Json::sax_parse(text, &sax);\n", "sync/flag.h": (
                "#pragma once\n// json::parse(text)\n"
                "Json::parse_event_t event; std::cin >> number;\n"),
        }
        self.assertEqual(self.run_check("check_json.py", own)[0], 0)

    def test_empty(self):
        self.expect_empty_is_an_error("check_json.py")

    def test_planted(self):
        self.expect_found(
            "check_json.py", [("sync/flag.h", code + "\n", "base/json_text.h") for code in [
                "auto a = json::parse(text);", "auto a = nlohmann::ordered_json :: parse (text);",
                "if (Json::accept(text)) {}", "json::sax_parse(text, &sax);",
                "auto a = json::from_cbor(bytes);", "file >> json;", 'auto a = "{}"_json;'
            ]])


class Headers(CheckTest):
    SEED = {
        "a/one.h": (
            "#pragma once\n#include <vector>\ninline std::vector<int> One() { return {1}; }\n"),
        "a/two.h": '#pragma once\n#include "a/one.h"\n',
    }

    def test_clean(self):
        self.expect_clean("check_headers.py", self.SEED)

    def test_empty(self):
        self.expect_empty_is_an_error("check_headers.py")

    def test_planted(self):
        self.expect_found("check_headers.py", [
            ("a/needs.h", "#pragma once\ninline std::vector<int> Two();\n",
             "a/needs.h: does not compile alone"),
            ("a/twice.h", "inline int Two() { return 2; }\n", "redefinition"),
        ], self.SEED)

    def test_each_stands_alone_though_units_have_several(self):
        user = {
            "a/needs.h": "#pragma once\ninline std::vector<int> Two();\n",
            "a/user.h": '#pragma once\n#include "a/one.h"\n#include "a/needs.h"\n',
        }
        status, output = self.run_check("check_headers.py", user, self.SEED)
        self.assertEqual(status, 1)
        self.assertIn("a/needs.h: does not compile alone", output)
        self.assertIn("1 violation", output)

    def test_what_the_build_proves_is_left_to_it(self):
        needs = {"a/needs.h": "#pragma once\ninline std::vector<int> Two();\n"}
        bundles = {"cmake/larder.cmake": "set(larder_unity_folders a b)\n"}
        first = {"a/needs.cc": '#include "a/needs.h"\n'}
        self.expect_clean("check_headers.py", self.SEED | needs | first)
        for more in [{"a/needs.cc": '#include <vector>\n#include "a/needs.h"\n'}, first | bundles]:
            status, output = self.run_check("check_headers.py", needs | more, self.SEED)
            self.assertEqual((status, "a/needs.h: does not compile alone" in output), (1, True),
                             output)


class Format(CheckTest):
    LONG = "a word " * 15
    SEED = {".clang-format": "BasedOnStyle: Google\nColumnLimit: 0\n", "a/one.h": "#pragma once\n",
            "a/data.txt": LONG,
            "a/text.cc": f'const char* raw = R"({LONG})";\n// clang-format off\n//  {LONG}x\n'
                         "// clang-format on\n",
            "a/text.py": f"TEXT = (\n    '''\n{LONG}\n''')\nURL = \\\n    '{'x' * 100}'\n"}

    def test_clean(self):
        self.expect_clean("check_format.py", self.SEED)

    def test_empty(self):
        self.expect_empty_is_an_error("check_format.py")

    def test_planted(self):
        self.expect_found("check_format.py", [
            ("a/two.cc", "int  Two( ) { return 2; }\n",
             "a/two.cc:1: not as clang-format has it"),
            ("a/text.cc", f'const char* text = "{self.LONG}";\n', "a/text.cc:5: 127 characters"),
            ("a/text.py", f"# {self.LONG}\n", "a/text.py:7: 107 characters; wrap at 100"),
            ("a/doc.py", f'\n"""Says\n{self.LONG}\n"""\n', "a/doc.py:3: 105 characters"),
            ("a/tool", f"#!/bin/sh\necho {self.LONG}\n", "a/tool:2: 110 characters"),
            ("a/script", f"#!/usr/bin/env python3\nprint('{self.LONG}')\n", "a/script:2: "),
            ("a/CMakeLists.txt", f"set(x {self.LONG})\n", "a/CMakeLists.txt:1: "),
            ("a/x.cmake", f"set(x {self.LONG})\n", "a/x.cmake:1: "),
        ], self.SEED)


class Docs(CheckTest):
    def test_clean(self):
        self.expect_clean("check_docs.py")

    def test_empty(self):
        self.expect_empty_is_an_error("check_docs.py")

    def test_planted(self):
        self.expect_found("check_docs.py", [
            ("README.md", "See `base/gone.h`.\n", "README.md:5: base/gone.h does not exist"),
            ("README.md", "Run `build/larder run -m model/gone.gguf`.\n",
             "model/gone.gguf does not exist"),
            ("README.md", "```\n./base/gone -x\n```\n", "base/gone does not exist"),
            ("README.md", "See [this](base/gone.md).\n", "leads nowhere"),
            ("base/README.md", "a word " * 15 + "\n", "wrap at 100"),
            ("base/README.md", "See `gone.h`.\n", "base/README.md:2: gone.h does not exist"),
            ("base/README.md", "See `model/x_*.h`.\n", "model/x_*.h does not exist"),
            ("base/id.h", "// see base/gone.h\n", "base/id.h:5: base/gone.h does not exist"),
            ("sync/flag_test.cc", "int x;  // not flag.h but gone.cc\n",
             "sync/flag_test.cc:4: gone.cc does not exist"),
            ("extra/x.txt", "x\n", "extra/: has no README.md"),
        ])


@unittest.skipUnless(shutil.which("git"), "git is not installed")
class Log(unittest.TestCase):
    """In a repository with one old commit, whose subject nobody checks."""

    # Neither the configuration of the person who runs this nor the repository around it counts.
    ENVIRONMENT = {key: value
                   for key, value in os.environ.items() if not key.startswith("GIT_")} | {
                       "GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1",
                       "GIT_AUTHOR_NAME": "a", "GIT_AUTHOR_EMAIL": "a@b", "GIT_COMMITTER_NAME": "a",
                       "GIT_COMMITTER_EMAIL": "a@b"
                   }

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.tree = Path(folder.name) / "tree"
        self.tree.mkdir()
        self.git("init", "--quiet")
        self.commit("Old and long: " + "a word " * 20)
        self.start = self.git("rev-parse", "HEAD").strip()

    def git(self, *args):
        return subprocess.run(["git", "-C", self.tree, *args], capture_output=True, text=True,
                              check=True, env=self.ENVIRONMENT).stdout

    def commit(self, message):
        self.git("commit", "--quiet", "--allow-empty", "--allow-empty-message",
                 "--cleanup=verbatim", "-m", message)

    def check(self, tree, *args):
        run = subprocess.run([sys.executable, SCRIPTS / "check_log.py", tree, *args],
                             capture_output=True, text=True, check=False, env=self.ENVIRONMENT)
        return run.returncode, run.stdout + run.stderr

    def test_clean(self):
        self.assertEqual(self.check(self.tree, "--since", self.start),
                         (0, "log: 0 commits, 0 violations\n"))
        self.commit("x" * 72 + "\n\nThe reason. " + "It may be long. " * 20)
        self.commit("Wiping a slot ends its sequence")
        self.assertEqual(self.check(self.tree, "--since", self.start),
                         (0, "log: 2 commits, 0 violations\n"))

    def test_planted(self):
        for message, said in [("x" * 73, "73 characters, at most 72"),
                              ("First line\n" + "of a long subject " * 5, "at most 72"),
                              ("Slots are freed.", "ends with a full stop"),
                              ("fixup! Slots are freed", "fixup! is not finished"),
                              ("WIP: slots", "WIP is not finished"), ("", "no subject")]:
            with self.subTest(message=message):
                self.commit(message)
                status, output = self.check(self.tree, "--since", self.start)
                self.assertEqual(status, 1, output)
                self.assertIn(said, output)
                self.assertIn("1 commits, 1 violations", output)
                self.git("reset", "--quiet", "--hard", self.start)

    def test_says_what_it_cannot_check(self):
        self.commit("Ends with a full stop.")
        shallow = self.tree.parent / "shallow"
        self.git("clone", "--quiet", "--depth=1", self.tree.as_uri(), shallow)
        (self.tree / "inside").mkdir()
        for tree, start, said in [(self.tree, "HEAD~9", "not among the ancestors"),
                                  (shallow, self.start, "not among the ancestors"),
                                  (self.tree.parent, self.start, "no git repository"),
                                  (self.tree / "inside", self.start, "no git repository")]:
            with self.subTest(tree=tree, start=start):
                status, output = self.check(tree, "--since", start)
                self.assertEqual(status, 0, output)
                self.assertIn("log: not checked: ", output)
                self.assertIn(said, output)


class Count(unittest.TestCase):
    RESULTS = """<testsuite>
<testcase name="a" status="run"><system-out>x.cc:1: Skipped inside a text</system-out></testcase>
<testcase name="b" status="fail"><failure/></testcase>
<testcase name="c" status="notrun"><skipped/><system-out>/t/c.cc:8: Skipped
"/x y/two.gguf" is not here
</system-out></testcase>
<testcase name="d" status="notrun"><skipped/><system-out>/t/d.cc:9: Skipped
"/z/one.gguf" is not here
</system-out></testcase>
<testcase name="e" status="notrun"><skipped/><system-out>skipped: chromium is not installed</system-out></testcase>
<testcase name="f" status="notrun"><skipped/></testcase>
</testsuite>"""

    def count(self, results, *minimum):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "results.xml").write_text(results)
            options = []
            for text in minimum:
                (Path(folder) / "minimum").write_text(text)
                options = ["--minimum", f"{folder}/minimum"]
            run = subprocess.run(
                [sys.executable, SCRIPTS / "count_tests.py", f"{folder}/results.xml", *options],
                capture_output=True, text=True, check=False)
            return run.returncode, run.stdout + run.stderr

    def test_reasons_are_grouped(self):
        status, output = self.count(self.RESULTS)
        self.assertEqual(status, 0, output)
        self.assertEqual([line.strip() for line in output.splitlines()], [
            "tests: 2 ran, 4 skipped", "2 skipped: FILE is not here (c, ...)",
            "1 skipped: chromium is not installed (e)", "1 skipped: no reason given (f)"
        ])

    def test_minimum(self):
        self.assertEqual(self.count(self.RESULTS, "# why\n2\n")[0], 0)
        status, output = self.count(self.RESULTS, "# why\n3\n")
        self.assertEqual(status, 1)
        self.assertIn("2 tests ran, fewer than the 3", output)

    def test_what_is_no_result_and_no_minimum(self):
        for results, minimum in (("", "1"), ("<testsuite>", "1"), (self.RESULTS, "# nothing\n"),
                                 (self.RESULTS, "many\n")):
            self.assertEqual(self.count(results, minimum)[0], 1)


if __name__ == "__main__":
    unittest.main()
