#!/usr/bin/env python3
"""Kills -9 the process of a weight or an attention socket at random moments, again and again: the other must say so and end within two seconds,
and the next start must be clean. Then stops (SIGSTOP) one of them at work: for good, which the other must notice within two seconds, say and end;
or for a moment, after which both must go on and print the same text.

    scripts/kill_nodes.py --larder build/larder --model model/demo/larder-stories.gguf --count 200 --stops 20
"""
import argparse
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time

MANIFEST = """name = "kill-{pid}"
[model]
context = 4096
slots = 1
[[server]]
name = "here"
[[server.socket]]
name = "weights"
role = "weight"
cores = "cores:0"
[[server.socket]]
name = "attention"
role = "attention"
cores = "cores:{second}"
"""
ENDS_WITHIN_S = 2.0
STOP_GRACE_S = 1.0  # on top of two seconds of silence: a machine with work on every core may be late to count them
LOST = 75  # rdma::kPeerLostExitCode
WAITING = "waiting for the weight socket"


class Rounds:
    """One server of two sockets, each a process, started anew for each round."""

    def __init__(self, larder, model, rng):
        self.rng = rng
        self.folder = tempfile.mkdtemp(prefix="larder-kill-")
        manifest = os.path.join(self.folder, "manifest.toml")
        with open(manifest, "w") as f:
            f.write(MANIFEST.format(pid=os.getpid(), second=1 if len(os.sched_getaffinity(0)) > 1 else 0))
        key = os.path.join(self.folder, "link.key")
        with open(os.open(key, os.O_WRONLY | os.O_CREAT, 0o600), "w") as f:
            f.write(secrets.token_hex(32))
        common = ["--manifest", manifest, "-m", model, "--link-key", key]
        self.node_arguments = [larder, "node", *common, "--socket", "attention"]
        self.run_arguments = [larder, "run", *common, "--join", "-p", "Once upon a time", "--temp", "0", "--ignore-eos"]
        self.failures = []

    def start(self, name, arguments):
        """The process and a way to read what it has said so far; standard output in a file of its own."""
        out, log = os.path.join(self.folder, name + ".out"), os.path.join(self.folder, name + ".log")
        with open(out, "w") as o, open(log, "w") as l:
            process = subprocess.Popen(arguments, stdout=o, stderr=l, stdin=subprocess.DEVNULL)
        process.out = lambda: open(out, encoding="utf-8", errors="replace").read()
        process.log = lambda: open(log, encoding="utf-8", errors="replace").read()
        return process

    def story(self, tokens):
        node = self.start("story-node", [*self.node_arguments, "--once"])
        text = subprocess.run([*self.run_arguments, "-n", str(tokens)], capture_output=True, timeout=60, check=True).stdout
        node.wait(timeout=30)
        return text.decode("utf-8", "replace")

    def pair(self, tokens):
        """node, run, and the two as (name, victim, other) in random order."""
        node = self.start("node", self.node_arguments)
        run = self.start("run", [*self.run_arguments, "-n", str(tokens)])
        victims = [("attention", node, run), ("weights", run, node)]
        return node, run, self.rng.choice(victims)

    def fail(self, what, process, status):
        self.failures.append(f"{what}: status {status}, said: {process.log().strip()[-300:]}")


def end(*processes):
    for process in processes:
        process.kill()
        process.wait()


def wait(process, seconds):
    try:
        return process.wait(timeout=seconds)
    except subprocess.TimeoutExpired:
        return None


def kills(rounds, count):
    killed, lost, early, slowest = {"weights": 0, "attention": 0}, 0, 0, 0.0
    while sum(killed.values()) < count:
        i = sum(killed.values())
        # Every second moment falls into decoding, the others into whatever it is: loading, the handshake or decoding.
        node, run, (name, victim, other) = rounds.pair(3900)
        if i % 2 == 0:
            while run.poll() is None and run.out() == "":
                time.sleep(0.002)
            time.sleep(rounds.rng.uniform(0.0, 0.05))
        else:
            time.sleep(rounds.rng.uniform(0.0, 0.35))
        if run.poll() is None:  # else it was faster than the moment
            killed[name] += 1
            end(victim)
            at = time.monotonic()
            status = wait(other, 15 if name == "attention" else ENDS_WITHIN_S)
            took = time.monotonic() - at
            text = other.log()
            if status is None and name == "weights" and WAITING in text.splitlines()[-1]:
                early += 1  # killed before it had connected, or after its goodbye: a node goes on waiting
            elif status == LOST and "is gone" in text:
                lost += 1
                slowest = max(slowest, took)
                if took > ENDS_WITHIN_S:
                    rounds.failures.append(f"round {i}: {name} killed: the other ended after {took:.2f} s")
            elif status in (0, 1) and ("error" in text or status == 0):
                early += 1  # before or during the handshake: a plain error line; or it had ended by itself
            else:
                rounds.fail(f"round {i}: {name} killed: the other", other, status)
        end(node, run)
    # A round whose moment came too early or too late tests little.
    if 3 * lost < count:
        rounds.failures.append(f"only {lost} of {count} kills met the two at work together")
    print(f"killed {killed['weights']} weight and {killed['attention']} attention processes, {lost} of them at work together, {early} while they were finding "
          f"each other or after; slowest end of the other {slowest:.3f} s")


def stops(rounds, count):
    tokens = 3000  # at work for longer than the longest delay
    truth = rounds.story(tokens) if count > 0 else ""
    stopped, paused, missed, slowest = 0, 0, 0, 0.0
    for i in range(count):
        node, run, (name, victim, other) = rounds.pair(tokens)
        while run.poll() is None and run.out() == "":
            time.sleep(0.005)
        time.sleep(rounds.rng.uniform(0.0, 0.1))
        for_good = i % 2 == 0
        if run.poll() is not None:
            missed += 1
        elif for_good:
            victim.send_signal(signal.SIGSTOP)
            at = time.monotonic()
            status = wait(other, ENDS_WITHIN_S + STOP_GRACE_S)
            slowest = max(slowest, time.monotonic() - at)
            if status != LOST or "has not answered" not in other.log():
                rounds.fail(f"stop {i}: {name} stopped: the other", other, status)
            victim.send_signal(signal.SIGCONT)
            status = wait(victim, ENDS_WITHIN_S)
            if status != LOST or "is gone" not in victim.log():
                rounds.fail(f"stop {i}: {name} awake again", victim, status)
            stopped += 1
        else:
            victim.send_signal(signal.SIGSTOP)
            time.sleep(rounds.rng.uniform(0.1, 1.0))
            victim.send_signal(signal.SIGCONT)
            status = wait(run, 60)
            if status != 0 or run.out() != truth:
                rounds.fail(f"stop {i}: {name} stopped for a moment: the run", run, status)
            if node.poll() is not None:
                rounds.fail(f"stop {i}: {name} stopped for a moment: the node", node, node.returncode)
            paused += 1
        end(node, run)
    if count > 0:
        if stopped == 0 or (count > 1 and paused == 0):
            rounds.failures.append(f"of {count} stops {stopped} were for good and {paused} for a moment: {missed} had ended before")
        print(f"stopped {stopped} for good, slowest end of the other {slowest:.3f} s; {paused} for a moment; {missed} had ended before")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=200, help="kills")
    parser.add_argument("--stops", type=int, default=20, help="stops, every second one for good")
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    rounds = Rounds(o.larder, o.model, random.Random(o.seed))
    alone = subprocess.run([o.larder, "run", "-m", o.model, "-p", "Once upon a time", "--temp", "0", "--ignore-eos", "-n", "20"], capture_output=True, check=True)
    kills(rounds, o.count)
    stops(rounds, o.stops)
    clean = rounds.story(20) == alone.stdout.decode("utf-8", "replace")
    print(f"{len(rounds.failures)} failures; the next start {'is clean and its text the same' if clean else 'FAILED'}")
    for line in rounds.failures[:20]:
        print("  " + line)
    if rounds.failures or not clean:
        print(f"what they said is in {rounds.folder}")
        return 1
    shutil.rmtree(rounds.folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
