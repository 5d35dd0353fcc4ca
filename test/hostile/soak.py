#!/usr/bin/env python3
"""Many clients for a while, and costly requests among theirs: each text is that of the same request
alone, memory does not grow, and others wait no longer than without them.

    test/hostile/soak.py --larder build/larder --model model/demo/larder-stories.gguf --seconds 3600

The clients are those of test/serving/soak_serve.py; the costly requests those of latency.py, at
random, one after the other, whose clients leave when they have waited for long. Windows with and
without them take turns, and what is compared is the median of the windows' longest waits: a busy
machine changes both. Memory is compared with what it was after the warm-up, when the caches of
grammars have been filled.
"""
import pathlib
import random
import statistics
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
import latency
from bystanders import Bystanders
from larder_testing import clients, programs

soak_serve = programs.load(
    pathlib.Path(__file__).resolve().parents[1] / "serving" / "soak_serve.py")
WINDOW_S = 4.0
WARM_UP_S = 0.2  # of all seconds
PAUSE_S = 0.2  # between costly requests


class Attacker(threading.Thread):
    """Sends them while `on` is set."""

    def __init__(self, target, seed):
        super().__init__(daemon=True)
        self.target, self.rng, self.on, self.sent = target, random.Random(
            seed), threading.Event(), 0
        self.attacks = [
            attack for attack in latency.attacks()
            if attack.shape.__name__ not in latency.FULL_QUEUES
        ]

    def run(self):
        while True:
            self.on.wait()
            attack = self.rng.choice(self.attacks)
            # Another one, however often it has been sent
            attack.size -= 200 if attack.size > 100_000 else 0
            try:
                self.target.send(attack)
            except OSError:  # the server has ended
                pass
            self.sent += 1
            time.sleep(PAUSE_S)


def window(bystanders):
    begin = time.monotonic()
    time.sleep(WINDOW_S)
    return bystanders.longest_waits(begin, time.monotonic())


def windows(target, bystanders, attacker, until):
    """The longest waits of each window, by kind, without and with costly requests; memory after the
    warm-up.
    """
    waits = {False: [], True: []}
    begin, after_warm_up = time.monotonic(), 0
    while time.monotonic() < until and target.alive():
        for attacked in (False, True):
            (attacker.on.set if attacked else attacker.on.clear)()
            waits[attacked].append(window(bystanders))
            attacker.on.clear()
            time.sleep(latency.GOES_ON_S)
        if not after_warm_up and time.monotonic() - begin > WARM_UP_S * (until - begin):
            after_warm_up = target.resident()
    return waits, after_warm_up


def judge(waits):
    wrong = []
    for kind in waits[True][0]:
        without, with_them = (statistics.median(window_[kind] for window_ in waits[attacked])
                              for attacked in (False, True))
        print(
            f"{kind}: the longest wait of a window {without * 1e3:.0f} ms without costly requests, "
            f"{with_them * 1e3:.0f} ms with them")
        if with_them > without + latency.MOST_WAIT_S:
            wrong.append(
                f"{kind} waits {with_them * 1e3:.0f} ms beside costly requests, {without * 1e3:.0f}"
                " ms without")
    return wrong


def main():
    parser = programs.parser(__doc__, "larder", "model")
    parser.add_argument("--clients", type=int, default=6)
    parser.add_argument("--seconds", type=float, default=24)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--growth-mb", type=float, default=64,
                        help="of memory that is allowed after the warm-up")
    args = parser.parse_args()
    requests = clients.make_requests(16, args.seed)
    with tempfile.TemporaryDirectory(prefix="larder-test-") as folder:
        # More slots than clients and bystanders: waiting for one is not what this is about.
        target = latency.Target(args.larder, args.model, pathlib.Path(folder), "--parallel",
                                str(args.clients + 8), "--temp", "0", "-n", "40", "--queue",
                                str(8 * args.clients))
        target.start()
        try:
            expected = [
                soak_serve.ask(target.server, "http-whole", request) for request in requests
            ]
            plain = soak_serve.ask(target.server, "text-plain", None)
            until = time.monotonic() + args.seconds
            many = [
                soak_serve.Client(target.server, requests, expected, plain, args.seed * 1000 + i,
                                  until) for i in range(args.clients)
            ]
            attacker = Attacker(target, args.seed)
            with Bystanders(target.server) as bystanders:
                for thread in (*many, attacker):
                    thread.start()
                waits, after_warm_up = windows(target, bystanders, attacker, until)
                for client in many:
                    client.join()
            wrong = [line for client in many for line in client.wrong]
            if not target.alive():
                wrong.append(f"the server has ended, status {target.server.process.wait()}")
            else:
                grown = (target.resident() - after_warm_up) / 1e6
                print(
                    f"{sum(client.done for client in many)} texts as alone, {attacker.sent} costly "
                    f"requests, memory after the warm-up {grown:+.1f} MB")
                if grown > args.growth_mb:
                    wrong.append(f"memory has grown by {grown:.1f} MB")
            wrong += judge(waits)
        finally:
            target.stop()
    for line in wrong[:10]:
        print("wrong:", line, file=sys.stderr)
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
