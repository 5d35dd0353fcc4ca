#!/usr/bin/env python3
"""Kills -9 the process of a weight or an attention socket at random moments, again and again: the other must say so and end within two seconds,
and the next start must be clean.

    scripts/kill_nodes.py --larder build/larder --model model/demo/larder-stories.gguf --count 200
"""
import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import time

MANIFEST = """name = "kill-{pid}"
[model]
context = 512
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
LOST = 75  # rdma::kPeerLostExitCode


def start(arguments, log):
    return subprocess.Popen(arguments, stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--larder", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    o = parser.parse_args()
    rng = random.Random(o.seed)
    folder = tempfile.mkdtemp(prefix="larder-kill-")
    manifest = os.path.join(folder, "manifest.toml")
    with open(manifest, "w") as f:
        f.write(MANIFEST.format(pid=os.getpid(), second=1 if len(os.sched_getaffinity(0)) > 1 else 0))
    common = ["--manifest", manifest, "-m", o.model]
    node_arguments = [o.larder, "node", *common, "--socket", "attention"]
    run_arguments = [o.larder, "run", *common, "--join", "-p", "Once upon a time", "--temp", "0", "-n", "20"]

    def story():
        with open(os.path.join(folder, "story.node"), "w") as log:
            node = start([*node_arguments, "--once"], log)
            text = subprocess.run(run_arguments, capture_output=True, timeout=30, check=True).stdout
            node.wait(timeout=30)
        return text

    truth = subprocess.run([o.larder, "run", "-m", o.model, "-p", "Once upon a time", "--temp", "0", "-n", "20"], capture_output=True, check=True).stdout
    lost, early = 0, 0
    failures, slowest, killed = [], 0.0, {"weights": 0, "attention": 0}
    for i in range(o.count):
        with open(os.path.join(folder, "node.log"), "w+") as node_log, open(os.path.join(folder, "run.log"), "w+") as run_log:
            node = start(node_arguments, node_log)
            # Long enough that the moment falls into loading, the handshake or decoding.
            run = start([*run_arguments[:-1], "500", "--ignore-eos"], run_log)
            time.sleep(rng.uniform(0.0, 0.35))
            victim, other, log, name = (node, run, run_log, "attention") if rng.random() < 0.5 else (run, node, node_log, "weights")
            if run.poll() is not None:  # it was faster than the moment
                name = "nobody"
            victim.send_signal(signal.SIGKILL)
            victim.wait()
            at = time.monotonic()
            try:
                status = other.wait(timeout=15 if name == "attention" else ENDS_WITHIN_S)
                took = time.monotonic() - at
            except subprocess.TimeoutExpired:
                status, took = None, None
            log.seek(0)
            text = log.read()
            if name == "nobody":
                other.kill()
                other.wait()
                continue
            killed[name] += 1
            if status is None and name == "weights" and "waiting for the weight socket" in text.splitlines()[-1]:
                early += 1  # killed before it had connected, or after its goodbye: a node goes on waiting
            elif status == LOST and "is gone" in text:
                lost += 1
                slowest = max(slowest, took)
                if took > ENDS_WITHIN_S:
                    failures.append(f"round {i}: {name} killed: the other ended after {took:.2f} s")
            elif status in (0, 1) and ("error" in text or status == 0):
                early += 1  # before or during the handshake: a plain error line; or it had ended by itself
            else:
                failures.append(f"round {i}: {name} killed: the other: status {status}, said: {text.strip()[-300:]}")
            other.kill()
            other.wait()
    clean = story() == truth
    print(f"killed {killed['weights']} weight and {killed['attention']} attention processes, {lost} of them at work together, {early} while they were finding "
          f"each other or after; slowest end of the other {slowest:.3f} s; {len(failures)} failures; the next start {'is clean and its text the same' if clean else 'FAILED'}")
    for line in failures[:20]:
        print("  " + line)
    return 1 if failures or not clean else 0


if __name__ == "__main__":
    sys.exit(main())
