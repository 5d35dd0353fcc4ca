#!/usr/bin/env python3
"""Attention sockets of other servers than their weight socket's: three servers, which are addresses
of the loopback device. The text is that of one process; when a weight or an attention process dies
or is stopped, supervisors start what has ended, requests wait, and their text is the same.

    test/cluster/attention_servers.py --larder build/larder --model model/demo/larder-stories.gguf
"""
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clusters, programs, story
from larder_testing.ports import free_port
from larder_testing.processes import Process, Unit

HANGS_S = 60
TOKENS = 60


def servers(serving, second):
    """The weight socket's server, and two with an attention socket each, one slot there and two
    here.
    """
    sockets = [clusters.socket("weights", "weight", "cores:0", port=free_port())]
    if serving:
        sockets.append(clusters.socket("serving", "serving", "cores:0", port=free_port()))
    return [clusters.server("w", *sockets, address="127.0.0.1"),
            *(clusters.server(f"kv{i}",
                              clusters.socket(f"attention{i}", "attention", f"cores:{second}",
                                              port=free_port(), slots=i + 1, **{"for": "weights"}),
                              address=f"127.0.0.{i + 2}") for i in range(2))]


class Cluster:
    """Its processes are started again when they end, those that the with statement leaves, too."""

    def __init__(self, larder, model, folder, name, serving):
        self.larder, self.folder, self.name = larder, pathlib.Path(folder), name
        second = 1 if len(os.sched_getaffinity(0)) > 1 else 0
        self.manifest = self.folder / f"{name}.toml"
        self.manifest.write_text(
            clusters.manifest(*servers(serving, second), name=f"{name}-{os.getpid()}",
                              model={"context": 4096}))
        self.common = ["--manifest", self.manifest, "-m", model]
        names = ["attention0", "attention1", *(["weights"] if serving else [])]
        self.units = {socket: self.unit(socket) for socket in names}

    def unit(self, socket):
        return Unit(socket, [self.larder, "node", *self.common, "--socket", socket],
                    self.folder / f"{self.name}-{socket}.log")

    def __enter__(self):
        for unit in self.units.values():
            unit.start()
        return self

    def __exit__(self, *_):
        for unit in self.units.values():
            unit.kill()

    def run(self, name, tokens):
        return Process([self.larder, "run", *self.common, "--join", "--server", "w", *story.GREEDY,
                        "-n", str(tokens)], self.folder / name)

    def said(self):
        return "\n".join(f"--- {name}\n{unit.said()[-1500:]}" for name, unit in self.units.items())


def check_one_stage(o, folder, alone):
    """The weight socket's process is that of `larder run`."""
    with Cluster(o.larder, o.model, folder, "one", serving=False) as cluster:
        for i in range(2):  # the attention sockets serve one after the other
            run = cluster.run(f"one-{i}", TOKENS)
            if run.wait(HANGS_S) != 0 or run.out() != alone:
                run.kill()
                return [f"one stage, run {i}: {run.said()[-500:]}\n{cluster.said()}"]
        # With its attention socket lost, a run ends as one whose socket is on its own server.
        run = cluster.run("one-lost", 4000)
        while run.running() and run.out() == "":
            time.sleep(0.01)
        cluster.units["attention1"].signal(signal.SIGKILL)
        cluster.units["attention0"].signal(signal.SIGKILL)
        status = run.wait(HANGS_S)
        run.kill()
        if status != 75 or "attention socket attention" not in run.err():
            return [f"one stage, attention killed: status {status}: {run.err()[-500:]}"]
        run = cluster.run("one-again", TOKENS)
        if run.wait(HANGS_S) != 0 or run.out() != alone:
            run.kill()
            return [f"one stage, after a loss: {run.said()[-500:]}\n{cluster.said()}"]
    return []


def check_chain(o, folder):
    """A serving socket's requests outlive the loss of any of them."""
    failures = []
    tokens = 3000
    whole = story.alone(o.larder, o.model, tokens, "-c", "4096").decode(errors="replace")
    with Cluster(o.larder, o.model, folder, "chain", serving=True) as cluster:
        for victim, number in (("attention0", signal.SIGKILL), ("weights", signal.SIGKILL),
                               ("attention0", signal.SIGSTOP)):
            run = cluster.run(f"chain-{victim}-{int(number)}", tokens)
            until = time.monotonic() + HANGS_S
            while run.running() and len(run.out()) < 200 and time.monotonic() < until:
                time.sleep(0.01)
            at_work = run.running()
            cluster.units[victim].signal(number)
            if number == signal.SIGSTOP:
                time.sleep(4)  # silence takes some seconds to be seen
                cluster.units[victim].signal(signal.SIGCONT)
            status = run.wait(HANGS_S)
            run.kill()
            what = f"chain, {victim} {signal.Signals(number).name}"
            if not at_work:
                failures.append(f"{what}: the run had ended before")
            if status != 0 or run.out() != whole:
                failures.append(f"{what}: status {status}, {len(run.out())} of {len(whole)} bytes: "
                                f"{run.err()[-800:]}\n{cluster.said()}")
                break
            if "requests wait" not in run.err():
                failures.append(f"{what}: nothing was lost: {run.err()[-500:]}")
    return failures


def check_plan(o, folder):
    """What a layer sends, and whether it pays."""
    cluster = Cluster(o.larder, o.model, folder, "plan", serving=False)
    done = subprocess.run([o.larder, "plan", *cluster.common], capture_output=True, check=False,
                          encoding="utf-8")
    missing = [text for text in ("another server's", "exchange = ", "KB there + ", "pay")
               if text not in done.stdout]
    return [f"plan: no {missing}: {done.stdout}{done.stderr}"] if missing else []


def main():
    o = programs.parser(__doc__, "larder", "model").parse_args()
    alone = story.alone(o.larder, o.model, TOKENS).decode(errors="replace")
    with tempfile.TemporaryDirectory(prefix="larder-attention-") as folder:
        failures = [*check_plan(o, folder), *check_one_stage(o, folder, alone),
                    *check_chain(o, folder)]
    for line in failures:
        print(line)
    print(f"{len(failures)} failures")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
