#!/usr/bin/env python3
"""Kills -9 the process of a weight or an attention socket at random moments, again and again: the
other must say so and end within two seconds, and the next start must be clean. Then stops (SIGSTOP)
one of them at work: for good, which the other must notice within two seconds, say and end; or for a
moment, after which both must go on and print the same text.

    test/cluster/kill_nodes.py --larder build/larder --model model/demo/larder-stories.gguf --count
        200 --stops 20
"""
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clusters, programs, story
from larder_testing.processes import Process

ENDS_WITHIN_S = 2.0
# On top of two seconds of silence: a machine with work on every core may be late to count them
STOP_GRACE_S = 1.0
LOST = 75  # rdma::kPeerLostExitCode
WAITING = "waiting for the weight socket"


class Rounds:
    """One server of two sockets, each a process, started anew for each round."""

    def __init__(self, larder, model, rng):
        self.rng = rng
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-kill-"))
        manifest = self.folder / "cluster.toml"
        second = 1 if len(os.sched_getaffinity(0)) > 1 else 0
        manifest.write_text(
            clusters.manifest(
                clusters.server("here", clusters.socket("weights", "weight", "cores:0"),
                                clusters.socket("attention", "attention", f"cores:{second}")),
                name=f"kill-{os.getpid()}", model={"context": 4096, "slots": 1}))
        common = ["--manifest", manifest, "-m", model, "--link-key", clusters.make_key(self.folder)]
        self.node_arguments = [larder, "node", *common, "--socket", "attention"]
        self.run_arguments = [larder, "run", *common, "--join", *story.GREEDY]
        self.failures = []

    def start(self, name, arguments):
        return Process(arguments, self.folder / name)

    def story(self, tokens):
        node, run = self.start("story-node", [*self.node_arguments, "--once"]), self.start(
            "story", [*self.run_arguments, "-n", str(tokens)])
        status = run.wait(60)
        if status != 0 or node.wait(30) is None:
            raise RuntimeError(f"a run that nobody kills ended with {status}: {run.err()[-300:]}")
        return run.out()

    def pair(self, tokens):
        """node, run, and the two as (name, victim, other) in random order."""
        node = self.start("node", self.node_arguments)
        run = self.start("run", [*self.run_arguments, "-n", str(tokens)])
        victims = [("attention", node, run), ("weights", run, node)]
        return node, run, self.rng.choice(victims)

    def fail(self, what, process, status):
        self.failures.append(f"{what}: status {status}, said: {process.err().strip()[-300:]}")


def end(*processes):
    for process in processes:
        process.kill()


def kills(rounds, count):
    killed, lost, early, slowest = {"weights": 0, "attention": 0}, 0, 0, 0.0
    while sum(killed.values()) < count:
        i = sum(killed.values())
        # Every second moment falls into decoding, the others into whatever it is: loading, the
        # handshake or decoding.
        node, run, (name, victim, other) = rounds.pair(3900)
        if i % 2 == 0:
            while run.running() and run.out() == "":
                time.sleep(0.002)
            time.sleep(rounds.rng.uniform(0.0, 0.05))
        else:
            time.sleep(rounds.rng.uniform(0.0, 0.35))
        if run.running():  # else it was faster than the moment
            killed[name] += 1
            end(victim)
            at = time.monotonic()
            status = other.wait(15 if name == "attention" else ENDS_WITHIN_S)
            took = time.monotonic() - at
            text = other.err()
            if status is None and name == "weights" and WAITING in text.splitlines()[-1]:
                # Killed before it had connected, or after its goodbye: a node goes on waiting
                early += 1
            elif status == LOST and "is gone" in text:
                lost += 1
                slowest = max(slowest, took)
                if took > ENDS_WITHIN_S:
                    rounds.failures.append(
                        f"round {i}: {name} killed: the other ended after {took:.2f} s")
            elif status in (0, 1) and ("error" in text or status == 0):
                # Before or during the handshake: a plain error line; or it had ended by itself
                early += 1
            else:
                rounds.fail(f"round {i}: {name} killed: the other", other, status)
        end(node, run)
    # A round whose moment came too early or too late tests little.
    if 3 * lost < count:
        rounds.failures.append(f"only {lost} of {count} kills met the two at work together")
    print(f"killed {killed['weights']} weight and {killed['attention']} attention processes, {lost}"
          f" of them at work together, {early} while they were finding each other or after; "
          f"slowest end of the other {slowest:.3f} s")


def stops(rounds, count):
    tokens = 3000  # at work for longer than the longest delay
    truth = rounds.story(tokens) if count > 0 else ""
    stopped, paused, missed, slowest = 0, 0, 0, 0.0
    for i in range(count):
        node, run, (name, victim, other) = rounds.pair(tokens)
        while run.running() and run.out() == "":
            time.sleep(0.005)
        time.sleep(rounds.rng.uniform(0.0, 0.1))
        for_good = i % 2 == 0
        if not run.running():
            missed += 1
        elif for_good:
            victim.signal(signal.SIGSTOP)
            at = time.monotonic()
            status = other.wait(ENDS_WITHIN_S + STOP_GRACE_S)
            slowest = max(slowest, time.monotonic() - at)
            if status != LOST or "has not answered" not in other.err():
                rounds.fail(f"stop {i}: {name} stopped: the other", other, status)
            victim.signal(signal.SIGCONT)
            status = victim.wait(ENDS_WITHIN_S)
            if status != LOST or "is gone" not in victim.err():
                rounds.fail(f"stop {i}: {name} awake again", victim, status)
            stopped += 1
        else:
            victim.signal(signal.SIGSTOP)
            time.sleep(rounds.rng.uniform(0.1, 1.0))
            victim.signal(signal.SIGCONT)
            status = run.wait(60)
            if status != 0 or run.out() != truth:
                rounds.fail(f"stop {i}: {name} stopped for a moment: the run", run, status)
            if not node.running():
                rounds.fail(f"stop {i}: {name} stopped for a moment: the node", node, node.status())
            paused += 1
        end(node, run)
    if count > 0:
        if stopped == 0 or (count > 1 and paused == 0):
            rounds.failures.append(
                f"of {count} stops {stopped} were for good and {paused} for a moment: {missed} had"
                " ended before")
        print(
            f"stopped {stopped} for good, slowest end of the other {slowest:.3f} s; {paused} for a "
            f"moment; {missed} had ended before")


def main():
    parser = programs.parser(__doc__, "larder", "model")
    parser.add_argument("--count", type=int, default=200, help="kills")
    parser.add_argument("--stops", type=int, default=20, help="stops, every second one for good")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    rounds = Rounds(o.larder, o.model, random.Random(o.seed))
    alone = story.alone(o.larder, o.model, 20).decode(errors="replace")
    kills(rounds, o.count)
    stops(rounds, o.stops)
    clean = rounds.story(20) == alone
    print(f"{len(rounds.failures)} failures; the next start "
          f"{'is clean and its text the same' if clean else 'FAILED'}")
    for line in rounds.failures[:20]:
        print("  " + line)
    if rounds.failures or not clean:
        print(f"what they said is in {rounds.folder}")
        return 1
    shutil.rmtree(rounds.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
