#!/usr/bin/env python3
"""OpenAI's own client for Node against `larder serve`: installs the pinned version into --work, starts the server and
runs openai/client_test.mjs. 77: skipped, and why.

Usage: openai_test.py --larder PROGRAM --model FILE --work FOLDER
"""

import filecmp
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from larder_testing import programs
from larder_testing.programs import skip
from larder_testing.server import Server

SOURCES = Path(__file__).resolve().parent / "openai"
KEY = "larder-test-key"


def install(work):
    """npm ci, unless the same lock file was installed before."""
    work.mkdir(parents=True, exist_ok=True)
    lock = work / "package-lock.json"
    if (work / "node_modules" / "openai").is_dir() and lock.exists() and \
            filecmp.cmp(lock, SOURCES / "package-lock.json", shallow=False):
        return
    shutil.rmtree(work / "node_modules", ignore_errors=True)
    for name in ("package.json", "package-lock.json"):
        shutil.copy(SOURCES / name, work / name)
    npm = subprocess.run(["npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1",
                          "--fetch-timeout=20000"], cwd=work, capture_output=True, text=True, timeout=120)
    if npm.returncode != 0:
        output = npm.stdout + npm.stderr
        lock.unlink()
        if any(word in output for word in ("ENOTFOUND", "ETIMEDOUT", "ECONNREFUSED", "ECONNRESET", "EAI_AGAIN", "network")):
            skip("npm's registry can't be reached")
        sys.exit(f"npm ci failed:\n{output}")


def main():
    options = programs.parser(__doc__, "larder", "model", "work").parse_args()
    programs.skip_without(["node", "npm"], "packages nodejs, npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 18:
        skip(f"node is {version.strip()}; the client wants 18 or later")
    work = Path(options.work)
    install(work)
    shutil.copy(SOURCES / "client_test.mjs", work)
    with Server(options.larder, options.model, "--api-key", KEY, "--parallel", "4", "--chat-template", "chatml") as server:
        result = subprocess.run(["node", "client_test.mjs", server.url, KEY], cwd=work, timeout=120).returncode
        if result:
            print("".join(server.lines))
        code = server.end()
    if code != 0:
        sys.exit(f"larder serve ended with {code} on SIGTERM")
    sys.exit(result)


if __name__ == "__main__":
    main()
