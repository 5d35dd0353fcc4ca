#!/usr/bin/env python3
"""A weight and an attention socket as processes, each of them with cores of its own (isolated: its
threads spin) or not (they sleep), in all four pairs: whatever either does while it waits, the text
is the same and nothing hangs. Then the same as a stage of a cluster with a serving socket, and
--isolated on one side only, which both sides refuse with a line that names the other.

    test/cluster/isolated_nodes.py --larder build/larder --model model/demo/larder-stories.gguf
"""
import contextlib
import itertools
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clusters, programs, story
from larder_testing.processes import Process
from larder_testing.server import Endpoint
from larder_testing.waiting import until

HANGS_S = 60  # none of this takes more than a few seconds on any machine
TOKENS = 40


def manifest_text(name, weight, attention, serving=False):
    """weight, attention: whether the socket is isolated; None leaves it to --isolated."""
    sockets = [clusters.socket("weights", "weight", "cores:0", isolated=weight),
               clusters.socket("attention", "attention", "cores:1", isolated=attention)]
    if serving:
        sockets.append(
            clusters.socket("serving", "serving", "cores:0", options="--port 0 --text-port 0"))
    return clusters.manifest(
        clusters.server("here", *sockets, address="127.0.0.1:7070" if serving else None), name=name,
        model={"context": 1024, "slots": 2})


class Processes:
    """Those of one manifest; all are ended by the with statement."""

    def __init__(self, larder, model, folder, name, **manifest):
        self.larder, self.log, self.running = larder, pathlib.Path(folder, name), []
        path = self.log.with_suffix(".toml")
        path.write_text(manifest_text(f"{name}-{os.getpid()}", **manifest))
        self.common = ["--manifest", path, "-m", model]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            process.kill()

    def node(self, socket, *options):
        process = Process([self.larder, "node", *self.common, "--socket", socket, *options],
                          f"{self.log}-{socket}")
        self.running.append(process)
        return process

    def run(self, *options):
        command = [self.larder, "run", *self.common, *story.GREEDY, "-n", str(TOKENS), *options]
        return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True,
                              timeout=HANGS_S, check=False)


def hanging(processes):
    """What each thread of them sleeps in, for the message of a failure."""
    lines = []
    for process in processes:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process.process.pid}/task"):
                with open(f"/proc/{process.process.pid}/task/{task}/wchan", encoding="ascii") as f:
                    lines.append(f"{process.command[1:6]}: {f.read() or 'runs'}")
        lines.append(process.said()[-400:])
    return "\n  ".join(lines)


def pairs(o, folder, alone):
    for weight, attention in itertools.product([False, True], repeat=2):
        what = (f"weights {'spin' if weight else 'sleep'}, attention "
                f"{'spins' if attention else 'sleeps'}")
        with Processes(o.larder, o.model, folder, f"pair-{int(weight)}{int(attention)}",
                       weight=weight, attention=attention) as p:
            node = p.node("attention")
            try:
                text = p.run("--join").stdout
            except subprocess.TimeoutExpired:
                return f"{what}: hangs\n  {hanging([node])}"
            if text != alone:
                return f"{what}: another text: {text[-200:]!r}"
            print(f"{what}: same text", flush=True)
    return ""


def cluster(o, folder, alone):
    """As above, the weights' socket a stage and the requests' another process."""
    with Processes(o.larder, o.model, folder, "cluster", weight=False, attention=True,
                   serving=True) as p:
        nodes = [p.node(socket) for socket in ("attention", "weights", "serving")]

        def ready():
            if not all(node.running() for node in nodes):
                raise AssertionError("a process has ended")
            found = re.search(r"http://\S+:(\d+)", nodes[2].said())
            server = Endpoint(int(found[1])) if found else None
            return server if server and server.health() == 200 else None
        try:
            server = until(ready, HANGS_S, "not ready", pause_s=0.1)
            request = {
                "prompt": story.PROMPT, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True
            }
            status, body = server.post("/completion", request)
        except (AssertionError, OSError) as error:
            return f"cluster: {error}\n  {hanging(nodes)}"
        text = json.loads(body).get("content", "")
        if status != 200 or not text or not alone.decode().strip().endswith(text.strip()):
            return f"cluster: another text: {body[-400:]!r}"
        print("cluster with a serving socket: same text")
        return ""


def said_no(node):
    said = node.said()
    return node.running() and "socket weights (pid " in said and "isolated" in said


def refused(o, folder):
    for first, second in ([], ["--isolated"]), (["--isolated"], []):
        name = "node" if first else "run"
        with Processes(o.larder, o.model, folder, f"refused-{name}", weight=None,
                       attention=None) as p:
            node = p.node("attention", "--once", *first)
            try:
                run = p.run("--join", *second)
            except subprocess.TimeoutExpired:
                return f"--isolated for {name} only: hangs\n  {hanging([node])}"
            said = run.stderr.decode()
            if run.returncode != 1 or "/attention (pid " not in said or "isolated" not in said:
                return f"--isolated for {name} only: status {run.returncode}, said {said[-400:]}"
            # It says so too, be it a moment later, and waits for one that agrees.
            try:
                until(lambda node=node: said_no(node), HANGS_S, "no refusal", pause_s=0.02)
            except AssertionError:
                return (f"--isolated for {name} only: the node's status {node.status()}, said "
                        f"{node.said()[-400:]}")
            if (again := p.run("--join", *first)).returncode != 0:
                return (
                    f"--isolated for {name}, then for both or none: status {again.returncode}, "
                    f"said {again.stderr.decode()[-400:]}")
            if node.wait(HANGS_S) is None:
                return (f"--isolated for {name}, then for both or none: the node goes on\n"
                        f"  {hanging([node])}")
            print(said.strip().splitlines()[-1])
    return ""


def main():
    o = programs.parser(__doc__, "larder", "model").parse_args()
    programs.skip_without_two_cpus("one for each socket")
    alone = story.alone(o.larder, o.model, TOKENS)
    with tempfile.TemporaryDirectory(prefix="larder-isolated-") as folder:
        failures = [
            line
            for line in (pairs(o, folder, alone), cluster(o, folder, alone), refused(o, folder))
            if line
        ]
    for line in failures:
        print("FAILED: " + line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
