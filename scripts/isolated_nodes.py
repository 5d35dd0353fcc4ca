#!/usr/bin/env python3
"""A weight and an attention socket as processes, each of them with cores of its own (isolated: its threads spin) or not (they sleep), in all four pairs:
whatever either does while it waits, the text is the same and nothing hangs. Then the same as a stage of a cluster with a serving socket, and
--isolated on one side only, which both sides refuse with a line that names the other.

    scripts/isolated_nodes.py --larder build/larder --model model/demo/larder-stories.gguf
"""
import argparse
import contextlib
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request

SKIPPED = 77
HANGS_S = 60  # none of this takes more than a few seconds on any machine
PROMPT, TOKENS = "Once upon a time", 40


def manifest_text(name, weight, attention, serving=False):
    sockets = [("weights", "weight", 0, weight), ("attention", "attention", 1, attention)]
    if serving:
        sockets.append(("serving", "serving", 0, None))
    lines = [f'name = "{name}"', "[model]", "context = 1024", "slots = 2", "[[server]]", 'name = "here"']
    if serving:
        lines.append('address = "127.0.0.1:7070"')
    for socket, role, core, isolated in sockets:
        lines += ["[[server.socket]]", f'name = "{socket}"', f'role = "{role}"', f'cores = "cores:{core}"']
        if isolated is not None:
            lines.append(f"isolated = {str(isolated).lower()}")
        if role == "serving":
            lines.append('options = "--port 0 --text-port 0"')
    return "\n".join(lines) + "\n"


class Processes:
    """Those of one manifest; all are ended by the with statement."""

    def __init__(self, larder, model, folder, name, **manifest):
        self.larder, self.folder, self.name, self.running = larder, folder, name, []
        path = os.path.join(folder, name + ".toml")
        with open(path, "w", encoding="ascii") as f:
            f.write(manifest_text(f"{name}-{os.getpid()}", **manifest))
        self.common = ["--manifest", path, "-m", model]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            process.kill()
            process.wait()

    def start(self, command, label, *options):
        """Its output, both kinds, is in .said()."""
        path = os.path.join(self.folder, f"{self.name}-{label}.log")
        with open(path, "w", encoding="ascii") as log:
            process = subprocess.Popen([self.larder, command, *self.common, *options], stdin=subprocess.DEVNULL, stdout=log, stderr=log)
        process.said = lambda: open(path, encoding="utf-8", errors="replace").read()
        self.running.append(process)
        return process

    def node(self, socket, *options):
        return self.start("node", socket, "--socket", socket, *options)

    def run(self, *options):
        return subprocess.run([self.larder, "run", *self.common, *WRITE, *options], capture_output=True, timeout=HANGS_S, check=False)


WRITE = ["-p", PROMPT, "--temp", "0", "--ignore-eos", "-n", str(TOKENS)]


def hanging(processes):
    """What each thread of them sleeps in, for the message of a failure."""
    lines = []
    for process in processes:
        with contextlib.suppress(OSError):
            for task in os.listdir(f"/proc/{process.pid}/task"):
                with open(f"/proc/{process.pid}/task/{task}/wchan", encoding="ascii") as f:
                    lines.append(f"{process.args[1:6]}: {f.read() or 'runs'}")
        lines.append(process.said()[-400:])
    return "\n  ".join(lines)


def pairs(o, folder, alone):
    for weight, attention in itertools.product([False, True], repeat=2):
        what = f"weights {'spin' if weight else 'sleep'}, attention {'spins' if attention else 'sleeps'}"
        with Processes(o.larder, o.model, folder, f"pair-{int(weight)}{int(attention)}", weight=weight, attention=attention) as p:
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
    with Processes(o.larder, o.model, folder, "cluster", weight=False, attention=True, serving=True) as p:
        nodes = [p.node(socket) for socket in ("attention", "weights", "serving")]
        until = time.monotonic() + HANGS_S
        while time.monotonic() < until:
            if any(node.poll() is not None for node in nodes):
                return f"cluster: a process has ended\n  {hanging(nodes)}"
            url = re.search(r"http://\S+:\d+", nodes[2].said())
            if url is None:
                time.sleep(0.1)
                continue
            with contextlib.suppress(OSError, KeyError):  # 503 while it loads
                body = {"prompt": PROMPT, "n_predict": TOKENS, "temperature": 0, "ignore_eos": True}
                request = urllib.request.Request(url[0] + "/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
                with urllib.request.urlopen(request, timeout=HANGS_S) as reply:
                    text = json.loads(reply.read())["content"]
                if not alone.decode().strip().endswith(text.strip()):
                    return f"cluster: another text: {text!r}"
                print("cluster with a serving socket: same text")
                return ""
            time.sleep(0.1)
        return f"cluster: not ready after {HANGS_S} s\n  {hanging(nodes)}"


def refused(o, folder):
    for first, second in ([], ["--isolated"]), (["--isolated"], []):
        name = "node" if first else "run"
        with Processes(o.larder, o.model, folder, f"refused-{name}", weight=None, attention=None) as p:
            node = p.node("attention", "--once", *first)
            try:
                run = p.run("--join", *second)
            except subprocess.TimeoutExpired:
                return f"--isolated for {name} only: hangs\n  {hanging([node])}"
            said = run.stderr.decode()
            if run.returncode != 1 or "/attention (pid " not in said or "isolated" not in said:
                return f"--isolated for {name} only: status {run.returncode}, said {said[-400:]}"
            # It says so too, and waits for one that agrees.
            if node.poll() is not None or "socket weights (pid " not in node.said() or "isolated" not in node.said():
                return f"--isolated for {name} only: the node's status {node.poll()}, said {node.said()[-400:]}"
            if (again := p.run("--join", *first)).returncode != 0:
                return f"--isolated for {name}, then for both or none: status {again.returncode}, said {again.stderr.decode()[-400:]}"
            node.wait(HANGS_S)
            print(said.strip().splitlines()[-1])
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", required=True)
    parser.add_argument("--model", required=True)
    o = parser.parse_args()
    if len(os.sched_getaffinity(0)) < 2:
        print("skipped: this needs two cores, one for each socket")
        return SKIPPED
    alone = subprocess.run([o.larder, "run", "-m", o.model, *WRITE], capture_output=True, check=True, timeout=HANGS_S).stdout
    with tempfile.TemporaryDirectory(prefix="larder-isolated-") as folder:
        failures = [line for line in (pairs(o, folder, alone), cluster(o, folder, alone), refused(o, folder)) if line]
    for line in failures:
        print("FAILED: " + line)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
