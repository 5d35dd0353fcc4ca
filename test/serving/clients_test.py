#!/usr/bin/env python3
"""Other people's clients for Node, unmodified, against `larder serve`: installs the pinned versions
into --work, starts the servers and runs clients/CLIENT.mjs. The model is the scripted one
(larder_testing/scripts_of_model.py). 77: skipped, and why.

Usage: clients_test.py --larder PROGRAM --model FILE --work FOLDER --client NAME
"""
import contextlib
import fcntl
import filecmp
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import programs, scripted_model
from larder_testing.programs import skip
from larder_testing.scripts_of_model import SCRIPTS
from larder_testing.server import Server

SOURCES = pathlib.Path(__file__).resolve().parent / "clients"
KEY = "larder-test-key"
CONTEXT = ["-c", "262144"]  # the endless script is cancelled long before it is full


def install(work):
    """npm ci, unless the same lock file was installed before; one test of several that run at once
    does it.
    """
    work.mkdir(parents=True, exist_ok=True)
    with open(work / "installing", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = work / "installed.json"  # the lock file of what is installed
        if done.exists() and filecmp.cmp(done, SOURCES / "package-lock.json", shallow=False):
            return
        done.unlink(missing_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(SOURCES / name, work / name)
        npm = subprocess.run([
            "npm", "ci", "--no-audit", "--no-fund", "--ignore-scripts", "--fetch-retries=1",
            "--fetch-timeout=20000"
        ], cwd=work, capture_output=True, text=True, timeout=200, check=False)
        if npm.returncode != 0:
            output = npm.stdout + npm.stderr
            if any(word in output for word in ("ENOTFOUND", "ETIMEDOUT", "ECONNREFUSED",
                                               "ECONNRESET", "EAI_AGAIN", "network")):
                skip("npm's registry can't be reached")
            sys.exit(f"npm ci failed:\n{output}")
        shutil.copy(SOURCES / "package-lock.json", done)


def main():
    options = programs.parser(__doc__, "larder", "model", "work", "client").parse_args()
    programs.skip_without(["node", "npm"], "packages nodejs, npm")
    version = subprocess.run(["node", "--version"], capture_output=True, text=True,
                             check=True).stdout
    if int(version.lstrip("v").split(".")[0]) < 18:
        skip(f"node is {version.strip()}; the clients want 18 or later")
    work = pathlib.Path(options.work)
    install(work)
    with contextlib.ExitStack() as stack:
        # Modules are looked for beside the file that imports them: not in the sources.
        folder = pathlib.Path(
            stack.enter_context(tempfile.TemporaryDirectory(prefix=f"{options.client}-", dir=work)))
        for source in SOURCES.glob("*.mjs"):
            shutil.copy(source, folder)
        model = str(folder / "scripted.gguf")
        scripted_model.write(model)
        serve = [options.larder, model, "--api-key", KEY, *CONTEXT]
        servers = [stack.enter_context(Server(*serve, "--parallel", "4")),
                    stack.enter_context(
                        Server(*serve, "--parallel", "1", "--queue", "1", "--strict-model",
                               "--alias", "scripted")),
                    stack.enter_context(
                        Server(options.larder, options.model, "--api-key", KEY, "--parallel", "4",
                               "--chat-template", "chatml", "--pooling", "mean", "--batch-dir",
                               str(folder / "batches")))]
        world = dict(zip(("url", "strict", "stories"), (server.url for server in servers)), key=KEY,
                     scripts=SCRIPTS)
        result = subprocess.run(["node", f"{options.client}.mjs"], cwd=folder, timeout=200,
                                check=False,
                                env={**os.environ, "LARDER_TEST": json.dumps(world)}).returncode
        if result:
            print("".join(line for server in servers for line in server.lines))
    sys.exit(result)


if __name__ == "__main__":
    main()
