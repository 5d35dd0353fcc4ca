#!/usr/bin/env python3
"""A long soak of a cluster on this machine: serving, weight and attention sockets and a second
stage, a process each; mixed clients (both protocols, chat, several choices, long prompts,
/tokenize), some of whom cancel or leave; and stages that are killed or stopped.

    test/cluster/soak.py --larder build/larder --model model/demo/larder-stories.gguf --seconds 3600
        --clients 12

Held to: each stream that ends well is the same request's alone, one that ends otherwise ends with
the documented error and only while a stage was killed or stopped, and what came before is the
beginning of the right one; the cluster comes back by itself; memory, descriptors and threads of
each process are flat, which means: the slope by least squares times the run's length, and the
second part's median above the first part's, are not more than a floor and what moves about that
slope in the first part; and when all have left, the serving process has the descriptors and threads
that it began with.
"""
import json
import os
import pathlib
import random
import shutil
import signal
import sys
import tempfile
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))
from larder_testing import clients, clusters, programs
from larder_testing.ports import free_port, free_ports
from larder_testing.processes import RESTART_S, Unit
from larder_testing.replies import Failed
from larder_testing.server import Endpoint
from larder_testing.waiting import until

SOCKETS = {"a-weight": "a", "a-attention": "a", "serving": "a", "b-stage": "b"}
STAGES = ["a-weight", "a-attention", "b-stage"]
SHARED_FATES = (("a-weight", "a-attention"), ("b-stage",))
SAMPLE_S = 1.0
WARM_UP_S = 20.0    # of a process: buffers, pools and the allocator fill
PATIENCE_S = 120.0  # until a cluster is back on a machine that others use too
KINDS = [
    "text-json", "text-plain", "http-whole", "http-stream", "chat-whole", "chat-stream", "choices",
    "long", "tokenize"
]
# And the floor of how much each may change; of memory --growth-mb
FLAT = {"VmRSS": None, "descriptors": 4, "threads": 2}
PLAIN = "The cat"


class Cluster(Endpoint):
    """A unit for each socket; otherwise an endpoint, the serving socket's."""

    def __init__(self, o):
        super().__init__(free_port(), free_port())
        self.o, self.units = o, {}
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="larder-soak-"))
        # Each server's first socket listens on its server's port, the next ones after it
        port = free_ports(16)
        self.manifest = self.folder / "cluster.toml"
        # An isolated socket shares its cores with nobody.
        cores = len(os.sched_getaffinity(0))
        second, third = min(1, cores - 1), 0 if o.isolated else min(1, cores - 1)
        options = (
            f"--port {self.http} --text-port {self.text} --temp 0 -n 40 --chat-template chatml "
            f"--queue {8 * o.clients}")
        self.manifest.write_text(
            clusters.manifest(
                clusters.server(
                    "a", clusters.socket("a-weight", "weight", "cores:0"),
                    clusters.socket("a-attention", "attention", f"cores:{second}",
                                    isolated=o.isolated),
                    clusters.socket("serving", "serving", f"cores:{third}", options=options),
                    address=f"127.0.0.1:{port}"),
                clusters.server("b", clusters.socket("b-stage", "colocated", "cores:0"),
                                address=f"127.0.0.1:{port + 8}"), name=f"soak-{os.getpid()}",
                model={"context": o.context, "slots": o.slots}, link={"transport": "tcp"}))

    def __enter__(self):
        for name, server in SOCKETS.items():
            command = [
                self.o.larder, "node", "--manifest", self.manifest, "--server", server, "--socket",
                name, "-m", self.o.model
            ]
            self.units[name] = Unit(name, command, self.folder / f"{name}.log")
            self.units[name].start()
        return self

    def __exit__(self, kind, *_):
        before = {name: len(unit.said()) for name, unit in self.units.items()}
        statuses = {name: unit.stop() for name, unit in reversed(self.units.items())}
        if kind is None and statuses["serving"] != 0:
            raise AssertionError(f"the serving process ended with {statuses['serving']}")
        errors = [
            f"{name}: {line}" for name, unit in self.units.items()
            for line in unit.said()[before[name]:].splitlines() if "error" in line
        ]
        if kind is None and errors:
            raise AssertionError(f"an orderly stop is no error: {errors}")
        if not self.o.keep:
            shutil.rmtree(self.folder, ignore_errors=True)

    def connect(self, port, timeout=PATIENCE_S):
        return super().connect(port, timeout)

    def said(self, count=600):
        return "".join(f"--- {unit.name} said:\n{unit.said()[-count:]}\n"
                       for unit in self.units.values())


def make_requests(count, seed, context):
    """clients.py's, and one whose prompt is long."""
    requests, rng = clients.make_requests(count, seed), random.Random(seed)
    long = " ".join(rng.choice(clients.BEGINNINGS) for _ in range(context // 12))
    return requests, {"prompt": long, "max_tokens": 20, "temperature": 0.7, "seed": 1}


class Asker:
    """What a kind of request gives, as one text."""

    def __init__(self, cluster, requests, long):
        self.cluster, self.requests, self.long = cluster, requests, long

    def ask(self, kind, at):
        request = self.requests[at]
        chat = {**request, "messages": [{"role": "user", "content": request["prompt"]}]}
        chat.pop("prompt")
        if kind == "text-json":
            return clients.text_stream(self.cluster, request)
        if kind == "text-plain":
            text = clients.plain_text(self.cluster, PLAIN)
            if "error: " in text:
                raise Failed(503, text, text.partition("error: ")[0].rstrip("\n"))
            return text
        if kind == "http-stream":
            return clients.streamed(self.cluster, "/v1/completions", request)
        if kind == "chat-stream":
            return clients.streamed(self.cluster, "/v1/chat/completions", chat)
        if kind == "chat-whole":
            return json.loads(self.post("/v1/chat/completions",
                                        chat))["choices"][0]["message"]["content"]
        if kind == "choices":
            choices = json.loads(self.post("/v1/completions", {**request, "n": 3}))["choices"]
            return "\0".join(c["text"] for c in sorted(choices, key=lambda c: c["index"]))
        if kind == "tokenize":
            return json.dumps(
                json.loads(
                    self.post(
                        "/tokenize",
                        {"content": self.long["prompt"] * 3 if at % 4 == 0 else request["prompt"]
                         })))
        return clients.completion(self.cluster, self.long if kind == "long" else request)

    def post(self, path, request):
        return clients.post(self.cluster, path, request)


class Client(threading.Thread):
    def __init__(self, run, seed):
        super().__init__(daemon=True)
        self.run_, self.rng = run, random.Random(seed)
        self.done, self.dropped, self.failed, self.at = 0, 0, 0, "nothing yet"

    def run(self):
        while not self.run_.over() and not self.run_.wrong:
            started, kind, at = time.monotonic(), self.rng.choice(KINDS), self.rng.randrange(
                len(self.run_.requests))
            self.at = f"{kind} {at} since {time.strftime('%H:%M:%S')}"
            try:
                self.one(kind, at)
            except (Failed, OSError, ValueError, KeyError, IndexError, AssertionError) as error:
                self.excuse(kind, at, started, error)
        self.at = None

    def one(self, kind, at):
        fate = self.rng.random()
        if fate < 0.15:
            clients.leave(self.run_.cluster, self.run_.requests[at], kind.startswith("text"),
                          self.rng)
            self.dropped += 1
            return
        if fate < 0.25:
            self.cancel(at)
            return
        text, expected = self.run_.asker.ask(kind, at), self.run_.expected(kind, at)
        if text != expected:
            self.run_.is_wrong(f"{kind} {self.run_.requests[at]}: {text!r}, alone {expected!r}")
        self.done += 1

    def excuse(self, kind, at, started, error):
        self.failed += 1
        if not self.run_.faults.overlap(started, time.monotonic()):
            return self.run_.is_wrong(
                f"{kind} {self.run_.requests[at]['prompt'][:40]!r}: {error!r}, and no stage was"
                " killed or stopped")
        if not isinstance(error, Failed):
            return self.run_.is_wrong(f"{kind}: {error!r} instead of an answer")
        if error.code not in (500, 503) or not error.message:
            return self.run_.is_wrong(
                f"{kind}: not an error that is documented: {error.code} {error.message!r}")
        if not self.run_.expected(kind, at).startswith(error.text.rstrip("\ufffd")):
            return self.run_.is_wrong(
                f"{kind}: before its error: {error.text!r}, alone {self.run_.expected(kind, at)!r}")
        time.sleep(0.2)

    def cancel(self, at):
        try:
            text = clients.cancelled(self.run_.cluster, self.run_.requests[at])
        except Failed as failed:
            # Without the text, which is not of the kind that excuse() knows
            raise Failed(failed.code, failed.message) from None
        if not self.run_.expected("http-whole", at).startswith(text):
            self.run_.is_wrong(f"cancelled {self.run_.requests[at]}: {text!r}")
        self.dropped += 1


class Faults:
    """Kills and stops stages, one at a time, and waits each time until the cluster is back."""

    def __init__(self, run, every_s, seed):
        self.run, self.every_s, self.rng = run, every_s, random.Random(seed)
        self.windows, self.lock = [], threading.Lock()  # [begin, end]; end: none yet
        self.counts, self.worst_s = {}, 0.0

    def overlap(self, begin, end):
        with self.lock:
            return any(b <= end and (e is None or begin <= e) for b, e in self.windows)

    def spared(self):
        """Who is stopped for a moment only, for now: each lives through half of the run, long
        enough to tell a leak from a warm-up. A weight and its attention socket share a fate: who
        loses the other ends and is started again."""
        return SHARED_FATES[int(time.monotonic() - self.run.begun > self.run.o.seconds / 2)]

    def once(self):
        kind, name = self.rng.choice(["killed", "stopped",
                                      "stopped for a moment"]), self.rng.choice(STAGES)
        if kind != "stopped for a moment" and name in self.spared():
            name = self.rng.choice([stage for stage in STAGES if stage not in self.spared()])
        unit = self.run.cluster.units[name]
        window = [time.monotonic(), None]
        with self.lock:
            self.windows.append(window)
        unit.signal(signal.SIGKILL if kind == "killed" else signal.SIGSTOP)
        if kind == "stopped":
            time.sleep(self.rng.uniform(4, 7))
        elif kind != "killed":
            time.sleep(self.rng.uniform(0.05, 1.0))
        unit.signal(signal.SIGCONT)
        time.sleep(RESTART_S + 2.5)  # silence takes some seconds to be seen
        begun = time.monotonic()
        while (
            not self.run.answers() and time.monotonic() - begun < PATIENCE_S and not self.run.wrong
        ):
            time.sleep(0.2)
        took = time.monotonic() - begun
        if took >= PATIENCE_S:
            self.run.is_wrong(f"{name} {kind}: the cluster is not back after {took:.0f} s\n"
                              f"{self.run.cluster.said()}")
        self.worst_s = max(self.worst_s, took)
        self.counts[f"{name} {kind}"] = self.counts.get(f"{name} {kind}", 0) + 1
        with self.lock:
            window[1] = time.monotonic()

    def rest(self):
        pause = time.monotonic() + self.rng.uniform(0.5, 1.5) * self.every_s
        while time.monotonic() < pause and not self.run.over() and not self.run.wrong:
            time.sleep(0.1)


def look(pid):
    """VmRSS in bytes, descriptors, threads of a process; none if it is not there."""
    try:
        status = dict(
            line.split(":", 1)
            for line in open(f"/proc/{pid}/status", encoding="ascii", errors="replace")
            if ":" in line)
        if status["State"].split()[0] in "ZX" or "VmRSS" not in status:
            return None
        return {
            "VmRSS": int(status["VmRSS"].split()[0]) * 1024,
            "descriptors": len(os.listdir(f"/proc/{pid}/fd")), "threads": int(status["Threads"])
        }
    except (OSError, KeyError):
        return None


def slope(runs):
    """By least squares over lists of (t, value) that share a slope, each with an offset of its own;
    per second.
    """
    above = below = 0.0
    for points in runs:
        if len(points) > 1:
            mean_t = sum(t for t, _ in points) / len(points)
            mean_v = sum(v for _, v in points) / len(points)
            above += sum((t - mean_t) * (v - mean_v) for t, v in points)
            below += sum((t - mean_t) ** 2 for t, _ in points)
    return above / below if below else 0.0


def median(values):
    return sorted(values)[len(values) // 2]


class Watch(threading.Thread):
    """Looks at all processes every second."""

    def __init__(self, run):
        super().__init__(daemon=True)
        self.run_, self.samples = run, {}  # name -> [(time, pid, age, values)]

    def run(self):
        while not self.run_.over() and not self.run_.wrong:
            for name, unit in self.run_.cluster.units.items():
                now, pid = time.monotonic(), unit.process.pid
                values = look(pid)
                if values:
                    self.samples.setdefault(name, []).append(
                        (now - self.run_.begun, pid, now - unit.started, values))
            time.sleep(SAMPLE_S)

    def verdicts(self, seconds, warm_up):
        """(line, whether it is flat) of each process and quantity. A stage that was killed has a
        line for each of its processes; they share a slope.
        """
        for name, samples in self.samples.items():
            # While a stage is away links and their threads are too.
            warm = [(t, pid, values) for t, pid, age, values in samples
                    if age > warm_up and t > warm_up and
                    not self.run_.faults.overlap(t + self.run_.begun, t + self.run_.begun)]
            for what, floor in FLAT.items():
                floor = self.run_.o.growth_mb * 1e6 if what == "VmRSS" else floor
                lives = [[(t, values[what]) for t, p, values in warm if p == pid]
                         for pid in sorted({pid for _, pid, _ in warm})]
                points = sorted(point for life in lives for point in life)
                half = warm_up + (seconds - warm_up) / 2
                first, second = [v for t, v in points
                                 if t <= half], [v for t, v in points if t > half]
                if len(first) < 5 or len(second) < 5:
                    yield (f"{name:12} {what:12} too few samples: {len(first)} and {len(second)}",
                           name != "serving" or seconds < 300,
                           )
                    continue
                # Those that were killed soon tell of their warm-up only, if there are others.
                long = [
                    life
                    for life in lives if life and life[-1][0] - life[0][0] > (seconds - warm_up) / 5
                ] or lives
                # How much it moves about without going anywhere: in the first part, less that
                # part's own slope.
                early = slope([[point for point in life if point[0] <= half] for life in lives])
                level = [v - early * t for t, v in points if t <= half]
                allowed = floor + max(level) - min(level)
                per_second = slope(long)
                grown = per_second * (seconds - warm_up)
                # Processes that come and go may each be flat in their short lives, and later ones
                # begin higher.
                step = median(second) - median(first)
                unit = 1e6 if what == "VmRSS" else 1
                yield ((f"{name:12} {what:12} {min(v for _, v in points) / unit:8.1f} to "
                        f"{max(v for _, v in points) / unit:8.1f}, slope "
                        f"{per_second * 3600 / unit:+9.2f} an hour: {grown / unit:+7.2f} in the "
                        f"run, second part {step / unit:+7.2f} above the first, allowed"
                        f" {allowed / unit:.2f}"), grown <= allowed and step <= allowed,
                       )


class Run:
    def __init__(self, o):
        self.o, self.wrong, self.lock = o, [], threading.Lock()
        self.requests, self.long = make_requests(o.requests, o.seed, o.context)
        self.faults = Faults(self, o.fault_every, o.seed)
        self.truth, self.begun, self.until = {}, None, None

    def over(self):
        return time.monotonic() > self.until

    def is_wrong(self, line):
        with self.lock:
            self.wrong.append(line)
            print(f"wrong: {line}", file=sys.stderr, flush=True)

    def expected(self, kind, at):
        kind = {
            "text-json": "http-whole", "http-stream": "http-whole", "chat-stream": "chat-whole"
        }.get(kind, kind)
        return self.truth[kind, 0 if kind in ("long", "text-plain") else at]

    def answers(self):
        """Whether the cluster gives a whole short text."""
        try:
            return self.cluster.health() == 200 and self.asker.ask(
                "text-plain", 0) == self.truth.get(("text-plain", 0))
        except (Failed, OSError, ValueError, KeyError):
            return False

    def learn(self):
        """Each request alone."""
        for at in range(len(self.requests)):
            for kind in ("http-whole", "chat-whole", "choices", "tokenize"):
                self.truth[kind, at] = self.asker.ask(kind, at)
        for kind in ("long", "text-plain"):
            self.truth[kind, 0] = self.asker.ask(kind, 0)

    def serving(self):
        """The least of three seconds: the last clients' connections, our own question among them,
        are closed a moment after they ended.
        """
        looks = []
        for _ in range(15):
            looks.append(look(self.cluster.units["serving"].process.pid))
            time.sleep(0.2)
        looks = [values for values in looks if values]
        return {what: min(values[what] for values in looks) for what in FLAT} if looks else None

    def all(self):
        o = self.o
        with Cluster(o) as self.cluster:
            self.asker = Asker(self.cluster, self.requests, self.long)
            until(lambda: self.cluster.health() == 200, PATIENCE_S,
                  lambda: f"the cluster is not ready\n{self.cluster.said()}")
            self.learn()
            self.cluster.idle()
            pid, before = self.cluster.units["serving"].process.pid, self.serving()
            self.begun, self.until = time.monotonic(), time.monotonic() + o.seconds
            watch, many = Watch(self), [Client(self, o.seed * 1000 + i) for i in range(o.clients)]
            for thread in [watch, *many]:
                thread.start()
            while o.fault_every > 0 and not self.over() and not self.wrong:
                self.faults.rest()
                if not self.over() and not self.wrong:
                    self.faults.once()
            for thread in many:
                thread.join(max(0, self.until - time.monotonic()) + PATIENCE_S)
                if thread.is_alive():
                    self.is_wrong(f"a client still waits: {thread.at}\n{self.cluster.said()}")
            watch.join()
            if not self.wrong:
                try:
                    self.cluster.idle()
                except AssertionError as error:
                    self.is_wrong(str(error))
            after = self.serving()
            if self.cluster.units["serving"].process.pid != pid:
                self.is_wrong("the serving process has ended, which nobody asked of it:"
                              f" {self.cluster.units['serving'].ends}")
            self.report(many, watch, before, after)

    def report(self, many, watch, before, after):
        done, dropped, failed = (sum(getattr(c, what) for c in many)
                                 for what in ("done", "dropped", "failed"))
        faults = sum(self.faults.counts.values())
        print(
            f"{done} answers as alone, {dropped} cancelled or dropped, {failed} ended with the "
            f"documented error; {faults} faults "
            f"({', '.join(f'{n} {k}' for k, n in sorted(self.faults.counts.items())) or 'none'}), "
            f"back within {self.faults.worst_s:.1f} s")
        warm_up = min(WARM_UP_S, self.o.seconds / 6)
        for line, flat in watch.verdicts(self.o.seconds, warm_up):
            print(line + ("" if flat else "  GROWS"))
            if not flat and not self.wrong:
                self.wrong.append(f"not flat: {line}")
        if before and after:
            print(f"serving, nobody connected: memory {before['VmRSS'] / 1e6:.1f} to "
                  f"{after['VmRSS'] / 1e6:.1f} MB, descriptors {before['descriptors']} to "
                  f"{after['descriptors']}, threads {before['threads']} to {after['threads']}")
            for what in ("descriptors", "threads"):
                if after[what] > before[what]:
                    self.wrong.append(
                        f"the serving process keeps {what}: {before[what]} before, {after[what]}"
                        " after")
        if done < self.o.clients:
            self.wrong.append("hardly anything was done")


def main():
    parser = programs.parser(__doc__, "larder", "model")
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--clients", type=int, default=8)
    parser.add_argument("--fault-every", type=float, default=15,
                        help="seconds between the faults, from the end of one; 0: no faults")
    parser.add_argument("--isolated", action="store_true",
                        help="the attention socket has its core to itself and spins")
    parser.add_argument("--growth-mb", type=float, default=8,
                        help="of memory in the whole run that says nothing: the allocator's")
    parser.add_argument("--requests", type=int, default=16, help="different ones")
    parser.add_argument("--context", type=int, default=1024)
    parser.add_argument("--slots", type=int, default=4)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", action="store_true",
                        help="the folder with the manifest and the logs")
    o = parser.parse_args()
    # Without it freed blocks are kept, up to 256 MB, and look like growth.
    os.environ.setdefault("ASAN_OPTIONS", "quarantine_size_mb=4:allocator_may_return_null=1")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    run = Run(o)
    run.all()
    for line in run.wrong[:10]:
        print("wrong:", line, file=sys.stderr)
    if o.keep:
        print(f"kept: {run.cluster.folder}")
    print(f"soak: {'FAILED' if run.wrong else 'ok'}, {o.seconds:.0f} s, {o.clients} "
          f"clients{', isolated' if o.isolated else ''}")
    sys.exit(1 if run.wrong else 0)


if __name__ == "__main__":
    main()
