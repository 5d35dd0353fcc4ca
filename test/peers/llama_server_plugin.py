"""For pytest over llama.cpp's server tests, which it changes nothing of: what came of each is in
the JSON file LARDER_PEERS_RESULTS, and their models, most of which are not here, are not all
started once before the first test.

Loaded with -p. {"passed": [ID...], "failed": {ID: last line}, "skipped": {ID: why}, "not_run":
[ID...]}; an ID is FILE.py::TEST[PARAMETERS].
"""
import json
import os
import sys

_RESULTS = {"passed": [], "failed": {}, "skipped": {}, "not_run": []}
_SERVER_SAID = "larder: "  # on standard error, which their helper sends to the test's output


def id_of(node):
    return node.rpartition("unit/")[2]


def pytest_sessionstart():
    # Their conftest.py has imported it
    sys.modules["utils"].ServerPreset.load_all = staticmethod(lambda: None)


def pytest_deselected(items):
    _RESULTS["not_run"] += [
        id_of(item.nodeid) for item in items if not item.get_closest_marker("slow")
    ]


def _why(report):
    """The error's first line; beside it, if the server did not start, what it said."""
    crash = getattr(report.longrepr, "reprcrash", None)
    lines = (crash.message if crash else str(report.longrepr)).strip().splitlines() or [""]
    if "Server process died" in lines[0]:
        said = [
            line for line in report.capstdout.splitlines()
            if line.startswith((f"{_SERVER_SAID}usage", f"{_SERVER_SAID}error",
                                "llama_server_shim: no"))
        ]
        return said[-1] if said else lines[0]
    return lines[0]


def pytest_runtest_logreport(report):
    name = id_of(report.nodeid)
    if report.failed:
        _RESULTS["failed"].setdefault(name, _why(report))
        if name in _RESULTS["passed"]:  # and then its end failed
            _RESULTS["passed"].remove(name)
    elif report.skipped:
        _RESULTS["skipped"][name] = report.longrepr[2] if isinstance(
            report.longrepr, tuple) else str(report.longrepr)
    elif report.when == "call":
        _RESULTS["passed"].append(name)


def pytest_sessionfinish():
    with open(os.environ["LARDER_PEERS_RESULTS"], "w", encoding="utf-8") as file:
        json.dump(_RESULTS, file, indent=1)
