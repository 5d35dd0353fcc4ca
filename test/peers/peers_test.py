#!/usr/bin/env python3
"""llama.cpp's own tests of its server, against `larder serve` behind llama_server_shim.py: each
that is in no table passes, and each that is in one fails, so that no table can be out of date. What
is not ours: not_ours.toml, why by kind. What we have still to mend: to_mend.toml.

    test/peers/peers_test.py --larder build/larder                        all of them
    test/peers/peers_test.py --larder build/larder test_completion.py     those whose names begin so

LARDER_LLAMA_CPP: a checkout of llama.cpp; LARDER_PEERS_PYTHON: a Python that has what its
tools/server/tests/requirements.txt names (default: this one); LARDER_TEST_DATA: the folder with
models/stories260K.gguf (default: ../shared/data beside the repository). Skipped without them.
"""
import collections
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import stand_ins
from larder_testing import ports, programs

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
MODULES = ("pytest", "requests", "openai", "wget", "filelock", "prometheus_client", "aiohttp",
           "numpy")


def tables():
    """({entry: why} of what is not ours, the same of what is to be mended, the entries that are not
    even run).

    An entry is a test, or what several tests' names begin with: a file, or a test without its
    parameters.
    """
    with open(HERE / "not_ours.toml", "rb") as file:
        kinds = tomllib.load(file)
    with open(HERE / "to_mend.toml", "rb") as file:
        causes = tomllib.load(file)
    not_ours = {test: kind for kind, about in kinds.items() for test in about["tests"]}
    not_run = [
        test for about in kinds.values() if not about.get("run", True) for test in about["tests"]
    ]
    return not_ours, {
        test: differs for tests in causes.values() for test, differs in tests.items()
    }, not_run


def covers(entry, test):
    return test == entry or test.startswith((f"{entry}::", f"{entry}["))


def judge(results, not_ours, to_mend, whole=True):
    """What is wrong: a list of lines."""
    def entries(test):
        return [entry for table in (not_ours, to_mend) for entry in table if covers(entry, test)]

    tests = [*results["passed"], *results["failed"], *results["skipped"], *results["not_run"]]
    wrong = [
        f"{test} fails and is in no table: {why}" for test, why in results["failed"].items()
        if not entries(test)
    ]
    wrong += [
        f"{test} passes: take it from the table ({entry})" for test in results["passed"]
        for entry in entries(test)
    ]
    wrong += [
        f"{test} is listed twice: {', '.join(entries(test))}" for test in tests
        if len(entries(test)) > 1
    ]
    if whole:
        wrong += [
            f"no test is called {entry}" for table in (not_ours, to_mend) for entry in table
            if not any(covers(entry, test) for test in tests)
        ]
    return wrong


def flags_without_a_fate(checkout):
    """Names of llama-server's flags, as its own document lists them, that docs/from-llama-server.md
    does not have.
    """
    document = checkout / "tools/server/README.md"
    if not document.exists():
        return []
    theirs = re.findall(r"^\| `([^`]*)` \|",
                        document.read_text().split("HELP_START")[1].split("HELP_END")[0],
                        re.MULTILINE)
    names = {
        name for flag in theirs for name in re.findall(r"(?<![\w<,-])--?[a-zA-Z][\w.-]*",
                                                       re.split(r" [<{\[]", flag)[0])
    }
    ours = set(re.findall(r"`(--?[^`]*)`", (ROOT / "docs/from-llama-server.md").read_text()))
    return sorted(names - ours - {"-h", "--help"})


def lay_out(checkout, folder):
    """The tests, which write beside themselves, in a folder of their own, at the same distance from
    the files that they read.
    """
    (folder / "tools/server").mkdir(parents=True)
    shutil.copytree(checkout / "tools/server/tests", folder / "tools/server/tests",
                    ignore=shutil.ignore_patterns("tmp", "__pycache__"))
    (folder / "tools/server/tests/tmp").mkdir()
    (folder / "tools/mtmd").symlink_to(checkout / "tools/mtmd")
    (folder / "models").symlink_to(checkout / "models")
    return folder / "tools/server/tests"


def run(python, larder, models, checkout, not_run, wanted, folder):
    tests = lay_out(checkout, folder)
    standing = folder / "stand-ins"
    standing.mkdir()
    stand_ins.write(models / "stories260K.gguf", standing)
    results = folder / "results.json"
    environment = {
        name: value for name, value in os.environ.items()
        if not name.startswith(("LLAMA_", "LARDER_"))
    }
    environment |= {
        "LLAMA_SERVER_BIN_PATH": str(HERE / "llama_server_shim.py"), "LARDER_SHIM_PROGRAM": str(
            pathlib.Path(larder).resolve()), "LARDER_SHIM_MODELS": str(standing),
        "LARDER_PEERS_RESULTS": str(results), "PORT": str(ports.free_port()),
        "PYTHONPATH": str(HERE), "PYTHONDONTWRITEBYTECODE": "1"
    }
    # Nobody but the server may be asked: some tests would fetch models.
    environment |= dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"),
                                 "http://127.0.0.1:9") | {"NO_PROXY": "127.0.0.1,localhost,::1"}
    environment["no_proxy"] = environment["NO_PROXY"]
    command = [
        python, "-m", "pytest", "-q", "--tb=no", "-p", "llama_server_plugin", "-p",
        "no:cacheprovider", "-m", "not slow"
    ]
    command += [word for test in not_run for word in ("--deselect", f"unit/{test}")]
    done = subprocess.run([*command, *(f"unit/{test}" for test in wanted)], cwd=tests,
                          env=environment, stdin=subprocess.DEVNULL, check=False)
    if not results.exists() or done.returncode not in (0, 1):
        sys.exit(f"pytest ended with {done.returncode}")
    return json.loads(results.read_text())


def main():
    parser = programs.parser(__doc__, "larder")
    parser.add_argument("--results", help="a file for what came of each test, as JSON")
    parser.add_argument("tests", nargs="*", help="only these")
    options = parser.parse_args()
    checkout = os.environ.get("LARDER_LLAMA_CPP")
    if not checkout:
        programs.skip("LARDER_LLAMA_CPP is not set: a checkout of llama.cpp")
    checkout = pathlib.Path(checkout).resolve()
    if not (checkout / "tools/server/tests/conftest.py").exists():
        programs.skip(f"{checkout} has no tools/server/tests")
    models = pathlib.Path(os.environ.get("LARDER_TEST_DATA",
                                         ROOT.parent / "shared/data")).resolve() / "models"
    if not (models / "stories260K.gguf").exists():
        programs.skip(f"{models}/stories260K.gguf is not there")
    python = os.environ.get("LARDER_PEERS_PYTHON", sys.executable)
    status, said = programs.run(python, "-c", f"import {', '.join(MODULES)}")
    if status:
        programs.skip(f"{python} lacks what tools/server/tests/requirements.txt names: "
                      f"{said.splitlines()[-1]}")
    not_ours, to_mend, not_run = tables()
    with tempfile.TemporaryDirectory(prefix="larder-peers-") as folder:
        results = run(python, options.larder, models, checkout, not_run, options.tests,
                      pathlib.Path(folder))
    if options.results:
        pathlib.Path(options.results).write_text(json.dumps(results, indent=1))
    failed = [
        kind for test in [*results["failed"], *results["not_run"]]
        for entry, kind in not_ours.items() if covers(entry, test)
    ]
    owed = [test for test in results["failed"] if any(covers(entry, test) for entry in to_mend)]
    print(f"llama.cpp's server tests: {len(results['passed'])} pass, {len(failed)} are not ours, "
          f"{len(owed)} are to be mended, {len(results['skipped'])} skip themselves")
    kinds = collections.Counter(failed).most_common()
    print("not ours:", ", ".join(f"{kind} {count}" for kind, count in kinds))
    if lacking := flags_without_a_fate(checkout):
        sys.exit("flags of llama-server that are not in the table (node/options/peer_flags.cc):"
                 f" {', '.join(lacking)}")
    if wrong := judge(results, not_ours, to_mend, not options.tests):
        sys.exit("\n".join(wrong))


if __name__ == "__main__":
    main()
